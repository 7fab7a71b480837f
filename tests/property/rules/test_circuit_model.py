"""Random lives of a circuit against a reference that keeps every call and recounts at each step."""

import copy
import json
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import event
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from durable_retry.rules.circuit.breaker import Breaker, ManualControl, advanced
from durable_retry.rules.circuit.calls import CallHealth, ProbeResult, Report
from durable_retry.rules.circuit.snapshot import CLOCKS_APART, AskForProbe, Permitted, Refused, permit
from durable_retry.rules.circuit.states import CircuitSettings, CircuitState
from tests.support.builders import NOON, after
from tests.support.circuit import Desk

C = CircuitState
FREE = {C.CLOSED, C.DISABLED}
LONGEST_LEASE_SECONDS = 300.0

LEGAL = {
    (C.CLOSED, C.OPEN),
    (C.OPEN, C.HALF_OPEN),
    (C.HALF_OPEN, C.CLOSED),
    (C.HALF_OPEN, C.OPEN),
    (C.FORCED_OPEN, C.HALF_OPEN),
    (C.DISABLED, C.CLOSED),
}


def bucket(at: datetime) -> int:
    return (at - NOON) // timedelta(seconds=3)


def speaking_of_state(breaker: Breaker) -> Breaker:
    """The breaker without what counts whatever the epoch."""
    new = Breaker()
    return replace(
        breaker,
        reporters=new.reporters,
        budget=new.budget,
        throttled_until=None,
        throttled_since=None,
        waiting=0,
    )


@dataclass
class Reference:
    """The plainest breaker: a list of calls, a dictionary of leases, and `if`s."""

    half_open_calls: int
    state: C = C.CLOSED
    epoch: int = 1
    clock: datetime = NOON
    calls: list[tuple[datetime, bool]] = field(default_factory=list)
    in_a_row: int = 0
    unauthorized_in_a_row: int = 0
    is_unauthorized: bool = False
    opened_at: datetime = NOON
    break_seconds: float = 30.0
    leases: dict[str, datetime] = field(default_factory=dict)
    successes: int = 0
    expires_at: datetime | None = None
    throttled_until: datetime = NOON
    moves: list[tuple[C, C]] = field(default_factory=list)

    def go(self, state: C, *, is_manual: bool = False) -> None:
        if not is_manual:
            self.moves.append((self.state, state))
        self.state, self.epoch = state, self.epoch + 1
        self.calls, self.in_a_row, self.leases, self.successes = [], 0, {}, 0
        self.unauthorized_in_a_row = 0
        self.is_unauthorized = self.is_unauthorized and state is C.HALF_OPEN
        self.expires_at = None

    def tick(self, at: datetime) -> None:
        self.clock = max(self.clock, at)
        retry_at = self.opened_at + timedelta(seconds=self.break_seconds)
        held_out = self.expires_at is not None and self.expires_at <= self.clock
        if (self.state is C.OPEN and retry_at <= self.clock) or (self.state is C.FORCED_OPEN and held_out):
            self.go(C.HALF_OPEN)
        elif self.state is C.DISABLED and held_out:
            self.go(C.CLOSED)
            self.break_seconds = 30.0
        self.leases = {name: end for name, end in self.leases.items() if end > self.clock}

    def open_for(self, seconds: float, *, is_unauthorized: bool = False) -> None:
        self.go(C.OPEN)
        self.is_unauthorized = is_unauthorized
        self.opened_at, self.break_seconds = self.clock, seconds

    def counted(self) -> list[bool]:
        return [failed for at, failed in self.calls if bucket(at) > bucket(self.clock) - 10]

    def hear_calls(self, at: datetime, outcomes: list[bool], unauthorized: int) -> None:
        if bucket(at) > bucket(self.clock) - 10:
            for failed in outcomes:
                self.calls.append((at, failed))
                self.in_a_row = self.in_a_row + 1 if failed else 0
                self.unauthorized_in_a_row *= failed
            self.unauthorized_in_a_row += unauthorized
        if self.state is C.CLOSED and self.unauthorized_in_a_row >= 3:
            self.open_for(30.0, is_unauthorized=True)
        counted = self.counted()
        enough = len(counted) >= 10 and sum(counted) * 2 >= len(counted)
        if self.state is C.CLOSED and (enough or self.in_a_row >= 5):
            self.open_for(30.0)

    def hear_probe(self, name: str, epoch: int, verdict: CallHealth, expires_at: datetime | None) -> None:
        if self.state is not C.HALF_OPEN or epoch != self.epoch or self.leases.get(name) != expires_at:
            return
        del self.leases[name]
        if verdict in {CallHealth.FAILURE, CallHealth.UNAUTHORIZED}:
            is_unauthorized = verdict is CallHealth.UNAUTHORIZED
            self.open_for(min(600.0, self.break_seconds * 2), is_unauthorized=is_unauthorized)
        elif verdict is CallHealth.SUCCESS:
            self.successes += 1
            if self.successes >= self.half_open_calls:
                self.go(C.CLOSED)
                self.break_seconds = 30.0


@dataclass
class Grant:
    """A probe that the entity granted, as its owner remembers it."""

    name: str
    epoch: int
    expires_at: datetime
    ended: bool = False


class Lives(RuleBasedStateMachine):
    """Two workers, messages that come late, twice or never, owners that die, and manual controls."""

    reports = Bundle("reports")
    grants = Bundle("grants")

    @initialize(half_open_calls=st.integers(1, 3), has_people=st.booleans())
    def begin(self, half_open_calls: int, has_people: bool) -> None:  # noqa: FBT001 - Hypothesis names it
        self.settings = CircuitSettings(consecutive_failures=5, half_open_calls=half_open_calls)
        self.desk = Desk(settings=self.settings)
        self.model = Reference(half_open_calls=half_open_calls)
        self.now = 0.0
        self.has_people = has_people
        self.granted: list[Grant] = []
        self.delivered: set[tuple[str, int]] = set()

    @rule(seconds=st.one_of(st.floats(0.001, 3), st.floats(3, 20), st.floats(20, 700)))
    def time_passes(self, seconds: float) -> None:
        self.now = round(self.now + seconds, 3)

    @rule(failures=st.integers(4, 12))
    def the_dependency_dies(self, failures: int) -> None:
        self.report_arrives(self.desk.report(self.now, failures=failures))

    @precondition(lambda self: self.model.state is C.OPEN)
    @rule()
    def the_break_ends(self) -> None:
        end = self.model.opened_at + timedelta(seconds=self.model.break_seconds)
        self.now = max(self.now, (end - NOON).total_seconds())

    @precondition(lambda self: self.model.state in FREE)
    @rule()
    def a_whole_outage_passes(self) -> None:
        self.report_arrives(self.desk.report(self.now, failures=500))
        self.now = round(self.now + 35, 3)
        event(f"after an outage: {self.desk.read(self.now).state}")

    @rule(
        target=reports,
        reporter=st.sampled_from(["w1", "w2"]),
        successes=st.integers(0, 8),
        failures=st.integers(0, 8),
        unauthorized=st.sampled_from([0, 0, 0, 1, 2, 4]),
        pause=st.sampled_from([None] * 6 + [5.0, 60.0]),
    )
    def calls_end(
        self, reporter: str, successes: int, failures: int, unauthorized: int, pause: float | None
    ) -> Report:
        until = None if pause is None else round(self.now + pause, 3)
        return self.desk.report(
            self.now,
            failures=failures,
            unauthorized=min(failures, unauthorized),
            successes=successes,
            reporter=reporter,
            throttled_until=until,
        )

    @rule(report=reports)
    def report_arrives(self, report: Report) -> None:
        """At once, late, twice, or never: the rule may fire at any time, any number of times."""
        without = advanced(self.desk.breaker, after(self.now))
        self.desk.hear(report, self.now)
        self.model.tick(after(self.now))
        key = (report.reporter, report.sequence)
        is_new = key not in self.delivered
        if is_new:
            self.apply_to_model(report)
        self.delivered.add(key)
        epochs = {report.epoch, *(probe.epoch for probe in report.probes)}
        if not is_new or without.epoch not in epochs:
            assert speaking_of_state(self.desk.breaker) == speaking_of_state(without)

    def apply_to_model(self, report: Report) -> None:
        # What seems to be under way for up to two seconds may as well come from a slow clock.
        late = self.model.clock - report.at
        if late > CLOCKS_APART:
            late = timedelta(0)
        if report.throttled_until is not None and report.throttled_until + late > self.model.clock:
            self.model.throttled_until = max(self.model.throttled_until, report.throttled_until + late)
        for probe in report.probes:
            self.model.hear_probe(probe.lease_id, probe.epoch, probe.health, probe.lease_expires_at)
        if report.epoch == self.model.epoch and self.model.state in FREE:
            counts = report.window.everything()
            outcomes = [False] * (counts.calls - counts.failures) + [True] * counts.failures
            self.model.hear_calls(min(report.at, self.model.clock), outcomes, report.unauthorized or 0)

    @rule(
        target=grants,
        name=st.sampled_from(["a", "b", "c", "d"]),
        lease_seconds=st.sampled_from([1.0, 20.0, 300.0]),
    )
    def someone_asks_for_a_probe(self, name: str, lease_seconds: float) -> Any:
        self.now = round(self.now + 0.001, 3)  # an orchestration asks twice at different instants
        answer = self.desk.ask(self.now, name, lease_seconds)
        self.model.tick(after(self.now))
        paused = self.model.throttled_until > self.model.clock
        free = self.model.half_open_calls - self.model.successes - len(self.model.leases)
        if self.model.state in FREE and not paused:
            assert answer == Permitted(epoch=self.model.epoch)
            return multiple()
        is_known = self.model.state is C.HALF_OPEN and f"{name}:1" in self.model.leases
        if is_known and not paused:
            assert isinstance(answer, Permitted)
            assert answer.lease_expires_at == self.model.leases[f"{name}:1"]
            return multiple()
        if self.model.state is not C.HALF_OPEN or paused or free <= 0:
            assert isinstance(answer, Refused)
            assert answer.until >= after(self.now)
            return multiple()
        assert isinstance(answer, Permitted)
        assert answer.lease_id is not None
        assert answer.lease_expires_at is not None
        self.model.leases[answer.lease_id] = answer.lease_expires_at
        grant = Grant(answer.lease_id, answer.epoch, answer.lease_expires_at)
        self.granted.append(grant)
        return grant

    @rule(target=reports, grant=consumes(grants), verdict=st.sampled_from(CallHealth))
    def a_probe_ends(self, grant: Grant, verdict: CallHealth) -> Report:
        """Its report may still be lost or late; an owner that dies never gets here."""
        grant.ended = True
        result = ProbeResult(grant.name, grant.epoch, verdict, grant.expires_at)
        report = self.desk.report(self.now, probes=(result,), epoch=0)
        self.report_arrives(report)
        return report

    @precondition(lambda self: self.model.state in {C.OPEN, C.HALF_OPEN})
    @rule(
        name=st.sampled_from(["a", "b", "c", "d"]),
        lease_seconds=st.sampled_from([1.0, 20.0, 300.0]),
        takes_seconds=st.sampled_from([0.5, 5.0, 40.0]),
        verdict=st.sampled_from(CallHealth),
    )
    def a_probe_is_made(
        self, name: str, lease_seconds: float, takes_seconds: float, verdict: CallHealth
    ) -> None:
        """Three of its kind in a row close a circuit; one that takes longer than its lease does not count."""
        if self.model.state is C.OPEN:
            self.the_break_ends()
        grant = self.someone_asks_for_a_probe(name, lease_seconds)
        self.time_passes(takes_seconds)
        if isinstance(grant, Grant):
            self.a_probe_ends(grant, verdict)

    @precondition(lambda self: self.has_people)
    @rule(control=st.sampled_from(ManualControl), for_seconds=st.one_of(st.none(), st.floats(1, 300)))
    def a_person_steps_in(self, control: ManualControl, for_seconds: float | None) -> None:
        self.now = round(self.now + 0.001, 3)  # two controls in one millisecond are one message
        seconds = None if for_seconds is None else round(for_seconds, 3)
        at = max(self.model.clock, after(self.now))
        self.desk.control(self.now, control, seconds)
        self.model.tick(at)
        targets = {ManualControl.OPEN: C.FORCED_OPEN, ManualControl.DISABLE: C.DISABLED}
        self.model.go(targets.get(control, C.CLOSED), is_manual=True)
        if control is not ManualControl.OPEN:
            self.model.break_seconds = 30.0
        if control in targets and seconds is not None:
            self.model.expires_at = after(self.now) + timedelta(seconds=seconds)
        if control is ManualControl.RESET:
            self.model.throttled_until = NOON
        self.model.tick(at)

    @invariant()
    def it_agrees_with_the_reference(self) -> None:
        breaker = self.desk.breaker
        counts = breaker.window.totals(self.model.clock)
        counted = self.model.counted()
        assert (breaker.state, breaker.epoch) == (self.model.state, self.model.epoch)
        assert (counts.calls, counts.failures) == (len(counted), sum(counted))
        assert breaker.failures_in_a_row == self.model.in_a_row
        assert (breaker.unauthorized_in_a_row or 0) == self.model.unauthorized_in_a_row
        assert (breaker.unauthorized_by is not None) == self.model.is_unauthorized
        assert {lease.lease_id: lease.expires_at for lease in breaker.leases} == self.model.leases
        assert set(self.model.moves) <= LEGAL

    @invariant()
    def no_more_probes_are_in_flight_than_allowed(self) -> None:
        in_flight = [
            grant
            for grant in self.granted
            if not grant.ended
            and grant.epoch == self.desk.breaker.epoch
            and grant.expires_at > after(self.now)
        ]
        assert len(in_flight) <= self.settings.half_open_calls

    @invariant()
    def a_worker_reads_what_the_reference_says(self) -> None:
        model = copy.deepcopy(self.model)
        model.tick(after(self.now))
        snapshot = self.desk.read(self.now)
        assert (snapshot.state, snapshot.epoch) == (model.state, model.epoch)
        answer = permit(snapshot, after(self.now), settings=self.settings, operation_id="op-reader")
        paused = model.throttled_until > model.clock
        free = model.half_open_calls - model.successes - len(model.leases)
        if model.state in FREE and not paused:
            assert answer == Permitted(epoch=model.epoch)
        elif model.state is C.HALF_OPEN and not paused and free > 0:
            assert answer == AskForProbe(epoch=model.epoch)
        else:
            assert isinstance(answer, Refused)
            assert answer.until > after(self.now)

    @invariant()
    def it_survives_storage(self) -> None:
        stored = json.dumps(self.desk.breaker.to_json())
        assert len(stored) < 8_000
        assert Breaker.from_json(json.loads(stored)) == self.desk.breaker

    def teardown(self) -> None:
        """Wherever it stands, time and healthy probes lead out, unless a person holds it without an end."""
        if not hasattr(self, "desk"):
            return
        desk = copy.deepcopy(self.desk)
        at = self.now + self.settings.max_break_seconds + LONGEST_LEASE_SECONDS + 1
        held = desk.breaker.state in {C.FORCED_OPEN, C.DISABLED} and desk.breaker.expires_at is None
        if held:
            return
        for number in range(self.settings.half_open_calls):
            if desk.read(at).state is C.HALF_OPEN:
                assert isinstance(desk.ask(at, f"last-{number}"), Permitted)
                desk.conclude(at, CallHealth.SUCCESS, f"last-{number}")
        assert desk.read(at).state is C.CLOSED


class LongLives(Lives):
    """The same, more of them and longer."""


Lives.TestCase.settings = hypothesis_settings(max_examples=60, stateful_step_count=30, deadline=None)
LongLives.TestCase.settings = hypothesis_settings(max_examples=300, stateful_step_count=60, deadline=None)
TestLives = Lives.TestCase
TestLongLives = pytest.mark.long(LongLives.TestCase)

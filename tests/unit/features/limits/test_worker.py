import asyncio
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal

import pytest

from durable_retry.attempt.admission import attempt_if_admitted
from durable_retry.base.errors import InstanceEndedError, TaskHubUnavailableError
from durable_retry.circuit import cache
from durable_retry.circuit.cache import CircuitCache, enter_circuit, slot_needed_by
from durable_retry.features.key_circuits.circuit import KeyCircuit
from durable_retry.features.limits.names import LIMITS
from durable_retry.features.limits.rules.settings import KeyLimits, LimitKeys, LimitSettings, ReadLimits
from durable_retry.features.limits.worker import WorkerLimits
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.breaker import Breaker
from durable_retry.rules.circuit.calls import CallEnd, CallHealth
from durable_retry.rules.circuit.reporters import ReportBuffer
from durable_retry.rules.circuit.snapshot import Permitted
from durable_retry.rules.circuit.states import CircuitSettings, CircuitState
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.facts import LimitsRead
from durable_retry.rules.operations.keys import EXPLICIT_SCOPE, ScopedKey
from durable_retry.rules.operations.operation import operation_from
from durable_retry.rules.operations.request import HttpCall, OperationRequest
from durable_retry.rules.retry.admission import AdmissionState
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.rules.retry.loop import Blocked
from durable_retry.rules.retry.slots import NeedsSlot, Slot
from durable_retry.telemetry.facts import subscribe
from tests.support.builders import NOON, after, an_operation, an_outcome
from tests.support.narrowing import of_type
from tests.support.shared_circuit import CircuitInMemory, Copies

FIRST = AdmissionState()


def limited(limits: LimitSettings, circuit: CircuitSettings | None = None) -> tuple[Copies, WorkerLimits]:
    """Return a circuit with limits, and these in its process."""
    stage = Copies(
        circuit or CircuitSettings(), bounds=LimitKeys.model_validate({"limits": limits.to_json()})
    )
    return stage, of_type(WorkerLimits, stage.copy.limits)


def key_circuit(stage: Copies, limit_key: str) -> KeyCircuit:
    return KeyCircuit(
        replace(stage.copy.settings, limit_key=limit_key, bounds=None),
        CircuitInMemory(now=stage.moment.now, whole=stage.shared),
        ReportBuffer("w1", stage.circuit),
        stage.moment.now,
        whole=stage.copy,
    )


async def ask(
    stage: Copies, operation_id: str = "op-1", admission: AdmissionState = FIRST
) -> Permitted | Blocked:
    return await stage.copy.enter(operation_id, 1, admission)


async def known(stage: Copies) -> None:
    """Let the others know of the worker, which takes two snapshots a second apart."""
    await ask(stage)
    for _ in range(4):
        await stage.flush_after(1.1)
        await ask(stage, admission=FIRST)


@pytest.mark.parametrize(
    ("by", "limit_key", "is_alone"), [("", "a", True), ("limit_key", None, True), ("limit_key", "a", False)]
)
def test_a_probe_needs_no_slot_unless_others_go_on_beside_it(
    by: Literal["", "limit_key"], limit_key: str | None, *, is_alone: bool
) -> None:
    """The circuit of a limit key holds up that key alone."""
    _, limits = limited(LimitSettings(max_concurrency=4), CircuitSettings(by=by))
    probe = Permitted(1, lease_id="op-1:1", lease_expires_at=after(60))
    assert isinstance(limits.admit(probe, FIRST, NOON, limit_key), Permitted) is is_alone


async def test_a_worker_that_the_others_do_not_know_takes_no_share_of_a_limit() -> None:
    stage, limits = limited(LimitSettings(max_concurrency=4))
    assert await ask(stage, admission=FIRST) == NeedsSlot(
        ReadLimits.of(limits.keys.settings, stage.moment.now()).to_json()
    )
    await stage.flush_after(1.1)
    assert stage.shared.sent_reports, "it announces itself, to be counted"


async def test_the_limits_of_the_moment_are_reported_by_each_attempt_that_asks() -> None:
    found: list[LimitsRead] = []
    subscribe(LimitsRead, found.append)
    stage, _ = limited(LimitSettings(max_concurrency=4))
    await ask(stage, admission=FIRST)
    assert found == [LimitsRead("payments", 4, 0.0)]
    found.clear()
    await ask(Copies(), admission=FIRST)
    assert not found, "without limits there is nothing to report"
    stage.copy.reporting.close()


async def test_a_known_worker_starts_half_of_a_limit_without_asking() -> None:
    stage, limits = limited(LimitSettings(max_concurrency=16))
    await known(stage)
    running = limits.share.running
    answers = [await ask(stage, admission=FIRST) for _ in range(9 - running)]
    assert [isinstance(answer, Permitted) for answer in answers] == [True] * (8 - running) + [False]
    assert isinstance(answers[-1], NeedsSlot)
    last = next(answer for answer in reversed(answers) if isinstance(answer, Permitted))
    await stage.copy.leave(last, CallEnd(CallHealth.SUCCESS, 0.1))
    assert isinstance(await ask(stage, admission=FIRST), NeedsSlot), "the one before it waits"
    assert isinstance(await ask(stage, admission=replace(FIRST, ahead=0)), Permitted)


async def test_where_keys_are_bound_an_attempt_with_one_asks_and_one_without_needs_no_slot() -> None:
    bound = LimitSettings(per_key=KeyLimits(max_concurrency=2), weights={"a": 2.0, "b": 3.0})
    stage, _ = limited(bound)
    await known(stage)
    assert isinstance(await ask(stage, admission=FIRST), Permitted)
    answer = await stage.copy.enter("op-1", 1, FIRST, limit_key="a")
    assert answer == NeedsSlot(
        ReadLimits.of(replace(bound, weights={"a": 2.0}), stage.moment.now()).to_json()
    )


async def test_an_attempt_with_a_slot_goes_beyond_the_share() -> None:
    stage, _ = limited(LimitSettings(max_concurrency=1))
    assert isinstance(await ask(stage, admission=FIRST), NeedsSlot)
    answer = of_type(Permitted, await ask(stage, admission=replace(FIRST, slot=Slot("op-1:1"))))
    assert not answer.in_share


async def test_an_unreadable_circuit_leaves_the_limits_to_the_entity() -> None:
    stage, _ = limited(LimitSettings(max_concurrency=8))
    stage.shared.is_down = True
    assert isinstance(await ask(stage, admission=FIRST), NeedsSlot)


@dataclass
class Signals:
    """A task hub that takes signals, or none."""

    is_down: bool = False
    sent: list[tuple[Any, ...]] = field(default_factory=list)

    async def signal_entity(self, _entity: Any, operation: str, message: dict[str, Any]) -> None:
        if self.is_down:
            raise TaskHubUnavailableError("away")
        self.sent.append((operation, message))


@pytest.mark.parametrize(
    ("permitted", "ahead", "since", "leaves"),
    [
        (Permitted(1, in_share=True), 0, NOON, True),
        (Permitted(1, in_share=True), None, None, False),
        (Permitted(1, in_share=True), 0, None, False),
        (Permitted(1), 0, NOON, False),
        (NeedsSlot({}), 0, NOON, False),
    ],
    ids=["waited and is in the share", "never waited", "waited in place", "has a slot", "waits on"],
)
@pytest.mark.parametrize("is_down", [False, True])
async def test_an_attempt_that_waited_for_the_limiter_tells_it_of_a_start_in_the_share(
    permitted: Any,
    ahead: int | None,
    since: datetime | None,
    monkeypatch: pytest.MonkeyPatch,
    *,
    leaves: bool,
    is_down: bool,
) -> None:
    async def enter(*_given: Any, **_more: Any) -> Any:
        return permitted

    (stage, _), hub, operation = limited(LimitSettings(16)), Signals(is_down), an_operation()
    monkeypatch.setattr(CircuitCache, "enter", enter)
    monkeypatch.setattr(cache, "circuit_of", lambda *_: stage.copy)
    given: Any = hub
    dependency, admission = Dependency(name="payments"), AdmissionState(ahead=ahead, slot_since=since)
    assert await enter_circuit(given, dependency, operation, 2, admission) == (stage.copy, permitted)
    expected = [("leave", {"lease_id": f"{operation.run_id}:2"})] if leaves and not is_down else []
    assert hub.sent == expected


@pytest.mark.parametrize(
    ("settings", "has_shares"),
    [
        (LimitSettings(4), False),
        (LimitSettings(16), True),
        (LimitSettings(16, 5), False),
        (LimitSettings(rate_per_second=1), False),
        (LimitSettings(rate_per_second=2), True),
        (LimitSettings(16, per_key=KeyLimits(2)), False),
    ],
)
def test_an_operation_needs_a_slot_where_no_worker_has_a_share(
    settings: LimitSettings, *, has_shares: bool
) -> None:
    bounds = LimitKeys.model_validate({"limits": settings.to_json()})
    dependency = Dependency(name="payments", of_features={LIMITS: bounds})
    request = OperationRequest(dependency="payments", key="k", request=HttpCall(method="GET", path="/"))
    named = ScopedKey(EXPLICIT_SCOPE, "k")
    operation = operation_from(request, dependency, named, source="http", now=NOON)
    assert (bounds.has_shares, operation.needs_slot) == (has_shares, not has_shares)


def test_bounds_of_limit_keys_concern_those_that_have_one() -> None:
    of_keys = LimitSettings(per_key=KeyLimits(2))
    _, limits = limited(of_keys)
    assert limits.always_needed(NOON, None) is None
    assert limits.always_needed(NOON, "a") == NeedsSlot(ReadLimits.of(of_keys, NOON).to_json())


@pytest.mark.parametrize(
    ("operation", "is_by_key", "is_held", "is_read", "asks_before"),
    [
        ({}, False, False, True, True),
        ({"limit_key": "a"}, False, False, True, True),
        ({"limit_key": "a"}, True, False, True, False),
        ({}, True, False, True, True),
        ({}, False, True, True, False),
        ({}, False, False, False, False),
        ({"start_at": after(60)}, False, False, True, False),
    ],
)
async def test_an_operation_asks_before_its_first_attempt_where_only_a_slot_holds_it_up(
    operation: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_by_key: bool,
    is_held: bool,
    is_read: bool,
    asks_before: bool,
) -> None:
    """Not while its circuit is open, or not known: its slot would stay free."""
    limits = LimitSettings(4)
    stage, _ = limited(limits, CircuitSettings(by="limit_key" if is_by_key else ""))
    if is_held:
        stage.shared.breaker = Breaker(state=CircuitState.FORCED_OPEN)
    if is_read:
        await stage.copy.refresh_snapshot()
    monkeypatch.setattr(cache, "circuit_of", lambda *_: stage.copy)
    dependency = Dependency(name="payments", circuit=stage.circuit)
    needed = slot_needed_by(TaskHub("w1"), dependency, an_operation(**operation))
    assert needed == (NeedsSlot(ReadLimits.of(limits, NOON).to_json()) if asks_before else None)


async def test_a_process_that_gives_none_a_request_tells_the_limiter_of_its_limits_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a restart those that wait have slots by the limits of before, and nobody new may come."""
    limits = LimitSettings(4, weights={"a": 3.0})
    (stage, _), hub = limited(limits), Signals()
    monkeypatch.setattr(cache, "circuit_of", lambda *_: stage.copy)
    given: Any = hub
    for number in (2, 3):
        admission = AdmissionState(slot=Slot(f"op-{number}:1", NOON), slot_ends_at=after(600))
        await enter_circuit(given, Dependency(name="payments"), an_operation(), number, admission)
    told = ReadLimits.of(replace(limits, weights=None), stage.moment.now())
    assert hub.sent == [("change", told.to_json())]


async def test_what_a_request_says_of_the_limits_is_not_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    (stage, _), hub = limited(LimitSettings(4)), Signals()
    monkeypatch.setattr(cache, "circuit_of", lambda *_: stage.copy)
    given: Any = hub
    for slot in (None, Slot("op-1:1", NOON)):
        admission = AdmissionState(slot=slot, slot_ends_at=after(600))
        await enter_circuit(given, Dependency(name="payments"), an_operation(), 1, admission)
    assert hub.sent == []


async def test_a_slot_of_which_the_turn_is_over_is_no_slot() -> None:
    stage, _ = limited(LimitSettings(rate_per_second=5))
    slot = replace(FIRST, slot=Slot("op-1:1", NOON))
    for seconds, kind in ((-2.1, NeedsSlot), (-2, Permitted)):
        turn_at = stage.moment.now() + timedelta(seconds=seconds)
        assert isinstance(await ask(stage, admission=replace(slot, turn_at=turn_at)), kind)


async def test_a_worker_alone_that_others_would_know_starts_those_whose_turn_is_over_at_the_rate() -> None:
    stage, _ = limited(LimitSettings(rate_per_second=5))
    await known(stage)
    stage.moment.pass_(2)
    over = replace(FIRST, slot=Slot("op-1:1", NOON), turn_at=stage.moment.now() - timedelta(seconds=2.1))
    assert [type(await ask(stage, admission=over)) for _ in range(6)] == [Permitted] * 5 + [NeedsSlot]


async def test_a_turn_is_all_that_a_rate_asks_for_also_of_a_worker_that_nobody_knows() -> None:
    """It would ask the limiter once more, and start late: turns would come together."""
    turn = replace(FIRST, turn_at=NOON)
    for limits, kind in (
        (LimitSettings(rate_per_second=5), Permitted),
        (LimitSettings(1, 5), NeedsSlot),
        (LimitSettings(0, 5, KeyLimits(0, 2)), Permitted),
        (LimitSettings(0, 5, KeyLimits(1)), NeedsSlot),
    ):
        assert isinstance(await ask(limited(limits)[0], admission=turn), kind), limits


async def test_who_has_a_turn_waits_for_it_at_its_worker() -> None:
    (stage, limits), slept = limited(LimitSettings(rate_per_second=5)), list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        stage.moment.pass_(seconds)

    limits.sleep = sleep
    for turn_seconds, waits in ((0.7, [0.7]), (1.7, [1.0, 0.7]), (-1.0, [])):
        turn_at = stage.moment.now() + timedelta(seconds=turn_seconds)
        assert isinstance(await ask(stage, admission=replace(FIRST, turn_at=turn_at)), Permitted)
        assert stage.moment.now() >= turn_at
        assert slept == pytest.approx(waits)
        slept.clear()


@pytest.mark.parametrize(
    ("slot", "ahead", "is_free"),
    [
        (None, None, False),
        (Slot(turn_seconds=1.0), None, True),
        (Slot(turn_seconds=1.0), 0, False),
        (Slot(turn_seconds=1.0, is_crowded=True), None, False),
    ],
)
async def test_a_worker_starts_none_of_its_own_accord_while_one_is_here_that_waited_or_knows_of_others(
    slot: Slot | None, ahead: int | None, *, is_free: bool
) -> None:
    """One that has its turn at once did not wait: the entity leaves the share to the workers, or says so."""
    stage, limits = limited(LimitSettings(rate_per_second=4))
    await known(stage)
    is_asleep, may_go = asyncio.Event(), asyncio.Event()

    async def sleep(seconds: float) -> None:
        is_asleep.set()
        await may_go.wait()
        stage.moment.pass_(seconds)

    limits.sleep, begins_at = sleep, stage.moment.now() + timedelta(seconds=2)
    stage.moment.pass_(1)
    turn = asyncio.create_task(ask(stage, "op-1", replace(FIRST, turn_at=begins_at, slot=slot, ahead=ahead)))
    await is_asleep.wait()
    answer = await ask(stage, "op-2")
    assert isinstance(answer, Permitted if is_free else NeedsSlot)
    may_go.set()
    assert isinstance(await turn, Permitted)


async def test_late_turns_that_waited_for_one_read_start_no_faster_than_the_rate() -> None:
    (stage, limits), slept = limited(LimitSettings(rate_per_second=1)), list[float]()
    stage.shared.reads_may_go = asyncio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        stage.moment.pass_(seconds)

    limits.sleep = sleep
    turn = replace(FIRST, turn_at=stage.moment.now() - timedelta(seconds=1))
    asking = [asyncio.create_task(ask(stage, f"op-{number}", turn)) for number in range(4)]
    await asyncio.sleep(0)
    stage.shared.reads_may_go.set()
    answers = await asyncio.gather(*asking)
    assert {type(answer) for answer in answers} == {Permitted}
    assert slept == pytest.approx([1.0]), "two start in a second"


@dataclass
class Hub(Signals):
    """A task hub that takes events, too; of instances that have ended, it does not."""

    ended: tuple[str, ...] = ()

    async def raise_event(self, instance_id: str, name: str, data: dict[str, Any]) -> None:
        if self.is_down:
            raise TaskHubUnavailableError("away")
        if instance_id in self.ended:
            raise InstanceEndedError(instance_id)
        self.sent.append((name, instance_id, data))


async def made_with(
    stage: Copies, hub: Hub, slot: Slot, monkeypatch: pytest.MonkeyPatch, dependency: str = "payments"
) -> tuple[AttemptOutcome, int]:
    """Make an attempt with a slot of "payments"; return its outcome, and how many ran in the share then."""
    limits, running = of_type(WorkerLimits, stage.copy.limits), list[int]()

    async def attempt() -> AttemptOutcome:
        running.append(limits.share.running)
        return an_outcome(None)

    monkeypatch.setattr(cache, "circuit_of", lambda *_: stage.copy)
    given: Any = hub
    admission = AdmissionState(slot=slot, slot_ends_at=after(600), ahead=99, slot_since=NOON)
    made = await attempt_if_admitted(
        given,
        Dependency(name="payments", circuit=stage.circuit),
        an_operation(dependency=dependency),
        number=1,
        admission=admission,
        attempt=attempt,
    )
    return of_type(AttemptOutcome, made), running[0]


@pytest.mark.parametrize("is_down", [False, True])
async def test_an_attempt_that_finds_room_in_the_share_hands_its_slot_to_those_that_wait(
    monkeypatch: pytest.MonkeyPatch, *, is_down: bool
) -> None:
    """Else a worker's part would stay free while attempts wait: they come with slots of the limiter."""
    stage, limits = limited(LimitSettings(max_concurrency=16))
    await known(stage)
    running = limits.share.running
    hub, slot = Hub(is_down, ended=("op-8",)), Slot("op-1:1", NOON, calls=("op-7", "op-8", "op-9"))
    outcome, running_then = await made_with(stage, hub, slot, monkeypatch)
    assert (outcome.gave_slot_back, running_then, limits.share.running) == (True, running + 1, running)
    freed = replace(slot, calls=None).to_json()
    told = {"dependency": "payments", "freed": freed}
    expected = [("give_back", freed), ("slot_free", "op-7", told), ("slot_free", "op-9", told)]
    assert hub.sent == ([] if is_down else expected)


async def test_one_that_joins_others_leaves_its_share_free_while_attempts_of_theirs_may_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The app scales out in a crowd: all that is shared out is under way elsewhere."""
    stage, _ = limited(LimitSettings(max_concurrency=16))
    await known(stage)
    assert of_type(Permitted, await ask(stage)).in_share
    joining = copy(stage)
    joining.copy = stage.another("w2")
    await known(joining)
    given_back, slot = list[bool](), Slot("op-1:1", NOON, calls=("op-7",))
    for _ in range(40):
        outcome, _ = await made_with(joining, Hub(), slot, monkeypatch)
        given_back.append(outcome.gave_slot_back)
        await joining.flush_after(1)
        await stage.copy.reporting.flush()
    assert (given_back[0], given_back[-1]) == (False, True)
    longest = an_operation().timeouts.attempt_seconds
    assert longest - 4 <= given_back.index(True) <= longest


@pytest.mark.parametrize(
    ("calls", "dependency", "is_full"),
    [(None, "payments", False), (("op-7",), "shipping", False), (("op-7",), "payments", True)],
    ids=["nobody waits", "a step of another's operation", "no room"],
)
async def test_else_it_keeps_its_slot_until_it_has_ended(
    calls: tuple[str, ...] | None, dependency: str, monkeypatch: pytest.MonkeyPatch, *, is_full: bool
) -> None:
    stage, limits = limited(LimitSettings(max_concurrency=16))
    await known(stage)
    limits.share.running += 8 if is_full else 0
    hub, running = Hub(), limits.share.running
    slot = Slot("op-1:1", NOON, calls=calls)
    outcome, running_then = await made_with(stage, hub, slot, monkeypatch, dependency)
    assert (outcome.gave_slot_back, running_then, hub.sent) == (False, running, [])


async def test_all_keys_keep_to_the_limits_of_the_dependency_together() -> None:
    stage, _ = limited(LimitSettings(max_concurrency=16), CircuitSettings(by="limit_key"))
    first, second = key_circuit(stage, "a"), key_circuit(stage, "b")
    assert isinstance(
        await first.enter("op-1", 1, FIRST), NeedsSlot
    )  # the others do not know of this process yet
    await stage.flush_after(1.1)
    stage.moment.pass_(1.1)
    await first.enter("op-1", 1, FIRST)
    stage.moment.pass_(1.1)
    running = of_type(Permitted, [await first.enter("op-1", 1, FIRST) for _ in range(8)][-1])
    assert isinstance(await second.enter("op-1", 1, FIRST), NeedsSlot)
    await first.leave(running, CallEnd(CallHealth.SUCCESS, 0.1))
    stage.moment.pass_(1.1)
    assert isinstance(await second.enter("op-1", 1, FIRST), Permitted)

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from durabletask.client import OrchestrationStatus
from durabletask.entities import EntityInstanceId
from durabletask.internal import orchestrator_service_pb2 as pb

from activities.freeze import count_frozen, keep_frozen, wake_frozen
from durable_retry.base.errors import InstanceEndedError
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import CIRCUIT_EVENT, FREEZE
from durable_retry.features.freeze import names
from durable_retry.features.freeze.hold import (
    PAGES_PER_STEP,
    NothingHeldError,
    ThawUnderWayError,
    hold_document,
    hold_everything,
    thaw,
)
from durable_retry.features.freeze.rules import Crowd, FreezeBody, HoldState, Seen, Thaw, ThawBody, Wave
from durable_retry.hub.entity_ids import circuit_id
from durable_retry.hub.instances import Instance
from durable_retry.hub.task_hub import Selection
from durable_retry.rules.circuit.breaker import Breaker
from durable_retry.rules.circuit.freeze import Freeze
from durable_retry.rules.config.dependencies_file import Config
from durable_retry.runtime import clock
from durable_retry.settings.configuration import using
from tests.support.builders import NOON, PAYMENTS, after
from tests.support.circuit import tripped
from tests.support.narrowing import existing

MAIL = replace(PAYMENTS, name="mail")
HELD = Freeze(NOON, NOON, "ada", "wrong amounts", stops_deadline=True)
THAWING = HELD.then(after(10), share=0.1)
THAW = Thaw("ada", after(5), (0.1, 1.0), 30)
WAVE = Wave(1, (0.1, 1.0), "ada", 40, 4)


@dataclass
class Hub:
    """What the feature asks of a task hub, in memory."""

    circuits: dict[str, Breaker] = field(default_factory=dict)
    pages: list[list[pb.OrchestrationState]] = field(default_factory=lambda: [[]])
    instance: Instance | None = None
    has_ended: bool = False
    started: list[tuple[str, Any, bool]] = field(default_factory=list)
    events: list[tuple[str, str, Any]] = field(default_factory=list)
    now: datetime = NOON

    async def read_entity(self, entity_id: EntityInstanceId) -> str | None:
        found = [each for name, each in self.circuits.items() if circuit_id(name) == entity_id]
        return json.dumps(found[0].to_json()) if found else None

    async def signal_entity(self, entity_id: EntityInstanceId, operation: str, message: Any) -> None:
        assert operation == FREEZE
        name = entity_id.key
        breaker = self.circuits.get(name, Breaker())
        self.circuits[name] = breaker.with_freeze(Freeze.from_json(message), self.now)

    async def start_instance(self, name: str, instance_id: str, given: Any, *, again: bool) -> bool:
        assert name == names.FREEZE
        is_free = (instance_id, given, again) not in self.started
        self.started.append((instance_id, given, again))
        return is_free

    async def read_instance(self, _: str) -> Instance | None:
        return self.instance

    async def raise_event(self, instance_id: str, name: str, data: Mapping[str, Any]) -> None:
        if self.has_ended:
            raise InstanceEndedError(instance_id)
        self.events.append((instance_id, name, data))

    async def page_of_prefixes(
        self, selection: Selection, _prefixes: Any, cursor: str | None
    ) -> tuple[list[pb.OrchestrationState], str | None]:
        number = int(cursor or 0)
        statuses = {status.value for status in selection.runtime_statuses}
        page = [each for each in self.pages[number] if each.orchestrationStatus in statuses]
        return page, str(number + 1) if number + 1 < len(self.pages) else None

    def shares(self) -> dict[str, float | None]:
        return {name: each.freeze.share for name, each in self.circuits.items() if each.freeze}


def frozen(said: Freeze = HELD, **others: Freeze) -> Hub:
    """A hub whose circuits have heard this; others something else."""
    heard = {"payments": said, "mail": said} | others
    return Hub({name: Breaker().with_freeze(each, each.at) for name, each in heard.items()})


def running(status: OrchestrationStatus = OrchestrationStatus.RUNNING, **shown: Any) -> Instance:
    return Instance("freeze-1", status, NOON, NOON, {}, shown, None)


def with_thaw(instance: Instance) -> Instance:
    return replace(instance, input={"freeze": HELD.to_json(), "thaw": THAW.to_json()})


def a_state(number: int, instance_id: str = "", **shown: Any) -> pb.OrchestrationState:
    state = pb.OrchestrationState(instanceId=instance_id or f"op-{number}")
    waits = {"status": "waiting_circuit", "dependency": "payments", "next_attempt_at": to_rfc3339(after(600))}
    state.customStatus.value = json.dumps({**waits, "updated_at": to_rfc3339(after(-60)), **shown})
    return state


@pytest.fixture(autouse=True)
def _configured() -> Iterator[None]:
    known = {each.name: each for each in (PAYMENTS, MAIL)}
    with using(Config(known)), clock.reading(lambda: after(20)):
        yield


async def test_every_circuit_hears_of_a_hold_and_an_orchestration_keeps_it() -> None:
    hub: Any = Hub(now=after(20))
    shown = await hold_everything(hub, FreezeBody(reason="wrong amounts"), "ada")
    assert (shown.by, shown.reason, shown.since) == ("ada", "wrong amounts", after(20))
    freeze = hub.circuits["mail"].freeze
    assert hub.circuits.keys() == {"payments", "mail"}
    ((instance_id, given, again),) = hub.started
    assert (instance_id, given, again) == (
        "release-freeze-1795262420000",
        {"freeze": freeze.to_json()},
        False,
    )


async def test_a_hold_takes_the_place_of_another() -> None:
    hub: Any = frozen(THAWING)
    await hold_everything(hub, FreezeBody(reason="worse"), "ben")
    assert hub.shares() == {"payments": None, "mail": None}
    assert hub.circuits["mail"].freeze.by == "ben"


async def test_a_thaw_is_asked_for_of_the_orchestration_of_the_latest_hold() -> None:
    hub: Any = frozen(HELD, payments=replace(HELD, since=after(1), at=after(1)))
    hub.instance = running()
    started = await thaw(hub, ThawBody(waves=[1.0], wave_seconds=5), "ben")
    assert (started.since, started.waves, started.wave_seconds) == (after(1), (1.0,), 5)
    ((instance_id, name, data),) = hub.events
    assert (instance_id, name) == ("release-freeze-1795262401000", names.THAW_EVENT)
    assert Thaw.from_json(data) == Thaw("ben", after(20), (1.0,), 5)
    assert hub.started == []


async def test_a_thaw_is_later_than_the_hold_whatever_the_clocks_say() -> None:
    hub: Any = frozen(HELD.then(after(60)))
    hub.instance = running()
    await thaw(hub, ThawBody(), "ben")
    assert Thaw.from_json(hub.events[0][2]).began_at == after(60) + timedelta(milliseconds=1)


TERMINATED = running(OrchestrationStatus.TERMINATED)


@pytest.mark.parametrize("instance", [None, TERMINATED, with_thaw(TERMINATED), running()])
async def test_a_thaw_begins_although_the_orchestration_was_terminated(instance: Instance | None) -> None:
    hub: Any = frozen(THAWING if instance is None else HELD)
    hub.instance, hub.has_ended = instance, True
    await thaw(hub, ThawBody(), "ben")
    ((_, given, again),) = hub.started
    assert given.keys() == {"freeze", "thaw"}
    assert again
    with pytest.raises(ThawUnderWayError, match="another thaw has begun meanwhile"):
        await thaw(hub, ThawBody(), "ben")


@pytest.mark.parametrize(("said", "instance"), [(THAWING, running()), (HELD, with_thaw(running()))])
async def test_a_second_thaw_is_refused_also_before_the_circuits_show_the_first(
    said: Freeze, instance: Instance
) -> None:
    hub: Any = frozen(said)
    hub.instance = instance
    with pytest.raises(ThawUnderWayError, match="a thaw goes on already"):
        await thaw(hub, ThawBody(), "ben")
    assert (hub.events, hub.started) == ([], [])


async def test_nothing_is_thawed_without_a_hold() -> None:
    free: Any
    for free in (frozen(replace(HELD, until=after(15))), Hub()):
        with pytest.raises(NothingHeldError):
            await thaw(free, ThawBody(), "ben")


async def test_the_document_shows_a_hold_and_how_far_its_thaw_is() -> None:
    hub: Any = frozen()
    shown = await hold_document(hub)
    assert (shown.status, shown.by, shown.stops_deadline, shown.wave) == (HoldState.HELD, "ada", True, None)
    hub = frozen(THAWING)
    hub.instance = running(wave=WAVE.to_json())
    wave = existing((await hold_document(hub)).wave)
    assert (wave.number, wave.waiting, wave.released, wave.by) == (1, 40, 4, "ada")
    for instance in (None, running()):
        hub.instance = instance
        between = await hold_document(hub)
        assert (between.status, between.wave) == (HoldState.THAWING, None)


@pytest.mark.parametrize("hub", [Hub(), frozen(replace(HELD, until=after(15)))])
async def test_the_document_shows_that_nothing_is_held(hub: Any) -> None:
    shown = await hold_document(hub)
    assert (shown.status, shown.reason, shown.since) == (HoldState.FREE, None, None)


async def test_the_preview_has_what_is_due_within_the_hour() -> None:
    retry = {"status": "waiting_retry", "next_attempt_at": to_rfc3339(after(30))}
    # It runs, and its hub has not noted that it has begun.
    pending = a_state(10)
    pending.orchestrationStatus = pb.ORCHESTRATION_STATUS_PENDING
    hub: Any = Hub(
        pages=[
            [a_state(1), a_state(2, **retry), a_state(3, status="paused"), a_state(4, status="running")],
            [
                a_state(5, dependency="mail", status="waiting_order", next_attempt_at=None),
                a_state(6, next_attempt_at=to_rfc3339(after(4_000))),
                a_state(7, next_attempt_at="soon"),
                a_state(8, "outbox-1"),
                pb.OrchestrationState(instanceId="op-9"),
                pending,
            ],
        ]
    )
    preview = (await hold_document(hub)).preview
    assert (preview.operations, preview.complete) == (4, True)
    payments, mail = preview.by_dependency
    assert (payments.operations, payments.held, payments.first_at) == (3, 2, after(30))
    assert (mail.operations, mail.held, mail.first_at) == (1, 0, None)
    hub.pages = [[]] * (PAGES_PER_STEP + 1)
    assert not (await hold_document(hub)).preview.complete


async def keep(hub: Any, said: Freeze, thawing: Thaw | None = None, **crowds: Crowd) -> Seen:
    given = {"freeze": said.to_json(), "crowds": {name: each.to_json() for name, each in crowds.items()}}
    given |= {} if thawing is None else {"thaw": thawing.to_json()}
    return Seen.from_json(await keep_frozen(given, hub))


async def test_a_circuit_that_lacks_a_freeze_is_told_again() -> None:
    hub: Any = Hub({"payments": Breaker().with_freeze(HELD, NOON)})
    assert await keep(hub, HELD) == Seen(told=1)
    assert hub.shares() == {"payments": None, "mail": None}


async def test_each_circuit_is_told_the_share_of_its_own_wave() -> None:
    hub: Any = frozen()
    assert await keep(hub, THAWING, THAW, payments=Crowd(3, 0.7)) == Seen(told=2)
    assert hub.shares() == {"payments": 0.7, "mail": 0.1}
    assert await keep(hub, THAWING, THAW, payments=Crowd(3, 0.7)) == Seen()


async def test_the_end_is_told_to_those_that_have_the_freeze() -> None:
    hub: Any = Hub({"payments": Breaker().with_freeze(HELD, NOON)}, now=after(20))
    await keep(hub, HELD.then(after(20), until=after(20)))
    assert hub.circuits.keys() == {"payments"}
    assert not hub.circuits["payments"].is_frozen(after(20))


async def test_a_later_freeze_is_left_alone() -> None:
    hub: Any = frozen(HELD, mail=replace(HELD, since=after(1), at=after(1), by="ben"))
    assert await keep(hub, THAWING, THAW) == Seen(is_latest=False)
    assert hub.shares() == {"payments": None, "mail": None}


async def test_a_circuit_that_opened_during_a_thaw_is_seen() -> None:
    hub: Any = frozen(THAWING, mail=THAWING)
    opened = tripped().breaker
    hub.circuits["mail"] = opened.with_freeze(THAWING, THAWING.at)
    seen = await keep(hub, THAWING, replace(THAW, began_at=NOON))
    assert seen.opened == "the circuit of mail opened at 2026-11-21T12:00:00Z"
    assert await keep(hub, THAWING, THAW) == Seen()
    assert await keep(hub, THAWING) == Seen()


async def test_the_circuit_of_a_limit_key_stops_a_thaw_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def keys(_hub: Any, dependency: Any, _breaker: Any) -> list[Breaker]:
        return [replace(tripped().breaker, limit_key="acme")] if dependency.name == "mail" else []

    monkeypatch.setattr("durable_retry.features.freeze.hold.held_keys", keys)
    seen = await keep(frozen(THAWING), THAWING, replace(THAW, began_at=NOON))
    assert seen.opened == "the circuit of mail for acme opened at 2026-11-21T12:00:00Z"


async def test_those_that_wait_are_counted_by_dependency() -> None:
    outbox = a_state(0, "outbox-1", held={"mail": to_rfc3339(after(-60))})
    pages = [[a_state(1), a_state(2), outbox], [a_state(3, status="running")]]
    hub: Any = Hub(pages=pages)
    counted = await count_frozen({"freeze": HELD.to_json(), "position": None}, hub)
    first = min(HELD.place_of("op-1"), HELD.place_of("op-2"))
    assert counted["crowds"]["payments"] == {"waiting": 2, "first": first}
    assert counted["crowds"]["mail"]["waiting"] == 1
    assert counted["following"] is None
    hub.pages = [[a_state(number)] for number in range(PAGES_PER_STEP + 1)]
    counted = await count_frozen({"freeze": HELD.to_json(), "position": None}, hub)
    assert (counted["crowds"]["payments"]["waiting"], counted["following"]) == (
        PAGES_PER_STEP,
        str(PAGES_PER_STEP),
    )


async def test_a_wave_wakes_those_that_may_go() -> None:
    states = [a_state(number) for number in range(100)]
    places = {f"op-{number}": HELD.place_of(f"op-{number}") for number in range(100)}
    outbox = a_state(0, "outbox-1", held={"mail": to_rfc3339(after(-60))})
    hub: Any = Hub(pages=[[*states, outbox]])
    given = {"freeze": THAWING.to_json(), "crowds": {"payments": Crowd(100, 0.3).to_json()}}
    done = await wake_frozen(given | {"changed_at": to_rfc3339(after(20)), "position": None}, hub)
    goes = {each for each, place in places.items() if place <= 0.3}
    assert {instance_id for instance_id, name, _ in hub.events if name == CIRCUIT_EVENT} == goes | {
        "outbox-1"
    }
    assert done == {"woken": len(goes) + 1, "following": None}
    hub.pages = [[]] * (PAGES_PER_STEP + 1)
    done = await wake_frozen(given | {"changed_at": to_rfc3339(after(20)), "position": None}, hub)
    assert done == {"woken": 0, "following": str(PAGES_PER_STEP)}

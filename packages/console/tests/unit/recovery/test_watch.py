"""What follows an outage: one bulk action over its dead letters."""

from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from durable_retry.circuit.entity import CircuitEntity
from durable_retry.dead_letters.records import find_dead_letter, keep_operation
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.breaker import Breaker
from durable_retry.rules.circuit.key_changes import NO_KEY_CHANGES
from durable_retry.rules.circuit.states import CircuitState
from durable_retry.rules.config.dependencies_file import ConfigError, parse_config
from durable_retry.rules.dead_letters.record import KeptDeadLetter, Replay, of_operation
from durable_retry.rules.facts import PersonActed, TargetType
from durable_retry.settings.configuration import using
from durable_retry.telemetry import facts
from durable_retry_console.bulk import replay
from durable_retry_console.bulk.document import ItemOutcome
from durable_retry_console.bulk.shapes import BatchInput, BulkAction, BulkInput
from durable_retry_console.recovery import watch
from durable_retry_console.recovery.rules import Outages
from durable_retry_console.recovery.watch import follow_outages, problems_of
from tests.support.builders import NOON, after, an_entry

HUB: Final = TaskHub("{}")
CONFIG: Final = """
[dependencies.payments]
base_url = "https://payments.example.com"
recovery = { replay = ["RetriesExhausted"], at_most = 2 }
[dependencies.ledger]
base_url = "https://ledger.example.com"
"""
OPEN: Final = Breaker(state=CircuitState.OPEN, opened_at=NOON)
CLOSED: Final = Breaker(draining_since=after(60))


@dataclass
class Hub:
    """The circuit that is read, and the bulk actions that are started."""

    breaker: Breaker = OPEN
    why_not: str | None = None
    keys: dict[str, Breaker] = field(default_factory=dict)
    read: list[str] = field(default_factory=list)
    started: dict[str, BulkInput] = field(default_factory=dict)
    acts: list[PersonActed] = field(default_factory=list)

    async def start_instance(self, _name: str, instance_id: str, given: Any, *, again: bool) -> bool:
        assert not again
        self.started[instance_id] = BulkInput.from_json(given)
        return True

    async def read_instance(self, instance_id: str) -> Any:
        return self.started.get(instance_id)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tables_in_memory: object) -> Hub:
    assert tables_in_memory is not None
    hub = Hub()

    async def readable(circuit: CircuitEntity) -> tuple[Breaker, str | None]:
        hub.read.append(circuit.dependency)
        if circuit.limit_key is not None:
            return hub.keys.get(circuit.limit_key, Breaker()), None
        return hub.breaker, hub.why_not

    monkeypatch.setattr(CircuitEntity, "readable", readable)
    monkeypatch.setattr(
        TaskHub, "start_instance", lambda _, *given, **more: hub.start_instance(*given, **more)
    )
    monkeypatch.setattr(TaskHub, "read_instance", lambda _, instance_id: hub.read_instance(instance_id))
    monkeypatch.setattr(facts, "_receivers", {PersonActed: [hub.acts.append]})
    return hub


async def look(at: float, config: str = CONFIG) -> None:
    with using(parse_config(config, {})):
        await follow_outages(HUB, after(at))


async def kept(name: str, at: float, reason: str = "RetriesExhausted", **operation: Any) -> str:
    entry = an_entry(name, reason=reason, category="transient", **operation)
    return await keep_operation(entry, after(at))


async def outage(hub: Hub) -> None:
    """Let two looks see an outage that has been over for two minutes."""
    await look(10)
    hub.breaker = CLOSED
    await look(180)


async def test_one_bulk_action_follows_over_the_letters_of_the_outage(hub: Hub) -> None:
    await kept("op-1", 20)
    await kept("op-2", 50)
    await kept("op-late", 30, "DeadlineExceeded")
    await kept("op-before", -3_600)
    await outage(hub)
    await look(240)
    ((action_id, given),) = hub.started.items()
    assert (given.action, given.matched, given.by, given.options) == (
        BulkAction.REPLAY,
        2,
        "the recovery",
        {"at_most": 2},
    )
    assert DeadLetterFilter.from_json(given.filter).reasons == ("RetriesExhausted",)
    assert given.created_at == after(180)
    assert given.note == (
        "the circuit of payments closed at 2026-11-21T12:01:00Z: its dead letters since 2026-11-21T11:59:30Z"
    )
    (act,) = hub.acts
    assert (act.who, act.target, act.target_id, act.dependency) == (
        "the recovery",
        TargetType.BULK_ACTION,
        action_id,
        "payments",
    )
    assert set(hub.read) == {"payments"}  # The other one has no recovery.


async def test_without_a_letter_nothing_follows(hub: Hub) -> None:
    await kept("op-1", 20, "DeadlineExceeded")
    await outage(hub)
    assert hub.started == {}


async def test_a_run_that_comes_again_starts_nothing_more(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    await kept("op-1", 20)

    async def nothing_known(_dependency: str) -> dict[str, Outages]:
        return {}

    monkeypatch.setattr(watch, "_read_outages", nothing_known)
    hub.breaker = CLOSED
    await look(180)
    await look(181)
    assert (len(hub.started), len(hub.acts)) == (1, 1)


async def test_the_letters_of_a_limit_key_follow_its_own_circuit(hub: Hub) -> None:
    for limit_key in ("acme", "other"):
        await kept(f"op-{limit_key}", 20, limit_key=limit_key)
    by_key = CONFIG.replace("at_most = 2 }", 'at_most = 2 }\ncircuit = { by = "limit_key" }')
    hub.breaker = Breaker(keys=("acme", "other"))
    hub.keys = {name: replace(OPEN, limit_key=name) for name in ("acme", "other")}
    await look(10, by_key)
    # Its change is not listed any more, and of one whose state is gone nobody knows anything.
    hub.breaker = Breaker(keys=("other", "gone"))
    hub.keys["acme"] = replace(CLOSED, limit_key="acme")
    await look(180, by_key)
    await look(240, by_key)
    ((_, given),) = hub.started.items()
    assert (given.matched, DeadLetterFilter.from_json(given.filter).limit_key) == (1, "acme")
    assert str(given.note).startswith("the circuit of payments for acme closed at")
    # An outage that no look saw.
    hub.breaker = Breaker(key_changes=NO_KEY_CHANGES.with_key("other"))
    hub.keys["other"] = replace(CLOSED, limit_key="other", draining_since=after(300))
    await look(420, by_key)
    assert len(hub.started) == 2


async def test_a_circuit_that_cannot_be_read_changes_nothing(hub: Hub) -> None:
    await kept("op-1", 20)
    await look(10)
    hub.breaker, hub.why_not = CLOSED, "a later version wrote it"
    await look(180)
    assert hub.started == {}


@pytest.mark.parametrize(
    "recovery", ['{ replay = ["AmbiguousOutcome"] }', "{ replay = [] }", "{ at_most = 0 }"]
)
def test_never_what_is_refused_or_unknown(recovery: str) -> None:
    with pytest.raises(ConfigError, match=r"payments\.recovery\."):
        parse_config(f'[dependencies.payments]\nbase_url = "https://a.example"\nrecovery = {recovery}', {})


def test_a_recovery_needs_a_circuit() -> None:
    off = CONFIG.replace("[dependencies.ledger]", "circuit = { enabled = false }\n[dependencies.ledger]")
    known = parse_config(off, {}).dependencies
    assert [problem.pointer for problem in problems_of(known["payments"])] == ["/recovery"]
    assert list(problems_of(known["ledger"])) == []
    assert list(problems_of(parse_config(CONFIG, {}).dependencies["payments"])) == []


def chain(*by: str | None) -> dict[str, KeptDeadLetter]:
    """Return the dead letters of an operation that was replayed by these, the latest last."""
    letters = [
        replace(
            of_operation(an_entry("op-1"), NOON),
            id=f"dl-{number}",
            replay_of=None if number == 0 else f"dl-{number - 1}",
        )
        for number in range(len(by) + 1)
    ]
    for number, each in enumerate(by):
        made = Replay(
            operation_id="op-1", requested_at=NOON, operation={}, by=each, dead_letter_id=f"dl-{number + 1}"
        )
        letters[number] = replace(letters[number], replays=(made,))
    return {letter.id: letter for letter in letters}


@pytest.mark.parametrize(
    ("by", "times"),
    [((), 0), (("ada",), 0), (("the recovery", "ada", "the recovery"), 2), (("the recovery",) * 9, 3)],
)
async def test_the_recoveries_of_one_operation_are_counted(
    by: tuple[str, ...], times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = chain(*by)

    async def find(dead_letter_id: str) -> KeptDeadLetter | None:
        return letters.get(dead_letter_id)

    monkeypatch.setattr(replay, "find_dead_letter", find)
    assert await replay._times_recovered(letters[f"dl-{len(by)}"], 3) == times


async def test_what_recoveries_replayed_often_enough_stays(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.breaker = CLOSED

    async def often(_record: KeptDeadLetter, at_most: int) -> int:
        return at_most

    monkeypatch.setattr(replay, "_times_recovered", often)
    dead_letter_id = await kept("op-1", 20)
    given = BatchInput(
        action_id="bulk-1", action=BulkAction.REPLAY, ids=(dead_letter_id,), options={"at_most": 2}, now=NOON
    )
    with using(parse_config(CONFIG, {})):
        (item,), left, _ = await replay.replay_some(HUB, given)
    assert (item.outcome, item.detail, left) == (
        ItemOutcome.SKIPPED,
        "the recovery has replayed it 2 times",
        (),
    )
    record = await find_dead_letter(dead_letter_id)
    assert record is not None
    assert record.replays == ()


async def test_a_step_whose_saga_was_compensated_stays(hub: Hub) -> None:
    hub.breaker = CLOSED
    dead_letter_id = await kept("op-1", 20, source="saga")
    given = BatchInput(
        action_id="bulk-1", action=BulkAction.REPLAY, ids=(dead_letter_id,), options={"at_most": 2}, now=NOON
    )
    with using(parse_config(CONFIG, {})):
        (item,), _, _ = await replay.replay_some(HUB, given)
    assert (item.outcome, item.detail) == (
        ItemOutcome.SKIPPED,
        "its saga was compensated: restart that",
    )

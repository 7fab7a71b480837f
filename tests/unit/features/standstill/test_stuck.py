import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from durabletask.client import OrchestrationStatus
from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry.base.json_forms import from_rfc3339, to_rfc3339
from durable_retry.base.names import DUE_AT, OPERATION
from durable_retry.features.in_process.names import CALL
from durable_retry.features.outbox.names import OUTBOX
from durable_retry.features.standstill import checks as queue_checks
from durable_retry.features.standstill import stuck
from durable_retry.features.standstill.names import QUEUE_CHECK
from durable_retry.features.standstill.rules import CLOCKS_DIFFER, Expected, QueueCheck, QueueChecks
from durable_retry.features.standstill.stuck import Standstill, StuckLook, expected_turn, nudge_if_lost
from durable_retry.features.workflows.names import BATCH, SAGA
from durable_retry.hub.instances import Instance
from durable_retry.rules.operations.operation import start_input
from durable_retry.rules.retry.policy import Timeouts
from durable_retry_console.bulk.names import BULK_ACTION
from tests.support.builders import an_operation

CHANGED: Final = datetime(2026, 11, 28, 12, tzinfo=UTC)
LATER: Final = CHANGED + timedelta(minutes=7)
RUNNING: Final = {"status": "running", "dependency": "payments"}


def at(minutes: float) -> datetime:
    return CHANGED + timedelta(minutes=minutes)


def a_state(
    shown: dict[str, Any] | None, *, pending: bool = False, instance_id: str = "op-test"
) -> pb.OrchestrationState:
    state = pb.OrchestrationState(
        instanceId=instance_id,
        orchestrationStatus=pb.ORCHESTRATION_STATUS_PENDING if pending else pb.ORCHESTRATION_STATUS_RUNNING,
    )
    state.lastUpdatedTimestamp.FromDatetime(CHANGED)
    if shown is not None:
        state.customStatus.value = json.dumps(shown)
    return state


def expected(shown: dict[str, Any] | None, name: str = OPERATION, **more: Any) -> Expected | None:
    return expected_turn(name, a_state(shown, **more))


ANSWER: Final = Expected(CHANGED, is_answer=True)


@pytest.mark.parametrize("name", [OPERATION, BATCH, SAGA])
def test_a_start_is_due_at_once(name: str) -> None:
    assert expected(None, name, pending=True) == Expected(CHANGED)


@pytest.mark.parametrize("shown", [None, RUNNING])
def test_an_operation_that_shows_nothing_or_runs_waits_for_an_answer(shown: dict[str, Any] | None) -> None:
    assert expected(shown) == ANSWER


@pytest.mark.parametrize("status", ["running", "waiting_retry", "waiting_circuit", "scheduled", "paused"])
@pytest.mark.parametrize("pending", [False, True])
def test_a_wait_is_due_at_its_end_also_where_the_hub_has_not_noted_its_begin(
    status: str, *, pending: bool
) -> None:
    shown = {"status": status, "next_attempt_at": to_rfc3339(LATER)}
    assert expected(shown, pending=pending) == Expected(LATER)


def test_a_wait_that_had_a_turn_after_its_end_is_due_since_that() -> None:
    assert expected({"status": "waiting_retry", "next_attempt_at": to_rfc3339(at(-1))}) == Expected(CHANGED)


def test_a_wait_in_order_is_due_when_it_asks_again() -> None:
    waits = [{"until": to_rfc3339(CHANGED)}, {"until": to_rfc3339(LATER)}]
    shown = {"status": "waiting_order", "next_attempt_at": None, "waits": waits}
    assert expected(shown) == Expected(LATER)


@pytest.mark.parametrize(
    "shown", [{"status": "paused", "next_attempt_at": None}, {"status": "waiting_order"}]
)
def test_what_waits_for_a_person_alone_is_never_due(shown: dict[str, Any]) -> None:
    assert expected(shown) is None


@pytest.mark.parametrize("name", [BATCH, SAGA, BULK_ACTION, CALL, OUTBOX])
def test_what_waits_is_due_when_it_says_and_has_an_answer_to_come_otherwise(name: str) -> None:
    assert expected({"status": "running", DUE_AT: to_rfc3339(LATER)}, name) == Expected(LATER)
    assert expected({DUE_AT: to_rfc3339(at(-1))}, name) == expected(None, name) == ANSWER


@dataclass
class Hub:
    """A task hub in which one instance stands, and queue checks that come through when the test says."""

    timeouts: Timeouts = field(default_factory=Timeouts)
    input: dict[str, Any] | None = None
    nudges: list[tuple[str, datetime]] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    through_at: datetime | None = None
    ends_as: OrchestrationStatus = OrchestrationStatus.COMPLETED

    async def read_instance(self, instance_id: str) -> Instance:
        self.reads.append(instance_id)
        is_check = instance_id.startswith(QUEUE_CHECK)
        is_through = is_check and self.through_at is not None
        return Instance(
            instance_id=instance_id,
            runtime_status=self.ends_as if is_through else OrchestrationStatus.RUNNING,
            created_at=CHANGED,
            updated_at=(self.through_at or CHANGED) if is_check else CHANGED,
            input=self.input or start_input(an_operation(timeouts=self.timeouts), "s"),
            custom_status=None,
            output=None,
        )

    async def raise_event(self, instance_id: str, _name: str, data: dict[str, Any]) -> None:
        self.nudges.append((instance_id, from_rfc3339(data["asked_before"])))

    async def start_instance(self, name: str, instance_id: str, *_: Any, **__: Any) -> bool:
        self.started.append(name if name == QUEUE_CHECK else instance_id)
        return True


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[QueueChecks]:
    """What is stored of the checks."""
    stored = [QueueChecks()]

    async def read() -> QueueChecks:
        return stored[0]

    async def change(rule: Any) -> QueueChecks:
        stored[0] = rule(stored[0])
        return stored[0]

    monkeypatch.setattr(queue_checks, "read_checks", read)
    monkeypatch.setattr(queue_checks, "change_checks", change)
    monkeypatch.setattr(stuck, "redelivery_seconds", lambda: 60.0)
    return stored


async def looked(hub: Hub, minutes: float, state: Any = None, name: str = OPERATION) -> Standstill | None:
    """Look as `watch` does after some minutes; return what was done."""
    look = StuckLook(hub, at(minutes))  # type: ignore[arg-type]
    done = await look.move_on(name, state or a_state(RUNNING))
    await look.ask_for_check()
    return done


async def test_an_hour_in_a_queue_is_no_loss(checks: list[QueueChecks]) -> None:
    hub = Hub(Timeouts(attempt_seconds=25))
    assert [await looked(hub, minute) for minute in range(1, 61)] == [None] * 60
    assert hub.nudges == []
    assert len(hub.started) == 6, "one check, and another after each ten minutes"
    assert "op-test" not in hub.reads
    hub.through_at = at(61)
    assert await looked(hub, 61) is None
    assert checks[0].under_way == ()
    assert await looked(hub, 63.4) is None, "it began by 12:61, and takes up to 25 s"
    assert await looked(hub, 63.5) is Standstill.NUDGED
    assert hub.nudges == [("op-test", CHANGED + CLOCKS_DIFFER)]


async def test_nothing_is_checked_or_read_while_nothing_is_late(checks: list[QueueChecks]) -> None:
    hub = Hub()
    assert await looked(hub, 1) is None
    assert (
        await looked(hub, 60, a_state({"status": "waiting_retry", "next_attempt_at": to_rfc3339(at(61))}))
        is None
    )
    assert (hub.started, hub.reads, checks[0]) == ([], [], QueueChecks())


@pytest.mark.usefixtures("checks")
async def test_one_check_is_asked_for_all_that_is_late() -> None:
    hub = Hub()
    look = StuckLook(hub, at(3))  # type: ignore[arg-type]
    for number in range(500):
        assert await look.move_on(OPERATION, a_state(RUNNING, instance_id=f"op-{number}")) is None
    await look.ask_for_check()
    assert hub.started == [QUEUE_CHECK]
    assert hub.reads == []


def through(*minutes: float) -> QueueChecks:
    return QueueChecks(tuple(QueueCheck(at(each), at(each)) for each in minutes))


async def test_an_attempt_has_the_time_that_it_was_accepted_with(checks: list[QueueChecks]) -> None:
    checks[0] = through(1)
    hub = Hub(Timeouts(attempt_seconds=280))
    assert await looked(hub, 7.6) is None
    assert await looked(hub, 7.7) is Standstill.NUDGED


@pytest.mark.parametrize(("limit", "minutes"), [(300.0, 5), (None, 30)])
@pytest.mark.parametrize("name", [OPERATION, OUTBOX])
async def test_what_cannot_be_read_or_is_in_no_input_has_the_time_of_a_function(
    checks: list[QueueChecks], monkeypatch: pytest.MonkeyPatch, name: str, limit: float | None, minutes: int
) -> None:
    monkeypatch.setattr(stuck, "function_timeout_seconds", lambda: limit)
    checks[0] = through(1)
    hub = Hub(input={"operation": "from another world"})
    assert await looked(hub, minutes + 2.9, name=name) is None
    assert await looked(hub, minutes + 3.1, name=name) is Standstill.NUDGED


@pytest.mark.parametrize("name", [BATCH, SAGA, BULK_ACTION])
async def test_a_step_of_our_own_bears_to_be_asked_for_again(checks: list[QueueChecks], name: str) -> None:
    checks[0] = through(1)
    hub = Hub()
    assert await looked(hub, 3, a_state({}), name) is None
    assert await looked(hub, 3.1, a_state({}), name) is Standstill.NUDGED
    assert hub.reads == []


async def test_a_start_behind_others_is_not_started_again_before_a_check_was_through(
    checks: list[QueueChecks],
) -> None:
    hub, start = Hub(), a_state(None, pending=True)
    assert await looked(hub, 30, start) is None
    assert hub.started == [QUEUE_CHECK]
    checks[0] = through(1)
    assert await looked(hub, 30, start) is Standstill.STARTED_AGAIN
    assert hub.started[-1] == "op-test"


async def test_what_a_nudge_did_not_move_is_noted(checks: list[QueueChecks]) -> None:
    checks[0] = through(1)
    noted = []
    for minutes in (3.5, 4.5):
        look = StuckLook(Hub(Timeouts(attempt_seconds=5)), at(minutes))  # type: ignore[arg-type]
        await look.move_on(OPERATION, a_state(RUNNING))
        noted.append([each.instance_id for each in look.stuck])
    assert noted == [[], ["op-test"]]


async def test_a_retention_is_nudged_when_its_step_was_lost_and_not_while_it_is_queued(
    checks: list[QueueChecks],
) -> None:
    hub = Hub()
    await nudge_if_lost(hub, "retention-1", at(10))  # type: ignore[arg-type]
    assert (hub.nudges, hub.started) == ([], [QUEUE_CHECK])
    checks[0] = through(1)
    await nudge_if_lost(hub, "retention-1", at(10))  # type: ignore[arg-type]
    assert [name for name, _ in hub.nudges] == ["retention-1"]


async def test_a_check_that_failed_is_not_through(checks: list[QueueChecks]) -> None:
    hub = Hub()
    await looked(hub, 2)
    hub.through_at, hub.ends_as = at(3), OrchestrationStatus.FAILED
    assert await looked(hub, 4) is None
    assert [check.asked_at for check in checks[0].under_way] == [at(4)]

"""Orchestrations that stand still since a message was lost, on Microsoft's in-memory hub and real storage.

A lost message is one that the hub notes in the history and does not deliver. `watch` runs at an instant that
the test gives; waits are short, since the hub has the machine's clock.
"""

import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from unittest.mock import AsyncMock

import pytest
from durabletask.client import OrchestrationStatus
from durabletask.internal import helpers
from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry.base.json_forms import from_rfc3339
from durable_retry.base.names import (
    DUE_AT,
    OPERATION,
    PAUSE_EVENT,
    OperationState,
)
from durable_retry.features.circuit_controls.names import RELEASE_WAITING
from durable_retry.features.diagnosis.names import DIAGNOSIS
from durable_retry.features.in_process.names import CALL
from durable_retry.features.limits.names import CALL_NEXT
from durable_retry.features.limits.rules.settings import LimitSettings
from durable_retry.features.order.names import PASS_TURN
from durable_retry.features.outbox.names import OUTBOX, outbox_instance
from durable_retry.features.outbox.rules.outbox import delivery_of, event_id_for
from durable_retry.features.retention import rounds
from durable_retry.features.retention.names import RETENTION
from durable_retry.features.standstill.checks import look_at_checks
from durable_retry.features.standstill.names import PASS_QUEUE, QUEUE_CHECK
from durable_retry.features.standstill.rules import QueueChecks
from durable_retry.features.standstill.store import change_checks, read_stuck
from durable_retry.features.standstill.stuck import Standstill, stuck_instances
from durable_retry.features.workflows.names import BATCH, BATCH_CLOSE, BATCH_STEP
from durable_retry.features.workflows.rules.shapes import step_sizes
from durable_retry.hub.instances import Instance
from durable_retry.hub.orchestrations import orchestrations, watched_names
from durable_retry.hub.task_hub import TaskHub, close_clients
from durable_retry.hub.turns import MOST_ASKED
from durable_retry.operations.status import MOST_RESTARTS, document_of
from durable_retry.rules.circuit.breaker import ManualControl
from durable_retry.rules.circuit.transitions import ManualAction
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.operations.operation import start_input
from durable_retry.rules.retry.policy import RetryPolicy
from durable_retry.rules.retry.slots import NeedsSlot
from durable_retry.settings.configuration import using
from durable_retry.upkeep import failures
from durable_retry.upkeep.failures import Recovery, recover
from durable_retry.upkeep.rounds import MAINTENANCE_EVERY
from durable_retry_console.bulk import orchestration as bulk_orchestration
from durable_retry_console.bulk.names import BULK_ACTION
from durable_retry_console.bulk.shapes import BulkAction, BulkInput
from orchestrators import completion_reports
from tests.support.builders import an_operation, failing, outcome
from tests.support.feature_parts import in_order
from tests.support.hub import TaskHubStage, task_hub_stage
from tests.support.narrowing import existing
from tests.support.polling import until

pytestmark = pytest.mark.usefixtures("own_tables")

SOON: Final = RetryPolicy(strategy="fixed", initial_seconds=0.2, jitter="none")
FOUND: Final = timedelta(minutes=5)
"""After so long it must have gone on."""


@pytest.fixture
async def hub() -> AsyncIterator[TaskHubStage]:
    configured = using(parse_config("[dependencies.payments]\ntimeouts = { attempt_seconds = 5 }\n", {}))
    with configured, task_hub_stage(parts=True) as stage:
        await change_checks(lambda _: QueueChecks())
        yield stage
        await close_clients()


def lose(
    hub: TaskHubStage, method: str, note: Callable[..., object], times: int = 1, after: int = 0
) -> list[int]:
    """Let the hub take note of some messages, after others, and deliver none of them.

    Return how many are left to lose.
    """
    left, deliver, skipped = [times], getattr(hub.backend, method), iter(range(after))

    def lost(instance: Any, *given: Any) -> object:
        if left[0] <= 0 or str(instance).startswith(QUEUE_CHECK) or next(skipped, None) is not None:
            return deliver(instance, *given)
        left[0] -= 1
        return note(instance, *given)

    setattr(hub.backend, method, lost)
    return left


def lose_timers(hub: TaskHubStage, after: int = 0) -> list[int]:
    def note(instance: Any, action: Any) -> None:
        fire_at = action.createTimer.fireAt.ToDatetime(tzinfo=UTC)
        instance.history.append(helpers.new_timer_created_event(action.id, fire_at))

    return lose(hub, "_process_create_timer_action", note, after=after)


def lose_activities(hub: TaskHubStage, after: int = 0) -> list[int]:
    def note(instance: Any, action: Any) -> None:
        wanted = action.scheduleTask
        instance.history.append(helpers.new_task_scheduled_event(action.id, wanted.name, wanted.input.value))
        instance.status = pb.ORCHESTRATION_STATUS_RUNNING

    return lose(hub, "_process_schedule_task_action", note, after=after)


async def submitted(hub: TaskHubStage, **changes: Any) -> None:
    operation = an_operation(deadline_in=None, policy=SOON, **changes)
    await hub.binding.start_operation(operation)


async def found(hub: TaskHubStage, instance_id: str = "op-test") -> Instance:
    return existing(await hub.binding.read_instance(instance_id))


async def comes_to(hub: TaskHubStage, status: OperationState) -> None:
    async def has_come() -> bool:
        return bool(document_of(await found(hub))["status"] == status)

    await until(has_come)


async def is_due(hub: TaskHubStage) -> None:
    due_at = datetime.fromisoformat(document_of(await found(hub))["next_attempt_at"])

    await until(lambda: datetime.now(UTC) > due_at)


CHECKED: Final = timedelta(minutes=1.5)
"""After so long something is late, and the queues are checked."""


async def watched(hub: TaskHubStage, after: timedelta = FOUND - timedelta(minutes=1)) -> set[Any]:
    """Run the watch as if so much time had gone by, and before that when it has the queues checked.

    Return what it has done.
    """
    if after > CHECKED:
        await have_checked(hub)
    return await moved(hub, after)


async def have_checked(hub: TaskHubStage) -> None:
    assert await moved(hub, CHECKED) == set()
    await until(lambda: checks_are_through(hub))


async def moved(hub: TaskHubStage, after: timedelta) -> set[Any]:
    return set(await recover(hub.binding, datetime.now(UTC) + after)) - {Recovery.NONE}


async def checks_are_through(hub: TaskHubStage) -> bool:
    checks = await look_at_checks(hub.binding)
    return bool(checks.checks) and not checks.under_way


async def unanswered(hub: TaskHubStage) -> None:
    """Nudge as often as the same is asked for."""
    for _ in range(MOST_ASKED):
        assert await watched(hub) == {Standstill.NUDGED}


async def named(hub: TaskHubStage, minutes: float) -> list[str]:
    """Return what no nudge moves, as if so much time had gone by."""
    now = datetime.now(UTC) + timedelta(minutes=minutes)
    return [each.instance_id for each in await stuck_instances(hub.binding, now)]


def attempts(hub: TaskHubStage) -> list[int]:
    return [given["attempt"] for name, given in hub.activities if name == "attempt"]


def steps(hub: TaskHubStage) -> list[str]:
    return [name for name, _ in hub.activities if name != PASS_QUEUE]


async def succeeds(hub: TaskHubStage) -> dict[str, Any]:
    document = document_of(existing(await hub.binding.wait_for_end("op-test", 30)))
    assert document["status"] == "succeeded"
    return document


@pytest.mark.shows("P28")
async def test_an_operation_whose_timer_was_lost_goes_on_when_it_is_nudged(hub: TaskHubStage) -> None:
    hub.answer = failing(1)
    left = lose_timers(hub)
    await submitted(hub)
    await comes_to(hub, OperationState.WAITING_RETRY)
    await is_due(hub)
    assert left == [0]
    assert await watched(hub, timedelta(minutes=1)) == set(), "it is not late yet"
    assert await watched(hub, timedelta(minutes=3)) == {Standstill.NUDGED}
    assert (await succeeds(hub))["attempt_count"] == 2
    assert attempts(hub) == [1, 2]


async def test_a_pause_whose_timer_was_lost_ends_when_it_is_nudged(hub: TaskHubStage) -> None:
    start_at = datetime.now(UTC) + timedelta(hours=1)
    await submitted(hub, start_at=start_at)
    await comes_to(hub, OperationState.SCHEDULED)
    lose_timers(hub)
    await hub.binding.raise_event("op-test", PAUSE_EVENT, {"for_seconds": 0.1})
    await comes_to(hub, OperationState.PAUSED)
    await is_due(hub)
    assert await watched(hub, timedelta(minutes=3)) == {Standstill.NUDGED}
    await comes_to(hub, OperationState.SCHEDULED)


@pytest.mark.shows("P29")
async def test_an_attempt_whose_message_was_lost_is_made_under_its_number(hub: TaskHubStage) -> None:
    hub.answer = failing(0)
    lose_activities(hub)
    await submitted(hub)
    await comes_to(hub, OperationState.RUNNING)
    assert attempts(hub) == []
    assert await watched(hub) == {Standstill.NUDGED}
    assert (await succeeds(hub))["attempt_count"] == 1
    assert attempts(hub) == [1]


@pytest.mark.shows("P30")
async def test_an_operation_whose_start_was_lost_begins_once(hub: TaskHubStage) -> None:
    hub.answer = failing(0)
    lose(hub, "_enqueue_orchestration", lambda _id: None)
    await submitted(hub)
    assert await watched(hub, timedelta(minutes=3)) == {Standstill.STARTED_AGAIN}
    await succeeds(hub)
    assert attempts(hub) == [1]
    assert (await found(hub)).input["restarts"] == 1


@pytest.mark.shows("P33")
async def test_a_start_that_is_lost_each_time_is_given_up_and_named_until_it_moves(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This hub takes the arrival of an event for a change of the instance; Azure Storage and onebox do not.
    monkeypatch.setattr(TaskHub, "raise_event", AsyncMock())
    left = lose(hub, "_enqueue_orchestration", lambda _id: None, times=100)
    operation = an_operation(deadline_in=None)
    given = start_input(operation, "s") | {"restarts": MOST_RESTARTS}
    await hub.binding.start_instance(OPERATION, "op-test", given, again=False)
    for minutes in (2.5, 3.5, 4.5):
        assert await watched(hub, timedelta(minutes=minutes)) == {Standstill.NUDGED}
        assert await named(hub, minutes) == ([] if minutes < 4 else ["op-test"])
    left[0] = 0
    hub.backend._enqueue_orchestration("op-test")
    await succeeds(hub)
    assert await named(hub, 6) == []
    assert await read_stuck() == ()


async def test_what_was_late_while_the_app_was_away_is_nudged_before_it_is_named(hub: TaskHubStage) -> None:
    lose_activities(hub)
    await submitted(hub)
    await comes_to(hub, OperationState.RUNNING)
    assert await watched(hub, timedelta(hours=1)) == {Standstill.NUDGED}
    assert await named(hub, 60) == []
    await succeeds(hub)


async def test_a_run_moves_a_bounded_number_on_and_the_next_one_the_others(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "_MOST_MOVED", 1)
    lose(hub, "_enqueue_orchestration", lambda _id: None, times=100)
    await submitted(hub)
    await hub.binding.start_instance(BATCH, "batch-1", {"batch_id": "batch-1"}, again=False)
    await have_checked(hub)
    for restarts in ({"op-test"}, {"op-test", "batch-1"}):
        assert await moved(hub, timedelta(minutes=4)) == {Standstill.STARTED_AGAIN}
        ids = ("op-test", "batch-1")
        assert {each for each in ids if "restarts" in (await found(hub, each)).input} == restarts


@pytest.mark.shows("P31")
async def test_an_attempt_goes_on_without_a_limiter_that_does_not_answer(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub.backend, "_enqueue_entity", lambda _id: None)
    limited = {"stopped": NeedsSlot(LimitSettings(max_concurrency=1).to_json()).to_json()}
    succeed = failing(0)

    def answer(name: str, given: dict[str, Any]) -> Any:
        has_slot = name != "attempt" or "slot" in given["admission"]
        return succeed(name, given) if has_slot else limited

    hub.answer = answer
    await submitted(hub)
    await until(lambda: attempts(hub) and hub.backend._entities)
    await unanswered(hub)
    (attempt,) = (await succeeds(hub))["attempts"]
    assert attempt["delay_reasons"] == ["went on without the limiter, which did not answer"]
    assert attempts(hub) == [1, 1]


@pytest.mark.shows("P31")
async def test_a_lane_that_does_not_answer_lets_nobody_pass_and_is_asked_again(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.answer = failing(0)
    with monkeypatch.context() as dead:
        dead.setattr(hub.backend, "_enqueue_entity", lambda _id: None)
        await submitted(hub, parts=in_order("order-1"))
        await until(lambda: hub.backend._entities)
        await unanswered(hub)
        await comes_to(hub, OperationState.WAITING_ORDER)
        waits = document_of(await found(hub))["waits"]
        assert waits[-1]["delay_reasons"] == ["its order lane does not answer"]
        assert attempts(hub) == []
    hub.backend._enqueue_entity(next(iter(hub.backend._entities)))
    await succeeds(hub)
    assert attempts(hub) == [1]


@pytest.mark.shows("P32")
async def test_a_batch_that_neither_hears_of_an_end_nor_looks_is_nudged_to_look(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion_reports, "_FIRST_LOOK", timedelta(seconds=0.2))
    running = [[[0, "op-test"]], []]

    def step(name: str, given: dict[str, Any]) -> Any:
        return {"running": running.pop(0), "sizes": step_sizes(given)} if name == BATCH_STEP else None

    hub.answer = step
    lose_timers(hub)
    given = {"batch_id": "batch-1", "progress": {"total": 1, "max_concurrency": 1}}
    await hub.binding.start_instance(BATCH, "batch-1", given, again=False)

    async def waits() -> bool:
        age = datetime.now(UTC) - (await found(hub, "batch-1")).updated_at
        return steps(hub) == [BATCH_STEP] and age > timedelta(seconds=0.3)

    await until(waits)
    assert await watched(hub, timedelta(minutes=3)) == {Standstill.NUDGED}
    ended = existing(await hub.binding.wait_for_end("batch-1", 30))
    assert ended.runtime_status is OrchestrationStatus.COMPLETED
    assert steps(hub) == [BATCH_STEP, BATCH_STEP, BATCH_CLOSE]


def an_outbox(_name: str) -> dict[str, Any]:
    event = {"event_id": event_id_for("op-1", 1), "type": "t", "queue": "charge-events"}
    sent = delivery_of(event, None, datetime.now(UTC) + timedelta(seconds=0.3))
    return {"place": {}, "deliveries": [sent.to_json()]}


NO_EVENT: Final[dict[str, Any]] = {"place": {}, "deliveries": []}
SENT: Final = outcome(1) | {"event_id": event_id_for("op-1", 1)}
UNDER_WAY: Final = {"succeeded": 0, "under_way": 1, "cursor": None}
ENDED: Final = {"succeeded": 1, "under_way": 0, "cursor": None}
CALLED: Final = {"document": {}, "since": "2026-11-28T12:00:00Z", "keys": ["key-1"]}
CLOSED: Final = ManualAction(ManualControl.CLOSE, datetime(2026, 11, 28, tzinfo=UTC), "ada", "it is back")


def a_bulk_action() -> dict[str, Any]:
    given = BulkInput(
        action_id="bulk-1",
        action=BulkAction.CANCEL,
        rate_per_second=5,
        matched=1,
        created_at=datetime.now(UTC),
        is_over=True,
    )
    return given.to_json()


@dataclass
class Lost:
    """What begins, what its activities answer in turn, and which message is lost, after how many others."""

    name: str
    given: Callable[[], dict[str, Any]]
    answers: list[Any]
    lose: Callable[..., list[int]]
    after: int = 0


@pytest.mark.parametrize(
    "lost",
    [
        Lost(OUTBOX, lambda: {"operation_id": "op-1"}, [NO_EVENT], lose_activities),
        Lost(OUTBOX, lambda: {"operation_id": "op-1"}, [an_outbox, SENT, NO_EVENT], lose_timers),
        Lost(OUTBOX, lambda: {"operation_id": "op-1"}, [an_outbox, SENT, NO_EVENT], lose_activities, 1),
        Lost(BULK_ACTION, a_bulk_action, [ENDED], lose_activities),
        Lost(BULK_ACTION, a_bulk_action, [UNDER_WAY, ENDED], lose_timers),
        Lost(CALL, lambda: CALLED, [{"problems": []}], lose_activities),
        Lost(
            CALL,
            lambda: CALLED,
            [{"operation_id": "op-1"}, {"document": None}, {"document": {}}],
            lose_timers,
        ),
        Lost(RELEASE_WAITING, lambda: {"dependency": "payments", "hand": CLOSED.to_json()}, [], lose_timers),
    ],
    ids=lambda lost: f"{lost.name}-{lost.lose.__name__}-{lost.after}",
)
@pytest.mark.shows("P32")
async def test_each_that_is_watched_goes_on_when_a_message_was_lost(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch, lost: Lost
) -> None:
    monkeypatch.setattr(completion_reports, "_FIRST_LOOK", timedelta(seconds=0.2))
    monkeypatch.setattr(bulk_orchestration, "_FIRST_COUNT", timedelta(seconds=0.2))
    answers = list(lost.answers)

    def answer(name: str, _given: dict[str, Any]) -> Any:
        if name == PASS_QUEUE:
            return None
        return following(name) if callable(following := answers.pop(0)) else following

    hub.answer = answer
    left = lost.lose(hub, after=lost.after)
    instance_id = outbox_instance("op-1") if lost.name == OUTBOX else f"{lost.name.partition('_')[0]}-1"
    await hub.binding.start_instance(lost.name, instance_id, lost.given(), again=False)

    async def waits() -> bool:
        instance = await found(hub, instance_id)
        shown = (instance.custom_status or {}).get(DUE_AT)
        due_at = instance.updated_at if shown is None else from_rfc3339(shown)
        return left == [0] and datetime.now(UTC) > max(due_at, instance.updated_at) + timedelta(seconds=0.1)

    await until(waits)
    after = 10 if lost.name == OUTBOX else 4
    assert await watched(hub, timedelta(minutes=after)) == {Standstill.NUDGED}
    ended = existing(await hub.binding.wait_for_end(instance_id, 30))
    assert ended.runtime_status is OrchestrationStatus.COMPLETED
    assert answers == []


QUEUED: Final = [f"op-{number}" for number in range(6)]


@contextmanager
def slow_calls(calls: Counter[str]) -> Iterator[tuple[TaskHubStage, threading.Event]]:
    """Run a hub with one activity at a time, whose attempts wait for an event."""
    goes_on, succeed = threading.Event(), failing(0)

    def answer(name: str, given: dict[str, Any]) -> Any:
        if name == "attempt":
            calls[given["operation"]["operation_id"]] += 1
            goes_on.wait(60)
        return succeed(name, given)

    configured = using(parse_config("[dependencies.payments]\ntimeouts = { attempt_seconds = 5 }\n", {}))
    with configured, task_hub_stage(activities_at_once=1) as hub:
        hub.answer = answer
        try:
            yield hub, goes_on
        finally:
            goes_on.set()


async def test_what_is_queued_behind_slow_calls_is_called_once_however_late_it_is() -> None:
    calls: Counter[str] = Counter()
    with slow_calls(calls) as (hub, goes_on):
        await change_checks(lambda _: QueueChecks())
        for operation_id in QUEUED:
            await submitted(hub, operation_id=operation_id, key=operation_id)

        async def is_queued() -> bool:
            statuses = {(await found(hub, each)).runtime_status for each in QUEUED}
            return statuses == {OrchestrationStatus.RUNNING}

        await until(is_queued)
        for minutes in range(2, 60, 3):
            assert await moved(hub, timedelta(minutes=minutes)) == set(), minutes
        assert calls.total() == 1
        goes_on.set()
        for operation_id in QUEUED:
            ended = existing(await hub.binding.wait_for_end(operation_id, 30))
            assert document_of(ended)["status"] == "succeeded"
        assert calls == Counter(QUEUED)
        await until(lambda: checks_are_through(hub))
        await close_clients()


async def test_a_retention_whose_step_was_lost_is_nudged_by_its_timer_and_ends(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "remove_past", AsyncMock(return_value=True))
    left, now = lose_activities(hub), datetime.now(UTC)
    hub.answer = lambda _name, _given: None
    await rounds.look_at(hub.binding, rounds.RetentionKind.RESULTS, now)

    await until(lambda: left == [0])
    for times in (1, 2):
        await rounds.look_at(hub.binding, rounds.RetentionKind.RESULTS, now + times * MAINTENANCE_EVERY)
        await until(lambda: checks_are_through(hub))
    part = rounds.RetentionPart(rounds.RetentionKind.RESULTS, 0)
    ended = existing(await hub.binding.wait_for_end(part.instance_id, 30))
    assert ended.runtime_status is OrchestrationStatus.COMPLETED


def test_each_orchestration_but_five_is_watched() -> None:
    assert {
        PASS_TURN,
        CALL_NEXT,
        DIAGNOSIS,
        RETENTION,
        QUEUE_CHECK,
    } == orchestrations().keys() - watched_names()

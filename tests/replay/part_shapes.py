"""Shapes to record of an outbox, a batch, a saga, a bulk action, a release, a call and retention."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import (
    DUE_AT,
    ENDED_EVENT,
    Category,
    EventState,
    OperationState,
)
from durable_retry.features.circuit_controls.names import RELEASE_WAITING
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.features.diagnosis.names import DIAGNOSIS
from durable_retry.features.freeze.names import COUNT_FROZEN, FREEZE, KEEP_FROZEN
from durable_retry.features.freeze.rules import Crowd, Release, Seen, Thaw, Wave
from durable_retry.features.in_process.names import CALL, LOOK_AT_CALL, START_CALL
from durable_retry.features.limits.names import CALL_NEXT
from durable_retry.features.order.names import PASS_TURN
from durable_retry.features.outbox.names import OUTBOX, OUTBOX_PENDING, PUBLISH
from durable_retry.features.outbox.rules.outbox import StoredEvent, event_id_for
from durable_retry.features.retention.names import REMOVE_PAST, RETENTION
from durable_retry.features.standstill.names import QUEUE_CHECK
from durable_retry.features.workflows import names as workflow_names
from durable_retry.features.workflows.names import BATCH, SAGA, SUBMIT
from durable_retry.features.workflows.rules.restart import RestartBody, restarted
from durable_retry.features.workflows.rules.shapes import BatchProgress, Saga, SagaStep, step_sizes
from durable_retry.rules.circuit.breaker import ManualControl
from durable_retry.rules.circuit.freeze import Freeze
from durable_retry.rules.circuit.retry_budget import BudgetPostponed
from durable_retry.rules.circuit.snapshot import Refused
from durable_retry.rules.circuit.states import CircuitSettings
from durable_retry.rules.circuit.transitions import ManualAction
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.completion import Completion
from durable_retry.rules.retry.loop import Blocked, NeedsProbe
from durable_retry.rules.retry.policy import RetryPolicy
from durable_retry.runtime import clock
from durable_retry_console.bulk.names import (
    BULK_ACTION,
    BULK_ENDS,
    BULK_PAGE,
    CANCEL_BULK_EVENT,
    RESUME_BULK_EVENT,
)
from durable_retry_console.bulk.proof import End, Proof
from durable_retry_console.bulk.shapes import BatchResult, BulkAction, BulkInput, BulkProgress, BulkState
from tests.replay.recording import Shape, Steer
from tests.support.builders import an_operation, outcome
from tests.support.hub import TaskHubStage

TARGET: Final = Dependency(
    name="payments",
    base_url="https://payments.example.com",
    retry=RetryPolicy(strategy="fixed", initial_seconds=0.05, jitter="none", max_attempts=3),
)


def part_shapes() -> dict[str, dict[str, Shape]]:
    """Return every shape by its orchestrator and its name."""
    return {
        OUTBOX: _outboxes(),
        BATCH: _batches(),
        SAGA: _sagas(),
        BULK_ACTION: _bulk_actions(),
        RELEASE_WAITING: _releases(),
        CALL: _calls(),
        RETENTION: _retentions(),
        DIAGNOSIS: _diagnoses(),
        QUEUE_CHECK: _queue_checks(),
        PASS_TURN: _turns(),
        CALL_NEXT: _next_calls(),
        FREEZE: _freezes(),
    }


def _turns() -> dict[str, Shape]:
    def told(run: int) -> Shape:
        given = {"operation_id": "op-1", "run": run}
        return Shape("turn-1", given, lambda _name, _given: None)

    return {"first_run": told(1_763_719_200_000), "replay": told(1_763_719_260_000)}


def _next_calls() -> dict[str, Shape]:
    def told(*waiters: str) -> Shape:
        given = {"waiters": list(waiters), "dependency": "payments"}
        return Shape("next-1", given, lambda _name, _given: None)

    return {"operation": told("op-1"), "several": told("op-1", "outbox-op-1")}


def _calls() -> dict[str, Shape]:
    document = {"operation_id": "op-1", "status": "succeeded", "result": {"value": 7}}
    return {
        "ended_at_once": _call({"document": document}),
        "notified": _call({"document": None}, {"document": document}),
        "refused": _call({"problems": [{"pointer": "/dependency", "detail": "is none"}]}),
        "key_taken": _call({"is_taken": True}, {"document": document}),
        "continued_as_new": _call(*[{"document": None}] * 22, {"document": document}),
    }


def _call(*looks: dict[str, Any]) -> Shape:
    """Run a call whose looks find these in turn; a report comes after each that found nothing."""
    left = list(looks)

    def answer(name: str, _given: dict[str, Any]) -> Any:
        if name == START_CALL:
            if left[0].keys() & {"problems", "is_taken"}:
                return left.pop(0)
            return {"operation_id": "op-1"}
        return left.pop(0)

    async def steer(stage: TaskHubStage) -> None:
        for number in range(len([look for look in looks if "document" in look]) - 1):
            await _until_looked(stage, number + 1)
            await stage.binding.raise_event("call-1", ENDED_EVENT, _completion("op-1").to_json())

    keys = ["ship/order-7/1", "ship/order-7/e1/1"]
    given = {"document": {"handler": "ship-order"}, "since": to_rfc3339(clock.now()), "keys": keys}
    return Shape("call-1", given, answer, steer)


async def _until_looked(stage: TaskHubStage, times: int) -> None:
    """Wait until an activity has looked so often how the operation of a call ended."""
    for _ in range(500):
        if sum(name == LOOK_AT_CALL for name, _ in stage.activities) >= times:
            return
        await asyncio.sleep(0.02)


def _outboxes() -> dict[str, Shape]:
    refusal = outcome(1, category=Category.MALFORMED, status_code=422, error="no")
    refused = Refused(clock.now(), 0, clock.now(), "the circuit is open")
    postponed = BudgetPostponed(clock.now() + timedelta(seconds=0.1), reserved=True)
    return {
        "nothing_left": _outbox([]),
        "sent": _outbox(["queue", "dependency", "queue"]),
        "retried": _outbox(["dependency", "queue"], _failure(1), _failure(2)),
        "given_up": _outbox(["dependency", "queue"], refusal),
        "circuit_waited": _outbox(["dependency"], _stopped(refused)),
        "probed": _outbox(["dependency"], _stopped(NeedsProbe(CircuitSettings()))),
        "budget_waited": _outbox(["dependency"], _stopped(postponed)),
        "continued_as_new": _outbox(["queue"] * 22),
    }


def _failure(number: int) -> dict[str, Any]:
    return outcome(number, category=Category.TRANSIENT, status_code=503, error="no")


def _stopped(stop: Blocked) -> dict[str, Any]:
    return {"stopped": stop.to_json()}


def _outbox(targets: Iterable[str], *first_answers: dict[str, Any]) -> Shape:
    """Send events, of which those to a dependency get these answers first."""
    pending = {event.event_id: event for event in map(_event, range(1, 100), targets)}
    answers = list(first_answers)

    def answer(name: str, given: dict[str, Any]) -> Any:
        if name == OUTBOX_PENDING:
            left = [event.to_delivery(_target_of(event)) for event in pending.values()]
            return {"place": {}, "deliveries": [delivery.to_json() for delivery in left]}
        operation = given["delivery"]["operation"]
        event_id = operation["operation_id"]
        if name == PUBLISH and operation["dependency"] == TARGET.name and answers:
            return answers.pop(0) | {"event_id": event_id}
        del pending[event_id]
        return outcome(given["attempt"]) | {"event_id": event_id} if name == PUBLISH else "dl-1"

    return Shape("outbox-op-1", {"operation_id": "op-1"}, answer)


def _event(number: int, target: str) -> StoredEvent:
    place = {"queue": "events"} if target == "queue" else {"dependency": TARGET.name, "path": "/hook"}
    return StoredEvent(
        event_id=event_id_for("op-1", number),
        event={"type": "t", "data": None, **place},
        state=EventState.PENDING,
        created_at=clock.now(),
        pending_since=clock.now(),
    )


def _target_of(event: StoredEvent) -> Dependency | None:
    return None if "queue" in event.event else TARGET


def _batches() -> dict[str, Shape]:
    return {
        "notified": _batch(3, silent=set()),
        "ended_in_silence": _batch(3, silent={0, 1, 2}),
        "continued_as_new": _batch(30, silent=set()),
    }


def _batch(total: int, *, silent: set[int]) -> Shape:
    """Run items two at a time; those that are silent have ended when somebody starts them."""

    def answer(name: str, given: dict[str, Any]) -> Any:
        if name != workflow_names.BATCH_STEP:
            return None
        running = [[index, f"op-{index}"] for index in given["start"] if index not in silent]
        return {"running": running, "sizes": step_sizes(given)}

    given = {"batch_id": "batch-1", "progress": BatchProgress(total=total, max_concurrency=2).to_json()}
    return Shape(
        "batch-1", given, answer, _completing_each("batch-1", [f"op-{index}" for index in range(total)])
    )


def _completing_each(instance_id: str, operation_ids: list[str]) -> Steer:
    """Send a batch or a saga the ends of operations, each after it was started."""

    async def steer(stage: TaskHubStage) -> None:
        for operation_id in operation_ids:
            await _until_given(stage, operation_id)
            await stage.binding.raise_event(instance_id, ENDED_EVENT, _completion(operation_id).to_json())

    return steer


async def _until_given(stage: TaskHubStage, operation_id: str) -> None:
    """Wait until an activity was asked to start an operation."""
    index = operation_id.removeprefix("op-")
    for _ in range(200):
        if any(
            index in map(str, given.get("start", [])) or operation_id in str(given.get("operation"))
            for _, given in stage.activities
        ):
            return
        await asyncio.sleep(0.02)


def _completion(operation_id: str) -> Completion:
    return Completion(operation_id=operation_id, status=OperationState.SUCCEEDED, attempt_count=1)


def _sagas() -> dict[str, Shape]:
    return {
        "succeeded": _saga(),
        "compensated": _saga("op-do-2"),
        "compensation_failed": _saga("op-do-2", "op-undo-0"),
        "notified": Shape(
            "saga-1",
            {"saga": _three_steps().to_json()},
            lambda _name, _given: {"ending": None},
            _completing_each("saga-1", [f"op-do-{number}" for number in range(3)]),
        ),
        "results": _saga_with_results(),
        "restarted": _restarted_saga(),
    }


def _restarted_saga() -> Shape:
    """Run a saga again of which the first step stands, the second was undone and the third was refused."""
    saga = _three_steps()
    refused = Completion(
        operation_id="op-do-2",
        status=OperationState.DEAD_LETTERED,
        category=Category.BUSINESS_RULE,
        attempt_count=1,
    )
    ends = [("op-do-0", None), ("op-do-1", "op-undo-1"), (None, None)]
    steps = [
        step.ended(
            refused if done is None else _completion(done), None if undone is None else _completion(undone)
        )
        for step, (done, undone) in zip(saga.steps, ends, strict=True)
    ]
    again = restarted(saga.with_steps(tuple(steps)), RestartBody(note="mended"), clock.now(), "ada")
    return replace(_saga(), given={"saga": again.to_json()})


def _saga_with_results() -> Shape:
    """Report the end of a step whose result the next one uses; the third needs one that is not there."""
    looks: list[str] = []

    def answer(_name: str, given: dict[str, Any]) -> Any:
        operation_id = given["operation"]["operation_id"]
        looks.append(operation_id)
        if operation_id == "op-do-0" and looks.count(operation_id) == 1:
            return {"ending": None}
        if "missing" in given:
            completion = Completion(
                operation_id=operation_id, status=OperationState.DEAD_LETTERED, category=Category.MALFORMED
            )
            return {"ending": completion.to_json()}
        values = {"/json/id": 7} if given.get("wanted") else None
        return {"ending": replace(_completion(operation_id), values=values).to_json()}

    plain = _three_steps()
    steps = [
        replace(plain.steps[0], wanted=("/json/id", "/json/none")),
        *(
            replace(step, operation=replace(step.operation, request=None, input={"$result": reference}))
            for step, reference in zip(plain.steps[1:], ("s0#/json/id", "s0#/json/none"), strict=True)
        ),
    ]
    saga = replace(plain, steps=tuple(steps))
    given = {"saga": saga.to_json()}
    return Shape("saga-1", given, answer, _completing_each("saga-1", ["op-do-0"]))


def _saga(*failing: str) -> Shape:
    """Run three steps; every operation has ended when it is looked at, some of them badly."""

    def answer(name: str, given: dict[str, Any]) -> Any:
        assert name == SUBMIT
        operation_id = given["operation"]["operation_id"]
        if operation_id not in failing:
            return {"ending": _completion(operation_id).to_json()}
        completion = Completion(
            operation_id=operation_id, status=OperationState.DEAD_LETTERED, category=Category.MALFORMED
        )
        return {"ending": completion.to_json()}

    return Shape("saga-1", {"saga": _three_steps().to_json()}, answer)


def _three_steps() -> Saga:
    return Saga(
        saga_id="saga-1",
        created_at=clock.now(),
        steps=tuple(
            SagaStep(
                name=f"s{at}",
                operation=an_operation(operation_id=f"op-do-{at}", key=f"do-{at}"),
                compensation=an_operation(operation_id=f"op-undo-{at}", key=f"undo-{at}"),
            )
            for at in range(3)
        ),
    )


def _bulk_actions() -> dict[str, Shape]:
    async def cancel(stage: TaskHubStage) -> None:
        while len(stage.activities) < 2:  # noqa: ASYNC110 - the worker runs on threads of its own
            await asyncio.sleep(0.02)
        await stage.binding.raise_event("bulk-1", CANCEL_BULK_EVENT, {})

    async def once_stopped(event: str, stage: TaskHubStage) -> None:
        shown: dict[str, Any] = {}
        # The wait has an end that is shown.
        while shown.get("status") != BulkState.STOPPED or DUE_AT not in shown:
            await asyncio.sleep(0.02)
            instance = await stage.binding.read_instance("bulk-1")
            shown = (instance and instance.custom_status) or {}
        await stage.binding.raise_event("bulk-1", event, {"stopped_at": shown["stopped_at"]})

    selected: dict[str, Any] = {"filter": None, "ids": ("dl-0", "dl-1")}
    proving: dict[str, Any] = {
        "rate": 25,
        "progress": BulkProgress(proof=Proof(stop_at_failed=0.5, since=clock.now())),
    }
    return {
        "completed": _bulk_action(4, rate=2),
        "cancelled": _bulk_action(4, rate=0.1, steer=cancel),
        "circuit_waited": _bulk_action(2, rate=2, held=2),
        "second_page": _bulk_action(2, rate=1, per_page=1),
        "filtered": _bulk_action(4, rate=2, per_page=2, action=BulkAction.ARCHIVE),
        "selected": _bulk_action(2, rate=2, action=BulkAction.CANCEL, by=None, **selected),
        "proved": _bulk_action(8, **proving),
        "stopped": _bulk_action(8, fails=True, steer=partial(once_stopped, CANCEL_BULK_EVENT), **proving),
        "resumed": _bulk_action(8, fails=True, steer=partial(once_stopped, RESUME_BULK_EVENT), **proving),
    }


def _bulk_action(
    count: int,
    *,
    rate: float,
    held: int = 0,
    fails: bool = False,
    steer: Steer | None = None,
    per_page: int | None = None,
    **more: Any,
) -> Shape:
    """Act on dead letters; so many batches hold one up, and what begins before a resume may fail again."""
    holds = iter([True] * held)
    started: Counter[int] = Counter()

    def answer(name: str, given: dict[str, Any]) -> Any:
        if name == BULK_PAGE:
            first = int(given["cursor"] or 0)
            last = min(count, first + (per_page or given["limit"]))
            ids = [f"dl-{number}" for number in range(first, last)]
            return {"ids": ids, "cursor": None if last == count else str(last)}
        if name == BULK_ENDS:
            counts = {"succeeded": count, "failed_again": 0, "under_way": 0, "cursor": None}
            if "resumes" not in given:
                return counts
            ended = started[given["resumes"]]
            failed = fails and not given["resumes"]
            end = End(at=clock.now(), failed=failed, why="still 422 at /amount" if failed else None)
            return {**counts, "ended": ended, "latest": [end.to_json()] * min(ended, 20)}
        started[given.get("resumes", 0)] += len(given["ids"])
        left = tuple(given["ids"][:1]) if next(holds, False) else ()
        return BatchResult(
            started=len(given["ids"]) - len(left),
            left=left,
            held_until=clock.now() + timedelta(seconds=0.2) if left else None,
        ).to_json()

    given = {
        "action_id": "bulk-1",
        "action": BulkAction.REPLAY,
        "filter": DeadLetterFilter().to_json(),
        "rate_per_second": rate,
        "matched": count,
        "created_at": clock.now(),
        "by": "ada",
        **more,
    }
    return Shape("bulk-1", BulkInput(**given).to_json(), answer, steer)


def _releases() -> dict[str, Shape]:
    action = ManualAction(ManualControl.CLOSE, clock.now(), by="ada", reason="mended", for_seconds=None)
    given = {"dependency": "payments", "hand": action.to_json()}
    one_waits = {"changed_at": to_rfc3339(clock.now()), "position": None, "woken": 1, "woken_in_pass": 0}
    return {
        "nobody_waits": Shape("release-1", given, _nothing),
        "second_pass": Shape("release-1", given | {"progress": one_waits | {"passes": 2}}, _nothing),
    }


def _nothing(name: str, _given: dict[str, Any]) -> Any:
    raise AssertionError(name)


_NOTHING_SEEN: Final = Seen()


def _freezes() -> dict[str, Shape]:
    """Keep a freeze until its end, another one, or the end of a thaw; each is the last execution of one."""
    now = clock.now()
    freeze = Freeze(now, now, "ada", "wrong amounts", now + timedelta(seconds=2), stops_deadline=True)
    thaw = Thaw("ada", now, (0.1, 1.0), 0.1)
    wave, crowds = Wave(2, (0.1, 1.0), "ada", waiting=3, released=1), {"payments": Crowd(3, 0.2)}
    last = {"thaw": replace(thaw, number=1).to_json()}
    return {
        "over": _freeze(freeze, {}),
        "replaced": _freeze(freeze, {}, Seen(is_latest=False)),
        "thawed": _freeze(freeze, last | {"release": Release(crowds, wave, now).to_json()}),
        "nobody_waits": _freeze(replace(freeze, until=None), {"thaw": replace(thaw, waves=(1.0,)).to_json()}),
    }


def _freeze(freeze: Freeze, more: dict[str, Any], seen: Seen = _NOTHING_SEEN) -> Shape:
    def answer(name: str, _given: dict[str, Any]) -> Any:
        if name == COUNT_FROZEN:
            return {"crowds": {}, "following": None}
        return seen.to_json() if name == KEEP_FROZEN else {"woken": 0, "following": None}

    return Shape("freeze-1", {"freeze": freeze.to_json(), **more}, answer)


def _retentions() -> dict[str, Shape]:
    return {"drained": _retention(1), "continued_as_new": _retention(22)}


def _retention(steps: int) -> Shape:
    """Remove until nothing is left, which so many steps do not reach."""
    left = iter([True] * steps)

    def answer(name: str, _given: dict[str, Any]) -> Any:
        assert name == REMOVE_PAST
        return next(left, False)

    return Shape("retention-markers-0", {"kind": "markers", "shard": 0}, answer)


def _diagnoses() -> dict[str, Shape]:
    return {"works": _diagnosis(""), "index_fails": _diagnosis("HttpResponseError: no")}


def _diagnosis(trouble: str) -> Shape:
    return Shape("diagnosis-1", {}, lambda _name, _given: trouble)


def _queue_checks() -> dict[str, Shape]:
    """Go through the queues, also where a worker dies in the first of them."""
    deaths = iter([RuntimeError("the worker died")])

    def dies(_name: str, _given: dict[str, Any]) -> None:
        for death in deaths:
            raise death

    return {
        "through": Shape("queue_check-1", {}, lambda _name, _given: None),
        "worker_failed": Shape("queue_check-2", {}, dies),
    }

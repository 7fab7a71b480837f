"""The orchestrations of a batch, of a saga, and of one call by an orchestration of the app's own.

A batch runs a bounded number of operations at a time, until every item has ended. A saga runs one operation
after the other, in the order of `engine.workflows.shapes.Saga`. A call runs one. All wait for operations to
end. An operation reports its end; where no report can come, a look (a poll of its state) now and then finds
it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, timedelta
from typing import Any, Final

import azure.durable_functions as df
from durabletask import task

from durable_retry.engine.base.names import (
    BATCH,
    BATCH_CLOSE,
    BATCH_STEP,
    BEGIN_RESTART,
    CALL,
    END_RESTART,
    ENDED_EVENT,
    LOOK_AT_CALL,
    SAGA,
    START_CALL,
    SUBMIT,
)
from durable_retry.engine.operations.completion import Completion
from durable_retry.engine.workflows.document import saga_document
from durable_retry.engine.workflows.references import MissingResultError
from durable_retry.engine.workflows.shapes import BatchProgress, Do, Over, Saga, Undo
from durable_retry.stores.sagas import saga_progress

from .turns import Turns, call_until_success

blueprint = df.Blueprint()

_FIRST_LOOK: Final = timedelta(seconds=30)
_LAST_LOOK: Final = timedelta(minutes=5)


@dataclass(slots=True)
class CompletionReports:
    """The reports of operations that ended.

    No report comes from an operation that was submitted elsewhere under the same key, or whose orchestration
    was terminated by hand: these are found by a look.

    Attributes:
        quiet_looks: Looks in a row that found nothing ended; they make the next wait longer.
    """

    ctx: task.OrchestrationContext
    quiet_looks: int = 0
    _next: task.CancellableTask[Any] = field(init=False)
    _look: task.Task[Any] | None = None

    def __post_init__(self) -> None:
        self._next = self.ctx.wait_for_external_event(ENDED_EVENT)

    def wait(self) -> Turns[list[Completion]]:
        """Wait until ends are reported, and return them; none when it is time to look."""
        if self._look is None:
            # One timer at a time: each abandoned one would cost a turn.
            self._look = self.ctx.create_timer(min(_FIRST_LOOK * 2 ** min(self.quiet_looks, 10), _LAST_LOOK))
        completions: list[Completion] = []
        while not completions and not self._look.is_complete:
            yield task.when_any([self._look, self._next])
            completions = self.arrived()
        if self._look.is_complete:
            self._look = None
        self.quiet_looks = 0 if completions else self.quiet_looks + 1
        return completions

    def arrived(self) -> list[Completion]:
        """Return the reports that arrived and were not returned yet.

        Call it before continuing as new: reports that were delivered already are not carried over.
        """
        arrived = []
        while self._next.is_complete:
            completion = _read_completion(self._next.get_result())
            self._next = self.ctx.wait_for_external_event(ENDED_EVENT)
            if completion is not None:
                arrived.append(completion)
        return arrived


def _read_completion(data: Any) -> Completion | None:
    # Anyone may send an external event, and in any form.
    try:
        return Completion.from_json(data)
    except (KeyError, TypeError, ValueError):
        return None


LAPS_PER_HISTORY: Final = 20
"""Rounds of a batch after which the orchestration continues as new, so that each item costs the same."""


def batch(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Turns[None]:
    """Run the items of a batch.

    Args:
        input_: `batch_id`, and `progress`, the JSON form of a `BatchProgress`.
    """
    batch_id, progress = input_["batch_id"], BatchProgress.from_json(input_["progress"])
    reports = CompletionReports(ctx)
    laps = 0
    completions: list[Completion] = []
    while not progress.is_over:
        completions.extend(reports.arrived())
        # Reports must be stored before the history is cut: they are not carried over.
        if laps >= LAPS_PER_HISTORY and not completions:
            ctx.continue_as_new({"batch_id": batch_id, "progress": progress.to_json()}, save_events=True)
            return
        laps += 1
        progress = yield from _store_and_start(ctx, batch_id, progress, completions)
        completions = reports.arrived()
        if not completions and not progress.startable and progress.running:
            completions = yield from reports.wait()
            if not completions:
                progress = yield from _look_at_items(ctx, batch_id, progress)
    yield from call_until_success(ctx, BATCH_CLOSE, {"batch_id": batch_id})


def _store_and_start(
    ctx: task.OrchestrationContext, batch_id: str, progress: BatchProgress, completions: Iterable[Completion]
) -> Turns[BatchProgress]:
    ended = [
        {"indices": list(progress.running[completion.operation_id]), "ending": completion.to_json()}
        for completion in completions
        if completion.operation_id in progress.running
    ]
    left = progress.without(completion.operation_id for completion in completions)
    start = left.startable
    if not ended and not start:
        return left
    request = {"batch_id": batch_id, "ended": ended, "start": start}
    answer = yield from call_until_success(ctx, BATCH_STEP, request)
    return left.with_started(start, dict(answer["running"]))


def _look_at_items(
    ctx: task.OrchestrationContext, batch_id: str, progress: BatchProgress
) -> Turns[BatchProgress]:
    # The activity stores the ends of those that ended without a report.
    indices = sorted(index for items in progress.running.values() for index in items)
    request = {"batch_id": batch_id, "ended": [], "start": indices}
    answer = yield from call_until_success(ctx, BATCH_STEP, request)
    none_running = progress.without(progress.running)
    return none_running.with_started([], dict(answer["running"]))


blueprint.orchestration_trigger(context_name="context", orchestration=BATCH)(batch)


LOOKS_PER_HISTORY: Final = 20
"""Starts and looks after which the orchestration continues as new, so that its history stays short."""


def saga(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Turns[dict[str, Any] | None]:
    """Carry a saga to its end.

    Args:
        input_: `saga`: the JSON form of a `Saga`, as far as it has come; of a restart also `restart`, the
            token that it was written with. Restarts of older versions have none.

    Returns:
        Its document; None when the orchestration continues as new.
    """
    state = Saga.from_json(input_["saga"])
    token: str | None = input_.get("restart")
    if token is not None:
        latest = yield from call_until_success(
            ctx, BEGIN_RESTART, {"saga_id": state.saga_id, "restart": token}
        )
        if latest["saga"] is not None:
            ctx.continue_as_new(latest, save_events=True)
            return None
    over = yield from _carried_out(ctx, state, token)
    if over is None:
        return None
    if token is not None:
        ended = {"saga_id": over.saga_id, "restart": token, "saga": over.to_json()}
        yield from call_until_success(ctx, END_RESTART, ended)
    return saga_document(over, ctx.current_utc_datetime.replace(tzinfo=UTC)).to_json()


def _carried_out(ctx: task.OrchestrationContext, state: Saga, token: str | None) -> Turns[Saga | None]:
    """Run what is left of a saga; None when the orchestration continues as new."""
    reports = CompletionReports(ctx)
    looks = 0
    while not isinstance(action := state.next_action, Over):
        _show_saga(ctx, state)
        completion: Completion | None = None
        while completion is None:
            if looks == LOOKS_PER_HISTORY:
                more = {} if token is None else {"restart": token}
                ctx.continue_as_new({"saga": state.to_json(), **more}, save_events=True)
                return None
            looks += 1
            completion = yield from _look_at_step(ctx, state, action, reports)
        state = state.after(action, completion)
    _show_saga(ctx, state)
    return state


def _look_at_step(
    ctx: task.OrchestrationContext, state: Saga, action: Do | Undo, reports: CompletionReports
) -> Turns[Completion | None]:
    """Start an operation unless it was started before, and wait for its end until the next look is due."""
    operation, wanted = state.operation_of(action), state.wanted_of(action)
    # Without references to the step the call is the same as in older histories.
    call: dict[str, Any] = {"wanted": list(wanted)} if wanted else {}
    try:
        operation = state.filled_operation(action)
    except MissingResultError as error:
        call = {"missing": str(error)}
    call["operation"] = replace(operation, reports_to=ctx.instance_id).to_json()
    answer = yield from call_until_success(ctx, SUBMIT, call)
    if answer["ending"] is not None:
        return Completion.from_json(answer["ending"])
    while completions := (yield from reports.wait()):
        for completion in completions:
            if completion.operation_id == operation.operation_id:
                # A report has no values: the next look, at once, reads them from the status document.
                return None if wanted and completion.succeeded else completion
    return None


def _show_saga(ctx: task.OrchestrationContext, state: Saga) -> None:
    ctx.set_custom_status(saga_progress(state))


blueprint.orchestration_trigger(context_name="context", orchestration=SAGA)(saga)


def call_operation(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Turns[dict[str, Any] | None]:
    """Run one operation for `durable_retry.call`.

    Args:
        input_: `document`, the body of `POST /api/operations`, and `since`, when the caller's execution
            began; or `problems`: why it is not sent. When it continues as new `operation_id`.

    Returns:
        `document`, the operation's last status document, or `problems`: why it was never started. None when
        the orchestration continues as new.
    """
    if "problems" in input_:
        return {"problems": input_["problems"]}
    reports = CompletionReports(ctx)
    operation_id = input_.get("operation_id")
    if operation_id is None:
        given = {
            "document": input_["document"],
            "instance": ctx.instance_id,
            "since": input_.get("since"),
        }
        started = yield from call_until_success(ctx, START_CALL, given)
        if "problems" in started:
            refused: dict[str, Any] = started
            return refused
        operation_id = started["operation_id"]
    for _ in range(LOOKS_PER_HISTORY):
        looked = yield from call_until_success(ctx, LOOK_AT_CALL, {"operation_id": operation_id})
        if looked.get("document", looked) is not None:
            answer: dict[str, Any] = looked
            return answer
        yield from reports.wait()
    ctx.continue_as_new({**input_, "operation_id": operation_id}, save_events=True)
    return None


blueprint.orchestration_trigger(context_name="context", orchestration=CALL)(call_operation)

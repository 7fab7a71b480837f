"""The orchestration of one operation: it carries out what `rules.retry.loop` decides.

attempt ──> wait ──> attempt ... ──> commit, dead letter or cancelled
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC
from functools import cache, partial
from typing import Any, Final, assert_never

import azure.durable_functions as df
from durabletask import task

from durable_retry.base.names import (
    ATTEMPT,
    CANCEL_EVENT,
    COMMIT,
    ENDED_EVENT,
    OPERATION,
    PAUSE_EVENT,
    Category,
    DeadLetterReason,
    OperationState,
)
from durable_retry.base.text import cut_text
from durable_retry.base.trace_context import TraceContext
from durable_retry.hub.executor_guard import show_at_end
from durable_retry.hub.turns import (
    Asking,
    OwnFailureError,
    Signals,
    Turns,
    attempt_answer_of,
    call_until_success,
    followed,
    give_slot_back,
    keep_dead_letter,
    renamed_in,
)
from durable_retry.operations.entities import record_id
from durable_retry.plugins import features_of, plugins
from durable_retry.rules.facts import OperationEnded
from durable_retry.rules.operations.completion import (
    SENT_ONCE,
    Committed,
    Completion,
    Success,
    unreadable_document,
    written_operation,
)
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.operations.status import moving_parts
from durable_retry.rules.retry.decide import DeadLetter, Decision, Done, Wait, overdue
from durable_retry.rules.retry.history import AttemptOutcome, Conflict
from durable_retry.rules.retry.loop import (
    AttemptNow,
    Blocked,
    BlockedStep,
    NeedsProbe,
    RequestProbe,
    RequestSlot,
    WorkerFailed,
    before_turn,
    lease_expired,
)
from durable_retry.settings.configuration import function_name
from durable_retry.telemetry.facts import report

from .run import Run, Withdrawn, feature_module, goes_on_after_hold

blueprint = df.Blueprint()

_DETAIL_CHARS: Final = 500

type Follower = Callable[[Run, Committed, Success], Mapping[str, Any]]
"""Begins what follows a success that is committed; returns what the status document shows of it."""


def operation(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Turns[dict[str, Any] | None]:
    """Carry one operation to its end.

    Args:
        input_: `{"operation": OperationInput}`; when it continues as new, what `Run.carried_on`
            returned.

    Returns:
        The status document of the finished operation; None when the orchestration continues as new.
    """
    try:
        run = Run.resume(ctx, input_)
    except Exception as error:  # noqa: BLE001 - whatever it is, the operation must end where a person sees it
        document = yield from _end_unreadable(ctx, input_, error)
        _report_end(ctx, written_operation(input_).get("reports_to"), document, None)
        return document
    last_document = yield from _end_whatever_happens(run)
    if last_document is not None:
        _report_end(ctx, run.operation.reports_to, last_document, run.operation.trace)
    return last_document


def _report_end(
    ctx: task.OrchestrationContext, waiting: Any, document: dict[str, Any], trace: TraceContext | None
) -> None:
    if not ctx.is_replaying:
        report(OperationEnded(document, trace))
    # A batch, a saga or a call waits for this operation.
    completion = Completion.of(document)
    if isinstance(waiting, str) and completion is not None:
        ctx.send_event(waiting, ENDED_EVENT, data=completion.to_json())


def _end_unreadable(ctx: task.OrchestrationContext, input_: Any, error: Exception) -> Turns[dict[str, Any]]:
    # The dead letter keeps the input as it is, for a person.
    operation_id, now = ctx.instance_id, ctx.current_utc_datetime.replace(tzinfo=UTC)
    detail = cut_text(
        f"the input of {operation_id} cannot be read: {type(error).__name__}: {error}", _DETAIL_CHARS
    )
    entry = {"operation_id": operation_id, "unreadable": input_, "detail": detail}
    dead_letter_id = yield from keep_dead_letter(Signals(ctx), entry)
    document = unreadable_document(operation_id, input_, now, dead_letter_id=dead_letter_id, detail=detail)
    ctx.set_custom_status(moving_parts(document))
    return document


@cache
def _followers() -> tuple[Follower, ...]:
    """Return what features do when a success is committed."""
    return tuple(feature_module(plugin.follower).follow for plugin in plugins() if plugin.follower)


def _wait_for_start(run: Run) -> Turns[dict[str, Any] | None]:
    """Wait until the operation begins, or is cancelled; return the status document where it ends before."""
    gates = {feature.name: feature.gate for feature in features_of(run.gates)}
    missing = next((name for name in run.gates if name not in gates), None)
    if missing is not None:
        detail = f"nothing was sent: it needs the feature {missing}, which this app does not have"
        letter = DeadLetter(Category.MALFORMED, DeadLetterReason.VALIDATION_FAILED, detail)
        return (yield from _end_as_dead_letter(run, letter))
    run.gates = tuple(name for name in run.gates if gates[name])
    if not run.gates and run.operation.start_at is not None:
        yield from run.wait_for_start(run.operation.start_at)
    while run.gates and run.goes_on:
        match (yield from feature_module(gates[run.gates[0]]).begin(run)):
            case Done() as decision:
                return (yield from _carry_out(run, decision))
            case DeadLetter() as decision:
                if (document := (yield from _carry_out(run, decision))) is not None:
                    return document
                run.laps += 1
                continue  # It was held and goes on, so the same gate is asked again.
            case Withdrawn(shown):
                return _finish_operation(run, OperationState.CANCELLED, **shown)
        if run.goes_on:
            run.gates = run.gates[1:]
    return None


def _end_whatever_happens(run: Run) -> Turns[dict[str, Any] | None]:
    # A failed orchestration would leave an operation without an end that people see. What the dependency did
    # until then is not known here, so the category is `ambiguous`. The SDK raises a mismatch of replay and
    # history outside of this generator: that stays a failure.
    try:
        document = None if run.has_begun and not run.gates else (yield from _wait_for_start(run))
        return document or (yield from _attempt_until_ended(run))
    except OwnFailureError:
        raise  # The dead letter cannot be stored now: upkeep finds the failed orchestration and stores one.
    except Exception as error:  # noqa: BLE001 - whatever it is, the operation must end where a person sees it
        detail = cut_text(f"the app itself failed: {type(error).__name__}: {error}", _DETAIL_CHARS)
        return (
            yield from _end_as_dead_letter(
                run, DeadLetter(Category.AMBIGUOUS, DeadLetterReason.AMBIGUOUS_OUTCOME, detail)
            )
        )


def _attempt_until_ended(run: Run) -> Turns[dict[str, Any] | None]:
    while run.goes_on:
        run.laps += 1
        if run.signals.has_come(PAUSE_EVENT) and not (yield from run.hold()):
            break
        if (finished := (yield from _make_one_lap(run))) is not None:
            return finished
    yield from run.hold()  # A pause that came in a lap without a wait would be lost with this history.
    if run.signals.has_come(CANCEL_EVENT):
        if run.unsettled is not None and not run.gates:
            run.follow(run.unsettled)  # The attempt was made, so the history must show it.
        return _end_as_cancelled(run)
    run.ctx.continue_as_new(run.carried_on(), save_events=True)
    return None


def _make_one_lap(run: Run) -> Turns[dict[str, Any] | None]:
    """Make one attempt and wait as decided; return the document of its end."""
    decision = _before_attempt(run) or (yield from _make_attempt(run))
    return None if decision is None else (yield from _carry_out(run, decision))


def _carry_out(run: Run, decision: Decision) -> Turns[dict[str, Any] | None]:
    match (yield from _in_place_of(run, decision)):
        case None:
            return None
        case Done() as decision:
            ended = yield from _commit_success(run, decision.result)
            if isinstance(ended, Conflict):
                return (yield from _carry_out(run, run.follow_conflict(ended)))
            return ended
        case DeadLetter() as decision:
            if (yield from goes_on_after_hold(run, decision)):
                return None
            return (yield from _end_as_dead_letter(run, decision))
        case Wait() as decision:
            yield from run.wait(decision)
            return None
        case _ as never:
            assert_never(never)


def _in_place_of(run: Run, decision: Decision) -> Turns[Decision | None]:
    """Let the features of the operation change a decision; None where the next attempt follows at once."""
    for feature in features_of(run.operation.parts):
        if feature.decision:
            changed: Decision | None = yield from feature_module(feature.decision).in_place_of(run, decision)
            if changed is None:
                return None
            decision = changed
    return decision


def _before_attempt(run: Run) -> Decision | None:
    if run.unsettled is not None:
        return None
    late = overdue(run.operation, run.state.history, run.state.due_at, run.now)
    return late or before_turn(run.state, run.now)


def _make_attempt(run: Run) -> Turns[Decision | None]:
    """Return what to do after an attempt; None while it is not settled."""
    while True:
        asked_at, step_at = run.now, None
        result = run.unsettled or run.needed_slot or (yield from _call_attempt(run))
        run.needed_slot = None
        answer = yield from _settled(run, result)
        if answer is None:
            return None
        if isinstance(answer, BlockedStep):
            step_at, answer = answer.dependency, answer.blocked
        dependency = step_at or run.operation.dependency
        asking = Asking(run.signals, run.operation, dependency, run.ctx.instance_id)
        if isinstance(answer, NeedsProbe) and run.state.admission_at(step_at).permit is not None:
            answer = lease_expired(run.now)
        follow = partial(run.follow, step_at=step_at, on_its_way=run.now - asked_at)
        action = yield from followed(asking, follow, answer)
        if not isinstance(action, AttemptNow | RequestProbe | RequestSlot):
            return action


def _call_attempt(run: Run) -> Turns[AttemptOutcome | WorkerFailed | Blocked | BlockedStep]:
    call, asked_at = run.attempt_call(), run.now

    def ask() -> task.Task[Any]:
        if run.now > asked_at:
            run.note_lost_answer(asked_at)
        run.show_running()
        answer_task: task.Task[Any] = run.ctx.call_activity(function_name(ATTEMPT), input=call.to_json())
        return answer_task

    answer_task = yield from run.signals.answer(ask, stopped_by=CANCEL_EVENT)
    read = run.read_answer(answer_task, lambda raw: (attempt_answer_of(raw, call.attempt), renamed_in(raw)))
    answer, name = (read, None) if isinstance(read, WorkerFailed) else read
    give_slot_back(run.ctx, run.operation.dependency, run.state.admission, answer)
    if call.step is not None and isinstance(answer, AttemptOutcome | WorkerFailed | BlockedStep):
        give_slot_back(run.ctx, call.step.dependency, call.step.admission, answer)
    if name is not None:
        run.go_on_as(replace(run.operation, dependency=name))
    return answer


def _settled(
    run: Run, answer: AttemptOutcome | WorkerFailed | Blocked | BlockedStep
) -> Turns[AttemptOutcome | WorkerFailed | Blocked | BlockedStep | None]:
    """Let the features of the operation find out what an outcome means; None while one needs another lap."""
    for feature in reversed(features_of(run.operation.parts)):  # lookup after polling: its end may be unknown
        if feature.settle and isinstance(answer, AttemptOutcome):
            run.unsettled = answer
            settled: AttemptOutcome | None = yield from feature_module(feature.settle).settle(run, answer)
            if settled is None:
                return None
            run.unsettled, answer = None, settled
    return answer


def _commit_success(run: Run, result: Mapping[str, Any]) -> Turns[dict[str, Any] | Conflict]:
    """Make the success durable: with writes or events it is one transaction, alone it needs no table.

    Returns:
        The document of its end, or the conflict after which the handler runs again.
    """
    result = dict(result)
    writes, events = result.pop("writes", []), result.pop("events", [])
    is_sent_once = result.pop(SENT_ONCE, False)
    parts = run.operation.parts_to_commit(is_recovered=run.is_recovered)
    if not writes and not events and not parts:
        return _finish_operation(run, OperationState.SUCCEEDED, result=result)
    success = Success(
        operation_id=run.operation.operation_id,
        life=run.operation.life,
        result=result,
        writes=tuple(writes),
        events=tuple(events),
        parts=parts or None,
        is_recovered=run.is_recovered or None,
        correlation_id=run.operation.correlation_id,
        trace=run.operation.trace,
        limit_key=run.operation.limit_key,
    )
    acted = f"attempt {run.state.history.attempt_count} succeeded and has taken effect, and is not committed"
    wait = partial(run.wait_out, "its commit", heeds_deadline=True)
    try:
        answer = yield from call_until_success(run.signals, COMMIT, success.to_json(), wait=wait)
    except OwnFailureError as error:
        if run.signals.has_come(CANCEL_EVENT):
            return _end_as_cancelled(run)
        letter = DeadLetter(Category.AMBIGUOUS, DeadLetterReason.AMBIGUOUS_OUTCOME, f"{acted}: {error}")
        return (yield from _end_as_dead_letter(run, letter))
    committed = Committed.from_json(answer)
    if committed.conflict is not None and not is_sent_once:
        return committed.conflict
    if (refusal := committed.rejected or committed.conflict) is not None:
        detail = f"{acted}: {refusal}"
        letter = DeadLetter(Category.MALFORMED, DeadLetterReason.REJECTED_BY_HANDLER, detail)
        return (yield from _end_as_dead_letter(run, letter))
    notes = {name: part for follow in _followers() for name, part in follow(run, committed, success).items()}
    return _finish_operation(run, OperationState.SUCCEEDED, result=result, **notes)


def _end_as_dead_letter(run: Run, decision: DeadLetter) -> Turns[dict[str, Any]]:
    """Store a dead letter with everything that a person needs to understand and to replay the operation."""
    if run.operation.undoes is not None:
        detail = f"saga {run.operation.undoes} cannot undo a step: {decision.reason.value}: {decision.detail}"
        decision = DeadLetter(decision.category, DeadLetterReason.COMPENSATION_FAILED, detail)
    why = {
        "category": decision.category.value,
        "reason": decision.reason.value,
        "detail": decision.detail,
    }
    operation = _for_a_replay(run, decision).to_json()
    entry = {"operation": operation, **why, **run.state.history.evidence()}
    try:
        wait = partial(run.wait_out, "the storing of its dead letter")
        dead_letter_id = yield from keep_dead_letter(run.signals, entry, wait)
    except OwnFailureError as error:
        if run.signals.has_come(CANCEL_EVENT):
            return _end_as_cancelled(run)
        raise OwnFailureError(f"{error}; it says {decision.reason.value}: {decision.detail}") from error
    notes: dict[str, Any] = {"dead_letter": {"id": dead_letter_id, **why}}
    for feature in features_of(run.operation.parts):
        if feature.failure:
            notes |= feature_module(feature.follower).follow_failure(run)
    return _finish_operation(run, OperationState.DEAD_LETTERED, **notes)


def _end_as_cancelled(run: Run) -> dict[str, Any]:
    run.note_action(CANCEL_EVENT, run.signals.take(CANCEL_EVENT))
    return _finish_operation(run, OperationState.CANCELLED)


def _for_a_replay(run: Run, decision: DeadLetter) -> OperationInput:
    # A replay continues the steps of this run, and does not undo what it did.
    acted = run.may_have_acted or decision.category is Category.AMBIGUOUS
    operation = replace(run.operation, acted_before=acted or None)
    return operation if operation.handler is None else replace(operation, steps_run=operation.remembered_run)


def _finish_operation(run: Run, state: OperationState, **more: Any) -> dict[str, Any]:
    """Show the end, complete the record of its key by a signal if it needs one, and return the document."""
    operation, document = run.operation, run.status(state, **more).to_json()
    show_at_end(run.ctx, partial(moving_parts, document))
    if state is not OperationState.SUCCEEDED or run.state.admission.waiting:
        run.leave_gates(for_good=True)
    if operation.needs_record(run.now):
        completion = operation.completion(document, run.now)
        run.ctx.signal_entity(record_id(operation.operation_id), "complete", completion.to_json())
    for feature in features_of(operation.parts):
        if feature.end:
            feature_module(feature.end).end(run, document)
    return document


blueprint.orchestration_trigger(context_name="context", orchestration=OPERATION)(operation)

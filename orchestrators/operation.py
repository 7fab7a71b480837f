"""The orchestration of one operation: it carries decisions out, and `engine.decide` makes them."""

from datetime import timedelta
from typing import Any, Final, assert_never

import azure.durable_functions as df
from durabletask import task

from engine.decide import CLOSED, DeadLetter, Done, RetryAt, WaitForCircuit, decide, overdue, record
from engine.ending import Ending
from engine.idempotency import ClaimAnswer
from engine.instants import to_rfc3339
from engine.operation import AttemptOutcome
from engine.vocabulary import Category, DeadLetterReason, OperationState
from engine.waits import WaitKind
from engine.wording import cut_text
from orchestrators.effort import insist
from orchestrators.passage import attempt_through_gate, wait_at_gate
from orchestrators.run import Run, Steps
from stores.status_document import moving_parts
from stores.task_hub import COMMIT, DEAD_LETTER, ENDED_EVENT, OPERATION, OUTBOX, outbox_instance

blueprint = df.Blueprint()

_CLAIM_AGAIN: Final = timedelta(seconds=30)
"""Another orchestration works on the same key: it ends sooner or later, and its answer is ours."""

_DETAIL_CHARS: Final = 500


def operation(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Steps[dict[str, Any] | None]:
    """Carry one operation to its end.

    Args:
        ctx: The durable context.
        input_: `{"operation": OperationInput}`, and what `Run.carried_on` adds when it continues.

    Returns:
        The status document of the finished operation; None when the orchestration continues as new.
    """
    run = Run.resume(ctx, input_)
    answered = None if run.holds_claim else (yield from _claim(run))
    document = answered or (yield from _to_some_end(run))
    if document is not None:
        _report(run, document)
    return document


def _report(run: Run, document: dict[str, Any]) -> None:
    """Tell the batch or the saga that waits for this operation how it ended."""
    waiting, ending = run.operation.reports_to, Ending.of(document)
    if waiting is not None and ending is not None:
        run.ctx.send_event(waiting, ENDED_EVENT, data=ending.to_json())


def _claim(run: Run) -> Steps[dict[str, Any] | None]:
    """Ask the record of the key whether this run may act; nothing has had an effect before this.

    Returns:
        None when it may. Otherwise the status document to answer with: the key was used up before, and this
        start (a duplicate that met a purged or replaced history) does nothing.
    """
    while True:
        request = {
            "owner": run.operation.run_id,
            "fingerprint": run.operation.fingerprint,
            "now": to_rfc3339(run.now),
            "replay": run.operation.replay_of is not None,
        }
        answer = yield run.ctx.call_entity(run.record, "claim", request)
        match ClaimAnswer(answer["answer"]):
            case ClaimAnswer.CLAIMED | ClaimAnswer.TAKEN_OVER:
                return None
            case ClaimAnswer.FINISHED | ClaimAnswer.MISMATCH if answer["document"] is not None:
                return dict(answer["document"])
            case ClaimAnswer.MISMATCH | ClaimAnswer.FINISHED:
                return run.status(OperationState.CANCELLED).to_json()
            case ClaimAnswer.IN_PROGRESS:
                yield run.ctx.create_timer(_CLAIM_AGAIN)
            case _ as never:
                assert_never(never)


def _to_some_end(run: Run) -> Steps[dict[str, Any] | None]:
    """Make attempts until nothing is left to do; a mistake of our own leaves the operation to a person.

    An orchestration that fails would end the operation too, but nobody would be asked to look at it. What the
    dependency did until then is not known here, so it counts as ambiguous. (A replay that does not fit its
    history is raised outside of this generator, and stays a failure.)
    """
    try:
        return (yield from _to_the_end(run))
    except Exception as error:  # noqa: BLE001 - whatever it is, the operation must end where a person sees it
        told = cut_text(f"the app itself failed: {type(error).__name__}: {error}", _DETAIL_CHARS)
        return (
            yield from _dead_letter(
                run, DeadLetter(Category.AMBIGUOUS, DeadLetterReason.AMBIGUOUS_OUTCOME, told)
            )
        )


def _to_the_end(run: Run) -> Steps[dict[str, Any] | None]:
    """Make attempts until nothing is left to do."""
    while not run.cancelled:
        if run.is_long:
            run.ctx.continue_as_new(run.carried_on(), save_events=True)
            return None
        run.steps += 1
        finished = yield from _one_round(run)
        if finished is not None:
            return finished
    return _finish(run, OperationState.CANCELLED)


def _one_round(run: Run) -> Steps[dict[str, Any] | None]:
    """Make one attempt, or wait to be let through; return the status document when that ended it."""
    if (too_late := overdue(run.operation, run.history, run.now)) is not None:
        return (yield from _dead_letter(run, too_late))
    outcome = yield from attempt_through_gate(run)
    if not isinstance(outcome, AttemptOutcome):
        too_late = yield from wait_at_gate(run, outcome)
        return None if too_late is None else (yield from _dead_letter(run, too_late))
    decision = decide(run.operation, run.history, outcome, CLOSED, run.now)
    run.history = record(run.history, outcome, decision)
    match decision:
        case Done():
            return (yield from _succeed(run, outcome))
        case DeadLetter():
            return (yield from _dead_letter(run, decision))
        case RetryAt():
            yield from run.wait_until(OperationState.WAITING_RETRY, decision.at, reasons=decision.reasons)
        case WaitForCircuit():
            yield from run.wait_until(
                OperationState.WAITING_CIRCUIT,
                decision.until,
                reasons=decision.reasons,
                kind=WaitKind.CIRCUIT,
            )
        case _:
            assert_never(decision)
    return None


def _succeed(run: Run, outcome: AttemptOutcome) -> Steps[dict[str, Any]]:
    """Make the success durable: alone it needs no table, with writes or events it is one transaction."""
    result = dict(outcome.result)
    writes, events = result.pop("writes", []), result.pop("events", [])
    events = [*events, *(dict(event) for event in run.operation.on_success)]
    if not writes and not events:
        return _finish(run, OperationState.SUCCEEDED, result=result)
    commit = {
        "operation_id": run.operation.operation_id,
        "result": result,
        "writes": writes,
        "events": events,
        "correlation_id": run.operation.correlation_id,
        "trace": run.operation.to_json()["trace"],
    }
    committed = yield from insist(run.ctx, COMMIT, commit)
    if committed["rejected"] is not None:
        return (yield from _dead_letter(run, _unwritable(committed["rejected"])))
    if committed["events"]:
        _start_outbox(run)
    return _finish(run, OperationState.SUCCEEDED, result=result, events=tuple(committed["events"]))


def _start_outbox(run: Run) -> None:
    """Start the sending of the events without waiting for it: the operation itself has succeeded.

    The start is part of the turn that ends the operation; what is lost all the same, a sweeper makes up.
    """
    operation_id = run.operation.operation_id
    run.ctx.call_sub_orchestrator(
        OUTBOX, input={"operation_id": operation_id}, instance_id=outbox_instance(operation_id)
    )


def _unwritable(detail: str) -> DeadLetter:
    return DeadLetter(Category.MALFORMED, DeadLetterReason.REJECTED_BY_HANDLER, detail)


def _dead_letter(run: Run, decision: DeadLetter) -> Steps[dict[str, Any]]:
    """Leave the operation to a person, with everything needed to understand and to replay it."""
    if run.operation.undoes is not None:
        decision = _compensation_failed(run.operation.undoes, decision)
    entry = {
        "operation": run.operation.to_json(),
        "category": decision.category.value,
        "reason": decision.reason.value,
        "detail": decision.detail,
        "attempts": run.history.to_json()["attempts"],
    }
    dead_letter_id = yield from insist(run.ctx, DEAD_LETTER, entry)
    summary = {
        "id": dead_letter_id,
        "category": decision.category.value,
        "reason": decision.reason.value,
        "detail": decision.detail,
    }
    return _finish(run, OperationState.DEAD_LETTERED, dead_letter=summary)


def _compensation_failed(saga_id: str, decision: DeadLetter) -> DeadLetter:
    """Name the failure after what it means: a step of a saga stands that should not."""
    detail = f"saga {saga_id} cannot undo a step: {decision.reason.value}: {decision.detail}"
    return DeadLetter(decision.category, DeadLetterReason.COMPENSATION_FAILED, detail)


def _finish(run: Run, state: OperationState, **more: Any) -> dict[str, Any]:
    """Show the end, tell the record of the key, and return the status document."""
    status = run.status(state, **more)
    document = status.to_json()
    run.ctx.set_custom_status(moving_parts(status))
    run.ctx.signal_entity(
        run.record,
        "complete",
        {
            "owner": run.operation.run_id,
            "fingerprint": run.operation.fingerprint,
            "document": document,
            "now": to_rfc3339(run.now),
            "ttl_seconds": run.operation.ttl_seconds,
            "trace": run.operation.to_json()["trace"],
        },
    )
    return document


blueprint.orchestration_trigger(context_name="context", orchestration=OPERATION)(operation)

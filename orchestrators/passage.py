"""One attempt of an operation, through the gate of its dependency."""

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from durabletask import task

from engine.budget import BudgetPostponed
from engine.circuit import (
    PERMIT,
    CircuitSettings,
    Permitted,
    Refused,
    answer_from_json,
)
from engine.circuit.snapshot import ALL_PROBES_UNDER_WAY, RECHECK
from engine.decide import DeadLetter, WaitForCircuit, decide, postpone, record
from engine.gate import NeedsProbe, Stop, Ticket, hold_of, probe_message, stop_from_json, view_at
from engine.operation import AttemptOutcome
from engine.vocabulary import Category, OperationState
from engine.waits import WaitKind, WaitRecord
from orchestrators.run import Run, Steps
from stores.circuit_entity import circuit_id
from stores.task_hub import ATTEMPT

type HeldUp = Refused | BudgetPostponed


def attempt_through_gate(run: Run) -> Steps[AttemptOutcome | HeldUp]:
    """Make one attempt, or say what holds it up; who may probe, only the circuit itself can say."""
    answer = yield from _attempt(run, run.ticket)
    if isinstance(answer, NeedsProbe):
        permit = yield from _ask_circuit(run, answer.settings)
        if isinstance(permit, Refused):
            return permit
        answer = yield from _attempt(run, replace(run.ticket, permit=permit))
    if isinstance(answer, NeedsProbe):  # Its lease expired on the way to the worker.
        return Refused(
            base=run.now + RECHECK, waiting=0, until=run.now + RECHECK, reason=ALL_PROBES_UNDER_WAY
        )
    if isinstance(answer, AttemptOutcome):
        # What never left this side has its token still.
        run.ticket = Ticket(promised=not answer.counted)
    return answer


def wait_at_gate(run: Run, held_up: HeldUp) -> Steps[DeadLetter | None]:
    """Wait for what holds an attempt up; no attempt is counted.

    Returns:
        A dead letter, without the wait, when the deadline comes first.
    """
    match held_up:
        case Refused():
            return (yield from _wait_for_circuit(run, held_up))
        case BudgetPostponed():
            return (yield from _wait_for_budget(run, held_up))
        case _ as never:
            assert_never(never)


def _wait_for_circuit(run: Run, refused: Refused) -> Steps[DeadLetter | None]:
    run.ticket = replace(run.ticket, waiting=True)
    refusal = _not_made(run, Category.CIRCUIT_OPEN, refused.reason)
    decision = decide(run.operation, run.history, refusal, view_at(refused, run.now), run.now)
    run.history = record(run.history, refusal, decision)
    if isinstance(decision, WaitForCircuit):
        _note(run, WaitKind.CIRCUIT, decision.until, decision.reasons)
        yield from run.wait_until(
            OperationState.WAITING_CIRCUIT, decision.until, reasons=decision.reasons, kind=WaitKind.CIRCUIT
        )
    return decision if isinstance(decision, DeadLetter) else None


def _wait_for_budget(run: Run, postponed: BudgetPostponed) -> Steps[DeadLetter | None]:
    run.ticket = replace(run.ticket, promised=run.ticket.promised or postponed.reserved)
    decision = postpone(run.operation, hold_of(postponed, run.operation.dependency), run.now)
    if isinstance(decision, DeadLetter):
        return decision
    _note(run, WaitKind.RETRY_BUDGET, decision.at, decision.reasons)
    yield from run.wait_until(
        OperationState.WAITING_RETRY, decision.at, reasons=decision.reasons, kind=WaitKind.RETRY_BUDGET
    )
    return None


def _note(run: Run, kind: WaitKind, until: datetime, reasons: tuple[str, ...]) -> None:
    wait = WaitRecord(
        before_attempt=run.history.next_attempt,
        kind=kind,
        began_at=run.now,
        until=until,
        delay_reasons=reasons,
    )
    run.history = run.history.with_wait(wait)


def _attempt(run: Run, ticket: Ticket) -> Steps[AttemptOutcome | Stop]:
    """Run the activity; what it could not do at all comes back as an attempt that never left."""
    number = run.history.next_attempt
    run.show(OperationState.RUNNING)
    # Events go out after success only, so an attempt does not carry them.
    call = {
        "operation": replace(run.operation, on_success=()).to_json(),
        "attempt": number,
        "ticket": ticket.to_json(),
    }
    try:
        answer = yield run.ctx.call_activity(ATTEMPT, input=call)
    except task.TaskFailedError as error:
        return _not_made(run, Category.TRANSIENT, f"the worker failed: {error.details.error_type}")
    if "stopped" in answer:
        return stop_from_json(answer["stopped"])
    outcome = AttemptOutcome.from_json(answer)
    if outcome.number != number:
        return _not_made(run, Category.TRANSIENT, f"the worker answered for attempt {outcome.number}")
    return outcome


def _ask_circuit(run: Run, settings: CircuitSettings) -> Steps[Permitted | Refused]:
    """Ask the circuit itself for a probe: the one awaited call, and only while it is half-open."""
    message = probe_message(run.operation, run.history.next_attempt, settings, run.now)
    circuit = circuit_id(run.operation.dependency)
    try:
        answer = yield run.ctx.call_entity(circuit, PERMIT, message.to_json())
    except task.TaskFailedError:
        return Permitted(epoch=0, blind=True)  # A circuit that fails must not take its dependency down.
    return answer_from_json(answer)


def _not_made(run: Run, category: Category, error: str) -> AttemptOutcome:
    return AttemptOutcome(
        number=run.history.next_attempt,
        started_at=run.now,
        duration_ms=0.0,
        category=category,
        error=error,
        counted=False,
    )

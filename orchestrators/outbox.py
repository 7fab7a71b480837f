"""The orchestration that sends the events of one operation. `engine.outbox` says which, `engine.decide` when.

It works in rounds: all deliveries that are due are attempted side by side, then it waits for the next one.
Events of one destination follow each other; a destination that is down delays another by one attempt at most.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, assert_never

import azure.durable_functions as df
from durabletask import task

from engine.budget import BudgetPostponed
from engine.circuit import PERMIT, CircuitSettings, Permitted, Refused, answer_from_json
from engine.decide import (
    CLOSED,
    DeadLetter,
    Decision,
    Done,
    RetryAt,
    WaitForCircuit,
    decide,
    postpone,
    record,
)
from engine.gate import NeedsProbe, Stop, Ticket, hold_of, probe_message, stop_from_json, view_at
from engine.operation import AttemptOutcome
from engine.outbox import Delivery, due_of, next_due_at
from engine.vocabulary import Category
from orchestrators.effort import insist
from orchestrators.run import Steps
from stores.circuit_entity import circuit_id
from stores.task_hub import OUTBOX, OUTBOX_GIVE_UP, OUTBOX_PENDING, PUBLISH

blueprint = df.Blueprint()

ROUNDS_PER_HISTORY: Final = 20
"""Rounds after which the orchestration continues as new, so that the last costs what the first did."""


@dataclass(slots=True)
class Sending:
    """The state of one execution between two turns, rebuilt by every replay.

    Attributes:
        ctx: The durable context.
        scope: Whose events as `operation_id`, and `event_id` when it is about one only.
        place: Where their rows stand, as JSON.
        deliveries: What is left to send, in order.
    """

    ctx: task.OrchestrationContext
    scope: Mapping[str, str]
    place: Mapping[str, Any]
    deliveries: list[Delivery]

    @property
    def now(self) -> datetime:
        """The replay-safe present, aware UTC."""
        return self.ctx.current_utc_datetime.replace(tzinfo=UTC)

    def carried_on(self) -> dict[str, Any]:
        """Return the input of the execution that continues this one."""
        return {
            **self.scope,
            "place": dict(self.place),
            "deliveries": [delivery.to_json() for delivery in self.deliveries],
        }

    def without(self, ended: Delivery) -> None:
        """Take a delivery off the list."""
        self.deliveries = [each for each in self.deliveries if each.event_id != ended.event_id]

    def put_back(self, delivery: Delivery) -> None:
        """Store a delivery's new state in its old place."""
        self.deliveries = [
            delivery if each.event_id == delivery.event_id else each for each in self.deliveries
        ]


def outbox(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Steps[None]:
    """Send what is pending of one operation, until nothing is.

    Args:
        ctx: The durable context.
        input_: `operation_id`, `event_id` when it is about that one only, and what `Sending.carried_on` adds
            when it continues.
    """
    sending = yield from _taken_up(ctx, input_)
    rounds = 0
    while sending.deliveries:
        if rounds == ROUNDS_PER_HISTORY:
            ctx.continue_as_new(sending.carried_on())
            return
        rounds += 1
        yield from _one_round(sending)
        if not sending.deliveries:
            # The same look that finds nothing left takes the operation off the index.
            sending = yield from _taken_up(ctx, sending.scope)


def _taken_up(ctx: task.OrchestrationContext, input_: Mapping[str, Any]) -> Steps[Sending]:
    scope = {name: input_[name] for name in ("operation_id", "event_id") if name in input_}
    known = input_
    if "deliveries" not in known:
        known = yield from insist(ctx, OUTBOX_PENDING, scope)
    deliveries = [Delivery.from_json(each) for each in known["deliveries"]]
    return Sending(ctx, scope, known["place"], deliveries)


def _one_round(sending: Sending) -> Steps[None]:
    due = due_of(sending.deliveries, sending.now)
    if not due:
        yield sending.ctx.create_timer(next_due_at(sending.deliveries))
        return
    attempts: list[task.Task[Any]] = [
        sending.ctx.call_activity(PUBLISH, input=_request(sending, each)) for each in due
    ]
    # It waits for all of them also when one fails, and each says below how it ended.
    with suppress(task.TaskFailedError):
        yield task.when_all(attempts)
    for delivery, attempt in zip(due, attempts, strict=True):
        yield from _follow(sending, delivery, _answer(sending, delivery, attempt))


def _request(sending: Sending, delivery: Delivery) -> dict[str, Any]:
    return {
        "delivery": delivery.to_json(),
        "place": dict(sending.place),
        "attempt": delivery.history.next_attempt,
    }


def _answer(sending: Sending, delivery: Delivery, attempt: task.Task[Any]) -> AttemptOutcome | Stop:
    """Read what came of an attempt; what our own side could not do costs no attempt."""
    if attempt.is_failed:
        return _not_made(sending, delivery, Category.TRANSIENT, "the worker failed")
    answer = attempt.get_result()
    return stop_from_json(answer["stopped"]) if "stopped" in answer else AttemptOutcome.from_json(answer)


def _follow(sending: Sending, delivery: Delivery, answer: AttemptOutcome | Stop) -> Steps[None]:
    """Carry out what is decided after an attempt, or after what held it up."""
    match answer:
        case NeedsProbe():
            yield from _ask_circuit(sending, delivery, answer.settings)
        case Refused():
            yield from _wait_for_circuit(sending, delivery, answer)
        case BudgetPostponed():
            yield from _wait_for_budget(sending, delivery, answer)
        case AttemptOutcome():
            decision = decide(delivery.operation, delivery.history, answer, CLOSED, sending.now)
            # What never left this side has its token of the retry budget still.
            yield from _act(sending, delivery, answer, decision, Ticket(promised=not answer.counted))
        case _:
            assert_never(answer)


def _act(
    sending: Sending, delivery: Delivery, outcome: AttemptOutcome, decision: Decision, ticket: Ticket
) -> Steps[None]:
    history = record(delivery.history, outcome, decision)
    match decision:
        case Done():
            sending.without(delivery)
        case RetryAt():
            sending.put_back(delivery.postponed(history, decision.at, ticket))
        case WaitForCircuit():
            sending.put_back(delivery.postponed(history, decision.until, ticket))
        case DeadLetter():
            yield from _give_up(sending, delivery.postponed(history, delivery.due_at), decision)
        case _:
            assert_never(decision)


def _ask_circuit(sending: Sending, delivery: Delivery, settings: CircuitSettings) -> Steps[None]:
    """Ask the circuit itself for a probe, which is made in the next round."""
    message = probe_message(delivery.operation, delivery.history.next_attempt, settings, sending.now)
    try:
        told = yield sending.ctx.call_entity(circuit_id(delivery.lane), PERMIT, message.to_json())
        answer = answer_from_json(told)
    except task.TaskFailedError:
        answer = Permitted(epoch=0, blind=True)  # A circuit that fails must not take its dependency down.
    if isinstance(answer, Refused):
        yield from _wait_for_circuit(sending, delivery, answer)
    else:
        ticket = replace(delivery.ticket, permit=answer)
        sending.put_back(delivery.postponed(delivery.history, sending.now, ticket))


def _wait_for_circuit(sending: Sending, delivery: Delivery, refused: Refused) -> Steps[None]:
    refusal = _not_made(sending, delivery, Category.CIRCUIT_OPEN, refused.reason)
    view = view_at(refused, sending.now)
    decision = decide(delivery.operation, delivery.history, refusal, view, sending.now)
    ticket = replace(delivery.ticket, waiting=True, permit=None)
    yield from _act(sending, delivery, refusal, decision, ticket)


def _wait_for_budget(sending: Sending, delivery: Delivery, postponed: BudgetPostponed) -> Steps[None]:
    decision = postpone(delivery.operation, hold_of(postponed, delivery.lane), sending.now)
    if isinstance(decision, DeadLetter):
        yield from _give_up(sending, delivery, decision)
        return
    ticket = replace(delivery.ticket, promised=delivery.ticket.promised or postponed.reserved)
    sending.put_back(delivery.postponed(delivery.history, decision.at, ticket))


def _not_made(sending: Sending, delivery: Delivery, category: Category, error: str) -> AttemptOutcome:
    return AttemptOutcome(
        number=delivery.history.next_attempt,
        started_at=sending.now,
        duration_ms=0.0,
        category=category,
        error=error,
        counted=False,
    )


def _give_up(sending: Sending, delivery: Delivery, decision: DeadLetter) -> Steps[None]:
    given_up = {
        "delivery": delivery.to_json(),
        "place": dict(sending.place),
        "category": decision.category.value,
        "detail": f"{decision.reason.value}: {decision.detail}",
    }
    yield from insist(sending.ctx, OUTBOX_GIVE_UP, given_up)
    sending.without(delivery)


blueprint.orchestration_trigger(context_name="context", orchestration=OUTBOX)(outbox)

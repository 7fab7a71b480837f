"""The orchestration that sends the events of one operation. `engine.outbox` says which, `engine.decide` when.

It works in rounds: all deliveries that are due are attempted side by side, then it waits for the next one.
Events of one destination follow each other; a destination that is down delays another by one attempt at most.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, assert_never

import azure.durable_functions as df
from durabletask import task

from engine.decide import CLOSED, DeadLetter, Done, RetryAt, WaitForCircuit, decide, record
from engine.operation import AttemptOutcome
from engine.outbox import Delivery, due_of, next_due_at
from engine.vocabulary import Category
from orchestrators.effort import insist
from orchestrators.run import Steps
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
        yield from _follow(sending, delivery, _outcome(sending, delivery, attempt))


def _request(sending: Sending, delivery: Delivery) -> dict[str, Any]:
    return {
        "delivery": delivery.to_json(),
        "place": dict(sending.place),
        "attempt": delivery.history.next_attempt,
    }


def _outcome(sending: Sending, delivery: Delivery, attempt: task.Task[Any]) -> AttemptOutcome:
    """Read what came of an attempt; what our own side could not do costs no attempt."""
    if not attempt.is_failed:
        return AttemptOutcome.from_json(attempt.get_result())
    return AttemptOutcome(
        number=delivery.history.next_attempt,
        started_at=sending.now,
        duration_ms=0.0,
        category=Category.TRANSIENT,
        error="the worker failed",
        counted=False,
    )


def _follow(sending: Sending, delivery: Delivery, outcome: AttemptOutcome) -> Steps[None]:
    """Carry out what is decided after an attempt."""
    decision = decide(delivery.operation, delivery.history, outcome, CLOSED, sending.now)
    history = record(delivery.history, outcome, decision)
    match decision:
        case Done():
            sending.without(delivery)
        case RetryAt():
            sending.put_back(delivery.postponed(history, decision.at))
        case WaitForCircuit():
            sending.put_back(delivery.postponed(history, decision.until))
        case DeadLetter():
            yield from _give_up(sending, delivery.postponed(history, delivery.due_at), decision)
        case _:
            assert_never(decision)


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

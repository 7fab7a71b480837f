"""The orchestration that sends the events of one operation.

`features.outbox.rules.outbox` picks the events, `rules.retry.loop` decides when and how often each is tried.

It works in rounds: all due deliveries are attempted side by side, then it waits for the next one. Events of
one destination follow each other; a destination that is down delays another one by one attempt at most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, assert_never

import azure.durable_functions as df
from durabletask import task

from durable_retry.base.json_forms import from_rfc3339, to_rfc3339
from durable_retry.base.names import CIRCUIT_EVENT, DUE_AT
from durable_retry.features.outbox.names import (
    OUTBOX,
    OUTBOX_GIVE_UP,
    OUTBOX_PENDING,
    PUBLISH,
    outbox_instance,
)
from durable_retry.features.outbox.rules.outbox import (
    Delivery,
    due_of,
    events_in,
    failure_events_of,
    failure_id_of,
    heads_of,
    next_due_at,
    notes_of_events,
    shown_of,
)
from durable_retry.hub.turns import (
    Asking,
    InterruptibleTimer,
    Signals,
    Turns,
    answer_of,
    call_until_success,
    continue_retry_loop,
    give_slot_back,
    leave_gates,
    renamed_in,
)
from durable_retry.rules.operations.completion import Committed, Success
from durable_retry.rules.retry.decide import DeadLetter, Done, Wait
from durable_retry.rules.retry.loop import (
    AttemptNow,
    LapResult,
    RequestProbe,
    RequestSlot,
    WorkerFailed,
    lease_id_of,
)
from durable_retry.settings.configuration import function_name

from .run import Run

blueprint = df.Blueprint()

ROUNDS_PER_HISTORY: Final = 20
"""Rounds after which the orchestration continues as new, so that the last costs what the first did."""


def follow(run: Run, committed: Committed, success: Success) -> Mapping[str, Any]:
    """Start the sending of the events of a success, and return them for its status document.

    Nobody waits for it: the operation has succeeded. If the turn that ends it is lost, the sweeper starts it.
    """
    return _begin_sending(run, committed.run_id, events_in(success))


def follow_failure(run: Run) -> Mapping[str, Any]:
    """Start the sending of the events of a dead letter; as `follow`."""
    return _begin_sending(run, failure_id_of(run.operation.run_id), failure_events_of(run.operation_json))


def _begin_sending(run: Run, outbox_id: str, events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    if not events:
        return {}
    input_, instance_id = {"operation_id": outbox_id}, outbox_instance(outbox_id)
    run.ctx.call_sub_orchestrator(function_name(OUTBOX), input=input_, instance_id=instance_id)
    return {"events": notes_of_events(outbox_id, events)}


@dataclass(slots=True)
class Sending:
    """The state of one execution between two turns, rebuilt by every replay.

    Attributes:
        scope: `operation_id`, and `event_id` when only that event is to be sent.
        place: The location of their rows, as JSON.
    """

    ctx: task.OrchestrationContext
    scope: Mapping[str, str]
    place: Mapping[str, Any]
    deliveries: list[Delivery]
    signals: Signals

    @property
    def now(self) -> datetime:
        """The replay-safe time, aware UTC."""
        return self.signals.now

    def carried_on(self) -> dict[str, Any]:
        return {
            **self.scope,
            "place": dict(self.place),
            "deliveries": [delivery.to_json() for delivery in self.deliveries],
        }

    def without(self, ended: Delivery) -> None:
        self.deliveries = [delivery for delivery in self.deliveries if delivery.event_id != ended.event_id]

    def put_back(self, delivery: Delivery) -> None:
        """Store a delivery's new state at its place in the order."""
        self.deliveries = [
            delivery if other.event_id == delivery.event_id else other for other in self.deliveries
        ]

    def show(self, **more: str) -> None:
        """Set the custom status: what circuits hold, for their wake-ups; what is tried, for people."""
        blocked = {
            head.lane: to_rfc3339(head.blocked_since)
            for head in heads_of(self.deliveries)
            if head.blocked_since is not None
        }
        self.ctx.set_custom_status({"held": blocked, "deliveries": shown_of(self.deliveries), **more})

    def wait(self) -> Turns[None]:
        """Wait for the next delivery that is due, or until a circuit is changed by hand."""
        due_at = next_due_at(self.deliveries)
        self.show(**{DUE_AT: to_rfc3339(due_at)})
        if (yield from InterruptibleTimer(self.signals, due_at).event(CIRCUIT_EVENT)) is not None:
            self._release_waiting()
            self.show()

    def _release_waiting(self) -> None:
        change = self.signals.take(CIRCUIT_EVENT)
        try:
            lane, at = change["dependency"], from_rfc3339(change["at"])
        except (KeyError, TypeError, ValueError):
            return  # Anyone may send an external event, and in any form.
        self.deliveries = [
            delivery.released(self.now)
            if delivery.lane == lane and delivery.blocked_since is not None and delivery.blocked_since <= at
            else delivery
            for delivery in self.deliveries
        ]


def outbox(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Turns[None]:
    """Send the pending events of one operation until none is left.

    Args:
        input_: `operation_id`, the `OperationInput.run_id` of a run, and `event_id` when only that event
            is to be sent; when it continues as new, what `Sending.carried_on` returned.
    """
    sending = yield from _load_deliveries(ctx, input_, Signals(ctx))
    rounds = 0
    while sending.deliveries:
        if rounds == ROUNDS_PER_HISTORY:
            ctx.continue_as_new(sending.carried_on(), save_events=True)
            return
        rounds += 1
        yield from _send_one_round(sending)
        if not sending.deliveries:
            # An event may have been resent meanwhile; when none is pending, this removes the index entry.
            sending = yield from _load_deliveries(ctx, sending.scope, sending.signals)


def _load_deliveries(
    ctx: task.OrchestrationContext,
    input_: Mapping[str, Any],
    signals: Signals,
) -> Turns[Sending]:
    scope = {name: input_[name] for name in ("operation_id", "event_id") if name in input_}
    pending = input_
    if "deliveries" not in pending:
        pending = yield from call_until_success(signals, OUTBOX_PENDING, scope)
    deliveries = [Delivery.from_json(written) for written in pending["deliveries"]]
    return Sending(ctx, scope, pending["place"], deliveries, signals)


def _send_one_round(sending: Sending) -> Turns[None]:
    due = due_of(sending.deliveries, sending.now)
    if not due:
        yield from sending.wait()
        return
    asked_at = sending.now
    attempts = yield from sending.signals.answers([partial(_publish, sending, sent) for sent in due])
    answered_at = sending.now
    for delivery, attempt in zip(due, attempts, strict=True):
        result, name = _result_of_delivery(delivery, attempt)
        yield from _follow_delivery(sending, delivery, result, name, answered_at - asked_at)


def _publish(sending: Sending, delivery: Delivery) -> task.Task[Any]:
    request = {
        "delivery": delivery.to_json(),
        "place": dict(sending.place),
        "attempt": delivery.state.history.next_attempt,
    }
    called: task.Task[Any] = sending.ctx.call_activity(function_name(PUBLISH), input=request)
    return called


def _result_of_delivery(delivery: Delivery, attempt: task.Task[Any] | None) -> tuple[LapResult, str | None]:
    """Return the result of an attempt, and the present name of the destination; None for the same name."""
    if attempt is None or attempt.is_failed:
        return WorkerFailed("the answer was lost" if attempt is None else "the worker failed"), None
    answered = attempt.get_result()
    if isinstance(answered, Mapping) and answered.get("event_id") != delivery.event_id:
        # More events may be due when a lost turn runs again: see `call_until_success`.
        return WorkerFailed("the worker answered for another event"), None
    return answer_of(answered, delivery.state.history.next_attempt), renamed_in(answered)


def _follow_delivery(
    sending: Sending, delivery: Delivery, result: LapResult, name: str | None, on_its_way: timedelta
) -> Turns[None]:
    """Move a delivery's retry loop on; a probe or a slot is requested at once and used in the next round."""
    give_slot_back(sending.ctx, delivery.lane, delivery.state.admission, result)
    delivery = delivery if name is None else delivery.renamed(name)
    asking = Asking(sending.signals, delivery.operation, delivery.lane)
    state, action = yield from continue_retry_loop(asking, delivery.state, result, on_its_way)
    moved = delivery.moved(state)
    match action:
        case Done():
            sending.without(delivery)
        case DeadLetter():
            yield from _give_up(sending, moved, action)
        case Wait() if action.stops_deadline:
            sending.put_back(moved.with_later_deadline(timedelta(seconds=action.delay_seconds)))
        case Wait() | AttemptNow() | RequestProbe() | RequestSlot():
            sending.put_back(moved)
        case _ as never:
            assert_never(never)


def _give_up(sending: Sending, delivery: Delivery, decision: DeadLetter) -> Turns[None]:
    request = {
        "delivery": delivery.to_json(),
        "place": dict(sending.place),
        "category": decision.category.value,
        "detail": f"{decision.reason.value}: {decision.detail}",
    }
    lease_id = lease_id_of(delivery.operation, delivery.state.history.next_attempt)
    leave_gates(sending.ctx, delivery.lane, lease_id, delivery.state.admission)
    yield from call_until_success(sending.signals, OUTBOX_GIVE_UP, request)
    sending.without(delivery)


blueprint.orchestration_trigger(context_name="context", orchestration=OUTBOX)(outbox)

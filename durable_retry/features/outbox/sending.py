"""Sending the events of the outbox: one attempt, a resend by hand, and the sweeper after a crash.

An event is a message to a storage queue, or a signed webhook to a dependency.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from azure.core.exceptions import AzureError

from durable_retry.attempt.admission import attempt_if_admitted
from durable_retry.attempt.attempt import observed, too_late
from durable_retry.attempt.commits import CommitLocation
from durable_retry.attempt.excerpts import error_line
from durable_retry.attempt.http_request import Plan, attempt_request, start_clock
from durable_retry.base.answers import Page, read_or
from durable_retry.base.errors import MessageRefusedError
from durable_retry.base.json_forms import from_rfc3339
from durable_retry.base.names import Category, DeadLetterReason, EventState
from durable_retry.base.signatures import ID_HEADER, signed_headers, signing_key
from durable_retry.dead_letters.records import find_dead_letter, keep_operation
from durable_retry.features.outbox.event_store import (
    find_event,
    list_pending,
    mark_failed,
    mark_pending,
    mark_sent,
    pending_of,
)
from durable_retry.features.outbox.index_store import cursor_at, list_ended, list_notes
from durable_retry.features.outbox.names import OUTBOX, outbox_instance
from durable_retry.features.outbox.rules.outbox import (
    CONTENT_TYPE,
    Delivery,
    EventFilter,
    NoSuchEventError,
    OutboxEvent,
    OutboxEventDocument,
    StoredEvent,
    envelope_of,
    envelope_text,
    number_of,
    operation_id_of,
    outbox_id_of,
)
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.facts import DeliveryEnded
from durable_retry.rules.retry.history import AttemptOutcome, PastAttempt
from durable_retry.rules.retry.loop import Blocked
from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import LoopOwned, raise_first, settle_all
from durable_retry.settings.configuration import find_dependency, masking_of
from durable_retry.storage import rounds
from durable_retry.storage.queues import send_message

_log = logging.getLogger(__name__)

_ANY: Final = EventFilter()

_ROWS_READ: Final = 200
_PAGES_READ: Final = 5
"""Pages of so many events that a filtered page looks at."""

# Takes the place of a dependency for messages to queues; it has no secret to mask.
_QUEUES: Final = Dependency(name="queues")


async def pending_deliveries(
    outbox_id: str, event_id: str | None = None
) -> tuple[CommitLocation, list[Delivery]]:
    """Return where the rows of a run are, and its pending events in their order.

    When there are none, the run's index entry is removed.

    Args:
        event_id: The only event to send; None for all of them.
    """
    place, pending = await pending_of(outbox_id, clock.now())
    events = [event for event in pending if event.unreadable is None and event_id in {None, event.event_id}]
    return place, [event.to_delivery(_dependency_of(event)) for event in events]


async def deliver_once(
    hub: TaskHub, delivery: Delivery, place: Mapping[str, Any], number: int
) -> AttemptOutcome | Blocked:
    """Make one attempt to send an event unless its row says that it has ended, and mark a sent one.

    A crash between the two sends it again, under the same id, on which receivers deduplicate.

    Returns:
        A success also when another execution ended the event, or when its row is gone or damaged.
    """
    ended_before = AttemptOutcome(number=number, started_at=clock.now(), duration_ms=0.0)
    row = await find_event(delivery.event_id, CommitLocation.from_json(place))
    if row is None or row.event.unreadable is not None or row.event.state is EventState.FAILED:
        return ended_before
    answer: AttemptOutcome | Blocked = ended_before
    if row.event.state is EventState.PENDING:
        answer = await deliver(hub, delivery, row.event, number)
    if isinstance(answer, AttemptOutcome) and answer.category is None:
        await mark_sent(row, clock.now(), number)
    return answer


async def give_up(delivery: Delivery, place: Mapping[str, Any], *, category: str, detail: str) -> str | None:
    """Store the dead letter of an event that cannot be delivered, and mark its row. Idempotent.

    Returns:
        The dead letter's id; None when the event was sent after all, or its row is gone or damaged.
    """
    row = await find_event(delivery.event_id, CommitLocation.from_json(place))
    if row is None or row.event.unreadable is not None or row.event.state is EventState.SENT:
        return None
    entry = _dead_letter_of(delivery, row.event, category=category, detail=detail)
    dead_letter_id = await keep_operation(entry, clock.now())
    await mark_failed(row, f"{detail} (dead letter {dead_letter_id})", delivery.state.history.attempt_count)
    return dead_letter_id


def _dead_letter_of(delivery: Delivery, event: StoredEvent, *, category: str, detail: str) -> dict[str, Any]:
    # The event stands in place of an operation's request.
    operation_id = operation_id_of(event.event_id)
    target = {name: event.event[name] for name in ("queue", "path") if name in event.event}
    return {
        "event_id": event.event_id,
        "operation": delivery.operation.to_json()
        | {"operation_id": operation_id, "request": {"event": envelope_of(event), **target}},
        "category": category,
        "reason": DeadLetterReason.OUTBOX_UNDELIVERABLE.value,
        "detail": f"event {event.event_id}: {detail}",
        **delivery.state.history.evidence(),
    }


def _dependency_of(event: StoredEvent) -> Dependency | None:
    name = event.event.get("dependency")
    return None if name is None else find_dependency(name)


async def deliver(
    hub: TaskHub, delivery: Delivery, event: StoredEvent, number: int
) -> AttemptOutcome | Blocked:
    """Make one attempt to send an event and return the outcome; it never raises.

    A webhook needs the admission of its dependency like any other call: its retry budget and its circuit.
    """
    queue, name = event.event.get("queue"), event.event.get("dependency")
    if queue is not None:
        plan = _plan_of_delivery(delivery, number, _QUEUES)
        return await observed(
            delivery.operation, number, partial(_send_to_queue, plan, queue, event), DeliveryEnded
        )
    dependency = find_dependency(name or "")
    if dependency is None:
        error = f"dependency {name} is not configured here any more"
        plan = _plan_of_delivery(delivery, number, _QUEUES)
        return plan.outcome(category=Category.TRANSIENT, error=error, counted=False, missing=True)
    return await attempt_if_admitted(
        hub,
        dependency,
        delivery.operation,
        number=number,
        admission=delivery.state.admission,
        attempt=partial(
            observed,
            delivery.operation,
            number,
            lambda: _deliver_to_dependency(_plan_of_delivery(delivery, number, dependency), event),
            DeliveryEnded,
        ),
    )


def _plan_of_delivery(delivery: Delivery, number: int, dependency: Dependency) -> Plan:
    # After an attempt with an unknown end, a 409 may be a conflict with that attempt, and no refusal.
    operation = replace(delivery.operation, acted_before=delivery.state.may_have_acted or None)
    return Plan(operation, number, dependency, start_clock(operation))


async def _send_to_queue(plan: Plan, queue: str, event: StoredEvent) -> AttemptOutcome:
    try:
        await send_message(queue, envelope_text(event))
    except MessageRefusedError as error:
        return plan.outcome(category=Category.MALFORMED, error=str(error))
    except (AzureError, OSError) as error:
        return plan.outcome(category=Category.TRANSIENT, error=error_line(error, plan.dependency))
    return plan.outcome()


async def _deliver_to_dependency(plan: Plan, event: StoredEvent) -> AttemptOutcome:
    if (late := too_late(plan)) is not None:
        return late
    outcome = await attempt_request(_webhook_plan(plan, event))
    return replace(outcome, result=None)


def _webhook_plan(plan: Plan, event: StoredEvent) -> Plan:
    # The body is always the same, time and signatures are new. Receivers deduplicate on `webhook-id`, so a
    # webhook may be sent again also where the dependency has no idempotency header.
    body = envelope_text(event)
    keys = [signing_key(secret) for secret in plan.dependency.webhook.secrets]
    request: dict[str, Any] = {
        "method": "POST",
        "path": event.event["path"],
        "query": {},
        "headers": {
            "content-type": CONTENT_TYPE,
            **signed_headers(event.event_id, body, keys, clock.now()),
        },
        "body": body,
    }
    operation = replace(plan.operation, request=request)
    return replace(plan, operation=operation, deduplicated_by=ID_HEADER)


SWEPT_AFTER: Final = timedelta(minutes=2)
"""A younger note belongs to a commit under way, or to an orchestration that is about to start."""

NOTES_PER_SWEEP: Final = 1_000
_STARTS_AT_ONCE: Final = 16
_SWEEP: Final = "outbox"


async def start_sending(hub: TaskHub, outbox_id: str) -> bool:
    """Start the orchestration that sends the pending events of a run; False when it runs already."""
    input_ = {"operation_id": outbox_id}
    return await hub.start_instance(OUTBOX, outbox_instance(outbox_id), input_, again=True)


async def resend(hub: TaskHub, event_id: str, now: datetime) -> OutboxEvent:
    """Send an event once more, under its id.

    An event that waits for its next attempt is sent at once. When the operation's orchestration runs for its
    other events, a second one starts for this event.

    Raises:
        TaskHubUnavailableError: The event is pending, and a sweeper will send it.
    """
    event = await mark_pending(event_id, now)
    outbox_id = outbox_id_of(event_id) or ""
    if not await start_sending(hub, outbox_id):
        input_ = {"operation_id": outbox_id, "event_id": event_id}
        instance_id = f"{outbox_instance(outbox_id)}-{event_id.rpartition('.')[2]}"
        await hub.start_instance(OUTBOX, instance_id, input_, again=True)
    return event.listed()


async def list_events(
    state: EventState, limit: int, cursor: str | None = None, filter_: EventFilter = _ANY
) -> Page[OutboxEvent]:
    """Return events of one state that match.

    A page looks at a bounded number of events, so it may be short or empty and have a cursor.
    """
    items: list[OutboxEvent] = []
    following = cursor
    rows = limit if filter_ == _ANY else _ROWS_READ
    for _ in range(_PAGES_READ):
        if state is EventState.PENDING:
            events, following = await list_pending(rows, following)
        else:
            times = {"created_after": filter_.created_after, "created_before": filter_.created_before}
            events, following = await list_ended(state, rows, following, **times)
        items += filter(filter_.matches, events)
        if following is None or len(items) >= limit:
            break
    if len(items) > limit:
        following = cursor_at(items[limit - 1])
    return Page[OutboxEvent](items=tuple(items[:limit]), next_cursor=following)


async def find_shown_event(hub: TaskHub, event_id: str) -> OutboxEventDocument:
    """Return an event with its data as people see it, its attempts, the next one, and why it is not sent.

    Raises:
        TaskHubUnavailableError: The event is pending, and the task hub did not answer.
    """
    row = await find_event(event_id)
    if row is None:
        raise NoSuchEventError(event_id)
    event, progress = row.event, dict[str, Any]()
    match event.state:
        case EventState.PENDING:
            progress = await _progress_of_event(hub, event)
        case EventState.FAILED:
            progress = await _attempts_given_up(event)
    data = masking_of(event.event.get("dependency")).shown({"data": event.event.get("data")})
    known = {**dict(event.listed()), "correlation_id": event.correlation_id, **data}
    return OutboxEventDocument(**{**known, **progress})


async def _progress_of_event(hub: TaskHub, event: StoredEvent) -> dict[str, Any]:
    instance_id = outbox_instance(outbox_id_of(event.event_id) or "")
    for candidate in (f"{instance_id}-{number_of(event.event_id)}", instance_id):
        instance = await hub.read_instance(candidate)
        status = {} if instance is None else instance.custom_status or {}
        progress = read_or(partial(_delivery_in, status, event), lambda _: None)
        if progress is not None:
            return progress
    return {}


def _delivery_in(status: Mapping[str, Any], event: StoredEvent) -> dict[str, Any] | None:
    delivery: dict[str, Any] | None = status.get("deliveries", {}).get(event.event_id)
    if delivery is None:
        return None
    return {
        "attempt_count": int(delivery["attempt_count"]),
        "next_attempt_at": from_rfc3339(delivery["next_attempt_at"]),
        "attempts": tuple(map(PastAttempt.from_json, delivery["attempts"])),
        "why": delivery["why"],
    }


async def _attempts_given_up(event: StoredEvent) -> dict[str, Any]:
    match = _DEAD_LETTER.search(event.detail or "")
    record = None if match is None else await find_dead_letter(match[0])
    if record is None:
        return {}
    attempts = read_or(lambda: tuple(map(PastAttempt.from_json, record.attempts)), lambda _: ())
    return {"attempts": attempts, "dead_letter_id": record.id}


_DEAD_LETTER: Final = re.compile(r"dl-[0-9a-f]{32}")


async def sweep(hub: TaskHub, now: datetime) -> None:
    """Start the orchestrations of operations whose events have been pending for long, as after a crash.

    Where one runs already, nothing happens. One sweep looks at `NOTES_PER_SWEEP` operations and the next goes
    on from there, so its cost is bounded and depends on what is pending only.
    """
    begin = (await rounds.read_round(_SWEEP)).after
    notes, cursor = await list_notes(NOTES_PER_SWEEP, begin or None)
    _swept_empty.get().pop(hub, None)
    due = [note for note in notes if note.noted_at <= now - SWEPT_AFTER]
    ids = (note.outbox_id for note in due)
    started, errors = await settle_all(partial(start_sending, hub), ids, _STARTS_AT_ONCE)
    if (cursor or "") != begin:  # also where one could not be started: the next round starts it
        await rounds.write_round(_SWEEP, rounds.Round(cursor or ""))
    raise_first(errors)
    if not begin and not notes:
        _swept_empty.get()[hub] = now
    if any(started):
        _log.warning("%s operations had pending events and no running outbox", sum(started))


_SWEPT_LATELY: Final = timedelta(seconds=90)
"""How long an empty sweep of this process counts: until `watch`, which runs once a minute, has asked."""

# When the latest sweep of this process found no note at all.
_swept_empty: Final = LoopOwned[dict[TaskHub, datetime]](dict)


def was_swept_empty(hub: TaskHub, now: datetime) -> bool:
    """Whether the latest sweep of this process was lately, and found nothing in the outbox."""
    swept_at = _swept_empty.get().get(hub)
    return swept_at is not None and swept_at > now - _SWEPT_LATELY

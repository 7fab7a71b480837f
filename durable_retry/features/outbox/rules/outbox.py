"""The outbox: names and states of follow-up messages, which of them to send next, in what form, signed how.

    pending ──> sent        pending ──> failed ──resend──> pending

Events of one operation to one destination (a lane) go out in their order, each after the one before it has
ended; lanes do not wait for each other, and an event that cannot be delivered holds nothing up once it has
failed. A webhook uses the policy and the deadline of its dependency, a message to a queue the preset
`critical` and no deadline.

    deliveries -> due_of(deliveries, now) -> attempt -> rules.retry.loop.after(...)    until none is left

The envelope of every event, to queues and to webhooks alike, is CloudEvents 1.0: the same bytes for every
attempt.

Webhooks are signed, see `base.signatures`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, Field

from durable_retry.base.answers import Answer, Instant, Unreadable
from durable_retry.base.errors import NothingToReplayError
from durable_retry.base.json_forms import NOT_STORED, JsonShape, is_none, to_rfc3339
from durable_retry.base.names import QUEUE_PREFIX, EventState
from durable_retry.base.text import cut_text
from durable_retry.base.trace_context import TraceContext
from durable_retry.base.validation import Problem, Strict, pointer_of, refuse, with_example
from durable_retry.features.outbox.names import OUTBOX
from durable_retry.features.outbox.rules.event import Event
from durable_retry.rules.config.dependency import Dependency, Targets
from durable_retry.rules.dead_letters.record import KeptDeadLetter
from durable_retry.rules.operations.completion import RECOVERED_ATTEMPTS, Success
from durable_retry.rules.operations.operation import OperationInput, deadline_of, run_number
from durable_retry.rules.operations.request import Members, OperationRequest, Part
from durable_retry.rules.retry.history import PastAttempt, WaitKind
from durable_retry.rules.retry.loop import RetryState
from durable_retry.rules.retry.policy import PRESETS, Timeouts

SOURCE: Final = "outbox"

_DETAIL_CHARS: Final = 500
"""How much an event says of a dead letter: a queue takes so much beside the event's own data."""

QUEUE_TIMEOUTS: Final = Timeouts(connect_seconds=3.0, attempt_seconds=30.0, deadline_seconds=0.0)


class NoSuchEventError(NothingToReplayError):
    """No event of this id exists: never committed, or deleted by retention."""


class UnreadableEventError(NoSuchEventError):
    """The row of the event cannot be read, so nothing is done to it; the message says why."""


def event_id_for(outbox_id: str, number: int) -> str:
    """Return the id of an event, the same for every attempt; `number` is its position in its run, from 1."""
    return f"{outbox_id}.{number}"


def outbox_id_of(event_id: str) -> str | None:
    """Return the run that an event belongs to, as `OperationInput.run_id`; None for no event's id."""
    outbox_id, _, number = event_id.rpartition(".")
    return outbox_id if outbox_id and number.isascii() and number.isdigit() else None


def operation_id_of(event_id: str) -> str | None:
    """Return the operation that an event belongs to; None when it is no event's id."""
    outbox_id = outbox_id_of(event_id)
    return None if outbox_id is None else outbox_id.partition(".")[0]


def number_of(event_id: str) -> int:
    """Return an event's position among those of its run, from 1; 0 when it is no event's id."""
    return 0 if outbox_id_of(event_id) is None else int(event_id.rpartition(".")[2])


def event_id_in(record: KeptDeadLetter) -> str:
    """Return the id of the event that a dead letter `OutboxUndeliverable` is about."""
    return str((record.operation or {})["request"]["event"]["id"])


def lane_of(event: Mapping[str, Any]) -> str:
    """Return the destination of an event: its dependency, or its queue."""
    dependency: str | None = event.get("dependency")
    return f"{QUEUE_PREFIX}{event['queue']}" if dependency is None else dependency


def failure_id_of(run_id: str) -> str:
    """Return what the events of a run's dead letter belong to, in place of the run."""
    return f"{run_id}.failed"


MAX_EVENTS: Final = 20


def _events(meaning: str) -> Any:
    return Field(default_factory=list, max_length=MAX_EVENTS, description=meaning)


def _taking_dead_letter(event: Event) -> Event:
    if not isinstance(event.data, dict | None):
        raise refuse("has data that is no object: it gets the member dead_letter")
    return event


FailureEvents = list[Annotated[Event, AfterValidator(_taking_dead_letter)]]


class OutboxKeys(Strict):
    """The keys that a dependency has of it.

    Attributes:
        on_failure: Events to send when one of its operations becomes a dead letter, beside the operation's.
    """

    on_failure: FailureEvents = _events("Follow-up messages of a dead letter.")


class OutboxMembers(Strict):
    """The members that a submission has of it."""

    model_config = with_example(
        on_success=[{"type": "charge.completed", "queue": "charge-events", "data": {"order": 42}}],
        on_failure=[{"type": "charge.failed", "queue": "charge-events", "data": {"order": 42}}],
    )

    on_success: list[Event] = _events("Follow-up messages.")
    on_failure: FailureEvents = _events("Follow-up messages of a dead letter.")
    on_recovered: list[Event] = _events(
        f"Follow-up messages of a success after a dead letter, or with attempt {RECOVERED_ATTEMPTS} or later."
    )


def _unmet(events: Iterable[Event], member: str, targets: Targets) -> Iterator[Problem]:
    for index, event in enumerate(events):
        yield from event.unmet(pointer_of(member, index), targets)


class _Outbox(Members):
    model = OutboxMembers

    def part_of(
        self, members: OutboxMembers | None, _target: str, dependency: Dependency, _now: datetime
    ) -> Part | None:
        members = members or OutboxMembers()
        always = dependency.keys_of(OUTBOX, OutboxKeys).on_failure
        events = {
            "on_success": members.on_success,
            "on_failure": [*members.on_failure, *always],
            "on_recovered": members.on_recovered,
        }
        part = {name: [event.to_json() for event in listed] for name, listed in events.items() if listed}
        return Part(part) if part else None

    def commits(self, part: Mapping[str, Any], *, is_recovered: bool) -> bool:
        return "on_success" in part or (is_recovered and "on_recovered" in part)

    def unmet_keys(self, dependency: Dependency, targets: Targets) -> Iterator[Problem]:
        return _unmet(dependency.keys_of(OUTBOX, OutboxKeys).on_failure, "on_failure", targets)

    def unmet(
        self, members: OutboxMembers, _request: OperationRequest, targets: Targets
    ) -> Iterator[Problem]:
        for name in OutboxMembers.model_fields:
            yield from _unmet(getattr(members, name), name, targets)
        if len(members.on_success) + len(members.on_recovered) > MAX_EVENTS:
            detail = f"has, with on_success, more than {MAX_EVENTS} events: they may be one transaction"
            yield Problem("/on_recovered", detail)

    def part_of_replay(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        return part

    def of_part(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        return part


MEMBERS: Final = _Outbox()


def events_in(success: Success) -> list[Mapping[str, Any]]:
    """Return the events of a success, in their order: the handler's, then those of the submission."""
    part = (success.parts or {}).get(OUTBOX, {})
    recovered = part.get("on_recovered", ()) if success.is_recovered else ()
    return [*success.events, *part.get("on_success", ()), *recovered]


def failure_events_of(operation: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the events that an operation, in its JSON form, sends when it is a dead letter."""
    return tuple((operation.get("parts") or {}).get(OUTBOX, {}).get("on_failure", ()))


def with_dead_letter(event: Mapping[str, Any], record: KeptDeadLetter, url: str) -> dict[str, Any]:
    """Return an event with what a receiver needs to know of a dead letter, in its data."""
    letter = {
        "id": record.id,
        "reason": record.reason.value,
        "category": record.category.value,
        "detail": cut_text(record.detail, _DETAIL_CHARS),
        "url": url,
    }
    return {**event, "data": {**(event.get("data") or {}), "dead_letter": letter}}


def notes_of_events(outbox_id: str, events: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Return the events of a run as the status document shows them when they are committed."""
    return tuple(
        {
            "event_id": event_id_for(outbox_id, number),
            "type": event["type"],
            "state": EventState.PENDING.value,
        }
        for number, event in enumerate(events, start=1)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery(JsonShape):
    """One event that is being sent."""

    # The event as the retry loop takes it: its id and key are the event's, `dependency` is the lane, policy
    # and deadline are those of the destination.
    operation: OperationInput
    state: RetryState  # where its retry loop stands

    @property
    def event_id(self) -> str:
        return self.operation.operation_id

    @property
    def lane(self) -> str:
        return self.operation.dependency

    @property
    def due_at(self) -> datetime:
        """When the next attempt is due, aware UTC."""
        return self.state.due_at or self.operation.created_at

    @property
    def blocked_since(self) -> datetime | None:
        """Since when the circuit of its destination or a pause holds it; None while neither does."""
        history = self.state.history
        is_held = self.state.admission.waiting and history.is_next_blocked
        return history.waits[-1].began_at if is_held else None

    @property
    def why(self) -> str | None:
        """What holds its next attempt up, with the error behind it; None where the last attempt says it."""
        history = self.state.history
        waits = [wait for wait in history.waits if wait.before_attempt == history.next_attempt]
        return waits[-1].delay_reasons[0] if waits else None

    def moved(self, state: RetryState) -> Self:
        """Return the delivery with a later state of its retry loop.

        Waits for our own side are dropped: events do not show them.
        """
        waits = tuple(wait for wait in state.history.waits if wait.kind is not WaitKind.OWN_FAILURE)
        return replace(self, state=replace(state, history=replace(state.history, waits=waits)))

    def with_later_deadline(self, by: timedelta) -> Self:
        """Return the delivery with so much more time; more than it waits, when the wait is ended early."""
        return replace(self, operation=self.operation.with_later_deadline(by))

    def renamed(self, dependency: str) -> Self:
        """Return the delivery with the present name of its destination, which was renamed."""
        state = replace(self.state, admission=self.state.admission.at_another_name())
        return replace(self, operation=replace(self.operation, dependency=dependency), state=state)

    def released(self, now: datetime) -> Self:
        """Return the delivery after its circuit changed: due now, to be admitted or refused again."""
        return replace(self, state=replace(self.state, due_at=now))


def delivery_of(
    event: Mapping[str, Any],
    dependency: Dependency | None,
    since: datetime,
    trace: TraceContext | None = None,
) -> Delivery:
    """Return the delivery of a pending event.

    A webhook goes by the policy and the deadline of its dependency. A message to a queue goes by the preset
    `critical` without a deadline: only an outage of the storage account can hold it up. The deadline counts
    from `since`, when the event became pending. A dependency that is not configured any more is None.
    """
    is_queue = event.get("dependency") is None
    timeouts = QUEUE_TIMEOUTS if is_queue else Timeouts() if dependency is None else dependency.timeouts
    operation = OperationInput(
        operation_id=event["event_id"],
        key=event["event_id"],
        run=run_number(since),
        source=SOURCE,
        dependency=lane_of(event),
        policy=PRESETS["critical"].policy if dependency is None else dependency.retry,
        timeouts=timeouts,
        created_at=since,
        deadline_at=deadline_of(since, timeouts.deadline_seconds),
        correlation_id=event.get("correlation_id"),
        trace=trace,
        limit_key=None if is_queue else event.get("limit_key"),
    )
    return Delivery(operation=operation, state=RetryState(due_at=since))


def heads_of(deliveries: Iterable[Delivery]) -> list[Delivery]:
    """Return the first delivery of every lane; only they may be sent."""
    heads: dict[str, Delivery] = {}
    for delivery in deliveries:
        heads.setdefault(delivery.lane, delivery)
    return list(heads.values())


_SHOWN: Final = 12
"""Deliveries in the custom status, which holds 16 KiB."""


def shown_of(deliveries: Iterable[Delivery]) -> dict[str, Any]:
    """Return how often each head of a lane was tried, the latest attempt and the next, by event id."""
    return {
        head.event_id: {
            "attempt_count": head.state.history.attempt_count,
            "next_attempt_at": to_rfc3339(head.due_at),
            "attempts": [attempt.to_json() for attempt in head.state.history.attempts[-1:]],
            "why": head.why,
        }
        for head in heads_of(deliveries)[:_SHOWN]
    }


def due_of(deliveries: Iterable[Delivery], now: datetime) -> list[Delivery]:
    """Return the deliveries to attempt now: heads of their lanes whose wait is over."""
    return [head for head in heads_of(deliveries) if head.due_at <= now]


def next_due_at(deliveries: Iterable[Delivery]) -> datetime:
    """Return when the next attempt may be made; ValueError where there is no delivery."""
    return min(head.due_at for head in heads_of(deliveries))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent(JsonShape):
    event_id: str  # the same for ever
    event: Mapping[str, Any]  # the JSON form of an `Event`
    state: EventState
    created_at: datetime  # when the operation's success was committed
    pending_since: datetime  # when it last became pending: a resend begins anew
    sent_at: datetime | None = None  # None until it was sent
    detail: str | None = None  # why it failed; None unless it did
    attempt_count: int | None = None  # since it last became pending; None before it ended
    correlation_id: str | None = None  # the operation's
    trace: TraceContext | None = None  # the operation's
    limit_key: str | None = None  # the operation's
    # Only in a stand-in, which is never stored or sent: why the row of the event cannot be read.
    unreadable: Annotated[str | None, NOT_STORED] = None

    def listed(self) -> "OutboxEvent":
        """Return it as `GET /api/outbox` shows it."""
        return OutboxEvent.taken_from(
            self,
            operation_id=operation_id_of(self.event_id),
            type=self.event["type"],
            **{name: self.event.get(name) for name in ("queue", "dependency", "path")},
        )

    def to_delivery(self, dependency: Dependency | None) -> Delivery:
        """Return its delivery; see `delivery_of`."""
        names = ("event_id", "correlation_id", "limit_key")
        named = {**self.event, **{name: getattr(self, name) for name in names}}
        return delivery_of(named, dependency, self.pending_since, self.trace)


def unreadable_event(event_id: str, state: EventState, created_at: datetime, reason: str) -> StoredEvent:
    """Return a stand-in for an event that cannot be read."""
    return StoredEvent(
        event_id=event_id,
        event={"type": ""},
        state=state,
        created_at=created_at,
        pending_since=created_at,
        detail=f"This event cannot be read: {reason}",
        unreadable=reason,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Conditions on events beside their state; None means any."""

    dependencies: frozenset[str] | None = None  # names of a webhook's; messages to queues have none
    operation_ids: frozenset[str] | None = None
    created_after: datetime | None = None  # created at this instant or later
    created_before: datetime | None = None  # created before this instant

    def matches(self, event: "OutboxEvent") -> bool:
        is_chosen = self.operation_ids is None or event.operation_id in self.operation_ids
        is_late = self.created_after is None or event.created_at >= self.created_after
        is_early = self.created_before is None or event.created_at < self.created_before
        is_of = self.dependencies is None or event.dependency in self.dependencies
        return is_chosen and is_late and is_early and is_of


class OutboxEvent(Answer):
    """A follow-up message and where it stands; events that have ended are listed in this form."""

    event_id: str
    operation_id: str | None
    type: str
    state: EventState
    queue: str | None
    dependency: str | None
    path: str | None
    detail: str | None
    attempt_count: int | None = Field(
        default=None, description="Since it last became pending; null in a list of pending events."
    )
    created_at: Instant
    pending_since: Instant
    sent_at: Instant | None = None
    unreadable: Unreadable = Field(default=None, exclude_if=is_none)


class OutboxEventDocument(OutboxEvent):
    """A follow-up message with its data, and what became of the attempts to send it."""

    data: Any = Field(description="As it is sent; secrets are masked.")
    correlation_id: str | None
    attempts: tuple[PastAttempt, ...] = Field(
        default=(), description="Of a pending event the latest, of a failed one those of its dead letter."
    )
    next_attempt_at: Instant | None = None
    why: str | None = Field(
        default=None, description="What holds the next attempt up; null where the last attempt says it."
    )
    dead_letter_id: str | None = None


CONTENT_TYPE: Final = "application/cloudevents+json"


def envelope_of(event: StoredEvent) -> dict[str, Any]:
    """Return the envelope of an event; the same for every attempt to send it.

    `source` and `id` together identify the event for receivers that deduplicate. `sequence` (the CloudEvents
    extension of that name) orders the events of one `source`. `traceparent` (the extension "Distributed
    Tracing") is where the operation was submitted; the position of an attempt is in the HTTP header.
    """
    operation_id = operation_id_of(event.event_id)
    envelope: dict[str, Any] = {
        "specversion": "1.0",
        "id": event.event_id,
        "source": f"/api/operations/{operation_id}",
        "type": event.event["type"],
        "time": to_rfc3339(event.created_at),
        "datacontenttype": "application/json",
        "sequence": f"{number_of(event.event_id):04d}",
        "data": event.event.get("data"),
    }
    if event.correlation_id is not None:
        envelope["correlationid"] = event.correlation_id
    return envelope | ({} if event.trace is None else event.trace.to_json())


def envelope_text(event: StoredEvent) -> str:
    """Return the envelope as the JSON text that is sent: the same bytes for every attempt."""
    return json.dumps(envelope_of(event), separators=(",", ":"), ensure_ascii=False)

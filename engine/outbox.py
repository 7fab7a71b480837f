"""The outbox: names and states of follow-up messages, and which of them to send next.

Events of one operation to one destination (a lane) go out in their order, each after the one before it has
ended; lanes do not wait for each other, and an event that cannot be delivered holds nothing up once it has
failed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Self

from engine.deadline import deadline_of
from engine.dependency import Dependency
from engine.gate import Ticket
from engine.instants import from_rfc3339, optional_to_rfc3339, to_rfc3339
from engine.operation import History, OperationInput
from engine.policy import PRESETS, Timeouts
from engine.trace_context import TraceContext

SOURCE: Final = "outbox"

QUEUE_PREFIX: Final = "queue:"
"""Sets the names of queues apart from those of dependencies."""

QUEUE_TIMEOUTS: Final = Timeouts(connect_seconds=3.0, attempt_seconds=30.0, deadline_seconds=0.0)


class EventState(StrEnum):
    """Where an event stands."""

    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"


def event_id_for(operation_id: str, number: int) -> str:
    """Name the event of an operation: the same whenever it is sent.

    Args:
        operation_id: Whose event.
        number: Its place among the operation's events, from 1.
    """
    return f"{operation_id}.{number}"


def operation_id_of(event_id: str) -> str | None:
    """Return whose event an id names; None when it is no event's id."""
    operation_id, _, number = event_id.rpartition(".")
    return operation_id if operation_id and number.isascii() and number.isdigit() else None


def number_of(event_id: str) -> int:
    """Return an event's place among those of its operation, from 1; 0 when it is no event's id."""
    return 0 if operation_id_of(event_id) is None else int(event_id.rpartition(".")[2])


def lane_of(event: Mapping[str, Any]) -> str:
    """Return the destination of an event: its dependency, or its queue."""
    dependency: str | None = event.get("dependency")
    return f"{QUEUE_PREFIX}{event['queue']}" if dependency is None else dependency


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One event on its way.

    Attributes:
        operation: What `engine.decide` goes by: id and key are the event's, dependency is the lane, policy
            and deadline are those of the destination.
        history: The attempts to send it so far.
        due_at: When the next one may be made.
        ticket: What it brings to the gate of its dependency.
    """

    operation: OperationInput
    history: History
    due_at: datetime
    ticket: Ticket = field(default_factory=Ticket)

    @property
    def event_id(self) -> str:
        """Whose delivery it is."""
        return self.operation.operation_id

    @property
    def lane(self) -> str:
        """Where it goes."""
        return self.operation.dependency

    def postponed(self, history: History, due_at: datetime, ticket: Ticket | None = None) -> Self:
        """Return the delivery after an attempt that is to be followed by another, or that was held up."""
        return replace(self, history=history, due_at=due_at, ticket=ticket or Ticket())

    def to_json(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {
            "operation": self.operation.to_json(),
            "history": self.history.to_json(),
            "due_at": to_rfc3339(self.due_at),
            "ticket": self.ticket.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        return cls(
            operation=OperationInput.from_json(data["operation"]),
            history=History.from_json(data["history"]),
            due_at=from_rfc3339(data["due_at"]),
            ticket=Ticket.from_json(data["ticket"]),
        )


def delivery_of(
    event: Mapping[str, Any],
    dependency: Dependency | None,
    since: datetime,
    trace: TraceContext | None = None,
) -> Delivery:
    """Return the delivery of a pending event.

    A webhook goes by the policy and the deadline of its dependency. A message to a queue goes by the preset
    `critical` without a deadline: only an outage of the storage account can hold it up.

    Args:
        event: `event_id`, `correlation_id` and the event's own fields.
        dependency: Of a webhook; None for a queue, or when it is not configured any more.
        since: When the event became pending; its deadline counts from then.
        trace: Where in a trace its operation was submitted; None when nobody traces it.
    """
    is_queue = event.get("dependency") is None
    timeouts = QUEUE_TIMEOUTS if is_queue else Timeouts() if dependency is None else dependency.timeouts
    operation = OperationInput(
        operation_id=event["event_id"],
        key=event["event_id"],
        source=SOURCE,
        dependency=lane_of(event),
        fingerprint="",
        policy=PRESETS["critical"].policy if dependency is None else dependency.retry,
        timeouts=timeouts,
        created_at=since,
        deadline_at=deadline_of(since, timeouts.deadline_seconds),
        correlation_id=event.get("correlation_id"),
        trace=trace,
    )
    return Delivery(operation=operation, history=History(), due_at=since)


def heads_of(deliveries: Iterable[Delivery]) -> list[Delivery]:
    """Return the first delivery of every lane; only they may be sent."""
    heads: dict[str, Delivery] = {}
    for delivery in deliveries:
        heads.setdefault(delivery.lane, delivery)
    return list(heads.values())


def due_of(deliveries: Iterable[Delivery], now: datetime) -> list[Delivery]:
    """Return the deliveries to attempt now: heads of their lanes whose wait is over."""
    return [head for head in heads_of(deliveries) if head.due_at <= now]


def next_due_at(deliveries: Iterable[Delivery]) -> datetime:
    """Return when the next attempt may be made.

    Raises:
        ValueError: There is no delivery.
    """
    return min(head.due_at for head in heads_of(deliveries))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """An event as the outbox keeps it.

    Attributes:
        event_id: The same for ever.
        event: The JSON form of `engine.models.Event`.
        state: Where it stands.
        created_at: When the operation's success was committed.
        pending_since: When it last became pending: a resend begins anew.
        sent_at: None until it was sent.
        detail: Why it failed; None unless it did.
        correlation_id: The operation's.
        trace: The operation's.
    """

    event_id: str
    event: Mapping[str, Any]
    state: EventState
    created_at: datetime
    pending_since: datetime
    sent_at: datetime | None = None
    detail: str | None = None
    correlation_id: str | None = None
    trace: TraceContext | None = None

    def to_json(self) -> dict[str, Any]:
        """Give the form of `GET /api/outbox`."""
        return {
            "event_id": self.event_id,
            "operation_id": operation_id_of(self.event_id),
            "type": self.event["type"],
            "state": self.state.value,
            "queue": self.event.get("queue"),
            "dependency": self.event.get("dependency"),
            "path": self.event.get("path"),
            "detail": self.detail,
            "created_at": to_rfc3339(self.created_at),
            "pending_since": to_rfc3339(self.pending_since),
            "sent_at": optional_to_rfc3339(self.sent_at),
        }

    def to_delivery(self, dependency: Dependency | None) -> Delivery:
        """Return its delivery; see `delivery_of`."""
        named = {**self.event, "event_id": self.event_id, "correlation_id": self.correlation_id}
        return delivery_of(named, dependency, self.pending_since, self.trace)

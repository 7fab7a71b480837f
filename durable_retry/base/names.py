"""The closed sets of names that histories, messages and clients see: never rename one.

Durable functions, events and queues; categories, states, priorities and reasons.

The rule for a slot is that of time-dependent priorities (Kleinrock 1964): the operation that has waited for
the longest goes first, where a minute counts fourfold for `high` and a quarter for `low`. So `low` is never
starved: a `low` operation goes before a `normal` one when it has waited four times as long, and before a
`high` one when it has waited sixteen times as long, however many come.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, Literal

OPERATION: Final = "operation"
STARTED_OPERATION: Final = OPERATION
"""The orchestrator that new operations and replays start; another beside it while one is changed."""

ATTEMPT: Final = "attempt"
COMMIT: Final = "commit"
DEAD_LETTER: Final = "dead_letter"
"""Activities."""

IDEMPOTENCY_RECORD: Final = "idempotency_record"
CIRCUIT_BREAKER: Final = "circuit_breaker"
CALL_LIMITER: Final = "call_limiter"
"""Entities."""

REPORT: Final = "report"
PERMIT: Final = "permit"
MANUAL_CONTROL: Final = "hand"
FREEZE: Final = "freeze"
KEY_CHANGED: Final = "key_changed"
GONE: Final = "gone"
"""Operations of the entity `circuit_breaker`, with `FORGET`."""

ACQUIRE: Final = "acquire"
GIVE_BACK: Final = "give_back"
LEAVE: Final = "leave"
RESET: Final = "reset"
"""Operations of the entity `call_limiter`."""

FORGET: Final = "forget"
"""An operation that an entity signals to itself, for later."""

CANCEL_EVENT: Final = "cancel"
RETRY_NOW_EVENT: Final = "retry_now"
TRY_EVENT: Final = "try"
PAUSE_EVENT: Final = "pause"
RESUME_EVENT: Final = "resume"
CIRCUIT_EVENT: Final = "circuit_changed"
SLOT_EVENT: Final = "slot_free"
"""Events that an operation waits for; `circuit_changed` ends a wait for the circuit, `slot_free` one for a
slot of a limiter."""

NUDGE_EVENT: Final = "nudge"
"""Event that upkeep sends to an instance that stands still, to check whether something was lost."""

DUE_AT: Final = "due_at"
"""Member of the custom status of a waiting instance, other than an operation: when its next turn is due."""

ENDED_EVENT: Final = "operation_ended"
"""Event that an operation sends to the batch or saga it belongs to."""

OPERATIONS_QUEUE: Final = "operations"
POISON_QUEUE: Final = "operations-poison"
"""Storage queues; the host moves a message to the second after `maxDequeueCount` deliveries."""

QUEUE_SOURCE: Final = "queue"
"""Source of operations from the storage queue; part of the scope of their keys."""

QUEUE_PREFIX: Final = "queue:"
"""Begins the name of a queue as a destination, so that it differs from any dependency's name."""


class Category(StrEnum):
    """The kind of a failure; it decides what follows."""

    TRANSIENT = "transient"
    THROTTLED = "throttled"
    AMBIGUOUS = "ambiguous"
    MALFORMED = "malformed"
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not_found"
    BUSINESS_RULE = "business_rule"
    CIRCUIT_OPEN = "circuit_open"
    DEADLINE_EXCEEDED = "deadline_exceeded"


class OperationState(StrEnum):
    """The state of an operation."""

    PENDING = "pending"
    SCHEDULED = "scheduled"
    PAUSED = "paused"
    RUNNING = "running"
    WAITING_RETRY = "waiting_retry"
    WAITING_THROTTLE = "waiting_throttle"
    WAITING_CIRCUIT = "waiting_circuit"
    WAITING_ORDER = "waiting_order"
    SUCCEEDED = "succeeded"
    DEAD_LETTERED = "dead_lettered"
    CANCELLED = "cancelled"


class Priority(StrEnum):
    """Who goes first where operations wait; without one an operation is `normal`."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


type PriorityName = Literal["high", "normal", "low"]
"""A `Priority` as people write it."""


FINISHED = frozenset({OperationState.SUCCEEDED, OperationState.DEAD_LETTERED, OperationState.CANCELLED})
"""States that an operation never leaves by itself."""

WAITING = frozenset(
    {
        OperationState.SCHEDULED,
        OperationState.WAITING_RETRY,
        OperationState.WAITING_THROTTLE,
        OperationState.WAITING_CIRCUIT,
        OperationState.WAITING_ORDER,
    }
)
"""States that `retry_now` ends."""


class DeadLetterReason(StrEnum):
    """Why an operation or a message needs a person."""

    RETRIES_EXHAUSTED = "RetriesExhausted"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    AMBIGUOUS_OUTCOME = "AmbiguousOutcome"
    REJECTED_BY_DEPENDENCY = "RejectedByDependency"
    REJECTED_BY_HANDLER = "RejectedByHandler"
    MALFORMED_JSON = "MalformedJson"
    VALIDATION_FAILED = "ValidationFailed"
    UNKNOWN_DEPENDENCY = "UnknownDependency"
    POISON_MESSAGE = "PoisonMessage"
    OUTBOX_UNDELIVERABLE = "OutboxUndeliverable"
    COMPENSATION_FAILED = "CompensationFailed"
    CIRCUIT_OPEN = "CircuitOpen"


class EventState(StrEnum):
    """Where a follow-up message stands."""

    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"


class Role(StrEnum):
    """What a caller may do.

    A caller may submit work and look at it by its id; a reader may read everything but histories; an operator
    may also change things and read those; `none` may do nothing.
    """

    NONE = "none"
    CALLER = "caller"
    READER = "reader"
    OPERATOR = "operator"


TURN_NAMES: Final = ("order_key", "priority", "limit_key", "debounce_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnNames:
    """Conditions on these names, a part of a filter; None means any."""

    order_key: str | None = None  # the whole order key
    priority: Priority | None = None
    limit_key: str | None = None  # the whole limit key
    debounce_key: str | None = None  # the whole debounce key

    CONDITIONS: ClassVar[tuple[str, ...]] = TURN_NAMES

    @property
    def turn_names(self) -> dict[str, str]:
        return {name: value for name in self.CONDITIONS if (value := getattr(self, name)) is not None}

    def fits_names(self, names: Mapping[str, str]) -> bool:
        """Return whether what has these names matches."""
        return all(names.get(name) == value for name, value in self.turn_names.items())

"""The closed sets of names that clients see: categories, states, reasons."""

from enum import StrEnum


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
    RUNNING = "running"
    WAITING_RETRY = "waiting_retry"
    WAITING_CIRCUIT = "waiting_circuit"
    SUCCEEDED = "succeeded"
    DEAD_LETTERED = "dead_lettered"
    CANCELLED = "cancelled"


FINISHED = frozenset({OperationState.SUCCEEDED, OperationState.DEAD_LETTERED, OperationState.CANCELLED})
"""States that an operation never leaves by itself."""


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

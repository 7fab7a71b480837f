"""The closed sets of names that clients see: categories, states, reasons."""

from enum import StrEnum


class Category(StrEnum):
    """What kind of failure an attempt met; decides what happens next."""

    TRANSIENT = "transient"
    THROTTLED = "throttled"
    AMBIGUOUS = "ambiguous"
    MALFORMED = "malformed"
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not_found"
    BUSINESS_RULE = "business_rule"
    CIRCUIT_OPEN = "circuit_open"
    DEADLINE_EXCEEDED = "deadline_exceeded"


RETRYABLE = frozenset({Category.TRANSIENT, Category.THROTTLED})
"""The only categories after which the same call is made again as a counted attempt."""

ASSIGNABLE = frozenset(Category) - {Category.CIRCUIT_OPEN, Category.DEADLINE_EXCEEDED}
"""What a dependency's `classify` table may name: the other two are found by the engine itself."""


class OperationState(StrEnum):
    """Where an operation stands."""

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
    """Why an operation or a message will not succeed without a person."""

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

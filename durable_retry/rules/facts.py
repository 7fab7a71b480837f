"""Facts: what happened to an operation or a circuit, as the core reports it.

`telemetry.facts` carries each to its subscribers: telemetry counts and logs, the console keeps an index.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from durable_retry.base.trace_context import TraceContext
from durable_retry.rules.circuit.states import CircuitState
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.retry.history import AttemptOutcome, WaitKind


class SubmissionOutcome(StrEnum):
    """What became of a submission."""

    STARTED = "started"
    REPLAYED = "replayed"
    """The key was used for the same operation before."""
    KEY_REUSED = "key_reused"
    """The key stands for another operation."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """An operation was submitted; `STARTED` means that it was accepted as a new one."""

    operation: OperationInput
    outcome: SubmissionOutcome


@dataclass(frozen=True, slots=True)
class StartUnanswered:
    """The task hub did not say whether it started an operation, whose key the caller chose."""

    operation: OperationInput


@dataclass(frozen=True, slots=True)
class AttemptHeld:
    """The retry budget, the circuit or a limit did not let an attempt start."""

    operation: OperationInput
    kind: WaitKind


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt of an operation ended; a repeated execution of the same attempt is reported again."""

    operation: OperationInput
    outcome: AttemptOutcome
    was_held: bool  # whether this attempt waited for its admission before


@dataclass(frozen=True, slots=True)
class DeliveryEnded:
    """An attempt to send an event of the outbox ended; `operation` is the event in an operation's shape."""

    operation: OperationInput
    outcome: AttemptOutcome


@dataclass(frozen=True, slots=True)
class WaitBegun:
    operation: OperationInput
    kind: WaitKind
    until: datetime  # when the wait should end
    reasons: tuple[str, ...]  # why it is as long as it is


@dataclass(frozen=True, slots=True)
class WaitEnded:
    """A wait is over after `seconds`."""

    operation: OperationInput
    kind: WaitKind
    seconds: float
    late_seconds: float | None  # since it was due; None where something ended it before


@dataclass(frozen=True, slots=True)
class DeadLetterKept:
    """A dead letter of an operation was stored; storing it again reports it again."""

    operation: Mapping[str, Any]  # the JSON form of its `OperationInput`
    error: str  # the last attempt's error, the reason and the detail, a line each


@dataclass(frozen=True, slots=True)
class ActedOn:
    """Somebody asked an operation to end, or to wait no longer; it has not done so yet."""

    document: Mapping[str, Any]  # the status document before
    action: str  # `cancel`, `retry_now`, `try`, `pause` or `resume`
    by: str | None
    priority: str | None = None  # what its priority changes to; None where it stays


class TargetType(StrEnum):
    """What somebody acts on, or something happens to."""

    OPERATION = "operation"
    DEAD_LETTER = "dead_letter"
    CAUSE = "cause"
    EVENT = "event"
    CIRCUIT = "circuit"
    SAGA = "saga"
    BULK_ACTION = "bulk_action"
    ALERT = "alert"
    APP = "app"


@dataclass(frozen=True, slots=True)
class PersonActed:
    """Somebody changed something through the API, and it was accepted.

    Attributes:
        who: The name of a person or a key; `api` where it is not known.
        what: Words such as `archived the dead letter`.
        reason: In the words of whoever acted.
        dependency: The one that it is about; None where that is not known.
        limit_key: Whose circuit it is about; None for a dependency's own, and for all else.
    """

    who: str
    what: str
    target: TargetType
    target_id: str
    reason: str | None
    dependency: str | None
    limit_key: str | None = None


@dataclass(frozen=True, slots=True)
class OperationEnded:
    """An operation ended, in whatever way. The record of its key reports it, once."""

    document: Mapping[str, Any]  # the last status document
    trace: TraceContext | None  # trace context of the submission; None without tracing


@dataclass(frozen=True, slots=True)
class CircuitChanged:
    """The state of a dependency's circuit changed."""

    dependency: str
    before: CircuitState
    after: CircuitState
    reason: str  # for a person
    by: str  # who or what changed it, as in `Breaker`
    # When the outage began that goes on or is over; None where there was none.
    opened_at: datetime | None = None
    opened_because: str | None = None  # for a person
    failed_probes: int = 0  # since then
    last_error: str | None = None  # of the latest failed call since then
    limit_key: str | None = None  # whose circuit it is; None for the dependency's own

    @property
    def circuit(self) -> str:
        """The circuit's name for a person."""
        return self.dependency if self.limit_key is None else f"{self.dependency} for {self.limit_key}"

    @property
    def evidence(self) -> str:
        """The reason, and what the latest failed call got."""
        return self._with_error(self.reason)

    @property
    def cause(self) -> str:
        """Why the outage began, and what the latest failed call got."""
        return self._with_error(self.opened_because or self.reason)

    def _with_error(self, why: str) -> str:
        return why if self.last_error is None else f"{why}; the last error: {self.last_error}"


@dataclass(frozen=True, slots=True)
class DependencyPaused:
    """A dependency asked for a pause of all calls, or for a longer one; or somebody ended a pause."""

    dependency: str
    since: datetime
    until: datetime
    by: str | None  # what asked for it, such as `429 (Retry-After 1800 s)`; None where that is not known
    limit_key: str | None  # as above


@dataclass(frozen=True, slots=True)
class CircuitBypassed:
    """An attempt was made without its circuit, which could not be read."""

    dependency: str


@dataclass(frozen=True, slots=True)
class RetryPostponed:
    dependency: str


@dataclass(frozen=True, slots=True)
class LimitsRead:
    """An attempt asked whether the limits of its dependency let it start; 0 is no limit."""

    dependency: str
    concurrency: int  # attempts at once at this moment
    per_second: float  # starts per second at this moment


type Fact = (
    Submitted
    | StartUnanswered
    | AttemptHeld
    | AttemptEnded
    | DeliveryEnded
    | WaitBegun
    | WaitEnded
    | DeadLetterKept
    | ActedOn
    | PersonActed
    | OperationEnded
    | CircuitChanged
    | DependencyPaused
    | CircuitBypassed
    | RetryPostponed
    | LimitsRead
)

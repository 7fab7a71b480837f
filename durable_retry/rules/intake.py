"""What every source of operations shares: messages, and backpressure.

Every source makes an `Arrival`; `read_message` returns the request, or raises why these bytes never become
one.

Backpressure: whether the task hub or a dependency is far behind, judged by one started operation at a time.
For each dependency the intake remembers one operation that it started, its probe, and reads its state now
and then: one point read, however long the queue is. A probe that has not begun after a while means that the
task hub is behind; one that waits for the circuit, or is throttled, means that the dependency is unavailable.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final

from durable_retry.base.documents import read_checked
from durable_retry.base.names import OperationState
from durable_retry.base.trace_context import TraceContext
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.rules.operations.keys import ScopedKey, source_name, visible


def host_instant(instant: datetime | None) -> datetime | None:
    """Return an instant of a binding as aware UTC: the SDK drops the offset `+00:00` that the host writes."""
    return instant.replace(tzinfo=UTC) if instant is not None and instant.tzinfo is None else instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One message or event, as its source delivered it."""

    source: str  # `queue`, or that of a feature (`plugins.sources`)
    body: bytes
    place: str = ""  # the scope in which its id is unique, such as the queue's name
    native_id: str = ""  # the source's own id; "" when there is none, and then a hash of the body is used
    partition: str = ""  # within which the source keeps the order; "" when it keeps none
    # Whether the source can deliver it later without using up a limited number of deliveries.
    may_be_left: bool = False
    deliveries: int = 1  # how often it was delivered, this time included
    # The position in a trace that its properties carry; None when they carry none.
    trace: TraceContext | None = None

    @property
    def name(self) -> ScopedKey:
        return source_name(self.source, self.place, self.message_id)

    @property
    def order_key(self) -> str | None:
        """The order key of its partition; None where the source keeps no order."""
        if not self.partition:
            return None
        return visible(":".join(filter(None, (self.source, self.place, self.partition))))

    @property
    def message_id(self) -> str:
        """The source's own id, or the body's hash where it has none."""
        return self.native_id or id_of_body(self.body)


def read_message[T](body: bytes, check: Callable[[Any], T], *, max_bytes: int) -> T:
    """Return what a check makes of the JSON document of a message.

    Raises:
        MalformedJsonError: It is not JSON.
        InvalidInputError: It is too large, cannot be sent on, or the check refuses it.
    """
    if len(body) > max_bytes:
        raise InvalidInputError([Problem("", f"is larger than {max_bytes} bytes")])
    return read_checked(body, check)


def id_of_body(body: bytes) -> str:
    """Return the id of a body that came without one: equal bytes are one message."""
    return f"body-{sha256(body).hexdigest()[:40]}"


class Backpressure(StrEnum):
    TASK_HUB = "task_hub"
    DEPENDENCY = "dependency"


@dataclass(frozen=True, slots=True, kw_only=True)
class LagThresholds:
    """The lags above which something counts as far behind."""

    task_hub_seconds: float = 30.0  # since the start of an operation that has not begun; 0 means never
    # Since the start of an operation that waits for the circuit or is throttled; 0 means never.
    dependency_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class LagReading:
    """The result of reading a probe's state."""

    backpressure: Backpressure | None  # what is behind; None when nothing is
    is_over: bool  # whether this probe can show nothing more, so that the next started operation replaces it


_MOVES_ON: Final = LagReading(None, is_over=True)


def lag_reading(state: str | None, age_seconds: float, limits: LagThresholds) -> LagReading:
    """Judge a probe by the state of its status document.

    None means that the operation is gone, so that it ended.
    """
    match state:
        case OperationState.PENDING:
            return _reading_while_waiting(Backpressure.TASK_HUB, age_seconds, limits.task_hub_seconds)
        case OperationState.WAITING_CIRCUIT | OperationState.WAITING_THROTTLE:
            return _reading_while_waiting(Backpressure.DEPENDENCY, age_seconds, limits.dependency_seconds)
        case _:
            return _MOVES_ON


def _reading_while_waiting(what: Backpressure, age_seconds: float, limit_seconds: float) -> LagReading:
    if limit_seconds == 0:
        return _MOVES_ON
    return LagReading(what if age_seconds > limit_seconds else None, is_over=False)

"""The decisions about a call that is retried, and what they need of that call."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from durable_retry.engine.base.enums import Category, DeadLetterReason
from durable_retry.engine.retry.history import WaitKind
from durable_retry.engine.retry.policy import RetryPolicy, Timeouts


class Retryable(Protocol):
    """What the rules need of an operation, or of an event of the outbox.

    Attributes:
        operation_id: Seeds every draw, so that a replay draws the same.
        dependency: Named in texts.
        policy: Strategy, attempts, jitter and `Retry-After`.
        timeouts: `connect_seconds` must fit between a wait and the deadline.
        deadline_at: After this nothing more is tried; None means no deadline.
        handler: The Python handler that it runs; None for a request.
    """

    @property
    def operation_id(self) -> str: ...  # noqa: D102 - described above, like those below
    @property
    def dependency(self) -> str: ...  # noqa: D102
    @property
    def policy(self) -> RetryPolicy: ...  # noqa: D102
    @property
    def timeouts(self) -> Timeouts: ...  # noqa: D102
    @property
    def deadline_at(self) -> datetime | None: ...  # noqa: D102
    @property
    def handler(self) -> str | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Done:
    """The attempt succeeded.

    Attributes:
        result: As in `AttemptOutcome`.
    """

    result: Any = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Another attempt is due later.

    Attributes:
        until: When, never before now and never after the deadline.
        delay_seconds: From now until then.
        reasons: Why then, each a few words, in the order in which they were weighed.
        kind: What blocks the attempt; None for the pause before a retry.
    """

    until: datetime
    delay_seconds: float
    reasons: tuple[str, ...]
    kind: WaitKind | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The operation will not succeed without a person.

    Attributes:
        category: Of the last failure, or `deadline_exceeded`.
        reason: The contract's name.
        detail: One or two sentences for a person.
    """

    category: Category
    reason: DeadLetterReason
    detail: str


type Decision = Done | Wait | DeadLetter

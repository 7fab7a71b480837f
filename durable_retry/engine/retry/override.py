"""What an operation may change of its retry policy: the keys of a `retry` table."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from durable_retry.engine.base.request_fields import Seconds
from durable_retry.engine.base.validation import Strict, refuse
from durable_retry.engine.retry.policy import Jitter, PresetName, Strategy

MAX_ATTEMPTS: Final = 1_000_000_000


def _attempts(value: int) -> int:
    if value == 0:
        raise refuse("must be at least 1, or -1 for unlimited")
    return value


class RetryOverride(Strict):
    """The keys of a `retry` table, or of an operation's `retry`; only those in `written()` count.

    `engine.retry.policy.policy_from` and `engine.retry.policy.overridden` take what `written()` returns.

    Attributes:
        preset: The policy to start from; the other keys override it.
    """

    preset: PresetName = "standard"
    strategy: Strategy = "exponential"
    max_attempts: Annotated[int, Field(ge=-1, le=MAX_ATTEMPTS), AfterValidator(_attempts)] = 5
    initial_seconds: Seconds = 2.0
    factor: Annotated[float, Field(ge=1, le=100)] = 2.0
    max_seconds: Seconds = 60.0
    schedule_seconds: Annotated[list[Seconds], Field(max_length=1_000)] = Field(default_factory=list)
    jitter: Jitter = "full"
    respect_retry_after: bool = True
    max_retry_after_seconds: Seconds = 300.0

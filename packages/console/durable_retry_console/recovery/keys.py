"""What dependencies.toml says of what follows an outage, among the keys of the console."""

from typing import Annotated, Final, Literal

from pydantic import Field

from durable_retry.base.validation import Strict
from durable_retry.rules.config.dependency import Dependency
from durable_retry_console.alerts.settings import CONSOLE, AlertKeys

type Recoverable = Literal["RetriesExhausted", "DeadlineExceeded"]
"""Reasons that the end of an outage takes away; a refusal, or an unknown end, stays."""

_ALL: Final[list[Recoverable]] = ["RetriesExhausted", "DeadlineExceeded"]


class Recovery(Strict):
    """`recovery`: the dead letters of an outage are replayed by one bulk action, once the circuit is closed.

    Attributes:
        replay: The reasons of those that are replayed.
        after_closed_seconds: How long the circuit has been closed then.
        at_most: So often one operation is replayed by recoveries.
    """

    replay: Annotated[list[Recoverable], Field(min_length=1, max_length=2)] = Field(default_factory=_ALL.copy)
    after_closed_seconds: Annotated[float, Field(ge=0, le=86_400)] = 120.0
    at_most: Annotated[int, Field(ge=1, le=100)] = 3


class ConsoleKeys(AlertKeys):
    """What the console adds to a dependency.

    Attributes:
        alerts: Thresholds of its own.
        recovery: What follows an outage; None for nothing.
    """

    recovery: Recovery | None = None


def recovery_of(dependency: Dependency) -> Recovery | None:
    """Return what follows an outage of a dependency; None for nothing."""
    return dependency.keys_of(CONSOLE, ConsoleKeys).recovery

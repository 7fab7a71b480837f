"""What the console adds to a dependency in dependencies.toml."""

from typing import Annotated, Final, Literal

from pydantic import Field

from durable_retry.base.validation import Seconds, Strict
from durable_retry.rules.config.dependency import Dependency

CONSOLE: Final = "console"

MOST_DEAD_LETTERS: Final = 9_999
"""The highest threshold of open dead letters: no more than 10,000 are counted."""


class AlertThresholds(Strict):
    """`alerts`: thresholds of a dependency's own, above which an alert is raised; 0 is off.

    Attributes:
        circuit_open_seconds: How long its circuit has let no call through; not written: the app's threshold.
        paused_seconds: How long a pause is that it asks for; not written: the app's threshold.
        credential_refused_seconds: How long it has refused the app's credential; not written: the app's
            threshold.
        dead_letters: How many of its dead letters are open; not written: no alert of its own.
        dead_letter_age_seconds: The age of its oldest open dead letter; not written: no alert of its own.
    """

    circuit_open_seconds: Seconds | None = None
    paused_seconds: Seconds | None = None
    credential_refused_seconds: Seconds | None = None
    dead_letters: Annotated[float, Field(ge=0, le=MOST_DEAD_LETTERS)] | None = None
    dead_letter_age_seconds: Seconds | None = None


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


class ConsoleKeys(Strict):
    """What the console adds to a dependency.

    Attributes:
        alerts: Thresholds of its own.
        recovery: What follows an outage; None for nothing.
    """

    alerts: AlertThresholds = Field(default_factory=AlertThresholds)
    recovery: Recovery | None = None


def recovery_of(dependency: Dependency) -> Recovery | None:
    """Return what follows an outage of a dependency; None for nothing."""
    return dependency.keys_of(CONSOLE, ConsoleKeys).recovery

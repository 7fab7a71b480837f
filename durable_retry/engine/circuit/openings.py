"""The openings of a circuit, each with its evidence: what the circuit saw when it opened.

They are the state of an entity of their own, since workers read that of the circuit every second.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, computed_field

from durable_retry.engine.base.json_forms import Form, JsonShape, MsInstant
from durable_retry.engine.circuit.breaker import Breaker
from durable_retry.engine.circuit.report import LastFailure
from durable_retry.engine.circuit.states import CircuitState

KEPT_OPENINGS = 50


@dataclass(frozen=True, slots=True)
class Opening(JsonShape):
    """One opening of a circuit.

    Attributes:
        at: When, by the circuit's clock.
        epoch: That it began.
        state: `open`, or `forced_open` by hand.
        by: Who or what opened it.
        calls: In the window at that instant; none counted while it was half-open.
        failures: How many of these calls failed.
        slow_calls: How many of these calls were slow.
        break_seconds: Until the next probe or the end of the hold; None when it has no end.
        last_failure: The last failure that was reported with it; None for an opening by hand, and where
            slow calls opened it.
    """

    at: MsInstant
    epoch: int
    state: CircuitState
    reason: str
    by: str
    calls: int
    failures: int
    slow_calls: int
    break_seconds: float | None
    last_failure: Annotated[LastFailure | None, Form(omits_none=True), Field(exclude=True)] = None

    @computed_field  # type: ignore[prop-decorator] # https://github.com/python/mypy/issues/14461
    @property
    def failure_ratio(self) -> float | None:
        """The part of the calls that failed; null without any."""
        return round(self.failures / self.calls, 4) if self.calls else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def last_category(self) -> str | None:
        """The category of the last failure that was reported with it."""
        return None if self.last_failure is None else self.last_failure.category

    @computed_field  # type: ignore[prop-decorator]
    @property
    def last_error(self) -> str | None:
        """What went wrong in the last failure that was reported with it."""
        return None if self.last_failure is None else self.last_failure.error


def opening_of(before: Breaker, after: Breaker, last_failure: LastFailure | None = None) -> Opening | None:
    """Return the opening that a message made; None when it made none."""
    is_open = after.state in {CircuitState.OPEN, CircuitState.FORCED_OPEN}
    if not is_open or after.epoch == before.epoch or after.opened_at is None:
        return None
    # A trip keeps its window; the others begin from what was counted before the message.
    has_tripped = after.tripped_by != before.tripped_by
    window = after.tripped_by if has_tripped else before.window
    counts = window.totals(after.opened_at)
    ends_at = after.retry_at if after.state is CircuitState.OPEN else after.expires_at
    return Opening(
        at=after.opened_at,
        epoch=after.epoch,
        state=after.state,
        reason=after.reason,
        by=after.changed_by,
        calls=counts.calls,
        failures=counts.failures,
        slow_calls=counts.slow,
        break_seconds=None if ends_at is None else round((ends_at - after.opened_at).total_seconds(), 3),
        last_failure=last_failure,
    )


@dataclass(frozen=True, slots=True)
class Openings(JsonShape):
    """The latest openings of one circuit, the oldest first."""

    items: tuple[Opening, ...] = ()

    def with_opening(self, opening: Opening) -> "Openings":
        """Return the openings with one more, in the order of their epochs, whatever that of their arrival.

        A duplicate is dropped; beyond `KEPT_OPENINGS` the oldest is.
        """
        if any((each.epoch, each.at) == (opening.epoch, opening.at) for each in self.items):
            return self
        items = sorted((*self.items, opening), key=lambda each: (each.epoch, each.at))
        return Openings(tuple(items[-KEPT_OPENINGS:]))

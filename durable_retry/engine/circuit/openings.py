"""The openings of a circuit, each with its evidence: what the circuit saw when it opened.

They are the state of an entity of their own, since workers read that of the circuit every second.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from durable_retry.engine.base.json_forms import Form, JsonRecord, MsInstant, to_rfc3339
from durable_retry.engine.circuit.breaker import Breaker
from durable_retry.engine.circuit.report import LastFailure
from durable_retry.engine.circuit.states import CircuitState

KEPT_OPENINGS = 50


@dataclass(frozen=True, slots=True)
class Opening(JsonRecord):
    """One opening of a circuit.

    Attributes:
        at: When, by the circuit's clock.
        epoch: That it began.
        state: `open`, or `forced_open` by hand.
        reason: Why.
        by: Who or what opened it.
        calls: In the window at that instant; none counted while it was half-open.
        failures: Of these calls.
        slow_calls: Of these calls.
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
    last_failure: Annotated[LastFailure | None, Form(omits_none=True)] = None

    def to_view(self) -> dict[str, Any]:
        """Return the form of the API."""
        last = self.last_failure
        return {
            "at": to_rfc3339(self.at),
            "epoch": self.epoch,
            "state": str(self.state),
            "reason": self.reason,
            "by": self.by,
            "calls": self.calls,
            "failures": self.failures,
            "failure_ratio": round(self.failures / self.calls, 4) if self.calls else None,
            "slow_calls": self.slow_calls,
            "break_seconds": self.break_seconds,
            "last_category": None if last is None else last.category,
            "last_error": None if last is None else last.error,
        }


def opening_of(before: Breaker, after: Breaker, last_failure: LastFailure | None = None) -> Opening | None:
    """Return the opening that a message made; None when it made none.

    Args:
        before: State before the message.
        after: State after it.
        last_failure: That the message reported.
    """
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
class Openings(JsonRecord):
    """The latest openings of one circuit, the oldest first."""

    items: tuple[Opening, ...] = ()

    def with_opening(self, opening: Opening) -> "Openings":
        """Return the openings with one more. A duplicate is dropped; beyond `KEPT_OPENINGS` the oldest is."""
        if any((each.epoch, each.at) == (opening.epoch, opening.at) for each in self.items):
            return self
        return Openings((*self.items, opening)[-KEPT_OPENINGS:])

    def to_view(self) -> list[dict[str, Any]]:
        """Return the form of the API, the latest first."""
        return [each.to_view() for each in reversed(self.items)]

"""The gate before a dependency: what an operation brings to it, and what holds it up there.

An attempt passes two: the retry budget, then the circuit. Both are asked in the worker, from its copy; what
they answer goes back to the orchestration, which waits or asks the circuit itself for a probe.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self, assert_never

from engine.budget import BudgetPostponed
from engine.circuit import (
    CircuitSettings,
    PermitMessage,
    Permitted,
    ProbeRequest,
    Refused,
    answer_from_json,
    answer_to_json,
)
from engine.decision import CircuitView, Hold
from engine.operation import OperationInput
from engine.sliding_window import from_ms, to_ms

TRANSPORT_SECONDS = 5.0
"""Added to an attempt's time limit for a probe's lease: the way from the permit to the call, and back."""
_SOON = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Ticket:
    """What an operation brings to the gate.

    Attributes:
        waiting: It was refused before in this wait, so it is released in its turn.
        promised: The retry budget took its token when it postponed it, so it goes without asking again.
        permit: The circuit's own answer to a request for a probe; None when it did not ask.
    """

    waiting: bool = False
    promised: bool = False
    permit: Permitted | None = None

    def to_json(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {
            "waiting": self.waiting,
            "promised": self.promised,
            "permit": None if self.permit is None else answer_to_json(self.permit),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Self:
        """Read what `to_json` wrote; None is an operation that comes for the first time."""
        if data is None:
            return cls()
        permit = None if data["permit"] is None else answer_from_json(data["permit"])
        return cls(data["waiting"], data["promised"], permit if isinstance(permit, Permitted) else None)

    def valid_permit(self, now: datetime) -> Permitted | None:
        """Give the permit unless its lease expired: a probe must not go when another may have begun."""
        expires_at = None if self.permit is None else self.permit.lease_expires_at
        return self.permit if expires_at is None or now < expires_at else None


@dataclass(frozen=True, slots=True)
class NeedsProbe:
    """Only the circuit itself may say who probes; the settings travel with the question."""

    settings: CircuitSettings


type Stop = Refused | NeedsProbe | BudgetPostponed
"""What holds an operation up; no attempt is counted."""


def stop_to_json(stop: Stop) -> dict[str, Any]:
    """Give the JSON form, as the activity `attempt` returns it."""
    match stop:
        case Refused():
            return {"kind": "refused", **answer_to_json(stop)}
        case NeedsProbe():
            return {"kind": "needs_probe", "circuit": stop.settings.to_json()}
        case BudgetPostponed():
            return {"kind": "postponed", "until": to_ms(stop.until), "reserved": stop.reserved}
        case _ as never:
            assert_never(never)


def stop_from_json(data: Mapping[str, Any]) -> Stop:
    """Read what `stop_to_json` wrote.

    Raises:
        ValueError: It is none of the three.
    """
    match data["kind"]:
        case "needs_probe":
            return NeedsProbe(CircuitSettings.from_json(data["circuit"]))
        case "postponed":
            return BudgetPostponed(from_ms(data["until"]), reserved=data["reserved"])
        case "refused":
            answer = answer_from_json(dict(data))
            if isinstance(answer, Refused):
                return answer
    raise ValueError(f"{data['kind']!r} holds nothing up")


def probe_message(
    operation: OperationInput, attempt: int, settings: CircuitSettings, now: datetime
) -> PermitMessage:
    """Ask the circuit for a probe.

    Args:
        operation: Who asks.
        attempt: Which attempt would probe, from 1.
        settings: Of the circuit, as the worker gave them.
        now: The orchestration's present.
    """
    lease_seconds = operation.timeouts.attempt_seconds + TRANSPORT_SECONDS
    return PermitMessage(ProbeRequest(operation.operation_id, attempt, now, lease_seconds), settings)


def view_at(refused: Refused, now: datetime) -> CircuitView:
    """Say what a refusal means at an instant a little after it was given, in the terms of a decision.

    A break that ended on the way back from the worker still spreads those who wait for it.
    """
    view = refused.to_view()
    retry_at = max(refused.base, now + _SOON)
    return CircuitView(refuses=True, retry_at=retry_at, reason=view.reason, waiting=view.waiting)


def hold_of(postponed: BudgetPostponed, dependency: str) -> Hold:
    """Say why the retry budget makes an operation wait."""
    why = f"the retry budget of {dependency} is spent"
    told = "this retry has its turn then" if postponed.reserved else "it asks again then"
    return Hold(postponed.until, f"{why}; {told}")

"""What travels to and from the entity `circuit_breaker`. Settings travel with each message.

So the entity stores none, and a change of `dependencies.toml` holds with the first message that
knows of it.
"""

from dataclasses import dataclass
from typing import Any

from engine.budget import RetryBudgetSettings
from engine.circuit.breaker import Breaker
from engine.circuit.hands import HandAction, handled
from engine.circuit.news import reported
from engine.circuit.probes import ProbeRequest, probe_requested
from engine.circuit.report import Report
from engine.circuit.settings import CircuitSettings
from engine.circuit.snapshot import Permitted, Refused
from engine.sliding_window import from_ms, optional_from_ms, optional_to_ms, to_ms

ENTITY = "circuit_breaker"
REPORT = "report"
PERMIT = "permit"
HAND = "hand"


@dataclass(frozen=True, slots=True)
class ReportMessage:
    """Signal `report`: a worker's news."""

    report: Report
    settings: CircuitSettings
    budget_settings: RetryBudgetSettings

    def to_json(self) -> dict[str, Any]:
        """The signal's input."""
        return {
            "report": self.report.to_json(),
            "circuit": self.settings.to_json(),
            "retry_budget": self.budget_settings.to_json(),
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "ReportMessage":
        """Read `to_json`."""
        return cls(
            report=Report.from_json(document["report"]),
            settings=CircuitSettings.from_json(document["circuit"]),
            budget_settings=RetryBudgetSettings.from_json(document["retry_budget"]),
        )

    def apply(self, breaker: Breaker) -> Breaker:
        """The state after it."""
        return reported(breaker, self.report, settings=self.settings, budget_settings=self.budget_settings)


@dataclass(frozen=True, slots=True)
class PermitMessage:
    """Call `permit`: an orchestration asks for a probe and waits for the answer."""

    request: ProbeRequest
    settings: CircuitSettings

    def to_json(self) -> dict[str, Any]:
        """The call's input."""
        return {"request": self.request.to_json(), "circuit": self.settings.to_json()}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "PermitMessage":
        """Read `to_json`."""
        return cls(
            request=ProbeRequest.from_json(document["request"]),
            settings=CircuitSettings.from_json(document["circuit"]),
        )

    def apply(self, breaker: Breaker) -> tuple[Breaker, Permitted | Refused]:
        """The state after it, and the answer."""
        return probe_requested(breaker, self.request, self.settings)


@dataclass(frozen=True, slots=True)
class HandMessage:
    """Signal `hand`: a person opens, closes, disables or resets."""

    action: HandAction

    def to_json(self) -> dict[str, Any]:
        """The signal's input."""
        return self.action.to_json()

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "HandMessage":
        """Read `to_json`."""
        return cls(HandAction.from_json(document))

    def apply(self, breaker: Breaker) -> Breaker:
        """The state after it."""
        return handled(breaker, self.action)


def answer_to_json(answer: Permitted | Refused) -> dict[str, Any]:
    """The answer of `permit`."""
    if isinstance(answer, Refused):
        return {
            "permitted": False,
            "base": to_ms(answer.base),
            "waiting": answer.waiting,
            "until": to_ms(answer.until),
            "reason": answer.reason,
        }
    return {
        "permitted": True,
        "epoch": answer.epoch,
        "lease_id": answer.lease_id,
        "lease_expires_at": optional_to_ms(answer.lease_expires_at),
    }


def answer_from_json(document: dict[str, Any]) -> Permitted | Refused:
    """Read `answer_to_json`."""
    if not document["permitted"]:
        return Refused(
            base=from_ms(document["base"]),
            waiting=document["waiting"],
            until=from_ms(document["until"]),
            reason=document["reason"],
        )
    return Permitted(
        epoch=document["epoch"],
        lease_id=document["lease_id"],
        lease_expires_at=optional_from_ms(document["lease_expires_at"]),
    )

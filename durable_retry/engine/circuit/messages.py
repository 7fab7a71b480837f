"""Messages to and from the entity `circuit_breaker`.

Each message carries the settings, so the entity stores none, and an edit of `dependencies.toml` takes effect
with the first message that was made after it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from durable_retry.engine.base.json_record import Form, JsonRecord
from durable_retry.engine.circuit.breaker import Breaker
from durable_retry.engine.circuit.manual_control import ManualAction, apply_manual_action
from durable_retry.engine.circuit.probes import ProbeRequest, probe_requested
from durable_retry.engine.circuit.report import Report
from durable_retry.engine.circuit.retry_budget import RetryBudgetSettings
from durable_retry.engine.circuit.settings import CircuitSettings
from durable_retry.engine.circuit.snapshot import Permitted, Refused
from durable_retry.engine.circuit.transitions import apply_report


@dataclass(frozen=True, slots=True)
class ReportMessage(JsonRecord):
    """Signal `report`: the results of a worker."""

    report: Report
    settings: Annotated[CircuitSettings, Form(name="circuit")]
    budget_settings: Annotated[RetryBudgetSettings, Form(name="retry_budget")]

    def apply(self, breaker: Breaker) -> Breaker:
        """Return the state after it."""
        return apply_report(
            breaker, self.report, settings=self.settings, budget_settings=self.budget_settings
        )


@dataclass(frozen=True, slots=True)
class PermitMessage(JsonRecord):
    """Call `permit`: an orchestration requests a probe and waits for the answer."""

    request: ProbeRequest
    settings: Annotated[CircuitSettings, Form(name="circuit")]

    def apply(self, breaker: Breaker) -> tuple[Breaker, Permitted | Refused]:
        """Return the state after it, and the answer."""
        return probe_requested(breaker, self.request, self.settings)


@dataclass(frozen=True, slots=True)
class ManualControlMessage:
    """Signal `hand`: a person opens, closes, disables or resets the circuit."""

    action: ManualAction

    def to_json(self) -> dict[str, Any]:
        """Return the signal's input."""
        return self.action.to_json()

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "ManualControlMessage":
        """Read what `to_json` returned."""
        return cls(ManualAction.from_json(document))

    def apply(self, breaker: Breaker) -> Breaker:
        """Return the state after it."""
        return apply_manual_action(breaker, self.action)


def answer_to_json(answer: Permitted | Refused) -> dict[str, Any]:
    """Return the JSON form of the answer of `permit`."""
    return {"permitted": isinstance(answer, Permitted), **answer.to_json()}


def answer_from_json(document: Mapping[str, Any]) -> Permitted | Refused:
    """Read what `answer_to_json` wrote."""
    return Permitted.from_json(document) if document["permitted"] else Refused.from_json(document)

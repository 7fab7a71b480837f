"""Admission of attempts: the state that an operation keeps for it, and what can block an attempt.

An attempt needs the retry budget first, then the circuit. The worker decides both from its cached snapshot.
What blocks an attempt goes back to the orchestration, which waits or asks the circuit's entity for a probe.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, assert_never

from durable_retry.engine.base.instants import from_ms, to_ms
from durable_retry.engine.base.json_record import Form, JsonRecord
from durable_retry.engine.circuit import (
    CircuitSettings,
    PermitMessage,
    Permitted,
    ProbeRequest,
    Refused,
    answer_from_json,
    answer_to_json,
)
from durable_retry.engine.circuit.retry_budget import BudgetPostponed
from durable_retry.engine.retry.decision import Retryable

TRANSPORT_SECONDS: Final = 5.0
"""Added to an attempt's time limit for a probe's lease: the way from the permit to the call, and back."""


@dataclass(frozen=True, slots=True)
class AdmissionState(JsonRecord):
    """What an operation has reached in the admission of its next attempt.

    Attributes:
        waiting: The circuit refused it before in this wait, so it is released in its turn.
        promised: The retry budget took its token when it postponed it, so it goes without asking again.
        permit: The entity's permit for a probe; None when it has none.
    """

    waiting: bool = False
    promised: bool = False
    permit: Annotated[Permitted | None, Form(encode=answer_to_json)] = None

    def valid_permit(self, now: datetime) -> Permitted | None:
        """Return the permit unless its lease expired: a probe must not go when another may have begun."""
        expires_at = None if self.permit is None else self.permit.lease_expires_at
        return self.permit if expires_at is None or now < expires_at else None


@dataclass(frozen=True, slots=True)
class NeedsProbe:
    """The circuit is half-open, and only its entity decides who probes; the settings go with the request."""

    settings: CircuitSettings


type Blocked = Refused | NeedsProbe | BudgetPostponed
"""What blocks an attempt; none is counted."""


def blocked_to_json(blocked: Blocked) -> dict[str, Any]:
    """Return the JSON form, as the activities `attempt` and `publish` answer it."""
    match blocked:
        case Refused():
            return {"kind": "refused", **answer_to_json(blocked)}
        case NeedsProbe():
            return {"kind": "needs_probe", "circuit": blocked.settings.to_json()}
        case BudgetPostponed():
            return {"kind": "postponed", "until": to_ms(blocked.until), "reserved": blocked.reserved}
        case _ as never:
            assert_never(never)


def blocked_from_json(data: Mapping[str, Any]) -> Blocked:
    """Read what `blocked_to_json` wrote.

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
    raise ValueError(f"{data['kind']!r} blocks no attempt")


def probe_message(
    operation: Retryable, attempt: int, settings: CircuitSettings, now: datetime
) -> PermitMessage:
    """Return the request for a probe's permit, to send to the circuit's entity.

    Args:
        operation: Which asks.
        attempt: Number of the attempt that would probe, from 1.
        settings: Of the circuit, as the worker answered them.
        now: The orchestrator's replay-safe time, aware UTC.
    """
    lease_seconds = operation.timeouts.attempt_seconds + TRANSPORT_SECONDS
    return PermitMessage(ProbeRequest(operation.operation_id, attempt, now, lease_seconds), settings)

"""The circuit breaker of one dependency, shared by every instance. See `README.md` and `docs/circuit.md`.

Worker side: `Snapshot`, `permit`, `ReportBuffer`. Entity side: `Breaker` and the messages that change it
(`ReportMessage`, `PermitMessage`, `ManualControlMessage`). API side: `view_of`.
"""

from durable_retry.engine.circuit.breaker import (
    AuditEntry,
    Breaker,
    ManualControl,
    advanced,
    breaker_from_json,
    breaker_to_json,
)
from durable_retry.engine.circuit.messages import (
    ManualControlMessage,
    PermitMessage,
    ReportMessage,
    answer_from_json,
    answer_to_json,
    snapshot_of,
)
from durable_retry.engine.circuit.openings import Opening, Openings, opening_of
from durable_retry.engine.circuit.report import (
    ERROR_CHARACTERS,
    CallHealth,
    LastFailure,
    ProbeResult,
    Report,
    call_health,
)
from durable_retry.engine.circuit.reporters import ReportBuffer
from durable_retry.engine.circuit.snapshot import (
    RELEASE,
    AskForProbe,
    ClockDifference,
    Permit,
    Permitted,
    Refused,
    ReleaseSettings,
    Snapshot,
    TakenHere,
    permit,
    release_at,
)
from durable_retry.engine.circuit.states import (
    CIRCUIT_MOVES,
    CircuitMove,
    CircuitSettings,
    CircuitState,
    IllegalMoveError,
)
from durable_retry.engine.circuit.transitions import ManualAction, ProbeRequest
from durable_retry.engine.circuit.view import view_of

__all__ = [
    "CIRCUIT_MOVES",
    "ERROR_CHARACTERS",
    "RELEASE",
    "AskForProbe",
    "AuditEntry",
    "Breaker",
    "CallHealth",
    "CircuitMove",
    "CircuitSettings",
    "CircuitState",
    "ClockDifference",
    "IllegalMoveError",
    "LastFailure",
    "ManualAction",
    "ManualControl",
    "ManualControlMessage",
    "Opening",
    "Openings",
    "Permit",
    "PermitMessage",
    "Permitted",
    "ProbeRequest",
    "ProbeResult",
    "Refused",
    "ReleaseSettings",
    "Report",
    "ReportBuffer",
    "ReportMessage",
    "Snapshot",
    "TakenHere",
    "advanced",
    "answer_from_json",
    "answer_to_json",
    "breaker_from_json",
    "breaker_to_json",
    "call_health",
    "opening_of",
    "permit",
    "release_at",
    "snapshot_of",
    "view_of",
]

"""The circuit of one dependency, shared by every instance. See `docs/circuit.md`.

Worker side: `Snapshot`, `permit`, `ReportBuffer`. Entity side: `Breaker` and what changes it
(`ReportMessage`, `PermitMessage`, `HandMessage`). API side: `view_of`.
"""

from engine.circuit.audit import AuditEntry, Hand
from engine.circuit.breaker import Breaker, advanced
from engine.circuit.buffer import ReportBuffer
from engine.circuit.hands import HandAction
from engine.circuit.health import Verdict, verdict_of
from engine.circuit.messages import (
    ENTITY,
    HAND,
    PERMIT,
    REPORT,
    HandMessage,
    PermitMessage,
    ReportMessage,
    answer_from_json,
    answer_to_json,
)
from engine.circuit.probes import ProbeRequest
from engine.circuit.reading import snapshot_of, view_of
from engine.circuit.release import RELEASE, ReleaseSettings, release_at
from engine.circuit.report import ProbeResult, Report
from engine.circuit.settings import CircuitSettings
from engine.circuit.snapshot import AskForProbe, Permit, Permitted, Refused, Snapshot, TakenHere, permit
from engine.circuit.states import MOVES, CircuitState, IllegalMoveError, Move
from engine.circuit.storing import breaker_from_json, breaker_to_json

__all__ = [
    "ENTITY",
    "HAND",
    "MOVES",
    "PERMIT",
    "RELEASE",
    "REPORT",
    "AskForProbe",
    "AuditEntry",
    "Breaker",
    "CircuitSettings",
    "CircuitState",
    "Hand",
    "HandAction",
    "HandMessage",
    "IllegalMoveError",
    "Move",
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
    "Verdict",
    "advanced",
    "answer_from_json",
    "answer_to_json",
    "breaker_from_json",
    "breaker_to_json",
    "permit",
    "release_at",
    "snapshot_of",
    "verdict_of",
    "view_of",
]

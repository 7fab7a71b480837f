"""Is the task hub, or a dependency, far behind? Read off one started operation at a time.

The intake remembers one operation that it started for each dependency, the canary, and looks at it now
and then: one point read, however much is queued. A canary that has not begun after a while means that the hub
is behind; one that waits for the circuit, that the dependency is.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from engine.vocabulary import OperationState


class Pressure(StrEnum):
    """What is behind."""

    TASK_HUB = "task_hub"
    DEPENDENCY = "dependency"


@dataclass(frozen=True, slots=True, kw_only=True)
class LagLimits:
    """From when on something counts as far behind.

    Attributes:
        task_hub_seconds: A started operation has not begun for so long; 0 never counts.
        dependency_seconds: An operation waits for the circuit so long after its start; 0 never counts.
    """

    task_hub_seconds: float = 30.0
    dependency_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at a canary says.

    Attributes:
        pressure: What is behind; None when nothing is.
        is_over: Whether the canary has told all it can, so that the next start takes its place.
    """

    pressure: Pressure | None
    is_over: bool


_MOVES_ON: Final = Look(None, is_over=True)


def look_at(state: str | None, age_seconds: float, limits: LagLimits) -> Look:
    """Judge a canary.

    Args:
        state: Of its status document; None when the operation is gone, so it ended.
        age_seconds: Since its start.
        limits: As set.
    """
    match state:
        case OperationState.PENDING:
            return _waiting(Pressure.TASK_HUB, age_seconds, limits.task_hub_seconds)
        case OperationState.WAITING_CIRCUIT:
            return _waiting(Pressure.DEPENDENCY, age_seconds, limits.dependency_seconds)
        case _:
            return _MOVES_ON


def _waiting(what: Pressure, age_seconds: float, limit_seconds: float) -> Look:
    if limit_seconds == 0:
        return _MOVES_ON
    return Look(what if age_seconds > limit_seconds else None, is_over=False)

"""Whether the task hub or a dependency is far behind, judged by one started operation at a time.

For each dependency the intake remembers one operation that it started, the canary, and reads its state now
and then: one point read, however long the queue is. A canary that has not begun after a while means that the
task hub is behind; one that waits for the circuit means that the dependency is unavailable.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from durable_retry.engine.base.enums import OperationState


class Pressure(StrEnum):
    """What is behind."""

    TASK_HUB = "task_hub"
    DEPENDENCY = "dependency"


@dataclass(frozen=True, slots=True, kw_only=True)
class LagLimits:
    """The lags above which something counts as far behind.

    Attributes:
        task_hub_seconds: Since the start of an operation that has not begun; 0 means never.
        dependency_seconds: Since the start of an operation that waits for the circuit; 0 means never.
    """

    task_hub_seconds: float = 30.0
    dependency_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Look:
    """The result of reading a canary's state.

    Attributes:
        pressure: What is behind; None when nothing is.
        is_over: Whether this canary can show nothing more, so that the next started operation replaces it.
    """

    pressure: Pressure | None
    is_over: bool


_MOVES_ON: Final = Look(None, is_over=True)


def look_at(state: str | None, age_seconds: float, limits: LagLimits) -> Look:
    """Judge a canary.

    Args:
        state: Of its status document; None when the operation is gone, which means that it ended.
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

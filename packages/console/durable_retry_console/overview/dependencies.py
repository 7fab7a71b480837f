"""The dependencies at a glance, in the order in which a person looks at them."""

from collections.abc import Iterable
from typing import Final

from pydantic import Field

from durable_retry.base.answers import Unreadable, left_out
from durable_retry.base.json_forms import is_none
from durable_retry.base.names import WAITING, OperationState
from durable_retry.circuit.circuits import every_circuit
from durable_retry.features.dead_letter_lists.rules.numbers import DeadLetterSummary
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.messages import BY_SETTINGS, CircuitFigures, KeyFigures
from durable_retry.rules.circuit.states import CircuitState
from durable_retry.settings.configuration import dependencies
from durable_retry_console.overview.summary import OperationSummary


class CircuitGlance(CircuitFigures):
    """The circuit of a dependency, without its window and audit."""

    opens_at_ratio: float = Field(description="The ratio of failures that opens it.")
    limit_keys: tuple[KeyFigures, ...] | None = left_out("Circuits of limit keys whose calls do not go.")
    unreadable: Unreadable = Field(default=None, exclude_if=is_none)


class DependencyGlance(CircuitGlance):
    """The circuit of a dependency, and how many operations wait or died because of it."""

    healthy: bool = Field(
        description="Whether calls go through, few of them fail, nothing waits and none died."
    )
    waiting: int | None = Field(
        description="Operations that wait for a retry, a pause, the circuit or their turn."
    )
    open_dead_letters: int | None = Field(description="Its open dead letters.")
    amplification: float | None = Field(description="Attempts per operation that was tried.")


_URGENCY: Final = {CircuitState.OPEN: 0, CircuitState.FORCED_OPEN: 0, CircuitState.HALF_OPEN: 1}
_REFUSED, _PAUSED, _LETS_THROUGH, _HEALTHY = 0, 2, 3, 4
# A dependency is in trouble before its circuit opens: from this part of the ratio at which that happens.
_TROUBLED_PART: Final = 0.5
_WAITS_FOR_IT: Final = tuple(sorted(WAITING - {OperationState.SCHEDULED}))


async def read_circuits(hub: TaskHub) -> tuple[CircuitGlance, ...]:
    """Return the circuits, by the names of their dependencies."""
    known = dependencies().dependencies
    return tuple(
        CircuitGlance.taken_from(circuit, opens_at_ratio=known[circuit.dependency].circuit.failure_ratio)
        for circuit in await every_circuit(hub)
    )


def by_trouble(
    circuits: Iterable[CircuitGlance], operations: OperationSummary | None, letters: DeadLetterSummary | None
) -> tuple[DependencyGlance, ...]:
    """Return the dependencies, the one in the worst trouble first.

    Those whose circuit holds calls back or whose credential is refused come first, then those that asked for
    a pause; among equals the one with the most operations that wait and dead letters. What is None is not
    known, and null in each.
    """
    glances = (_glance(circuit, operations, letters) for circuit in circuits)
    return tuple(sorted(glances, key=_place))


def _glance(
    circuit: CircuitGlance, operations: OperationSummary | None, letters: DeadLetterSummary | None
) -> DependencyGlance:
    name = circuit.dependency
    waiting = dead = share = None
    if operations is not None:
        counts = operations.unfinished.by_dependency.get(name, {})
        waiting = sum(counts.get(state, 0) for state in _WAITS_FOR_IT)
        share = operations.by_dependency.get(name)
    if letters is not None:
        dead = letters.by_dependency[name].open if name in letters.by_dependency else 0
    lets_through = circuit.state is CircuitState.CLOSED or circuit.changed_by == BY_SETTINGS
    lets_through = lets_through and circuit.hold is None
    fails = (circuit.failure_ratio or 0.0) >= _TROUBLED_PART * circuit.opens_at_ratio
    ails = fails or circuit.throttled_until or circuit.limit_keys or circuit.unreadable or waiting or dead
    return DependencyGlance(
        **dict(circuit),
        healthy=lets_through and not ails,
        waiting=waiting,
        open_dead_letters=dead,
        amplification=None if share is None else share.amplification,
    )


def _place(dependency: DependencyGlance) -> tuple[int, int, str]:
    calm = _HEALTHY if dependency.healthy else _PAUSED if dependency.throttled_until else _LETS_THROUGH
    lost = (dependency.waiting or 0) + (dependency.open_dead_letters or 0)
    keys = dependency.limit_keys or ()
    is_refused = any(each.credential_refused_by for each in (dependency, *keys))
    urgency = _REFUSED if is_refused else _URGENCY.get(dependency.state, calm)
    return urgency, -lost, dependency.dependency

"""The circuit's states and every legal move between them."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class CircuitState(StrEnum):
    """What the circuit lets through."""

    CLOSED = "closed"  # everything
    OPEN = "open"  # nothing, until the break is over
    HALF_OPEN = "half_open"  # probes
    FORCED_OPEN = "forced_open"  # nothing, until it expires or the next manual control
    DISABLED = "disabled"  # everything, and nothing trips


class CircuitMove(StrEnum):
    """What can happen to a circuit."""

    TRIP = "trip"
    BREAK_OVER = "break_over"
    PROBES_SUCCEEDED = "probes_succeeded"
    PROBE_FAILED = "probe_failed"
    EXPIRE = "expire"
    FORCE_OPEN = "force_open"
    CLOSE = "close"
    DISABLE = "disable"
    RESET = "reset"


_BY_HAND = {
    CircuitMove.FORCE_OPEN: CircuitState.FORCED_OPEN,
    CircuitMove.CLOSE: CircuitState.CLOSED,
    CircuitMove.DISABLE: CircuitState.DISABLED,
    CircuitMove.RESET: CircuitState.CLOSED,
}

CIRCUIT_MOVES: Mapping[tuple[CircuitState, CircuitMove], CircuitState] = MappingProxyType(
    {
        (CircuitState.CLOSED, CircuitMove.TRIP): CircuitState.OPEN,
        (CircuitState.OPEN, CircuitMove.BREAK_OVER): CircuitState.HALF_OPEN,
        (CircuitState.HALF_OPEN, CircuitMove.PROBES_SUCCEEDED): CircuitState.CLOSED,
        (CircuitState.HALF_OPEN, CircuitMove.PROBE_FAILED): CircuitState.OPEN,
        # No call has shown the state of the dependency meanwhile, so the circuit is probed first.
        (CircuitState.FORCED_OPEN, CircuitMove.EXPIRE): CircuitState.HALF_OPEN,
        (CircuitState.DISABLED, CircuitMove.EXPIRE): CircuitState.CLOSED,
    }
    | {(state, move): target for state in CircuitState for move, target in _BY_HAND.items()}
)


class IllegalMoveError(Exception):
    """A move that `CIRCUIT_MOVES` does not list: a defect of this package, never of its input."""


def target_of(state: CircuitState, move: CircuitMove) -> CircuitState:
    """Return the state that a move leads to.

    Raises:
        IllegalMoveError: The table does not have the move.
    """
    try:
        return CIRCUIT_MOVES[state, move]
    except KeyError:
        raise IllegalMoveError(f"{move} is no move of a circuit that is {state}") from None

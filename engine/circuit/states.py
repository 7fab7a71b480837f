"""The circuit's states and every legal move between them."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class CircuitState(StrEnum):
    """What the circuit lets through."""

    CLOSED = "closed"  # everything
    OPEN = "open"  # nothing, until the break is over
    HALF_OPEN = "half_open"  # probes
    FORCED_OPEN = "forced_open"  # nothing, until the hand's expiry or another hand
    DISABLED = "disabled"  # everything, and nothing trips


class Move(StrEnum):
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
    Move.FORCE_OPEN: CircuitState.FORCED_OPEN,
    Move.CLOSE: CircuitState.CLOSED,
    Move.DISABLE: CircuitState.DISABLED,
    Move.RESET: CircuitState.CLOSED,
}

MOVES: Mapping[tuple[CircuitState, Move], CircuitState] = MappingProxyType(
    {
        (CircuitState.CLOSED, Move.TRIP): CircuitState.OPEN,
        (CircuitState.OPEN, Move.BREAK_OVER): CircuitState.HALF_OPEN,
        (CircuitState.HALF_OPEN, Move.PROBES_SUCCEEDED): CircuitState.CLOSED,
        (CircuitState.HALF_OPEN, Move.PROBE_FAILED): CircuitState.OPEN,
        # Nobody knows what happened behind a circuit that a person held open: it is probed, not flooded.
        (CircuitState.FORCED_OPEN, Move.EXPIRE): CircuitState.HALF_OPEN,
        (CircuitState.DISABLED, Move.EXPIRE): CircuitState.CLOSED,
    }
    | {(state, move): target for state in CircuitState for move, target in _BY_HAND.items()}
)


class IllegalMoveError(Exception):
    """The table of moves has no such move: a defect of this package, never of its input."""


def target_of(state: CircuitState, move: Move) -> CircuitState:
    """The state that a move leads to.

    Raises:
        IllegalMoveError: if the table does not have it.
    """
    try:
        return MOVES[state, move]
    except KeyError:
        raise IllegalMoveError(f"{move} is no move of a circuit that is {state}") from None

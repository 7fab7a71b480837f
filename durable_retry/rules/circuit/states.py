"""The circuit's states, every legal move between them, and the settings that decide about the moves."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field

from durable_retry.base.json_forms import NOT_STORED, JsonShape
from durable_retry.base.validation import PositiveSeconds, Ratio, Seconds


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
    """Return the state that a move leads to; IllegalMoveError where the table does not have the move."""
    try:
        return CIRCUIT_MOVES[state, move]
    except KeyError:
        raise IllegalMoveError(f"{move} is no move of a circuit that is {state}") from None


@dataclass(frozen=True, slots=True)
class CircuitSettings(JsonShape):
    """When a circuit opens, for how long, and how it is probed.

    Attributes:
        enabled: False never trips, and the app sends no report; the retry budget still applies.
        failure_ratio: Share of failed calls in the window that opens the circuit, in (0, 1].
        minimum_calls: Calls that the window must hold before a ratio counts, at least 1.
        window_seconds: Length of the sliding window, above 0.
        consecutive_failures: Failures in a row that open the circuit, whatever the ratio; 0 is off.
        slow_call_seconds: A call that takes this long or longer is slow; 0 is off.
        slow_call_ratio: Share of slow calls in the window that opens the circuit, in (0, 1].
        break_seconds: Length of the first break, above 0.
        max_break_seconds: Each failed probe doubles the break up to this.
        max_pause_seconds: The longest pause of all calls that the dependency can ask for, at most a day. A
            policy with a longer `max_retry_after_seconds` lets it ask for that.
        half_open_calls: Probes in flight at once, and the successes that close the circuit; 1 to 20.
        unauthorized_calls: Refusals of the dependency's own credential, without a success between, that open
            the circuit; 0 is off.
        by: `limit_key`: operations with a limit key have a circuit for each key; "": one circuit for all.
        max_keys: Keys with a circuit of their own in one worker process; further ones share the dependency's.
    """

    enabled: bool = True
    failure_ratio: Ratio = 0.5
    minimum_calls: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    window_seconds: PositiveSeconds = 30.0
    consecutive_failures: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    slow_call_seconds: Seconds = 0.0
    slow_call_ratio: Ratio = 1.0
    break_seconds: PositiveSeconds = 30.0
    max_break_seconds: PositiveSeconds = 600.0
    half_open_calls: Annotated[int, Field(ge=1, le=20)] = 1
    unauthorized_calls: Annotated[int, Field(ge=0, le=1_000_000)] = 3
    max_pause_seconds: Annotated[float, Field(ge=0, le=86_400), NOT_STORED] = 1800.0
    by: Annotated[Literal["", "limit_key"], NOT_STORED] = ""
    max_keys: Annotated[int, Field(ge=1, le=100_000), NOT_STORED] = 1000

    @property
    def is_by_key(self) -> bool:
        return self.enabled and self.by == "limit_key"

    @property
    def opens_without_credential(self) -> bool:
        return self.enabled and self.unauthorized_calls > 0

    def break_seconds_after(self, reopenings: int) -> float:
        """Return the length of the break after failed probe rounds in a row: doubled by each, capped.

        The exponent is limited before the power is taken: 2.0 ** 1024 overflows a float.
        """
        doubled = self.break_seconds * 2.0 ** min(reopenings, 60)
        return min(doubled, max(self.break_seconds, self.max_break_seconds))

"""What a user sets for a circuit: `[dependencies.<name>.circuit]`."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CircuitSettings:
    """When a circuit opens, for how long, and how it is tried again.

    Attributes:
        enabled: False never trips. The app does not even ask or tell a circuit that is switched off; the
            retry budget is not part of it.
        failure_ratio: share of failed calls in the window that opens the circuit, in (0, 1].
        minimum_calls: calls the window must hold before a ratio counts, at least 1.
        window_seconds: length of the sliding window, above 0.
        consecutive_failures: opens at this many failures in a row, whatever the ratio; 0 = off.
        slow_call_seconds: a call that takes this long or longer is slow; 0 = off.
        slow_call_ratio: share of slow calls in the window that opens the circuit, in (0, 1].
        break_seconds: length of the first break, above 0.
        max_break_seconds: each failed probe doubles the break up to this.
        half_open_calls: probes in flight at once, and the successes that close the circuit; 1 to 20.
    """

    enabled: bool = True
    failure_ratio: float = 0.5
    minimum_calls: int = 10
    window_seconds: float = 30.0
    consecutive_failures: int = 0
    slow_call_seconds: float = 0.0
    slow_call_ratio: float = 1.0
    break_seconds: float = 30.0
    max_break_seconds: float = 600.0
    half_open_calls: int = 1

    def break_seconds_after(self, reopenings: int) -> float:
        """Length of the break after this many failed probe rounds in a row: doubled each time, capped.

        The exponent is clamped before the power is taken: 2.0 ** 1024 is no float.
        """
        doubled = self.break_seconds * 2.0 ** min(reopenings, 60)
        return min(doubled, max(self.break_seconds, self.max_break_seconds))

    def to_json(self) -> dict[str, Any]:
        """As the keys of the settings file."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "CircuitSettings":
        """Read `to_json`.

        Raises:
            TypeError: for a key that is no setting.
        """
        return cls(**document)

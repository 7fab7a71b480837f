"""The settings of a circuit: `[dependencies.<name>.circuit]`."""

from dataclasses import dataclass

from durable_retry.engine.base.json_record import JsonRecord


@dataclass(frozen=True, slots=True)
class CircuitSettings(JsonRecord):
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
        half_open_calls: Probes in flight at once, and the successes that close the circuit; 1 to 20.
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
        """Return the length of the break after failed probe rounds in a row: doubled by each, capped.

        The exponent is limited before the power is taken: 2.0 ** 1024 overflows a float.
        """
        doubled = self.break_seconds * 2.0 ** min(reopenings, 60)
        return min(doubled, max(self.break_seconds, self.max_break_seconds))

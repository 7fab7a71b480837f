"""What opens a circuit, and when it is near that."""

from dataclasses import replace
from functools import lru_cache

from durable_retry.rules.circuit.calls import Counts
from durable_retry.rules.circuit.states import CircuitSettings


def trip_reason(counts: Counts, failures_in_a_row: int, settings: CircuitSettings) -> str | None:
    """Return why these counts open a circuit, for a person; None when they do not."""
    if 0 < settings.consecutive_failures <= failures_in_a_row:
        return f"{failures_in_a_row} failures in a row"
    if counts.calls < settings.minimum_calls or counts.calls == 0:
        return None
    within = f"of {counts.calls} calls in {settings.window_seconds:g} s"
    if counts.failures and counts.failures >= settings.failure_ratio * counts.calls:
        return f"{counts.failures} {within} failed"
    watches_slow_calls = settings.slow_call_seconds > 0 and counts.slow > 0
    if watches_slow_calls and counts.slow >= settings.slow_call_ratio * counts.calls:
        return f"{counts.slow} {within} took {settings.slow_call_seconds:g} s or longer"
    return None


def is_near_trip(counts: Counts, failures_in_a_row: int, settings: CircuitSettings) -> bool:
    """Whether half of what opens a circuit is reached."""
    return trip_reason(counts, failures_in_a_row, _half_of(settings)) is not None


@lru_cache
def _half_of(settings: CircuitSettings) -> CircuitSettings:
    return replace(
        settings,
        consecutive_failures=(settings.consecutive_failures + 1) // 2,
        minimum_calls=settings.minimum_calls // 2,
        failure_ratio=settings.failure_ratio / 2,
        slow_call_ratio=settings.slow_call_ratio / 2,
    )

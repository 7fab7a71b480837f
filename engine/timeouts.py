"""Three layers of time that must fit into each other: connect, attempt, deadline; under the host's limit."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from engine.policy import Timeouts
from engine.wording import seconds_text

MARGIN_SECONDS: Final = 10.0
"""What an invocation needs beside the call: starting the worker, the attempt marker, writing the result."""


def fitted_timeouts(written: Mapping[str, float], firm: Iterable[str]) -> Timeouts:
    """Fill up the timeouts that were written; those that are not firm shrink to fit the others.

    Args:
        written: Keys of the `timeouts` tables, merged.
        firm: The keys that the dependency's own table holds: these stay as they are.
    """
    full, kept = Timeouts(**written), frozenset(firm)
    attempt = full.attempt_seconds
    if "attempt_seconds" not in kept and full.deadline_seconds > 0:
        attempt = min(attempt, full.deadline_seconds)
    connect = full.connect_seconds
    if "connect_seconds" not in kept:
        connect = min(connect, attempt)
    return replace(full, attempt_seconds=attempt, connect_seconds=connect)


def timeouts_problems(timeouts: Timeouts, function_timeout_seconds: float | None) -> list[tuple[str, str]]:
    """List what does not fit, as (key, detail).

    Args:
        timeouts: As resolved.
        function_timeout_seconds: The host's limit for one invocation; None when it has none.
    """
    found = []
    attempt, deadline = timeouts.attempt_seconds, timeouts.deadline_seconds
    if timeouts.connect_seconds > attempt:
        told = (
            f"{seconds_text(timeouts.connect_seconds)} is more than attempt_seconds, {seconds_text(attempt)}"
        )
        found.append(("connect_seconds", told))
    if 0 < deadline < attempt:
        told = f"{seconds_text(attempt)} is more than deadline_seconds, {seconds_text(deadline)}"
        found.append(("attempt_seconds", told))
    if function_timeout_seconds is not None and attempt + MARGIN_SECONDS > function_timeout_seconds:
        told = (
            f"{seconds_text(attempt)} + {seconds_text(MARGIN_SECONDS)} to spare = "
            f"{seconds_text(attempt + MARGIN_SECONDS)}, more than host.json's functionTimeout of "
            f"{seconds_text(function_timeout_seconds)}"
        )
        found.append(("attempt_seconds", told))
    return found

"""The latest values of what is read now and then and not counted as it happens: the gauges.

The timer `watch` runs on one instance of the fleet at a time. An instance shows what it read for as long as
the next run may be away, and then nothing: two instances must not show two truths.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

SHOWN_SECONDS: Final = 150.0
"""`watch` runs every minute; one run may fail."""

type Value = tuple[float, Mapping[str, Any]]
"""A value and its labels."""

_latest: dict[str, tuple[float, Sequence[Value]]] = {}


def show(readings: Mapping[str, Sequence[Value]]) -> None:
    """Keep what was read just now, by the name of the metric, in place of what was read before."""
    now_seconds = time.monotonic()
    _latest.update({name: (now_seconds, values) for name, values in readings.items()})


def latest(name: str) -> Sequence[Value]:
    """Return the values of a metric; none when the last reading is too old or was another instance's."""
    read_seconds, values = _latest.get(name, (0.0, ()))
    return values if time.monotonic() - read_seconds < SHOWN_SECONDS else ()

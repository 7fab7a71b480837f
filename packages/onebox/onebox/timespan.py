"""The `TimeSpan` text of .NET, which host.json and bindings use for durations."""

import re
from datetime import timedelta

_PATTERN = re.compile(
    r"(?P<sign>-)?(?:(?P<days>\d+)\.)?(?P<hours>\d{1,2}):(?P<minutes>\d{1,2})(?::(?P<seconds>\d{1,2}(?:\.\d{1,7})?))?"
)


def parse_timespan(text: str) -> timedelta:
    """Parse `[-][d.]hh:mm[:ss[.fffffff]]`.

    Args:
        text: Hours below 24, minutes and seconds below 60.

    Returns:
        The duration, to the microsecond.

    Raises:
        ValueError: It has another form, or a part is out of range.
    """
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a TimeSpan: write [d.]hh:mm:ss, as in 00:00:30")
    hours, minutes, seconds = int(match["hours"]), int(match["minutes"]), float(match["seconds"] or 0)
    if hours > 23 or minutes > 59 or seconds >= 60:  # noqa: PLR2004 # the clock's own numbers
        raise ValueError(f"{text!r} is not a TimeSpan: hours go to 23, minutes and seconds to 59")
    span = timedelta(days=int(match["days"] or 0), hours=hours, minutes=minutes, seconds=seconds)
    return -span if match["sign"] else span

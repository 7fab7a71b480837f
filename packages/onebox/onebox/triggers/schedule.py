"""When a timer fires: NCRONTAB expressions and intervals."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from croniter import croniter

from onebox.host_section import parse_timespan

_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NUMBERS = {name: number for names, at in ((_DAYS, 0), (_MONTHS, 1)) for number, name in enumerate(names, at)}
_END = rf"[0-9]{{1,2}}|(?:{'|'.join(_NUMBERS)})[a-z]*"
# One of `*`, `5`, `1-5`, `jan-mar`, each with an optional `/step`.
_PART = re.compile(rf"(?:\*|(?P<first>{_END})(?:-(?P<last>{_END}))?)(?:/0*[1-9][0-9]*)?", re.ASCII)
_NAME = re.compile(r"[a-z]+")


class Schedule(Protocol):
    """When a timer fires."""

    def next_after(self, instant: datetime) -> datetime:
        """Return the first time after `instant` (aware UTC)."""
        ...


@dataclass(frozen=True)
class Interval:
    """Fires at a fixed interval."""

    every: timedelta

    def next_after(self, instant: datetime) -> datetime:
        """Return `instant` plus the interval."""
        return instant + self.every


@dataclass(frozen=True)
class Crontab:
    """Fires whenever all fields match.

    Attributes:
        fields: Six, in lower case, names cut to three letters.
    """

    fields: str

    def next_after(self, instant: datetime) -> datetime:
        """Return the first match after `instant`.

        Raises:
            ValueError: There is none, as for 30 February.
        """
        start = instant.astimezone(UTC).replace(microsecond=0)
        following: datetime = croniter(
            self.fields, start, ret_type=datetime, day_or=False, second_at_beginning=True
        ).get_next()
        return following


def parse_schedule(text: str) -> Schedule:
    """Read an NCRONTAB expression or a TimeSpan.

    NCRONTAB is the six-field cron of the NCrontab library: `second minute hour day month day-of-week`; with
    five fields the second is 0. Day and day of week must both match, unlike in Unix cron. All times are UTC,
    the host's default.
    Source: "Timer trigger for Azure Functions", NCRONTAB expressions, Microsoft Learn.

    Raises:
        ValueError: It is neither, a value is out of range, or it never comes due.
    """
    fields = text.lower().split()
    if len(fields) == 1:
        every = parse_timespan(text)
        if every <= timedelta():
            raise ValueError(f"the interval {text!r} must be longer than nothing")
        return Interval(every)
    if len(fields) == 5:  # noqa: PLR2004 # the fields named above
        fields = ["0", *fields]
    if len(fields) != 6:  # noqa: PLR2004 # as above
        raise ValueError(f"{text!r} is no schedule: write six fields, second to day of week, or hh:mm:ss")
    schedule = Crontab(" ".join(",".join(map(_plain, each.split(","))) for each in fields))
    schedule.next_after(datetime(2000, 1, 1, tzinfo=UTC))
    return schedule


def _plain(part: str) -> str:
    """Return one part of a field in the form that croniter reads as NCRONTAB does.

    Raises:
        ValueError: It is no part of NCRONTAB; croniter would also accept `L`, `#`, `R` and backward ranges.
    """
    found = _PART.fullmatch(part)
    if found is None:
        raise ValueError(f"{part!r} is not a value, a range or *")
    short = _NAME.sub(lambda name: name[0][:3], part)
    if found["last"] is None:
        return short
    first, last = (int(_NUMBERS.get(found[end][:3], found[end])) for end in ("first", "last"))
    if first > last:
        raise ValueError(f"{part!r} is a range that runs backwards")
    return short.partition("-")[0] if first == last else short  # croniter takes 5-5 for every value

"""When a timer fires: NCRONTAB expressions and intervals."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from croniter import croniter

from onebox.host_section import parse_timespan

_MONTHS = (
    *("", "january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
# Names of the values of each field, by their numbers.
_NAMES: tuple[tuple[str, ...], ...] = ((), (), (), (), _MONTHS, _DAYS)
_END = r"[0-9]{1,2}|[a-z]+"
# One of `*`, `5`, `1-5`, `jan-mar`, each with an optional `/step`.
_PART = re.compile(rf"(?:\*|(?P<first>{_END})(?:-(?P<last>{_END}))?)(?P<step>/0*[1-9][0-9]*)?", re.ASCII)


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
        fields: Six, of numbers.
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
    schedule = Crontab(" ".join(map(_plain_field, fields, _NAMES)))
    schedule.next_after(datetime(2000, 1, 1, tzinfo=UTC))
    return schedule


def _plain_field(field: str, names: Sequence[str]) -> str:
    return ",".join(_plain_part(part, names) for part in field.split(","))


def _plain_part(part: str, names: Sequence[str]) -> str:
    """Return one part of a field in the form that croniter reads as NCRONTAB does.

    Raises:
        ValueError: It is no part of NCRONTAB; croniter would also accept `L`, `#`, `R` and backward ranges.
    """
    found = _PART.fullmatch(part)
    if found is None:
        raise ValueError(f"{part!r} is not a value, a range or *")
    if found["first"] is None:
        return part
    first = _number(found["first"], names)
    last = first if found["last"] is None else _number(found["last"], names)
    if first > last:
        raise ValueError(f"{part!r} is a range that runs backwards")
    step = found["step"] or ""
    return (
        f"{first}{step}" if first == last else f"{first}-{last}{step}"
    )  # croniter takes 5-5 for every value


def _number(text: str, names: Sequence[str]) -> int:
    """Return a value of a field.

    As in the NCrontab library the host uses, a name may be cut anywhere, and 7 is no day of the week.

    Raises:
        ValueError: The field has no such value.
    """
    named = (number for number, name in enumerate(names) if name.startswith(text))
    number = int(text) if text.isdigit() else next(named, None)
    if number is None:
        raise ValueError(
            f"{text!r} is not the name of a value: {', '.join(filter(None, names)) or 'none has one'}"
        )
    if names is _DAYS and number >= len(_DAYS):
        raise ValueError(f"{text} is no day of the week: Sunday is 0, Saturday 6")
    return number

"""Timer schedules: NCRONTAB expressions and constant intervals. All times are UTC, the host's default.

NCRONTAB is the six-field cron of the NCrontab library: `second minute hour day month day-of-week`; with five
fields the second is 0. Day and day of week must both match, unlike in Unix cron.
Source: "Timer trigger for Azure Functions", NCRONTAB expressions, Microsoft Learn.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from onebox.timespan import parse_timespan

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_SECOND = timedelta(seconds=1)
# The rarest expression that can match at all is a 29 February on one day of the week: every 40 years at most.
_HORIZON = timedelta(days=366 * 41)


class Schedule(Protocol):
    """When a timer fires."""

    def next_after(self, instant: datetime) -> datetime:
        """Return the first time after `instant` (aware UTC)."""
        ...


@dataclass(frozen=True)
class Interval:
    """Fires again and again after the same time."""

    every: timedelta

    def next_after(self, instant: datetime) -> datetime:
        """Return `instant` plus the interval."""
        return instant + self.every


@dataclass(frozen=True)
class Crontab:
    """Fires whenever all fields match.

    Attributes:
        seconds: And so on: the values at which the field matches, each sorted.
    """

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]

    def next_after(self, instant: datetime) -> datetime:
        """Return the first match after `instant`.

        Raises:
            ValueError: There is none, as for 30 February.
        """
        found = instant.astimezone(UTC).replace(microsecond=0) + _SECOND
        last = found + _HORIZON
        while found < last:
            if not self._matches_date(found):
                found = (found + timedelta(days=1)).replace(hour=0, minute=0, second=0)
                continue
            within_day = self._time_from(found)
            if within_day is not None:
                return within_day
            found = (found + timedelta(days=1)).replace(hour=0, minute=0, second=0)
        raise ValueError("the schedule never comes due")

    def _matches_date(self, instant: datetime) -> bool:
        weekday = instant.isoweekday() % 7  # cron counts from Sunday = 0
        return instant.day in self.days and instant.month in self.months and weekday in self.weekdays

    def _time_from(self, instant: datetime) -> datetime | None:
        """Return the first match on the same day at or after `instant`; None when that day has no more."""
        for hour in self.hours:
            if hour < instant.hour:
                continue
            for minute in self.minutes:
                first_second = instant.second if (hour, minute) == (instant.hour, instant.minute) else 0
                if (hour, minute) < (instant.hour, instant.minute):
                    continue
                second = next((each for each in self.seconds if each >= first_second), None)
                if second is not None:
                    return instant.replace(hour=hour, minute=minute, second=second)
        return None


def parse_schedule(text: str) -> Schedule:
    """Read an NCRONTAB expression or a TimeSpan.

    Raises:
        ValueError: It is neither, a value is out of range, or it never comes due.
    """
    fields = text.split()
    if len(fields) == 1:
        every = parse_timespan(text)
        if every <= timedelta():
            raise ValueError(f"the interval {text!r} must be longer than nothing")
        return Interval(every)
    if len(fields) == 5:  # noqa: PLR2004 # the fields named above
        fields = ["0", *fields]
    if len(fields) != 6:  # noqa: PLR2004 # as above
        raise ValueError(f"{text!r} is no schedule: write six fields, second to day of week, or hh:mm:ss")
    schedule = Crontab(
        tuple(sorted(_field(fields[0], 0, 59))),
        tuple(sorted(_field(fields[1], 0, 59))),
        tuple(sorted(_field(fields[2], 0, 23))),
        _field(fields[3], 1, 31),
        _field(fields[4], 1, 12, names=_MONTHS),
        frozenset(day % 7 for day in _field(fields[5], 0, 7, names=_DAYS)),
    )
    schedule.next_after(datetime(2000, 1, 1, tzinfo=UTC))
    return schedule


def _field(text: str, least: int, most: int, *, names: tuple[str, ...] = ()) -> frozenset[int]:
    return frozenset(value for part in text.split(",") for value in _part(part, least, most, names))


def _part(text: str, least: int, most: int, names: tuple[str, ...]) -> range:
    """Read one of `*`, `5`, `1-5`, `jan-mar`, each with an optional `/step`."""
    values, _, step_text = text.partition("/")
    first_text, dash, last_text = values.partition("-")
    if values == "*":
        first, last = least, most - (names is _DAYS)
    else:
        first = _value(first_text, least, names)
        # With a step, a single value begins a range to the end of the field.
        last = _value(last_text, least, names) if dash else most if step_text else first
    step = int(step_text) if step_text else 1
    if not (least <= first <= last <= most and step >= 1):
        raise ValueError(f"{text!r} is not within {least} to {most}")
    return range(first, last + 1, step)


def _value(text: str, least: int, names: tuple[str, ...]) -> int:
    short = text.lower()[:3]
    if short in names:
        return names.index(short) + least
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is no number")
    return int(text)

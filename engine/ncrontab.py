"""NCRONTAB: the six-field cron of the Functions host, `second minute hour day month day-of-week`, in UTC.

With five fields the second is 0. Day and day of week must both match, unlike in Unix cron.
Source: "Timer trigger for Azure Functions", NCRONTAB expressions, Microsoft Learn.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)

_FIELDS: Final = 6

_HORIZON_DAYS: Final = 366 * 41
"""A 29 February on one day of the week comes round every 40 years at most."""

_MONTHS: Final = {
    "jan": 1,
    "feb": 2,
    "mar": 3,
    "apr": 4,
    "may": 5,
    "jun": 6,
    "jul": 7,
    "aug": 8,
    "sep": 9,
    "oct": 10,
    "nov": 11,
    "dec": 12,
}
_WEEKDAYS: Final = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}

_PART: Final = re.compile(r"(?P<first>\*|[0-9a-z]+)(?:-(?P<last>[0-9a-z]+))?(?:/(?P<step>[0-9]{1,3}))?")


class NcrontabError(ValueError):
    """Not a schedule, or one that never comes due."""


@dataclass(frozen=True, slots=True)
class Ncrontab:
    """A schedule: the values at which each field matches.

    Attributes:
        times: Of day, in their order.
        days: Of the month.
        months: From 1.
        weekdays: From Sunday = 0.
    """

    times: tuple[time, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]

    def due_after(self, instant: datetime) -> datetime:
        """Return the first due time after an aware instant, in UTC.

        Raises:
            NcrontabError: There is none.
        """
        begin = instant.astimezone(UTC)
        for distance in range(_HORIZON_DAYS):
            day = begin.date() + distance * _DAY
            if not self._has_day(day):
                continue
            place = 0 if distance else bisect_right(self.times, begin.time())
            if place < len(self.times):
                return datetime.combine(day, self.times[place], UTC)
        raise NcrontabError("never comes due")

    def due_until(self, instant: datetime) -> datetime:
        """Return the last due time up to and including an aware instant, in UTC.

        Raises:
            NcrontabError: There is none.
        """
        end = instant.astimezone(UTC)
        for distance in range(_HORIZON_DAYS):
            day = end.date() - distance * _DAY
            if not self._has_day(day):
                continue
            place = len(self.times) if distance else bisect_right(self.times, end.time())
            if place > 0:
                return datetime.combine(day, self.times[place - 1], UTC)
        raise NcrontabError("never came due")

    def dues_between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Yield the due times later than `after` up to and including `until`, the latest first."""
        due = self.due_until(until)
        while due > after:
            yield due
            due = self.due_until(due - _SECOND)

    def _has_day(self, day: date) -> bool:
        return day.day in self.days and day.month in self.months and day.isoweekday() % 7 in self.weekdays


def parse_ncrontab(text: str) -> Ncrontab:
    """Read a schedule.

    Raises:
        NcrontabError: It is none, or never comes due.
    """
    fields = text.lower().split()
    if len(fields) == _FIELDS - 1:
        fields = ["0", *fields]
    if len(fields) != _FIELDS:
        raise NcrontabError(f"{text!r} is not six fields: second minute hour day month day-of-week")
    seconds, minutes, hours = _values(fields[0], 0, 59), _values(fields[1], 0, 59), _values(fields[2], 0, 23)
    schedule = Ncrontab(
        tuple(
            time(hour, minute, second)
            for hour in sorted(hours)
            for minute in sorted(minutes)
            for second in sorted(seconds)
        ),
        _values(fields[3], 1, 31),
        _values(fields[4], 1, 12, _MONTHS),
        frozenset(day % 7 for day in _values(fields[5], 0, 7, _WEEKDAYS)),
    )
    schedule.due_after(datetime(2000, 1, 1, tzinfo=UTC))
    return schedule


def _values(field: str, least: int, most: int, names: Mapping[str, int] | None = None) -> frozenset[int]:
    return frozenset(value for part in field.split(",") for value in _part(part, least, most, names or {}))


def _part(text: str, least: int, most: int, names: Mapping[str, int]) -> range:
    """Read one of `*`, `5`, `1-5`, `jan-mar`, each with an optional `/step`."""
    found = _PART.fullmatch(text)
    if found is None:
        raise NcrontabError(f"{text!r} is not a value, a range or *")
    first_text, last_text, step = found["first"], found["last"], int(found["step"] or 1)
    if first_text == "*":
        first, last = least, most
    else:
        first = _value(first_text, names)
        # With a step, a single value begins a range to the end of the field.
        last = _value(last_text, names) if last_text else most if found["step"] else first
    if not (least <= first <= last <= most and step >= 1) or (first_text == "*" and last_text):
        raise NcrontabError(f"{text!r} is not within {least} to {most}")
    return range(first, last + 1, step)


def _value(text: str, names: Mapping[str, int]) -> int:
    if (named := names.get(text[:3])) is not None:
        return named
    if not text.isdigit():
        raise NcrontabError(f"{text!r} is not a number")
    return int(text)

"""Operations that a timer starts: SCHEDULED_OPERATIONS.

    [operations.nightly-report]
    schedule = "0 30 3 * * *"        # NCRONTAB, UTC
    catch_up = "last"                # last | all | none
    dependency = "reports"
    request = { method = "POST", path = "/nightly" }

All keys but `schedule` and `catch_up` are the body of an operation. Its key is made of the name and the due
time.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import Any, Final

from durable_retry.base.documents import json_problems, parsed_float, read_toml
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.rules.operations.request import OperationRequest, parse_operation

MAX_CAUGHT_UP: Final = 100
"""The most missed runs that one late timer starts: the latest ones."""

EARLY: Final = timedelta(milliseconds=500)
"""The timer of a host may fire this much before the due time that it stands for."""

_SECOND: Final = timedelta(seconds=1)
_FIELDS: Final = 6
_ANY_INSTANT: Final = datetime(2000, 1, 1, tzinfo=UTC)
_MONTHS: Final = (
    *("", "january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_DAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_NAMES: Final[tuple[tuple[str, ...], ...]] = ((), (), (), (), _MONTHS, _DAYS)
"""Names of the values of each field, by their numbers."""
_END: Final = r"[0-9]{1,2}|[a-z]+"
_PART: Final = re.compile(
    rf"(?:\*|(?P<first>{_END})(?:-(?P<last>{_END}))?)(?P<step>/0*[1-9][0-9]*)?", re.ASCII
)
"""One of `*`, `5`, `1-5`, `jan-mar`, each with an optional `/step`."""

_NAME_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_MAX_NAME_CHARS: Final = 48


class CatchUp(StrEnum):
    """The missed runs that a late timer starts.

    last: the latest one. all: each one, up to 100. none: none.
    """

    LAST = "last"
    ALL = "all"
    NONE = "none"


class NcrontabError(ValueError):
    """The text is no schedule, or one that never comes due."""


@dataclass(frozen=True, slots=True)
class Ncrontab:
    """A schedule of the Functions host: `second minute hour day month day-of-week`, in UTC.

    Day and day of week must both match, unlike in Unix cron. Source: "Timer trigger for Azure Functions",
    NCRONTAB expressions, Microsoft Learn.
    """

    fields: str  # six, of numbers

    def due_until(self, instant: datetime) -> datetime:
        """Return the last due time up to an aware instant, in UTC, or at it; NcrontabError without one."""
        # Imported here: it takes as long as the rest of the engine, and most apps have no schedule.
        from croniter import CroniterBadDateError, CroniterError, croniter  # noqa: PLC0415

        next_second = instant.astimezone(UTC).replace(microsecond=0) + _SECOND
        try:
            schedule = croniter(
                self.fields, next_second, ret_type=datetime, day_or=False, second_at_beginning=True
            )
            due: datetime = schedule.get_prev()
        except CroniterBadDateError:
            raise NcrontabError(f"'{self.fields}' never comes due: there is no such day") from None
        except CroniterError as error:
            raise NcrontabError(str(error)) from None
        return due

    def dues_between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Yield the due times later than `after` up to and including `until`, the latest first."""
        due = self.due_until(until)
        while due > after:
            yield due
            due = self.due_until(due - _SECOND)


def parse_ncrontab(text: str) -> Ncrontab:
    """Read a schedule of six fields, or of five without a second; NcrontabError where it never comes due."""
    fields = text.lower().split()
    if len(fields) == _FIELDS - 1:
        fields = ["0", *fields]
    if len(fields) != _FIELDS:
        raise NcrontabError(f"{text!r} is not six fields: second minute hour day month day-of-week")
    schedule = Ncrontab(" ".join(map(_croniter_field, fields, _NAMES)))
    schedule.due_until(_ANY_INSTANT)
    return schedule


def _croniter_field(field: str, names: Sequence[str]) -> str:
    return ",".join(_croniter_part(part, names) for part in field.split(","))


def _croniter_part(part: str, names: Sequence[str]) -> str:
    """Return a part of a field so that croniter reads it as NCRONTAB does; other forms are refused."""
    # Beyond NCRONTAB croniter takes `L`, `#`, `R`, and ranges that run backwards.
    match = _PART.fullmatch(part)
    if match is None:
        raise NcrontabError(f"{part!r} is not a value, a range or *")
    if match["first"] is None:
        return part
    first = _number(match["first"], names)
    last = first if match["last"] is None else _number(match["last"], names)
    if first > last:
        raise NcrontabError(f"{part!r} is a range that runs backwards")
    step = match["step"] or ""
    # Croniter takes 5-5 for every value.
    return f"{first}{step}" if first == last else f"{first}-{last}{step}"


def _number(text: str, names: Sequence[str]) -> int:
    """Return a value as NCrontab does: first letters of a name are enough, and 7 is no day of the week."""
    named = (number for number, name in enumerate(names) if name.startswith(text))
    number = int(text) if text.isdigit() else next(named, None)
    if number is None:
        raise NcrontabError(
            f"{text!r} is not the name of a value: {', '.join(filter(None, names)) or 'none has one'}"
        )
    if names is _DAYS and number >= len(_DAYS):
        raise NcrontabError(f"{text} is no day of the week: Sunday is 0, Saturday 6")
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledOperation:
    name: str  # unique; part of the key
    schedule: Ncrontab  # when it is due
    expression: str  # the schedule as written; the host's timer reads it
    catch_up: CatchUp  # the missed runs that a late timer starts
    body: Mapping[str, Any]
    request: OperationRequest  # the body, validated

    def dues(self, last: datetime | None, now: datetime, *, is_late: bool) -> list[datetime]:
        """Return the due times to start now, the earliest first.

        `last` is when the timer last fired, None where that is not known. `is_late` is what the host reports:
        the due time has passed.
        """
        until = now + EARLY
        if is_late and self.catch_up is CatchUp.NONE:
            return []
        if self.catch_up is not CatchUp.ALL or last is None:
            return [self.schedule.due_until(until)]
        instants = islice(self.schedule.dues_between(last + EARLY, until), MAX_CAUGHT_UP)
        # A timer that fires on time has nothing between the last fire and now but its own due time.
        return sorted(instants) or [self.schedule.due_until(until)]

    def key(self, due: datetime) -> str:
        return f"{self.name}@{to_rfc3339(due)}"


def parse_schedules(text: str) -> tuple[ScheduledOperation, ...]:
    """Read the setting; InvalidInputError with every mistake, each under the operation's name."""
    try:
        document = read_toml(text, parsed_float)
    except ValueError as error:
        raise InvalidInputError([Problem("", f"is not TOML: {error}")]) from None
    tables = document.get("operations")
    if not isinstance(tables, dict) or not tables:
        raise InvalidInputError([Problem("", "needs at least one table [operations.NAME]")])
    problems = [Problem(f"/{name}", "is not a known table") for name in document if name != "operations"]
    operations = [_scheduled_operation(name, table, problems) for name, table in tables.items()]
    if problems:
        raise InvalidInputError(problems)
    return tuple(operation for operation in operations if operation is not None)


def _scheduled_operation(name: str, table: Any, problems: list[Problem]) -> ScheduledOperation | None:
    place = f"/operations/{name}"
    if not name or len(name) > _MAX_NAME_CHARS or not set(name) <= _NAME_CHARS:
        problems.append(Problem(place, f"must be 1 to {_MAX_NAME_CHARS} small letters, digits and hyphens"))
    if not isinstance(table, dict):
        problems.append(Problem(place, "must be a table"))
        return None
    body = {key: value for key, value in table.items() if key not in {"schedule", "catch_up"}}
    if "key" in body:
        problems.append(Problem(f"{place}/key", "is made of the name and the due time"))
    schedule = _parsed_schedule(place, table.get("schedule"), problems)
    catch_up = _catch_up(place, table.get("catch_up", CatchUp.LAST), problems)
    request = _scheduled_request(place, body, problems)
    if schedule is None or catch_up is None or request is None:
        return None
    return ScheduledOperation(
        name=name,
        schedule=schedule,
        expression=table["schedule"],
        catch_up=catch_up,
        body=body,
        request=request,
    )


def _parsed_schedule(place: str, text: Any, problems: list[Problem]) -> Ncrontab | None:
    if not isinstance(text, str):
        problems.append(
            Problem(f"{place}/schedule", "is required: an NCRONTAB expression such as 0 */5 * * * *")
        )
        return None
    try:
        return parse_ncrontab(text)
    except NcrontabError as error:
        problems.append(Problem(f"{place}/schedule", str(error)))
        return None


def _catch_up(place: str, text: Any, problems: list[Problem]) -> CatchUp | None:
    if text not in list(CatchUp):
        problems.append(Problem(f"{place}/catch_up", f"must be one of {', '.join(CatchUp)}"))
        return None
    return CatchUp(text)


def _scheduled_request(
    place: str, body: Mapping[str, Any], problems: list[Problem]
) -> OperationRequest | None:
    if unfit := json_problems(body):
        problems.extend(problem.below(place) for problem in unfit)
        return None
    try:
        json.dumps(body)
        return parse_operation(body)
    except TypeError:
        problems.append(
            Problem(place, "holds a date or a time of TOML, which JSON has not: write it as a string")
        )
        return None
    except InvalidInputError as error:
        problems.extend(problem.below(place) for problem in error.problems)
        return None

"""SCHEDULED_OPERATIONS: operations that a timer starts.

    [operations.nightly-report]
    schedule = "0 30 3 * * *"        # NCRONTAB, UTC
    catch_up = "last"                # last | all | none
    dependency = "reports"
    request = { method = "POST", path = "/nightly" }

Everything beside `schedule` and `catch_up` is the body of an operation. Its key is the name with the due
time, so it has none of its own.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import Any, Final

from engine.instants import to_rfc3339
from engine.models import OperationRequest, parse_operation
from engine.ncrontab import Ncrontab, NcrontabError, parse_ncrontab
from engine.problem import InvalidInputError, Problem

MAX_CAUGHT_UP: Final = 100
"""Runs that one late fire makes good: the latest ones, where every run counts."""

EARLY: Final = timedelta(milliseconds=500)
"""A host's timer may fire a moment before it is due; it still means that due time."""

_NAME_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_MAX_NAME_CHARS: Final = 48


class CatchUp(StrEnum):
    """What a late fire makes good.

    last: the latest run that was missed. all: each one, up to 100. none: nothing.
    """

    LAST = "last"
    ALL = "all"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledOperation:
    """One operation and when it starts.

    Attributes:
        name: Unique; part of the key.
        schedule: When it is due.
        expression: The schedule as it was written; the host's timer reads it.
        catch_up: What a late fire makes good.
        body: Of the operation.
        request: The same, validated.
    """

    name: str
    schedule: Ncrontab
    expression: str
    catch_up: CatchUp
    body: Mapping[str, Any]
    request: OperationRequest

    def dues(self, last: datetime | None, now: datetime, *, is_late: bool) -> list[datetime]:
        """Return the due times to start now, the earliest first.

        Args:
            last: When the timer fired before; None when that is not known.
            now: Of this fire.
            is_late: Whether the host says that the due time has passed.
        """
        until = now + EARLY
        if is_late and self.catch_up is CatchUp.NONE:
            return []
        if self.catch_up is not CatchUp.ALL or last is None:
            return [self.schedule.due_until(until)]
        found = islice(self.schedule.dues_between(last + EARLY, until), MAX_CAUGHT_UP)
        return sorted(found) or [self.schedule.due_until(until)]

    def key(self, due: datetime) -> str:
        """Return the key of one run."""
        return f"{self.name}@{to_rfc3339(due)}"


def parse_schedules(text: str) -> tuple[ScheduledOperation, ...]:
    """Read the setting.

    Raises:
        InvalidInputError: With every mistake, each under the operation's name.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError([Problem("", f"is not TOML: {error}")]) from None
    tables = document.get("operations")
    if not isinstance(tables, dict) or not tables:
        raise InvalidInputError([Problem("", "needs at least one table [operations.NAME]")])
    problems = [Problem(f"/{name}", "is not a known table") for name in document if name != "operations"]
    found = [_scheduled(name, table, problems) for name, table in tables.items()]
    if problems:
        raise InvalidInputError(problems)
    return tuple(each for each in found if each is not None)


def _scheduled(name: str, table: Any, problems: list[Problem]) -> ScheduledOperation | None:
    place = f"/operations/{name}"
    if not name or len(name) > _MAX_NAME_CHARS or not set(name) <= _NAME_CHARS:
        problems.append(Problem(place, f"must be 1 to {_MAX_NAME_CHARS} small letters, digits and hyphens"))
    if not isinstance(table, dict):
        problems.append(Problem(place, "must be a table"))
        return None
    body = {key: value for key, value in table.items() if key not in {"schedule", "catch_up"}}
    if "key" in body:
        problems.append(Problem(f"{place}/key", "is made of the name and the due time"))
    schedule = _schedule(place, table.get("schedule"), problems)
    catch_up = _catch_up(place, table.get("catch_up", CatchUp.LAST), problems)
    request = _request(place, body, problems)
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


def _schedule(place: str, text: Any, problems: list[Problem]) -> Ncrontab | None:
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


def _request(place: str, body: Mapping[str, Any], problems: list[Problem]) -> OperationRequest | None:
    try:
        json.dumps(body)
        return parse_operation(body)
    except TypeError:
        problems.append(
            Problem(place, "holds a date or a time of TOML, which JSON has not: write it as a string")
        )
        return None
    except InvalidInputError as error:
        problems.extend(Problem(place + each.pointer, each.detail) for each in error.problems)
        return None

"""A table of host.json, and the kinds of values in it."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

_TIMESPAN = re.compile(
    r"(?P<sign>-)?(?:(?P<days>\d+)\.)?(?P<hours>\d{1,2}):(?P<minutes>\d{1,2})(?::(?P<seconds>\d{1,2}(?:\.\d{1,7})?))?",
    re.ASCII,
)
_UNLIMITED = "-1"


def parse_timespan(text: str) -> timedelta:
    """Parse `[-][d.]hh:mm[:ss[.fffffff]]`.

    Args:
        text: Hours below 24, minutes and seconds below 60.

    Returns:
        The duration, to the microsecond.

    Raises:
        ValueError: It has another form, or a part is out of range.
    """
    match = _TIMESPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a TimeSpan: write [d.]hh:mm:ss, as in 00:00:30")
    hours, minutes, seconds = int(match["hours"]), int(match["minutes"]), float(match["seconds"] or 0)
    if hours > 23 or minutes > 59 or seconds >= 60:  # noqa: PLR2004 # the clock's own numbers
        raise ValueError(f"{text!r} is not a TimeSpan: hours go to 23, minutes and seconds to 59")
    span = timedelta(days=int(match["days"] or 0), hours=hours, minutes=minutes, seconds=seconds)
    return -span if match["sign"] else span


def _read_timespan(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("write a TimeSpan in quotes, [d.]hh:mm:ss")  # noqa: TRY004 # pydantic wants ValueError
    return parse_timespan(value)


def _read_timeout(value: object) -> object:
    return None if value in {_UNLIMITED, None} else _read_timespan(value)


def _read_limit(value: object) -> object:
    return None if value in {-1, _UNLIMITED} else value


Limit = Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(_read_limit)]
TimeSpan = Annotated[timedelta, BeforeValidator(_read_timespan), Field(ge=timedelta())]
Timeout = Annotated[timedelta | None, BeforeValidator(_read_timeout)]


class Section(BaseModel):
    """A table of host.json: camelCase keys in any case, unknown ones refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    @model_validator(mode="before")
    @classmethod
    def _fold_key_case(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        known = {
            (field.alias or name).lower(): field.alias or name for name, field in cls.model_fields.items()
        }
        return {known.get(key.lower(), key): item for key, item in value.items()}

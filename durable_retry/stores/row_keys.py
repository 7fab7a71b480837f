"""Parts of row keys: instants as digits that sort by time, and texts without forbidden characters.

Tables sort rows by their keys, in rising order only, so a list with the newest first has falling digits. They
are stored: `newest_first` and `age` differ by one microsecond, and neither can change.
"""

from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import quote

DIGITS: Final = 17
"""Of an instant in a row key."""

_END_US: Final = 10**DIGITS
"""Microseconds since 1970 in the year 5138: what is left until then sorts the newest first."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def microseconds(instant: datetime) -> int:
    """Return whole microseconds since 1970 of an aware instant."""
    return (instant - _EPOCH) // _MICROSECOND


def from_microseconds(number: int) -> datetime:
    """Return the aware UTC instant of microseconds since 1970."""
    return _EPOCH + number * _MICROSECOND


def oldest_first(instant: datetime) -> str:
    """Return 17 digits that sort in the order of the instants."""
    return f"{microseconds(instant):0{DIGITS}d}"


def newest_first(instant: datetime) -> str:
    """Return 17 digits that sort in reverse order of the instants."""
    return f"{_END_US - 1 - microseconds(instant):0{DIGITS}d}"


def age(instant: datetime) -> str:
    """As `newest_first`, for the lists of batches, sagas and bulk actions and of the outbox."""
    return f"{_END_US - microseconds(instant):0{DIGITS}d}"


def quoted(text: str) -> str:
    """Escape characters that a row key must not contain: slashes, `#`, `?` and control characters."""
    return quote(text, safe="=").replace("%", "!").replace("~", "!7E")

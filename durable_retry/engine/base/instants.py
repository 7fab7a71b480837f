"""Instants as RFC 3339 text, as milliseconds, and as keys that sort."""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_MILLISECOND: Final = timedelta(milliseconds=1)

_MICROSECOND: Final = timedelta(microseconds=1)

_OFFSET_CHARS: Final = len("+00:00")


def to_rfc3339(instant: datetime) -> str:
    """Write an aware instant as RFC 3339 in UTC, e.g. `2026-11-21T09:30:00.250000Z`."""
    # The zone of a naive instant would be a guess.
    if instant.tzinfo is None:
        raise ValueError("an instant needs a time zone")
    in_utc = instant if instant.tzinfo is UTC else instant.astimezone(UTC)
    return f"{in_utc.isoformat()[:-_OFFSET_CHARS]}Z"


def from_rfc3339(text: str) -> datetime:
    """Read an RFC 3339 instant, in UTC.

    Raises:
        ValueError: It is no date and time of the years 1 to 9999, or has no offset.
    """
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(f"{text!r} has no offset from UTC")
    try:
        return instant if instant.tzinfo is UTC else instant.astimezone(UTC)
    except OverflowError:  # its own offset moves it out of the years 1 to 9999
        raise ValueError(f"{text!r} is no instant of the years 1 to 9999 in UTC") from None


def time_text(instant: datetime, now: datetime) -> str:
    """Return an instant for a sentence: `21:56 UTC`, or `2026-11-21 21:56 UTC` where that is another day."""
    shown = instant.astimezone(UTC)
    day = "" if shown.date() == now.astimezone(UTC).date() else f"{shown:%Y-%m-%d} "
    return f"{day}{shown:%H:%M} UTC"


def optional_to_rfc3339(instant: datetime | None) -> str | None:
    """As `to_rfc3339`; None stays None."""
    return None if instant is None else to_rfc3339(instant)


def optional_from_rfc3339(text: str | None) -> datetime | None:
    """As `from_rfc3339`; None stays None."""
    return None if text is None else from_rfc3339(text)


def to_ms(instant: datetime) -> int:
    """Return whole milliseconds since 1970, rounded down: the short form of an instant in stored states."""
    return (instant - _EPOCH) // _MILLISECOND


def from_ms(milliseconds: int) -> datetime:
    """Return the aware UTC instant of whole milliseconds since 1970."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


DIGITS: Final = 17
"""How many an instant has in a key. Rows sort by their keys, in rising order, so a list with the newest first
has falling digits. Keys are stored: `newest_first` and `age` differ by a microsecond; neither can change."""

_END_US: Final = 10**DIGITS
"""Microseconds since 1970 in the year 5138: what is left until then sorts the newest first."""


def microseconds(instant: datetime) -> int:
    """Return whole microseconds since 1970 of an aware instant."""
    return (instant - _EPOCH) // _MICROSECOND


def from_microseconds(number: int) -> datetime:
    """Return the aware UTC instant of microseconds since 1970; ValueError after the year 9999."""
    try:
        return _EPOCH + number * _MICROSECOND
    except OverflowError:
        raise ValueError(f"{number} is no instant of the years 1 to 9999") from None


def oldest_first(instant: datetime) -> str:
    """Return 17 digits that sort in the order of the instants."""
    return f"{microseconds(instant):0{DIGITS}d}"


def newest_first(instant: datetime) -> str:
    """Return 17 digits that sort in reverse order of the instants."""
    return f"{_END_US - 1 - microseconds(instant):0{DIGITS}d}"


def from_newest_first(digits: str) -> datetime:
    """Return the instant of what `newest_first` returned."""
    return from_microseconds(_END_US - 1 - int(digits))


def age(instant: datetime) -> str:
    """As `newest_first`, for the lists of batches, sagas and bulk actions and of the outbox."""
    return f"{_END_US - microseconds(instant):0{DIGITS}d}"


def from_age(digits: str) -> datetime:
    """Return the instant of what `age` returned."""
    return from_microseconds(_END_US - int(digits))

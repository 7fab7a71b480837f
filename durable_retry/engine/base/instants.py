"""Instants in stored forms: RFC 3339 in UTC with `Z`, or milliseconds since 1970."""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def to_rfc3339(instant: datetime) -> str:
    """Write an aware instant as RFC 3339 in UTC, e.g. `2026-11-21T09:30:00.250000Z`.

    Raises:
        ValueError: if the instant is naive, since its zone would be a guess.
    """
    if instant.tzinfo is None:
        raise ValueError("an instant needs a time zone")
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def from_rfc3339(text: str) -> datetime:
    """Read an RFC 3339 instant; the answer is in UTC.

    Raises:
        ValueError: if the text is not a date and time, or has no offset.
    """
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(f"{text!r} has no offset from UTC")
    return instant.astimezone(UTC)


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


def optional_to_ms(instant: datetime | None) -> int | None:
    """As `to_ms`; None stays None."""
    return None if instant is None else to_ms(instant)


def optional_from_ms(milliseconds: int | None) -> datetime | None:
    """As `from_ms`; None stays None."""
    return None if milliseconds is None else from_ms(milliseconds)

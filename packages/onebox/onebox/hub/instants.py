"""Instants as the store keeps them: whole microseconds since 1970."""

from datetime import UTC, datetime, timedelta

from onebox.clock import Clock

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_us(instant: datetime) -> int:
    """Return an aware instant as microseconds."""
    return (instant - _EPOCH) // _MICROSECOND


def to_datetime(instant_us: int) -> datetime:
    """Return microseconds as an aware UTC instant."""
    return _EPOCH + timedelta(microseconds=instant_us)


def now_us(clock: Clock) -> int:
    """Return the clock's present in microseconds."""
    return to_us(clock.now())

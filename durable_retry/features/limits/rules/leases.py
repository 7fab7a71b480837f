"""Slots that are lent. Thousands of them are read, changed and stored in well under a millisecond.

A lease is a record of fixed width in a text, so that only the records are parsed that are needed:

    name (7, a hash) | when it was asked for (5, milliseconds) | limit key (5, a hash; only where it has one)

Leases of the same length are in one text, in the order in which they were lent: the first expires first.
Instants are short because they start again from 0 every twelve days; no lease lasts nearly as long.
"""

from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import islice
from math import ceil
from typing import Final

from durable_retry.base.asks import KEPT_ASKS
from durable_retry.base.json_forms import JsonShape, from_ms, to_ms

_DIGITS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_NAME: Final = 7
_INSTANT: Final = 5
_MARK: Final = 5
_CIRCLE_MS: Final = len(_DIGITS) ** _INSTANT
_KEYED: Final = "+"
"""Ends the name of a text whose records have a limit key."""
_ANSWERED: Final = "0"
"""The kind of the records of answered requests."""
LOOKED_AT: Final = 64
"""Only the ends of so many leases are estimated, of those that end first."""


def name_of(lease_id: str) -> str:
    """Return the short name of a lease: there are four million million, so thousands do not collide."""
    return _hashed(lease_id, _NAME)


def mark_of(limit_key: str) -> str:
    """Return the short name of a limit key."""
    return _hashed(limit_key, _MARK)


@dataclass(frozen=True, slots=True)
class Lease:
    """One attempt under way."""

    name: str
    asked_at: datetime  # of the latest request for it
    seconds: float  # after so long the slot is free again, whatever became of the attempt
    mark: str = ""  # of its limit key


@dataclass(frozen=True, slots=True)
class Leases(JsonShape):
    """The leases of a dependency."""

    texts: Mapping[str, str] = field(default_factory=dict)  # by the seconds that a lease lasts

    def __len__(self) -> int:
        return sum(len(text) // _width_of(kind) for kind, text in self.texts.items())

    def find(self, name: str, now: datetime) -> Lease | None:
        """Return a lease; None when it is not lent."""
        for kind, text in self.texts.items():
            if (start := _start_of(name, kind, text)) is not None:
                return _lease_at(kind, text, start, now)
        return None

    def with_lease(self, lease: Lease) -> "Leases":
        """Return the leases with one more."""
        kind = f"{ceil(lease.seconds)}{_KEYED if lease.mark else ''}"
        record = f"{lease.name}{_written(lease.asked_at)}{lease.mark}"
        return Leases({**self.texts, kind: self.texts.get(kind, "") + record})

    def without(self, name: str) -> "Leases":
        """Return the leases without one."""
        return Leases(
            {
                kind: left
                for kind, text in self.texts.items()
                if (left := _cut(text, _start_of(name, kind, text), _width_of(kind)))
            }
        )

    def with_asked_at(self, lease: Lease, asked_at: datetime) -> "Leases":
        """Return the leases after one was asked for again; it keeps its position."""
        changed = f"{lease.name}{_written(asked_at)}"
        return Leases(
            {
                kind: text
                if (start := _start_of(lease.name, kind, text)) is None
                else text[:start] + changed + text[start + _NAME + _INSTANT :]
                for kind, text in self.texts.items()
            }
        )

    def expired(self, now: datetime) -> list[Lease]:
        """Return the leases that are over."""
        over = list[Lease]()
        for kind, text in self.texts.items():
            for start in range(0, len(text), _width_of(kind)):
                lease = _lease_at(kind, text, start, now)
                if lease.asked_at + timedelta(seconds=lease.seconds) > now:
                    break
                over.append(lease)
        return over

    def first_end(self, now: datetime) -> datetime | None:
        """Return when the first of them expires; None without any."""
        firsts = (_lease_at(kind, text, 0, now) for kind, text in self.texts.items())
        return min((lease.asked_at + timedelta(seconds=lease.seconds) for lease in firsts), default=None)

    def by_mark(self) -> Counter[str]:
        """Return the number of leases of each limit key, by its mark."""
        width = _width_of(_KEYED)
        return Counter(
            text[end - _MARK : end]
            for kind, text in self.texts.items()
            if kind.endswith(_KEYED)
            for end in range(width, len(text) + 1, width)
        )

    def begins(self, most: int, now: datetime, mark: str = "") -> list[datetime]:
        """Return when the oldest leases of a key, or of all, were asked for, the oldest first."""
        most = min(most, LOOKED_AT)
        found = (
            _lease_at(kind, text, start, now).asked_at
            for kind, text in self.texts.items()
            for start in islice(_starts_of(kind, text, mark), most)
        )
        return sorted(found)[:most]


NO_LEASES: Final = Leases()


def was_answered(answered: str, name: str, asked_at: datetime, now: datetime) -> bool:
    """Whether this request, or a later one for the same lease, is among the records of the answered."""
    start = _start_of(name, _ANSWERED, answered)
    return start is not None and asked_at <= _lease_at(_ANSWERED, answered, start, now).asked_at


def with_answered(answered: str, name: str, asked_at: datetime, now: datetime) -> str:
    """Return the records with one more answered request, which replaces the record of its lease.

    The oldest records are dropped.
    """
    if was_answered(answered, name, asked_at, now):
        return answered
    width = _width_of(_ANSWERED)
    others = _cut(answered, _start_of(name, _ANSWERED, answered), width)
    return (others + name + _written(asked_at))[-KEPT_ASKS * width :]


def _width_of(kind: str) -> int:
    return _NAME + _INSTANT + (_MARK if kind.endswith(_KEYED) else 0)


def _starts_of(kind: str, text: str, mark: str) -> Iterator[int]:
    """Yield where the records of a limit key begin, or all where it is "", the oldest first."""
    width = _width_of(kind)
    for start in range(0, len(text), width):
        if not mark or (kind.endswith(_KEYED) and text.startswith(mark, start + width - _MARK)):
            yield start


def _start_of(name: str, kind: str, text: str) -> int | None:
    start = text.find(name)
    while start >= 0 and start % _width_of(kind):
        start = text.find(name, start + 1)
    return start if start >= 0 else None


def _cut(text: str, start: int | None, width: int) -> str:
    return text if start is None else text[:start] + text[start + width :]


def _lease_at(kind: str, text: str, start: int, now: datetime) -> Lease:
    asked_at = _read_instant(text[start + _NAME : start + _NAME + _INSTANT], now)
    mark = text[start + _NAME + _INSTANT : start + _width_of(kind)]
    return Lease(text[start : start + _NAME], asked_at, float(kind.removesuffix(_KEYED)), mark)


def _written(instant: datetime) -> str:
    number, digits = to_ms(instant) % _CIRCLE_MS, ""
    for _ in range(_INSTANT):
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits


def _read_instant(digits: str, now: datetime) -> datetime:
    """Return the instant of these digits that is nearest to the present."""
    number = 0
    for digit in digits:
        number = number * len(_DIGITS) + _DIGITS.index(digit)
    behind = (to_ms(now) - number + _CIRCLE_MS // 2) % _CIRCLE_MS - _CIRCLE_MS // 2
    return from_ms(to_ms(now) - behind)


def _hashed(text: str, characters: int) -> str:
    digest = sha256(text.encode("utf-8", "surrogatepass")).digest()
    return urlsafe_b64encode(digest[:6]).decode()[:characters]

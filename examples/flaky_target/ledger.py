"""What the target received, per idempotency key."""

from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

TRIES_KEPT_PER_KEY = 100


@dataclass(frozen=True, slots=True)
class Try:
    """One request as it arrived.

    Attributes:
        number: 1 for the first try of this key and path.
        received_at: When its head had been read, before its body was.
        method: The HTTP method.
        path: The path without the query.
        query: The query as sent, without the question mark.
        headers: Every header, names in lower case.
    """

    number: int
    received_at: datetime
    method: str
    path: str
    query: str
    headers: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        """Returns the try as `GET /counts/{key}` shows it."""
        return {
            "number": self.number,
            "received_at": self.received_at.isoformat().replace("+00:00", "Z"),
            "method": self.method,
            "path": self.path,
            "query": self.query,
            "headers": self.headers,
        }


@dataclass(slots=True)
class KeyRecord:
    """Everything known of one key. `count` is exact; only the newest tries are kept in full."""

    count: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    per_place: dict[str, int] = field(default_factory=dict)
    tries: deque[Try] = field(default_factory=lambda: deque(maxlen=TRIES_KEPT_PER_KEY))

    def as_json(self) -> dict[str, Any]:
        """Returns the record as `GET /counts/{key}` shows it."""
        return {
            "count": self.count,
            "in_flight": self.in_flight,
            "most_in_flight": self.most_in_flight,
            "tries": [one.as_json() for one in self.tries],
        }


class Ledger:
    """Counts requests per idempotency key. Used from one event loop only, so it needs no lock."""

    def __init__(self) -> None:
        self._records: dict[str, KeyRecord] = {}

    def arrive(self, key: str, *, method: str, path: str, query: str, headers: dict[str, str]) -> Try:
        """Records a request that has just arrived and returns it with its number.

        Without a key ("") the query distinguishes requests as well.
        """
        record = self._records.setdefault(key, KeyRecord())
        place = path if key else f"{path}?{query}"
        number = record.per_place.get(place, 0) + 1
        record.per_place[place] = number
        record.count += 1
        record.in_flight += 1
        record.most_in_flight = max(record.most_in_flight, record.in_flight)
        arrived = Try(number, datetime.now(UTC), method, path, query, headers)
        record.tries.append(arrived)
        return arrived

    def leave(self, key: str) -> None:
        """Records that a request of this key is no longer being answered."""
        record = self._records.get(key)
        if record is not None:  # The ledger may have been cleared meanwhile.
            record.in_flight -= 1

    def clear(self) -> None:
        """Forgets everything, so that each key's next try is its first."""
        self._records.clear()

    def of(self, key: str) -> KeyRecord:
        """Returns the record of one key; an empty one when nothing was received."""
        return self._records.get(key, KeyRecord())

    def totals(self) -> dict[str, Any]:
        """Returns the number of requests received, in all and per key."""
        return {
            "total": sum(record.count for record in self._records.values()),
            "keys": {key: record.count for key, record in self._records.items()},
        }

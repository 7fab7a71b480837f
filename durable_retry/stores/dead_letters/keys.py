"""The keys of `DeadLetterIndex`: partition = status; each list of dead letters is one range of row keys.

n|<list>|<newest first><id>      one row per list that a dead letter stands in, see `Facets.lists`
o|<list>|<oldest first><id>      of open ones: the oldest first, of all, by reason and by dependency
d|<archived at><id>              of archived ones: the next to delete first
t|<writer>, g|<group>|<writer>   counters of open ones, see `stores.dead_letters.counters`
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self
from urllib.parse import quote

from durable_retry.engine.base.json_forms import from_rfc3339, to_rfc3339
from durable_retry.engine.dead_letters.record import DeadLetterRecord, Status
from durable_retry.engine.dead_letters.replay import Facets

TABLE: Final = "DeadLetterIndex"

AFTER_ALL: Final = "~"
"""Sorts after every character that a key can contain."""

_LAST_INSTANT_US: Final = 10**17 - 1
"""Microseconds since 1970 in the year 5138: subtracted from, so that the newest row sorts first."""

_WAITING_LISTS: Final = ("all", "reason=", "dependency=")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """The fields of a dead letter that its index rows carry.

    Attributes:
        id: Its id.
        created_at: Never changes.
        facets: Fields that filters use; never change.
    """

    id: str
    created_at: datetime
    facets: Facets

    @classmethod
    def of(cls, record: DeadLetterRecord) -> Self:
        """Return the entry of a dead letter."""
        return cls(id=record.id, created_at=record.created_at, facets=Facets.of(record))

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read what `properties` wrote."""
        return cls(
            id=row["dead_letter_id"],
            created_at=from_rfc3339(row["created_at"]),
            facets=Facets(**{name: row[name] for name in ("reason", "category", "dependency", "group")}),
        )

    @property
    def position(self) -> str:
        """Position in every list that begins with the newest; also the cursor that continues behind it."""
        return f"{newest_first(self.created_at)}{self.id}"

    def properties(self) -> dict[str, str]:
        """Return the properties of its rows without the keys."""
        facets = self.facets
        return {
            "dead_letter_id": self.id,
            "created_at": to_rfc3339(self.created_at),
            "reason": facets.reason,
            "category": facets.category,
            "dependency": facets.dependency,
            "group": facets.group,
        }

    def keys_under(self, status: Status) -> Iterator[str]:
        """Return the row keys under a status."""
        for name in self.facets.lists:
            yield f"{list_prefix(name)}{self.position}"
            if status is Status.OPEN and name.startswith(_WAITING_LISTS):
                yield f"{waiting_prefix(name)}{oldest_first(self.created_at)}{self.id}"


def list_prefix(name: str) -> str:
    """Return the key prefix of a list."""
    return f"n|{quoted(name)}|"


def waiting_prefix(name: str) -> str:
    """Return the key prefix of a list ordered by age, the oldest first."""
    return f"o|{quoted(name)}|"


def due_key(archived_at: datetime, dead_letter_id: str = "") -> str:
    """Return the key of an archived dead letter in the order of deletion."""
    return f"d|{oldest_first(archived_at)}{dead_letter_id}"


def newest_first(instant: datetime) -> str:
    """Return 17 digits that sort in reverse order of the instants."""
    return f"{_LAST_INSTANT_US - _microseconds(instant):017d}"


def oldest_first(instant: datetime) -> str:
    """Return 17 digits that sort in the order of the instants."""
    return f"{_microseconds(instant):017d}"


def quoted(text: str) -> str:
    """Escape characters that a row key must not contain: slashes, `#`, `?` and control characters."""
    return quote(text, safe="=").replace("%", "!").replace("~", "!7E")


def _microseconds(instant: datetime) -> int:
    # Not by way of a float, which has not enough digits for microseconds.
    whole = int(instant.timestamp())
    return whole * 1_000_000 + instant.microsecond

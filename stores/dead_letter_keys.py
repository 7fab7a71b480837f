"""The keys of `DeadLetterIndex`: partition = status; each list of dead letters is one range of row keys.

n|<list>|<newest first><id>      one row per list that a dead letter stands in, see `Facets.lists`
o|<list>|<oldest first><id>      of open ones: who waits longest, of all, by reason and by dependency
d|<archived at><id>              of archived ones: who goes first
t|<writer>, g|<group>|<writer>   of open ones: how many there are, see `stores.dead_letter_tally`
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self
from urllib.parse import quote

from engine.dead_letter import DeadLetterRecord, Status
from engine.dead_letter_filter import Facets
from engine.instants import from_rfc3339, to_rfc3339

TABLE: Final = "DeadLetterIndex"

AFTER_ALL: Final = "~"
"""Sorts after everything that a key is made of."""

_LAST_INSTANT_US: Final = 10**17 - 1
"""Microseconds since 1970 in the year 5138: subtracted from, so that the newest row sorts first."""

_WAITING_LISTS: Final = ("all", "reason=", "dependency=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the lists know of a dead letter.

    Attributes:
        id: Its id.
        created_at: When it was written; never changes.
        facets: What it is found by; never change.
    """

    id: str
    created_at: datetime
    facets: Facets

    @classmethod
    def of(cls, record: DeadLetterRecord) -> Self:
        """Return a dead letter's."""
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
        """Where it stands in every list that begins with the newest; also the cursor that follows it."""
        return f"{newest_first(self.created_at)}{self.id}"

    def properties(self) -> dict[str, str]:
        """Return what each of its rows carries beside the keys."""
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
        """Return the row keys that depend on nothing but itself and the status."""
        for name in self.facets.lists:
            yield f"{list_prefix(name)}{self.position}"
            if status is Status.OPEN and name.startswith(_WAITING_LISTS):
                yield f"{waiting_prefix(name)}{oldest_first(self.created_at)}{self.id}"


def list_prefix(name: str) -> str:
    """Return what the keys of a list begin with."""
    return f"n|{quoted(name)}|"


def waiting_prefix(name: str) -> str:
    """Return what the keys of the same list begin with that has its oldest first."""
    return f"o|{quoted(name)}|"


def due_key(archived_at: datetime, dead_letter_id: str = "") -> str:
    """Return the key under which an archived dead letter waits to go."""
    return f"d|{oldest_first(archived_at)}{dead_letter_id}"


def newest_first(instant: datetime) -> str:
    """Return 17 digits that sort the other way round than instants do."""
    return f"{_LAST_INSTANT_US - _microseconds(instant):017d}"


def oldest_first(instant: datetime) -> str:
    """Return 17 digits that sort as instants do."""
    return f"{_microseconds(instant):017d}"


def quoted(text: str) -> str:
    """Return a text without what a row key must not hold: slashes, `#`, `?` and control characters."""
    return quote(text, safe="=").replace("%", "!").replace("~", "!7E")


def _microseconds(instant: datetime) -> int:
    # Not by way of a float, which has not enough digits for microseconds.
    whole = int(instant.timestamp())
    return whole * 1_000_000 + instant.microsecond

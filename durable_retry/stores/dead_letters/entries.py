"""The rows of the index of dead letters: an entry, and the keys under which lists have it."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, Self

from durable_retry.engine.base.instants import DIGITS, from_rfc3339, newest_first, oldest_first, to_rfc3339
from durable_retry.engine.dead_letters.record import FACETS, Facets, KeptDeadLetter, Status
from durable_retry.engine.dead_letters.search import NAME_CHARS
from durable_retry.stores.storage.contents import quoted
from durable_retry.stores.storage.tables import Row

_OLDEST_FIRST_LISTS: Final = ("all", "reason=", "dependency=")
"""Lists of open dead letters that are also kept the oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """The fields of a dead letter that its index rows carry."""

    id: str
    created_at: datetime  # never changes
    facets: Facets  # fields that filters use; never change
    names: Mapping[str, str]  # `KeptDeadLetter.names` for searches; never change

    @classmethod
    def of(cls, record: KeptDeadLetter) -> Self:
        """Return the entry of a dead letter."""
        names = {name: value[:NAME_CHARS] for name, value in record.names.items()}
        return cls(id=record.id, created_at=record.created_at, facets=Facets.of(record), names=names)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read what `properties` wrote."""
        return cls(
            id=row["dead_letter_id"],
            created_at=from_rfc3339(row["created_at"]),
            facets=Facets(**{name: row[name] for name in FACETS}),
            names=json.loads(row["names"]),
        )

    @property
    def position(self) -> str:
        """Position in every list that begins with the newest; also the cursor that continues behind it."""
        return f"{newest_first(self.created_at)}{self.id}"

    def properties(self) -> dict[str, str]:
        """Return the properties of its rows without the keys."""
        return {
            "dead_letter_id": self.id,
            "created_at": to_rfc3339(self.created_at),
            **asdict(self.facets),
            # As JSON, whose ASCII takes any character that a message can have.
            "names": json.dumps(dict(self.names)),
        }

    def rows_at(self, partition: str, keys: Iterable[str]) -> list[Row]:
        """Return its rows under these keys of a partition."""
        properties = self.properties()
        return [{"PartitionKey": partition, "RowKey": key, **properties} for key in keys]

    def keys_under(self, status: Status) -> Iterator[str]:
        """Return the row keys under a status."""
        for name in self.facets.lists:
            yield f"{list_prefix(name)}{self.position}"
            if status is Status.OPEN and name.startswith(_OLDEST_FIRST_LISTS):
                yield f"{oldest_prefix(name)}{oldest_first(self.created_at)}{self.id}"


def id_at(position: str) -> str:
    """Return the id of the dead letter at a position, see `IndexEntry.position`."""
    return position[DIGITS:]


def list_prefix(name: str) -> str:
    """Return the key prefix of a list."""
    return f"n|{quoted(name)}|"


def oldest_prefix(name: str) -> str:
    """Return the key prefix of a list that begins with the oldest."""
    return f"o|{quoted(name)}|"


def due_key(archived_at: datetime, dead_letter_id: str = "") -> str:
    """Return the key of an archived dead letter in the order of deletion."""
    return f"d|{oldest_first(archived_at)}{dead_letter_id}"

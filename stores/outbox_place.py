"""Where the outbox rows of an operation stand.

A transaction cannot span partitions, so the rows of a handler that writes tables stand beside its writes; all
others stand in the table `Outbox`, in a partition of their operation's own. Such a partition also says where
the rows are when they are elsewhere, so that an event is found by its id alone.
"""

from dataclasses import dataclass
from typing import Any, Final, Self

from stores import tables

OUTBOX_TABLE: Final = "Outbox"

_PLACE_KEY: Final = "place"


@dataclass(frozen=True, slots=True)
class Place:
    """A partition of a table."""

    table: str
    partition_key: str

    def to_json(self) -> dict[str, str]:
        """Return the JSON form, which is also that of a row's properties."""
        return {"table": self.table, "partition_key": self.partition_key}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Read what `to_json` wrote."""
        return cls(data["table"], data["partition_key"])


def own_place(operation_id: str) -> Place:
    """Return where rows stand that share no transaction with a handler's writes."""
    return Place(OUTBOX_TABLE, operation_id)


async def note_place(operation_id: str, place: Place) -> None:
    """Remember a place, when it is not the operation's own."""
    if place == own_place(operation_id):
        return
    keys = {"PartitionKey": operation_id, "RowKey": _PLACE_KEY}
    await tables.merge(OUTBOX_TABLE, keys | place.to_json())


async def noted_place(operation_id: str) -> Place:
    """Return where an operation's rows stand."""
    row = await tables.read(OUTBOX_TABLE, operation_id, _PLACE_KEY)
    return own_place(operation_id) if row is None else Place.from_json(row)


async def remove_place(operation_id: str) -> None:
    """Forget where an operation's rows stood; its own place needs no forgetting."""
    await tables.delete(OUTBOX_TABLE, operation_id, _PLACE_KEY)

"""The instances that a nudge did not move: one row of `Upkeep`, not there before the first of them.

Table `Upkeep`: PK `stuck`   RK `stuck`   `instances` as JSON
"""

from collections.abc import Callable
from typing import Annotated, Final

from pydantic import Field, TypeAdapter

from durable_retry.engine.base.answers import Answer, Instant, read_or
from durable_retry.stores.storage import tables
from durable_retry.stores.storage.rounds import TABLE
from durable_retry.stores.storage.tables import Row

MOST: Final = 20
"""So many are kept: an incident is no list."""


class StuckInstance(Answer):
    """An orchestration instance that stands still, and that a nudge did not move."""

    instance_id: Annotated[str, Field(description="Of an operation it is the operation's id.")]
    orchestration: Annotated[str, Field(description="`operation`, `outbox`, `batch`, `saga`, ...")]
    since: Annotated[Instant, Field(description="When its next turn was due.")]
    noted_at: Annotated[Instant, Field(description="When it was seen to have no turn after a nudge.")]


type Stuck = tuple[StuckInstance, ...]

_KEYS: Final = {"PartitionKey": "stuck", "RowKey": "stuck"}
_FORM: Final = TypeAdapter(Stuck)


def _of_row(row: Row) -> Stuck:
    return read_or(lambda: _FORM.validate_json(row["instances"]), lambda _: ())


async def read_stuck() -> Stuck:
    """Return those that were noted; each may have moved since."""
    row = await tables.read(TABLE, *_KEYS.values())
    return () if row is None else _of_row(row)


async def change_stuck(rule: Callable[[Stuck], Stuck]) -> Stuck:
    """Change what is noted by a rule, and return it."""

    def write(stuck: Stuck) -> Row:
        return {"instances": _FORM.dump_json(stuck).decode()}

    return await tables.change_row(
        TABLE, _KEYS, lambda stored: rule(stored or ())[:MOST], read=_of_row, write=write
    )

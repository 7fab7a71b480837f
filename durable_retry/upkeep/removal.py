"""What is past its time: features declare kinds of it, and the feature `retention` removes these.

RowsOfOperations    rows in a partition for each operation
ListByTime          entries of a list, and the rows of their ids
CommitEntries       what a list of commits names
Kind                by steps of its own
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from durable_retry.attempt.commits import CommitLocation
from durable_retry.base.json_forms import instant_in
from durable_retry.hub.task_hub import TaskHub
from durable_retry.settings.retention import Retention
from durable_retry.storage.tables import Row

REMOVED_AT_ONCE: Final = 16
"""Requests to storage take their time on the way, and the account serves many at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The arguments of a step, which removes what was made, or ended, before an instant."""

    hub: TaskHub
    now: datetime
    before: datetime
    after: str = ""  # where the step before ended; "" for the first
    shard: int = 0
    histories_before: datetime | None = None  # before when histories are past their time; None for never

    def has(self, row: Row, name: str) -> bool:
        """Whether the instant in a row is past."""
        # An outcome written after its marker was deleted leaves a row without a time: treat it as old.
        at = instant_in(row, name)
        return at is None or at < self.before


@dataclass(frozen=True, slots=True)
class Kind:
    """How a kind is removed; `kept_for` returns None where it is kept for ever.

    Each of its shards can be removed by another worker. A step raises `TaskHubUnavailableError` where the
    task hub did not answer.
    """

    steps: Callable[[str, Past], AsyncGenerator[int]]  # takes a part's name; yields what steps handled
    kept_for: Callable[[Retention], timedelta | None]
    shards: int = 1


@dataclass(frozen=True, slots=True)
class RowsOfOperations:
    """Rows in a partition for each operation. `remove` takes its id, and returns how many it removed."""

    table: str  # where its name is, as `package.module:name`
    columns: tuple[str, ...]  # what is read of a row beside its keys
    remove: Callable[[Past, str, list[Row]], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class ListByTime:
    """Entries of a list by time that are over, with the rows of their ids.

    The table has the list in the partition `name`, and the rows in the partition of the entry's id.
    """

    table: str  # where its name is, as `package.module:name`
    name: str
    is_over: Callable[[TaskHub, str], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class OldEntry:
    """The entry of a list of `CommitIndex`; its keys."""

    partition: str
    row_key: str
    id: str  # of the run, or of what was committed with it
    location: CommitLocation


@dataclass(frozen=True, slots=True)
class CommitEntries:
    """What a list of `CommitIndex` names. `remove` takes old entries, and returns how many it handled."""

    name: str
    remove: Callable[[Past, Sequence[OldEntry]], Awaitable[int]]
    run_of_id: Callable[[str], str] = str

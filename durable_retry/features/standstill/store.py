"""What stands still: two rows of `Upkeep`, which are made when something is late for the first time.

Table `Upkeep`: PK `stuck`   RK `stuck`    `instances` that a nudge did not move, as JSON
                             RK `checks`   `checks` of the task hub's queues, as JSON
"""

import json
from collections.abc import Callable
from typing import Any, Final

from pydantic import Field, TypeAdapter

from durable_retry.base.answers import Answer, Instant, read_or
from durable_retry.features.standstill.rules import QueueChecks
from durable_retry.storage import tables
from durable_retry.storage.rounds import TABLE
from durable_retry.storage.tables import Row

MOST: Final = 20
"""So many are stored: an incident needs no complete list."""


class StuckInstance(Answer):
    """An orchestration instance that stands still, and that a nudge did not move."""

    instance_id: str = Field(description="Of an operation it is the operation's id.")
    orchestration: str = Field(description="`operation`, `outbox`, `batch`, `saga`, ...")
    since: Instant = Field(description="When its next turn was due.")
    noted_at: Instant = Field(description="When it was seen to have no turn after a nudge.")


type Stuck = tuple[StuckInstance, ...]

_PARTITION: Final = "stuck"
_FORM: Final = TypeAdapter(Stuck)


def _stuck_of(row: Row) -> Stuck:
    return read_or(lambda: _FORM.validate_json(row["instances"]), lambda _: ())


def _checks_of(row: Row) -> QueueChecks:
    return read_or(lambda: QueueChecks.from_json_text(row["checks"]), lambda _: QueueChecks())


async def _read[T](name: str, of_row: Callable[[Row], T], nothing: T) -> T:
    row = await tables.read(TABLE, _PARTITION, name)
    return nothing if row is None else of_row(row)


async def _change(name: str, rule: Callable[[Any], Any], of_row: Any, write: Callable[[Any], Row]) -> Any:
    keys = {"PartitionKey": _PARTITION, "RowKey": name}
    return await tables.change_row(TABLE, keys, rule, read=of_row, write=write)


async def read_stuck() -> Stuck:
    """Return the instances that were noted; they may have moved since."""
    return await _read("stuck", _stuck_of, ())


async def change_stuck(rule: Callable[[Stuck], Stuck]) -> Stuck:
    """Change what is noted by a rule, and return it."""
    changed: Stuck = await _change(
        "stuck",
        lambda stored: rule(stored or ())[:MOST],
        _stuck_of,
        lambda stuck: {"instances": _FORM.dump_json(stuck).decode()},
    )
    return changed


async def read_checks() -> QueueChecks:
    """Return the latest checks of the task hub's queues."""
    return await _read("checks", _checks_of, QueueChecks())


async def change_checks(rule: Callable[[QueueChecks], QueueChecks]) -> QueueChecks:
    """Change the checks by a rule, and return them."""
    changed: QueueChecks = await _change(
        "checks",
        lambda stored: rule(stored or QueueChecks()),
        _checks_of,
        lambda checks: {"checks": json.dumps(checks.to_json())},
    )
    return changed

"""The table `HandlerSteps`, which has a row for each remembered step of an operation.

    partition   the operation's id
    row key     number of the run whose steps they are, and the step's name

A row is written in the version that was read (etag), so that of two executions of one step each sees the
other's write. Rows are deleted after the operation's record.
"""

import json
from collections.abc import Callable
from typing import Final

from durable_retry.base.json_forms import to_rfc3339
from durable_retry.features.handlers.rules.steps import HEARTBEAT, RememberedStep, forgotten
from durable_retry.runtime import clock
from durable_retry.storage import contents, tables

TABLE: Final = "HandlerSteps"

type StepRule = Callable[[RememberedStep | None], RememberedStep]
"""Returns the record to store, or the same one when nothing changes; raises `StepStoppedError`."""


async def change_step(operation_id: str, run: int, name: str, rule: StepRule) -> RememberedStep:
    """Change the record of a step by a rule, and return it as it is stored.

    The rule is called again when another execution wrote meanwhile.

    Raises:
        StepStoppedError: The rule raised it; nothing is changed then.
    """
    keys = {"PartitionKey": operation_id, "RowKey": f"{_prefix_of_run(run)}{name}"}
    return await tables.change_row(TABLE, keys, rule, read=step_in_row, write=_row_of_step)


async def rows_of_run(operation_id: str, run: int) -> list[tables.Row]:
    """Return the rows of the steps of a run, and of its heartbeats, by their names."""
    begin, end = _prefix_of_run(run), _prefix_of_run(run + 1)
    return (await tables.rows_between(TABLE, operation_id, after=begin, before=end)).rows


async def names_of_steps(operation_id: str, run: int) -> list[str]:
    """Return the names of the steps of a run, in the order in which they began."""
    records = contents.readable(TABLE, await rows_of_run(operation_id, run), step_in_row)
    ordered = sorted(records, key=lambda record: record.begun_at)
    return [record.name for record in ordered if record.name != HEARTBEAT]


async def forget_steps_from(operation_id: str, run: int, name: str) -> None:
    """Have a step, and those that began after it, made again by the next run. Idempotent."""
    names = await names_of_steps(operation_id, run)
    for later in names[names.index(name) :] if name in names else []:
        await change_step(operation_id, run, later, forgotten)


def _prefix_of_run(run: int) -> str:
    # As many digits as keep the rows in the order of the runs.
    return f"{run:020d}."


def _row_of_step(record: RememberedStep) -> tables.Row:
    return {
        "changed_at": to_rfc3339(clock.now()),
        "dead_letter_id": record.dead_letter_id,
        **contents.packed("record", json.dumps(record.to_json())),
    }


def step_in_row(row: tables.Row) -> RememberedStep:
    """Return the record in a row."""
    return RememberedStep.from_json_text(contents.unpacked("record", row))

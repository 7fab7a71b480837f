"""The remembered steps of handlers in Azure Tables: a row for each step of an operation.

    partition   the operation's id
    row key     number of the run whose steps they are, and the step's name

A row is written in the version that was read (etag), so that of two executions of one step the rules of
`engine.operations.steps` see each other's writes. Rows are deleted after the operation's record, see
`services.upkeep.removal`.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import Final

from durable_retry import clock
from durable_retry.engine.base.answers import read_or
from durable_retry.engine.base.json_forms import to_rfc3339
from durable_retry.engine.base.names import OperationState
from durable_retry.engine.operations.steps import (
    HEARTBEAT,
    HeartbeatNote,
    RememberedStep,
    StepNote,
    StepState,
    forgotten,
    shown,
    shown_heartbeat,
)
from durable_retry.stores.storage import contents, tables

TABLE: Final = "HandlerSteps"

type StepRule = Callable[[RememberedStep | None], RememberedStep]
"""Returns the record to store, or the same one when nothing changes; raises `StepStoppedError`."""


async def change_step(operation_id: str, run: int, name: str, rule: StepRule) -> RememberedStep:
    """Change the record of a step by a rule, and return it as it is stored.

    The rule is called again when another execution wrote meanwhile.

    Raises:
        StepStoppedError: The rule raised it; nothing is changed then.
        ContendedError: Other executions kept writing the step.
        azure.core.exceptions.AzureError: Storage failed; the change may have been made.
    """
    keys = {"PartitionKey": operation_id, "RowKey": f"{_prefix_of_run(run)}{name}"}
    return await tables.change_row(TABLE, keys, rule, read=_record_of_row, write=_row_of_step)


async def steps_shown(
    operation_id: str, run: int, state: OperationState
) -> tuple[list[StepNote], HeartbeatNote | None]:
    """Return what a status document shows of a run: its steps as they began, and its latest heartbeat.

    Args:
        run: Under whose number they are stored.
    """
    page = await tables.rows_between(
        TABLE, operation_id, after=_prefix_of_run(run), before=_prefix_of_run(run + 1)
    )
    beats = [row for row in page.rows if str(row["RowKey"]).endswith(f".{HEARTBEAT}")]
    steps = [
        read_or(partial(_shown_step, row, state), partial(_unreadable_step, row))
        for row in page.rows
        if row not in beats
    ]
    # One that cannot be read must not hide the operation.
    heartbeat = read_or(lambda: shown_heartbeat(_record_of_row(beats[0])), lambda _: None) if beats else None
    return [step for _, step in sorted(steps, key=itemgetter(0))], heartbeat


def _shown_step(row: tables.Row, state: OperationState) -> tuple[datetime, StepNote]:
    record = _record_of_row(row)
    return record.begun_at, shown(record, state)


def _unreadable_step(row: tables.Row, reason: str) -> tuple[datetime, StepNote]:
    """Return a step that cannot be read by its name, behind all others."""
    name = str(row["RowKey"]).partition(".")[2]
    note = StepNote(name=name, status=StepState.UNKNOWN, attempts=0, result=None, unreadable=reason)
    return datetime.max.replace(tzinfo=UTC), note


async def names_of_steps(operation_id: str, run: int) -> list[str]:
    """Return the names of the steps of a run, in the order in which they began."""
    page = await tables.rows_between(
        TABLE, operation_id, after=_prefix_of_run(run), before=_prefix_of_run(run + 1)
    )
    records = contents.readable(TABLE, page.rows, _record_of_row)
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


def _record_of_row(row: tables.Row) -> RememberedStep:
    return RememberedStep.from_json_text(contents.unpacked("record", row))

"""What a status document shows of a handler: its remembered steps, and its latest heartbeat."""

from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import Any

from durable_retry.base.answers import read_or
from durable_retry.base.names import OperationState
from durable_retry.features.handlers.records import rows_of_run, step_in_row
from durable_retry.features.handlers.rules.steps import HEARTBEAT, shown, shown_heartbeat
from durable_retry.rules.operations.status import STEPS_RUN, HeartbeatNote, StepNote, StepState
from durable_retry.settings.configuration import masking_of
from durable_retry.storage import tables


async def with_steps(document: dict[str, Any]) -> dict[str, Any]:
    """Return a status document with the steps and the heartbeat of its handler, which cost one query."""
    if "handler" not in document:
        return document
    run = document.pop(STEPS_RUN, None)
    state = OperationState(document["status"])
    has_steps = isinstance(run, int)
    steps, heartbeat = await steps_shown(document["operation_id"], run, state) if has_steps else ([], None)
    masking = masking_of(document["dependency"])
    masked = [step.model_copy(update={"result": masking.value(step.result)}) for step in steps]
    document |= {"steps": [step.to_json() for step in masked]}
    if heartbeat is not None:
        progress = masking.value(heartbeat.progress)
        document["heartbeat"] = heartbeat.model_copy(update={"progress": progress}).to_json()
    return document


async def steps_shown(
    operation_id: str, run: int, state: OperationState
) -> tuple[list[StepNote], HeartbeatNote | None]:
    """Return what a status document shows of a run: its steps as they began, and its latest heartbeat.

    Args:
        run: The number of the run under which they are stored.
    """
    rows = await rows_of_run(operation_id, run)
    beats = [row for row in rows if str(row["RowKey"]).endswith(f".{HEARTBEAT}")]
    steps = [
        read_or(partial(_shown_step, row, state), partial(_unreadable_step, row))
        for row in rows
        if row not in beats
    ]
    # A heartbeat that cannot be read must not hide the operation.
    heartbeat = read_or(lambda: shown_heartbeat(step_in_row(beats[0])), lambda _: None) if beats else None
    return [step for _, step in sorted(steps, key=itemgetter(0))], heartbeat


def _shown_step(row: tables.Row, state: OperationState) -> tuple[datetime, StepNote]:
    record = step_in_row(row)
    return record.begun_at, shown(record, state)


def _unreadable_step(row: tables.Row, reason: str) -> tuple[datetime, StepNote]:
    """Return a step that cannot be read with its name alone, to be sorted behind all others."""
    name = str(row["RowKey"]).partition(".")[2]
    note = StepNote(name=name, status=StepState.UNKNOWN, attempts=0, result=None, unreadable=reason)
    return datetime.max.replace(tzinfo=UTC), note

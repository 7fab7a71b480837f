"""The heartbeats of a handler: one record for an operation's run, beside those of its steps.

It is a `RememberedStep` under a name that no step can have: `result` is what was reported last, `begun_at`
when, `attempts` the number of the attempt. So it is kept, continued by a replay and removed as steps are.
"""

import json
from typing import Annotated, Any, Final

from pydantic import Field

from durable_retry.engine.base.answers import Answer, Instant
from durable_retry.engine.base.validation import InvalidInputError, Problem
from durable_retry.engine.operations.steps import Execution, OvertakenError, RememberedStep, StepState

HEARTBEAT: Final = "~heartbeat"

MAX_PROGRESS_BYTES: Final = 16_384
"""The most that reported progress may take as JSON."""


class HeartbeatNote(Answer):
    """The latest heartbeat of a handler."""

    at: Instant
    attempt: Annotated[int, Field(description="The attempt that reported it, or began with it.")]
    progress: Annotated[Any, Field(description="What it reported; the next attempt gets it.")]


def progress_text(document: Any) -> str:
    """Return reported progress as it is stored.

    Raises:
        InvalidInputError: It is too large.
    """
    text = json.dumps(document)
    size = len(text.encode())
    if size > MAX_PROGRESS_BYTES:
        detail = f"has {size} bytes; a heartbeat takes {MAX_PROGRESS_BYTES}"
        raise InvalidInputError([Problem("/progress", detail)])
    return text


def begin_heartbeats(record: RememberedStep | None, execution: Execution, attempt: int) -> RememberedStep:
    """Return the record with which an attempt begins: it has what an earlier one reported last.

    Raises:
        OvertakenError: A later run of the operation wrote the record.
    """
    return report_progress(record, execution, attempt, "null" if record is None else record.result or "null")


def report_progress(
    record: RememberedStep | None, execution: Execution, attempt: int, text: str
) -> RememberedStep:
    """Return the record with what an attempt reports; a later attempt's stays.

    Args:
        record: As it is stored; None when there is none.
        execution: Says when, and in which run.
        attempt: Number of the attempt.
        text: The progress as JSON.

    Raises:
        OvertakenError: A later run of the operation wrote the record.
    """
    if record is not None and record.run > execution.run:
        raise OvertakenError(record.run, execution.run)
    if record is not None and record.run == execution.run and record.attempts > attempt:
        return record
    return RememberedStep(
        name=HEARTBEAT,
        run=execution.run,
        execution=execution.token,
        state=StepState.RUNNING,
        attempts=attempt,
        begun_at=execution.now,
        result=text,
        dead_letter_id=execution.dead_letter_id,
    )


def shown_heartbeat(record: RememberedStep) -> HeartbeatNote:
    """Return the `heartbeat` of a status document."""
    progress = json.loads(record.result or "null")
    return HeartbeatNote(at=record.begun_at, attempt=record.attempts, progress=progress)

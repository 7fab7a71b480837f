"""The remembered steps of a handler, one record for each and what may follow, and its heartbeats.

    none ──begin──> running ──complete──> succeeded     never run again
                     ^    └────fail─────> failed ──begin──> running, one attempt more

The record of a running step stays as it is when the process dies. Whether the step took effect is not known:
the next execution runs it again under the same key where the dependency deduplicates, and must not otherwise
(`UnknownEffectError`).

A record belongs to an operation, the run that began it first and the step's name. A replay with the same
input continues the records of the run that it replays; so a record also has the number of the run that last
wrote it, and a lower run, which is over, cannot write it any more. A run that a person started after an
unknown effect may run the step again: the person decided that.

The heartbeats of a run are one more `RememberedStep`, under a name that no step can have: `result` is what
was reported last, `begun_at` when, `attempts` the number of the attempt. So heartbeats are stored, continued
by a replay and removed as steps are.
"""

import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from durable_retry.base.json_forms import JsonShape
from durable_retry.base.names import OperationState
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.rules.operations.keys import OvertakenError
from durable_retry.rules.operations.status import HeartbeatNote, StepNote, StepState

MAX_RESULT_BYTES: Final = 65_536
"""The most that one step's result may take as JSON."""


MAX_PROGRESS_BYTES: Final = 16_384
"""The most that reported progress may take as JSON."""


HEARTBEAT: Final = "~heartbeat"


class StepStoppedError(Exception):
    """A step must not run; the message says why, for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedStep(JsonShape):
    name: str  # unique in its handler
    run: int  # number of the run that wrote it last
    execution: str  # token of the execution that wrote it last
    state: StepState
    # Attempts so far, the present one included; one whose process died is made again under its number.
    attempts: int
    begun_at: datetime  # when it first began
    result: str | None = None  # the result of a success, as JSON text; None until then
    dead_letter_id: str

    @property
    def has_succeeded(self) -> bool:
        return self.state is StepState.SUCCEEDED


def forgotten(record: RememberedStep | None) -> RememberedStep:
    """Return the record of a step that a later run makes again as if it had never begun.

    Its run number is one higher, so that an execution of the old run cannot store a result any more. The run
    that makes the step again has a still higher number.
    """
    if record is None:
        raise LookupError
    if record.state is StepState.FAILED and not record.attempts:
        return record
    return replace(record, run=record.run + 1, state=StepState.FAILED, attempts=0, result=None)


class UnknownEffectError(StepStoppedError):
    """An earlier execution began the step; how that ended is not known, and the step must not be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    name: str
    run: int  # number of the operation's run
    token: str  # unique for this execution
    is_repeatable: bool  # whether the step may run again when it is not known whether it ran
    now: datetime
    dead_letter_id: str


def begin_step(record: RememberedStep | None, execution: Execution) -> RememberedStep:
    """Return the record with which a step begins, or the one that has its result.

    Raises:
        UnknownEffectError: It began before; how that ended is not known, and it must not be repeated.
        OvertakenError: A later run of the operation wrote the record.
    """
    if record is None:
        return RememberedStep(
            name=execution.name,
            run=execution.run,
            execution=execution.token,
            state=StepState.RUNNING,
            attempts=1,
            begun_at=execution.now,
            dead_letter_id=execution.dead_letter_id,
        )
    if record.has_succeeded or record.execution == execution.token:
        return record
    _check_not_overtaken(record, execution.run)
    has_failed = record.state is StepState.FAILED
    if not (has_failed or execution.is_repeatable or record.run < execution.run):
        raise UnknownEffectError(
            f"step {record.name} began in an execution whose end is not known, and must not run twice"
        )
    return replace(
        record,
        run=execution.run,
        execution=execution.token,
        state=StepState.RUNNING,
        attempts=record.attempts + has_failed,
        dead_letter_id=execution.dead_letter_id,
    )


def complete_step(record: RememberedStep | None, begun: RememberedStep, result: str) -> RememberedStep:
    """Return the record with a result; the first result stays, whatever a later execution returns.

    Raises:
        OvertakenError: A later run of the operation wrote the record.
    """
    if record is not None and record.has_succeeded:
        return record
    _check_not_overtaken(record, begun.run)
    return replace(begun, state=StepState.SUCCEEDED, result=result)


def fail_step(record: RememberedStep | None, begun: RememberedStep) -> RememberedStep:
    """Return the record of a step that failed in a known way, unless another execution wrote it since."""
    if record is not None and (record.has_succeeded or record.execution != begun.execution):
        return record
    return replace(begun, state=StepState.FAILED)


def hold_step(record: RememberedStep | None, begun: RememberedStep) -> RememberedStep:
    """Return the record of a step whose attempt does not count: it was not admitted, or not authorized."""
    if record is not None and (record.has_succeeded or record.execution != begun.execution):
        return record
    return replace(begun, state=StepState.FAILED, attempts=begun.attempts - 1)


def _check_not_overtaken(record: RememberedStep | None, run: int) -> None:
    if record is not None and record.run > run:
        raise OvertakenError(record.run, run)


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


_HELD: Final = frozenset({OperationState.WAITING_CIRCUIT, OperationState.WAITING_THROTTLE})


def shown(record: RememberedStep, state: OperationState) -> StepNote:
    """Return one item of a status document's `steps`."""
    status = record.state
    if status is StepState.RUNNING and state is not OperationState.RUNNING:
        status = StepState.UNKNOWN
    elif status is StepState.FAILED and (record.attempts == 0 or state in _HELD):
        status = StepState.WAITING
    result = None if record.result is None else json.loads(record.result)
    return StepNote(name=record.name, status=status, attempts=record.attempts, result=result)


def shown_heartbeat(record: RememberedStep) -> HeartbeatNote:
    """Return the `heartbeat` of a status document."""
    progress = json.loads(record.result or "null")
    return HeartbeatNote(at=record.begun_at, attempt=record.attempts, progress=progress)

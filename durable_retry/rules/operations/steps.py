"""The remembered steps of a handler, one record for each and what may follow, and its heartbeats.

    none ──begin──> running ──succeed──> succeeded     never run again
                     ^    └────fail────> failed ──begin──> running, one attempt more

A `running` record whose process died stays as it is: whether its step ran is not known.

A record belongs to an operation, the run that began it first and the step's name. A replay with the same
input continues the records of the run that it replays; so a record also has the number of the run that last
wrote it, and a lower one, which is over, writes no more. A run that a person started after an unknown
effect may run the step again: that was the decision.

The heartbeats of a run are one more `RememberedStep`, under a name that no step can have: `result` is what
was reported last, `begun_at` when, `attempts` the number of the attempt. So it is kept, continued by a replay
and removed as steps are.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from pydantic import Field

from durable_retry.base.answers import Answer, Instant, Unreadable
from durable_retry.base.json_forms import JsonShape, is_none


class StepState(StrEnum):
    """The state of a step.

    Two are shown and never stored. `unknown`: it began, and no execution of it runs now. `waiting`: it runs
    again when its operation does.
    """

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"
    WAITING = "waiting"


class StepStoppedError(Exception):
    """A step must not run; the message says why, for a person."""


class OvertakenError(StepStoppedError):
    """A later run of the operation has begun, so that this one is over."""

    def __init__(self, by: int, run: int) -> None:
        super().__init__(f"run {by} of this key has begun; run {run} is over")


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

    It has the number of a run behind its own, so that an execution that is still under way cannot give it a
    result any more. The run that makes it again has a higher one.
    """
    if record is None:
        raise LookupError
    if record.state is StepState.FAILED and not record.attempts:
        return record
    return replace(record, run=record.run + 1, state=StepState.FAILED, attempts=0, result=None)


class StepNote(Answer):
    """A remembered step of a handler."""

    name: str
    status: StepState
    attempts: int = Field(description="Of this step, the present one included.")
    result: Any = Field(description="What it returned; null until it has succeeded.")
    unreadable: Unreadable = Field(default=None, exclude_if=is_none)


HEARTBEAT: Final = "~heartbeat"


class HeartbeatNote(Answer):
    """The latest heartbeat of a handler."""

    at: Instant
    attempt: int = Field(description="The attempt that reported it, or began with it.")
    progress: Any = Field(description="What it reported; the next attempt gets it.")

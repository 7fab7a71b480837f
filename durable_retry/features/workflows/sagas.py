"""Sagas: accept one, look at one, list them, and run a compensated one again under its own id."""

import asyncio
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from durable_retry.attempt.results import whole_result
from durable_retry.base.answers import CAUSES, Page, reason_of
from durable_retry.base.errors import NoSuchDeadLetterError
from durable_retry.base.json_forms import UnreadableRecordError, from_rfc3339, to_rfc3339
from durable_retry.base.validation import (
    InvalidInputError,
    Problem,
    pointer_of,
    validated,
)
from durable_retry.dead_letters.actions import archive
from durable_retry.dead_letters.records import find_dead_letter
from durable_retry.features.workflows import saga_store as store
from durable_retry.features.workflows.batches import WorkflowRequest, fingerprint_of_request
from durable_retry.features.workflows.names import SAGA
from durable_retry.features.workflows.rules.document import SagaDocument
from durable_retry.features.workflows.rules.keys import workflow_id_for
from durable_retry.features.workflows.rules.references import (
    SAGA_SOURCE,
    SagaRequest,
    StepRequest,
    is_in_reference,
    references_of,
)
from durable_retry.features.workflows.rules.restart import (
    RESTARTABLE,
    RestartBody,
    RestartedSaga,
    answer_of,
    restarted,
    with_confirmed,
    without_effect,
)
from durable_retry.features.workflows.rules.shapes import Saga, SagaStep
from durable_retry.features.workflows.saga_store import (
    LatestRestart,
    RestartedElsewhereError,
    RestartStage,
    begin_restart,
    document_of_saga,
    end_restart,
    find_instance,
    latest_restart,
    read_restart,
    saga_of,
    write_restart,
)
from durable_retry.hub.instance_lists import list_created, note_created
from durable_retry.hub.task_hub import TaskHub
from durable_retry.intake.intake import http_admission
from durable_retry.operations.entities import read_record
from durable_retry.operations.status import find_status
from durable_retry.rules.dead_letters.record import Status, WrongStatusError, dead_letter_id_of
from durable_retry.rules.facts import SubmissionOutcome
from durable_retry.rules.operations.completion import Completion, values_at, written_operation
from durable_retry.rules.operations.keys import is_live
from durable_retry.rules.operations.operation import OperationInput, fingerprint_of
from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import map_bounded


class NoSuchSagaError(LookupError):
    """There is no saga of this id."""


class WrongSagaStateError(Exception):
    """The state of the saga does not allow it; the text is a clause that says so."""


async def _read_saga(workflow: WorkflowRequest, document: Any, now: datetime) -> SagaRequest:
    """Read a saga. If its form is wrong, the operations in it are checked all the same."""
    try:
        return validated(SagaRequest, document)
    except InvalidInputError as error:
        reader = _StepReader(workflow, now, [*error.problems])
    steps = document.get("steps") if isinstance(document, dict) else None
    for index, step in enumerate(steps if isinstance(steps, list) else ()):
        await asyncio.sleep(0)  # lets other tasks run
        operations = step if isinstance(step, dict) else {}
        for part in ("operation", "compensation"):
            if isinstance(operation := operations.get(part), dict):
                reader.read(operation, pointer_of("steps", index, part), f"{part}.{index}")
    raise InvalidInputError(reader.problems)


async def saga_steps(workflow: WorkflowRequest, request: SagaRequest, now: datetime) -> tuple[SagaStep, ...]:
    """Resolve every operation and every compensation, and what they refer to."""
    references, problems = references_of(request)
    reader = _StepReader(workflow, now, problems)
    steps = []
    for index, step in enumerate(request.steps):
        await asyncio.sleep(0)  # lets other tasks run
        steps.append((step.name, reader.operation(index, step), reader.compensation(index, step)))
    if reader.problems:
        raise InvalidInputError(reader.problems)
    return tuple(
        SagaStep(name=name, operation=operation, compensation=compensation, wanted=references.get(name))
        for name, operation, compensation in steps
        if operation is not None
    )


class _StepReader:
    """Resolves the operations of steps, collecting mistakes instead of stopping at the first."""

    def __init__(self, workflow: WorkflowRequest, now: datetime, problems: list[Problem]) -> None:
        self.problems = problems
        self._workflow = workflow
        self._now = now
        self._seen: set[str] = set()

    def operation(self, index: int, step: StepRequest) -> OperationInput | None:
        """Read the operation of a step; None when it has mistakes."""
        return self.read(step.operation, pointer_of("steps", index, "operation"), f"do.{step.name}")

    def compensation(self, index: int, step: StepRequest) -> OperationInput | None:
        """Read the compensation of a step; None when it has none, or one with mistakes."""
        if step.compensation is None:
            return None
        pointer = pointer_of("steps", index, "compensation")
        operation = self.read(step.compensation, pointer, f"undo.{step.name}")
        return None if operation is None else replace(operation, undoes=self._workflow.id)

    def read(self, document: dict[str, Any], pointer: str, place: str) -> OperationInput | None:
        """Read the operation at a pointer; None when it has mistakes."""
        try:
            operation = self._workflow.resolve(document, place, self._now, partial(is_in_reference, document))
        except InvalidInputError as error:
            self.problems.extend(problem.below(pointer) for problem in error.problems)
            return None
        if operation.operation_id in self._seen:
            self.problems.append(Problem(f"{pointer}/key", "is that of another operation of this saga"))
        self._seen.add(operation.operation_id)
        return operation


async def accept_saga(hub: TaskHub, workflow: WorkflowRequest, document: Any) -> SubmissionOutcome:
    """Start a saga unless its key was used before; arguments and errors as `accept_batch`."""
    now = clock.now()
    steps = await saga_steps(workflow, await _read_saga(workflow, document, now), now)
    saga = Saga(
        saga_id=workflow.id,
        steps=steps,
        created_at=now,
        fingerprint=fingerprint_of_request(SAGA_SOURCE, document),
        key=workflow.key,
    )
    async with http_admission().admitted(hub):
        await _note_saga(hub, saga)
        is_started = await hub.start_instance(SAGA, saga.saga_id, {"saga": saga.to_json()}, again=False)
    if not (is_started and hub.starts_are_atomic):
        instance = await hub.read_instance(saga.saga_id)
        if instance is not None and store.fingerprint_of_saga(instance) != saga.fingerprint:
            return SubmissionOutcome.KEY_REUSED
    return SubmissionOutcome.STARTED if is_started else SubmissionOutcome.REPLAYED


async def _note_saga(hub: TaskHub, saga: Saga) -> None:
    # Under the time of its first submission.
    instance = await hub.read_instance(saga.saga_id)
    created_at = to_rfc3339(saga.created_at) if instance is None else instance.input["saga"]["created_at"]
    await note_created(SAGA, saga.saga_id, created_at)


async def find_saga(hub: TaskHub, saga_id: str) -> SagaDocument | None:
    """Return a saga; None when there is none of this id."""
    return await store.find_saga(hub, saga_id)


async def sagas_of_key(hub: TaskHub, key: str) -> Page[SagaDocument]:
    """Return the saga of a caller's key, or nothing; errors as `find_saga`."""
    saga = await store.find_saga(hub, workflow_id_for(SAGA_SOURCE, key))
    return Page[SagaDocument](items=() if saga is None else (saga,))


async def list_sagas(hub: TaskHub, limit: int, cursor: str | None) -> Page[SagaDocument]:
    """Return sagas, the newest first."""
    listed, following = await list_created(hub, SAGA, document_of_saga, limit=limit, cursor=cursor)
    return Page[SagaDocument](items=tuple(listed), next_cursor=following)


_AT_ONCE: Final = 10


@dataclass(frozen=True, slots=True)
class _Part:
    """An operation of a saga as it is today."""

    end: Completion
    ended_at: datetime | None = None  # None where nothing is left of it but what the saga has kept
    dead_letter_id: str | None = None  # its latest dead letter; None when there is none


@dataclass(frozen=True, slots=True)
class _Parts:
    """A step as it is today."""

    step: SagaStep
    done: _Part | None
    undone: _Part | None


async def restart_saga(hub: TaskHub, saga_id: str, body: RestartBody, by: str | None) -> RestartedSaga:
    """Run a saga again, from the step that failed or from a chosen one.

    A dead letter of a step or a compensation may have been replayed since the saga ended, and that counts.
    The open dead letters of what runs again are archived: their replay would take effect a second time.

    Args:
        by: Who asks; None where that is not known.

    Raises:
        InvalidInputError: It has no step of this name, or a confirmed one is not in doubt.
        WrongSagaStateError: It runs, succeeded or was stopped; a part of it is under way or in doubt; a
            result that is needed is gone; somebody else restarts it.
        TaskHubUnavailableError: It is not known to be restarted; the saga shows whether it was.
    """
    # Read before the rest of the saga: a restart by another request changes it, which `_write` notices.
    before = await latest_restart(saga_id)
    saga = await _ended_saga(hub, saga_id)
    parts = await map_bounded(partial(_look_at_step, hub), saga.steps, _AT_ONCE)
    today = with_confirmed(saga.with_steps(tuple(map(_step_today, parts))), body.confirmed or {})
    _check_compensations(today)
    again = restarted(today, body, clock.now(), by)
    _check_results(again, parts)
    token = await _write(again, before)
    try:
        # Not before it is written: without a restart they are all that a person can replay.
        await _archive_dead_letters(hub, again, parts, by)
    except WrongSagaStateError:
        await end_restart(saga_id, token, saga.to_json())
        raise
    await _start(hub, again, token)
    return answer_of(again)


async def begin_run(saga_id: str, token: str) -> dict[str, Any]:
    """Return what a run that the restart of a token started is to run; see `activities.workflows`."""
    latest = await begin_restart(saga_id, token)
    has_ended = latest.stage is RestartStage.ENDED
    if latest.token == token and not has_ended:
        return {"restart": token, "saga": None}
    saga = await read_restart(saga_id, latest)
    return {"restart": None if has_ended else latest.token, "saga": saga}


async def end_run(saga_id: str, token: str, saga: dict[str, Any]) -> None:
    """Keep how the run of a restart ended, for one that is started late."""
    await end_restart(saga_id, token, saga)


async def _ended_saga(hub: TaskHub, saga_id: str) -> Saga:
    instance = await find_instance(hub, saga_id)
    if instance is None:
        raise NoSuchSagaError
    document = document_of_saga(instance)
    if document.unreadable is None and document.status not in RESTARTABLE:
        detail = "only one that failed and was compensated is restarted"
        raise WrongSagaStateError(f"the saga is {document.status}: {detail}")
    try:
        return saga_of(instance)
    except CAUSES as error:
        raise WrongSagaStateError(f"the saga cannot be read: {reason_of(error)}") from error


async def _look_at_step(hub: TaskHub, step: SagaStep) -> _Parts:
    done = await _look(hub, step.name, step.operation, step.done, step.wanted or ())
    undone = await _look(hub, step.name, step.compensation, step.undone)
    return _Parts(step, done, undone)


def _check_compensations(saga: Saga) -> None:
    doubtful = [step.name for step in saga.steps if step.undoing_is_unknown]
    if doubtful:
        what = f"the compensation of {', '.join(doubtful)} did not succeed and may have taken effect"
        how = "replay its dead letter until it succeeds, or say in `confirmed` what a look has shown"
        raise WrongSagaStateError(f"{what}: {how}, then restart")


async def _look(
    hub: TaskHub,
    name: str,
    operation: OperationInput | None,
    end: Completion | None,
    pointers: Iterable[str] = (),
) -> _Part | None:
    if operation is None or end is None:
        return None
    try:
        fingerprint = await _fingerprint_of(hub, operation.operation_id)
    except UnreadableRecordError as error:
        raise WrongSagaStateError(f"an operation of step {name} cannot be read: {error}") from error
    # An operation whose key was taken never ran: its id belongs to another request.
    document = (
        await find_status(hub, operation.operation_id)
        if fingerprint == fingerprint_of(operation.to_json())
        else None
    )
    if document is None:
        return _Part(end, dead_letter_id=await _letter_of_refused(operation, end))
    part = await _part_of(document, tuple(pointers))
    letter = (
        None if part is None or part.dead_letter_id is None else await find_dead_letter(part.dead_letter_id)
    )
    if part is None or (letter is not None and letter.status is Status.REPLAYED):
        raise WrongSagaStateError(f"{operation.operation_id} of step {name} is under way again")
    return part


async def _letter_of_refused(operation: OperationInput, end: Completion) -> str | None:
    """Return the dead letter of an operation that was refused before it began: no status names it."""
    if end.succeeded or end.attempt_count:
        return None
    letter = await find_dead_letter(dead_letter_id_of(operation.to_json()))
    return None if letter is None else letter.id


async def _part_of(document: Mapping[str, Any], pointers: tuple[str, ...]) -> _Part | None:
    """Return an operation that has ended; None while it is under way."""
    end = Completion.of(document)
    if end is None:
        return None
    if end.succeeded and pointers:
        result = await whole_result(document["result"])
        if isinstance(result, Mapping) and result.get("expired"):
            return _Part(end)
        end = replace(end, values=values_at(result, pointers) or None)
    letter_id = (document["dead_letter"] or {}).get("id")
    return _Part(end, from_rfc3339(document["updated_at"]), letter_id)


def _step_today(parts: _Parts) -> SagaStep:
    done = None if parts.done is None else parts.done.end
    undone = None if parts.undone is None else parts.undone.end
    return parts.step.ended(done, without_effect(undone) if undone and _stands_again(parts) else undone)


def _stands_again(parts: _Parts) -> bool:
    """Whether a replay of the failed step succeeded after its compensation: then its effect is there."""
    before, done, undone = parts.step.done, parts.done, parts.undone
    if before is None or before.succeeded or done is None or not done.end.succeeded or undone is None:
        return False
    return done.ended_at is not None and (undone.ended_at is None or done.ended_at > undone.ended_at)


def _check_results(saga: Saga, parts: Iterable[_Parts]) -> None:
    gone = [
        part.step.name
        for step, part in zip(saga.steps, parts, strict=True)
        if step.done is not None and step.wanted and part.done is not None and part.done.ended_at is None
    ]
    if gone:
        detail = "which other steps refer to, is not kept any more: restart from that step"
        raise WrongSagaStateError(f"the result of {', '.join(gone)}, {detail}")


async def _archive_dead_letters(hub: TaskHub, saga: Saga, parts: Iterable[_Parts], by: str | None) -> None:
    for step, before in zip(saga.steps, parts, strict=True):
        for part, operation in ((before.done, step.operation), (before.undone, step.compensation)):
            if part is None or operation is None or operation.operation_id == part.end.operation_id:
                continue
            if part.dead_letter_id is not None:
                await _archive_letter(hub, step.name, part.dead_letter_id, by)


async def _archive_letter(hub: TaskHub, name: str, dead_letter_id: str, by: str | None) -> None:
    with suppress(NoSuchDeadLetterError):
        try:
            await archive(hub, dead_letter_id, by)
        except WrongStatusError as error:
            letter = await find_dead_letter(dead_letter_id)
            if letter is not None and letter.status is not Status.ARCHIVED:
                detail = "is under way again: somebody has just replayed its dead letter"
                raise WrongSagaStateError(f"an operation of step {name} {detail}") from error


async def _write(saga: Saga, before: LatestRestart | None) -> str:
    """Write a restart down and return its token."""
    token = uuid.uuid4().hex
    try:
        await write_restart(saga, token, before)
    except RestartedElsewhereError:
        raise WrongSagaStateError(_BY_SOMEBODY_ELSE) from None
    return token


async def _start(hub: TaskHub, saga: Saga, token: str) -> None:
    """Start the run of a restart: it runs what is written, also where another start was late."""
    input_ = {"saga": saga.to_json(), "restart": token}
    is_started = await hub.start_instance(SAGA, saga.saga_id, input_, again=True)
    latest = await latest_restart(saga.saga_id)
    if latest is not None and latest.token != token:
        raise WrongSagaStateError(_BY_SOMEBODY_ELSE)
    if not is_started and latest == LatestRestart(token=token):
        raise WrongSagaStateError("a run of the saga ends at this moment: restart it again")


_BY_SOMEBODY_ELSE: Final = "somebody else restarted the saga at this moment"


async def _fingerprint_of(hub: TaskHub, operation_id: str) -> str | None:
    """Return the fingerprint that a key belongs to, from its operation's instance, else from its record.

    It is None where the key belongs to none, and where that is not known.
    """
    instance = await hub.read_instance(operation_id)
    if instance is not None:
        return fingerprint_of(written_operation(instance.input))
    record = await read_record(hub, operation_id)
    return record.fingerprint or None if record is not None and is_live(record, clock.now()) else None

"""What is done with one operation: start it once, look at it, steer it, and keep how it ends.

    naming = caller_naming(key=key)
    operation = read_operation(parse_envelope(document), naming, targets(), source="http", now=clock.now())
    result = await submit(hub, operation)

HTTP routes, `durable_retry.Operations`, sources and bulk actions call these functions and add only their own
form of the answer.
"""

import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

from durable_retry.attempt.commits import ConflictError, commit_success
from durable_retry.attempt.markers import take_commit
from durable_retry.base.errors import (
    InstanceEndedError,
    NoSuchOperationError,
    StorageRefusedError,
    TaskHubUnavailableError,
    WrongOperationStateError,
)
from durable_retry.base.json_forms import UnreadableRecordError, to_rfc3339
from durable_retry.base.masking import MASKED
from durable_retry.base.names import (
    CANCEL_EVENT,
    PAUSE_EVENT,
    RESUME_EVENT,
    RETRY_NOW_EVENT,
    TRY_EVENT,
    WAITING,
    OperationState,
)
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.circuit.cache import slot_needed_by
from durable_retry.dead_letters.actions import replays_of
from durable_retry.dead_letters.records import keep_operation, keep_unreadable
from durable_retry.hub.instances import Instance
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.entities import read_record
from durable_retry.operations.lone_records import may_answer_alone
from durable_retry.operations.status import (
    document_of,
    find_status,
    operation_of,
    whole_document_of,
    with_parts,
)
from durable_retry.plugins import features, features_of
from durable_retry.rules.config.dependency import UnknownTargetError
from durable_retry.rules.facts import ActedOn, StartUnanswered, SubmissionOutcome, Submitted
from durable_retry.rules.operations.completion import Committed, Success, written_operation
from durable_retry.rules.operations.keys import (
    ENVELOPE_SCOPE,
    EXPLICIT_SCOPE,
    FIELDS_SCOPE,
    OvertakenError,
    ScopedKey,
    is_live,
    operation_id_for,
    source_scope,
)
from durable_retry.rules.operations.operation import OperationInput, content_of, fingerprint_of
from durable_retry.rules.operations.status import OperationDocument, SteeredOperation, is_finished
from durable_retry.rules.operations.submission import Naming
from durable_retry.rules.operations.waits import Change, Pause, Resume
from durable_retry.rules.retry.constraints import run_id_for
from durable_retry.runtime import clock
from durable_retry.runtime.deferred import imported
from durable_retry.settings.configuration import find_dependency, masking_of, targets
from durable_retry.settings.intake import places
from durable_retry.telemetry import spans
from durable_retry.telemetry.facts import report
from durable_retry.telemetry.spans import OUTCOME


def caller_naming(key: str | None = None) -> Naming:
    """Return what names the submission of a caller: the key, or one that is generated here."""
    own = ScopedKey(EXPLICIT_SCOPE, f"gen-{uuid.uuid4()}")
    return Naming(own=own, is_new=True, key=key)


@dataclass(frozen=True, slots=True)
class Started:
    """The operation is new and durable now."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The same operation was submitted before; `finished` says whether its document is the last one."""

    document: dict[str, Any]
    finished: bool


KEY_REUSED: Final = "the key belongs to another request"


@dataclass(frozen=True, slots=True)
class KeyReused:
    """The key belongs to an operation with another fingerprint; nothing was started."""


type SubmitResult = Started | Replayed | KeyReused

type Start = Callable[[OperationInput], Awaitable[SubmitResult]]

_OUTCOMES: Final = {
    Started: SubmissionOutcome.STARTED,
    Replayed: SubmissionOutcome.REPLAYED,
    KeyReused: SubmissionOutcome.KEY_REUSED,
}


async def submit(hub: TaskHub, operation: OperationInput) -> SubmitResult:
    """Start an operation unless its key was used before.

    The instance is the record of the key: a start never replaces an instance, however it ended, and the
    answer comes from the instance. Once the history is gone, an idempotency record answers. The task hub
    refuses no start then, so a record that may exist is read before it: the caller would get 202 where the
    operation is finished (200 with its document) or is another one (422).

    Raises:
        TaskHubUnavailableError: It is not known to be started; submitting again is safe.
        OverloadedError: A feature refuses it.
        InvalidInputError: The record of its key cannot be read, and its history is gone.
    """
    with spans.submission(operation) as (span, traced):
        result = await _start_operation_once(hub, traced)
        outcome = _OUTCOMES[type(result)]
        span.set_attribute(OUTCOME, outcome.value)
        report(Submitted(operation, outcome))
    return result


async def _start_operation_once(hub: TaskHub, operation: OperationInput) -> SubmitResult:
    is_new_key = operation.key_is_generated is True
    if not is_new_key and (answer := await _answer_to_known_key(hub, operation)) is not None:
        return answer
    if operation.parts:
        await _ask_whether_it_starts(hub, operation)
    start: Start = partial(_start_run, hub, uuid.uuid4().hex)
    for step in _steps_of_start(operation):
        start = partial(step, hub, start)
    try:
        return await start(operation)
    except TaskHubUnavailableError:
        # It may run all the same, and a caller finds it by its own key. A generated key is not known to them.
        if not is_new_key:
            report(StartUnanswered(operation))
        raise


async def _ask_whether_it_starts(hub: TaskHub, operation: OperationInput) -> None:
    for feature in features_of(operation.parts):
        if feature.refuse:
            await imported(feature.refuse)(hub, operation)


def _steps_of_start(operation: OperationInput) -> list[Callable[..., Awaitable[SubmitResult]]]:
    """Return what features do at the start of an operation; nothing where it begins later."""
    if operation.parts is None or operation.start_at is not None:
        return []
    return [imported(feature.start) for feature in features_of(operation.parts) if feature.start]


async def _start_run(hub: TaskHub, start_id: str, operation: OperationInput) -> SubmitResult:
    dependency = find_dependency(operation.dependency) if operation.needs_slot else None
    needed_slot = None if dependency is None else slot_needed_by(hub, dependency, operation)
    is_started = await hub.start_operation(operation, start_id, needed_slot)
    if is_started and (operation.key_is_generated or hub.starts_are_atomic):
        return Started()
    # Where starts are not atomic, two first starts of a key may both succeed. The instance has the row that
    # was written first: only that operation runs, and the other start's message is dropped.
    instance = await hub.read_instance(operation.operation_id)
    if instance is None:
        raise TaskHubUnavailableError("the task hub has the operation and does not show it")
    # An instance that has continued as new has no `start_id` any more.
    is_ours = is_started and instance.input.get("start_id", start_id) == start_id
    return Started() if is_ours else _answer_of_instance(instance, operation)


def _answer_of_instance(instance: Instance, operation: OperationInput) -> SubmitResult:
    if fingerprint_of(written_operation(instance.input)) != fingerprint_of(operation.to_json()):
        return KeyReused()
    document = document_of(instance)
    return Replayed(document, is_finished(document))


async def _answer_to_known_key(hub: TaskHub, operation: OperationInput) -> SubmitResult | None:
    """Answer for a key that was used, where the start itself would not notice that; None otherwise."""
    if _steps_of_start(operation) and (instance := await hub.read_instance(operation.operation_id)):
        # The steps run before the start: one that has ended would get a second place in its order.
        return _answer_of_instance(instance, operation)
    if operation.keeps_record or may_answer_alone(operation.created_at):
        return await _answer_of_record(hub, operation)
    return None


async def _answer_of_record(hub: TaskHub, operation: OperationInput) -> SubmitResult | None:
    """Answer from the record of a key, or from the instance; None for a key without a record."""
    try:
        record = await read_record(hub, operation.operation_id)
    except UnreadableRecordError as error:
        # Whether the key was used, and for what, is not known.
        instance = await hub.read_instance(operation.operation_id)
        if instance is None:
            raise InvalidInputError([Problem("/key", f"its record cannot be read: {error}")]) from error
        return _answer_of_instance(instance, operation)
    if record is None or not is_live(record, operation.created_at):
        return None
    instance = await hub.read_instance(operation.operation_id)
    if instance is not None:
        return _answer_of_instance(instance, operation)
    if not record.stands_for(fingerprint_of(operation.to_json())):
        return KeyReused()
    return Replayed(dict(record.document), finished=True)


def named_ids(name: str) -> list[str]:
    """Return the ids that an operation of this key can have, and the name itself, which may be an id."""
    own = (f"source:{source}" for feature in features() for source in feature.own_sources)
    scopes = [EXPLICIT_SCOPE, ENVELOPE_SCOPE, FIELDS_SCOPE, *own]
    scopes += [source_scope(source, place) for source, place in places().items()]
    return [name, *(operation_id_for(scope, name) for scope in dict.fromkeys(scopes))]


# How long one call to the task hub waits; it holds a connection meanwhile.
_WAIT_SECONDS: Final = 30.0


async def find_operation(
    hub: TaskHub, operation_id: str, *, result_is_masked: bool = False
) -> OperationDocument:
    """Return an operation, with the replays of its dead letters.

    Args:
        result_is_masked: True for a reader; a caller that submits operations needs their results.
    """
    document = await _required_status(hub, operation_id)
    document["replays"] = await replays_of(document)
    if result_is_masked:
        document |= masking_of(document["dependency"]).shown({"result": document["result"]})
    return OperationDocument.read(document)


async def cancel(hub: TaskHub, operation_id: str, by: str | None) -> SteeredOperation:
    """Ask an operation to end, and return where it stood; an attempt under way ends first.

    Raises:
        WrongOperationStateError: It has ended.
    """
    document = await _required_status(hub, operation_id)
    if is_finished(document):
        raise _wrong_operation_state(document, "is finished and cannot be cancelled")
    return await _send_wish(hub, document, CANCEL_EVENT, {"by": by})


async def retry_now(hub: TaskHub, operation_id: str, by: str | None) -> SteeredOperation:
    """End the present wait of an operation; arguments, result and errors as `cancel`.

    An operation that waits for its turn requests it again, and goes on only if it gets it.
    """
    document = await _required_status(hub, operation_id)
    # An operation that polls a job at its dependency has no waiting status, but the time of the next poll.
    is_waiting = document["status"] in WAITING or document.get("next_attempt_at") is not None
    if not is_waiting or document["status"] == OperationState.PAUSED:
        raise _wrong_operation_state(document, "is not waiting")
    # The wish names its attempt: if this wait ends first, the wish must not end the next one.
    attempt = document["attempt_count"] + 1
    return await _send_wish(hub, document, RETRY_NOW_EVENT, {"attempt": attempt, "by": by})


async def try_once(hub: TaskHub, operation_id: str, by: str | None, reason: str) -> SteeredOperation:
    """Let an operation that its circuit holds up make one attempt, which the circuit does not count.

    A pause that the dependency asked for by `Retry-After` still holds it up. Errors as `cancel`.
    """
    document = await _required_status(hub, operation_id)
    if document["status"] != OperationState.WAITING_CIRCUIT:
        raise _wrong_operation_state(document, "does not wait for a circuit")
    attempt = document["attempt_count"] + 1
    return await _send_wish(hub, document, TRY_EVENT, {"attempt": attempt, "by": by, "reason": reason})


async def pause(hub: TaskHub, operation_id: str, by: str | None, request: Pause) -> SteeredOperation:
    """Ask an operation to do nothing for a while; an attempt under way ends first. Errors as `cancel`."""
    document = await _required_status(hub, operation_id)
    if is_finished(document):
        raise _wrong_operation_state(document, "is finished and cannot be paused")
    if document["status"] == OperationState.PAUSED:
        raise _wrong_operation_state(document, "is paused already")
    asked = {"by": by, "asked_at": to_rfc3339(clock.now()), **request.model_dump(exclude_none=True)}
    return await _send_wish(hub, document, PAUSE_EVENT, asked)


_UNCHANGED: Final = Resume()


async def resume(
    hub: TaskHub, operation_id: str, by: str | None, request: Resume = _UNCHANGED
) -> SteeredOperation:
    """Let a paused operation go on, changed or not; with `at_once` also one that is not paused.

    Raises:
        WrongOperationStateError: It is not paused, or has ended.
        InvalidInputError: Its dependency does not allow the policy; the pointers lead into the request.
    """
    document = await _required_status(hub, operation_id)
    is_paused = document["status"] == OperationState.PAUSED
    if not is_paused and (not request.at_once or is_finished(document)):
        raise _wrong_operation_state(document, "is not paused")
    wish = {"by": by, **request.model_dump(include={"reason"}, exclude_none=True)}
    if change := (await _change_of(hub, document, request)).to_json():
        wish["change"] = change
    if not is_paused:
        wish |= {"at_once": True, "asked_at": to_rfc3339(clock.now())}
        return await _send_wish(hub, document, PAUSE_EVENT, wish, act=RESUME_EVENT)
    # The wish names its pause: if this pause ends first, the wish must not end a later one.
    paused_at = next(
        action["at"] for action in reversed(document["actions"]) if action["action"] == PAUSE_EVENT
    )
    return await _send_wish(hub, document, RESUME_EVENT, {"paused_at": paused_at, **wish})


async def _change_of(hub: TaskHub, document: Mapping[str, Any], request: Resume) -> Change:
    instance = None if request.retry is None else await hub.read_instance(document["operation_id"])
    if instance is None:
        return Change(deadline_seconds=request.deadline_seconds, priority=request.priority)
    configured, handler = targets(), document.get("handler")
    try:
        dependency = configured.dependency(document["dependency"])
        limits = dependency if handler is None else configured.handler(handler).limits_at(dependency)
    except UnknownTargetError as error:
        raise InvalidInputError(Problem("/retry", problem.detail) for problem in error.problems) from None
    return request.change(limits.retry, operation_of(instance).policy)


async def end_within(hub: TaskHub, operation_id: str, seconds: float) -> OperationDocument | None:
    """Return the last status document of an operation that is known to be there; None when it goes on.

    Args:
        seconds: How long to wait for its end, on one connection to the task hub.
    """
    ended = await hub.wait_for_end(operation_id, seconds)
    return None if ended is None else OperationDocument.read(await with_parts(whole_document_of(ended)))


async def ended_document(
    hub: TaskHub, operation: OperationInput, document: dict[str, Any]
) -> OperationDocument:
    """Return the last document of an operation with its content, such as its request.

    The present submission has the same content, unless the fingerprint leaves parts out: then that of the
    first submission is read, while its history is kept.
    """
    dependency = find_dependency(operation.dependency)
    if dependency is not None and dependency.idempotency.fingerprint:
        instance = await hub.read_instance(operation.operation_id)
        written = {} if instance is None else written_operation(instance.input)
    else:
        written = operation.to_json()
    content = content_of(written, masking_of(operation.dependency)) if written else {}
    return OperationDocument.read(await with_parts(document | content))


async def wait_for_end(hub: TaskHub, operation_id: str, timeout_seconds: float) -> dict[str, Any]:
    """Return the last status document of an operation once it has ended.

    Raises:
        TimeoutError: It has not ended in this time, and keeps running.
    """
    until = clock.now() + timedelta(seconds=timeout_seconds)
    while not is_finished(document := await _required_status(hub, operation_id)):
        left_seconds = (until - clock.now()).total_seconds()
        if left_seconds <= 0:
            raise TimeoutError(f"{operation_id} has not ended")
        await hub.wait_for_end(operation_id, min(left_seconds, _WAIT_SECONDS))
    return document


async def _required_status(hub: TaskHub, operation_id: str) -> dict[str, Any]:
    document = await find_status(hub, operation_id)
    if document is None:
        raise NoSuchOperationError
    return document


async def _send_wish(
    hub: TaskHub, document: dict[str, Any], wish: str, data: dict[str, Any], act: str | None = None
) -> SteeredOperation:
    try:
        await hub.raise_event(document["operation_id"], wish, data)
    except InstanceEndedError:
        raise WrongOperationStateError("the operation has ended meanwhile") from None
    report(ActedOn(document, act or wish, data["by"], data.get("change", {}).get("priority")))
    return SteeredOperation(
        operation_id=document["operation_id"],
        dependency=document["dependency"],
        status=OperationState(document["status"]),
    )


def _wrong_operation_state(document: dict[str, Any], what: str) -> WrongOperationStateError:
    return WrongOperationStateError(f"the operation {what}: its status is {document['status']}")


async def commit(success: Success) -> Committed:
    """Commit a success, unless a later run of the key has overtaken its own. Idempotent.

    A later run may overtake it after the check: the fence in the transaction then refuses its rows, which
    would replace those of the later run's handler.
    """
    run_id = run_id_for(success.operation_id, success.life.run)
    try:
        run = await take_commit(success.operation_id, success.life, clock.now())
        run_id = run_id_for(success.operation_id, run)
        await commit_success(run_id, success, clock.now())
    except ConflictError as error:
        return Committed(run_id=run_id, conflict=error.conflict)
    except (StorageRefusedError, OvertakenError, ValueError, TypeError) as error:
        return Committed(run_id=run_id, rejected=MASKED.text(str(error))[:500])
    return Committed(run_id=run_id)


async def keep_failure(entry: Mapping[str, Any]) -> str:
    """Store the dead letter of an operation, and return its id. Idempotent.

    Args:
        entry: `operation`, `category`, `reason`, `detail`, `attempts`; of an operation whose input cannot be
            read `operation_id`, `unreadable` (the input) and `detail`.
    """
    if "unreadable" in entry:
        raw_input, detail = entry["unreadable"], entry["detail"]
        return await keep_unreadable(entry["operation_id"], raw_input, detail, clock.now())
    return await keep_operation(entry, clock.now())

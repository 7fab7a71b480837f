"""The one way in of every operation: parse what was sent, name it by its key, validate it, start it once.

    submission = parse(parse_envelope(document), Naming(key=...))
    operation = resolve(submission, source="http", now=clock.now())
    result = await submit(hub, operation)

HTTP, message sources, batches, sagas, alerts and replays all use these three.
"""

import uuid
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from durable_retry import clock
from durable_retry.engine.base.json_forms import UnreadableRecordError
from durable_retry.engine.base.text import Secret
from durable_retry.engine.base.trace_context import TraceContext
from durable_retry.engine.base.validation import (
    InvalidInputError,
    Problem,
    did_you_mean,
    pointer_of,
    problems_of,
)
from durable_retry.engine.config.dependency import Dependency
from durable_retry.engine.facts import StartUnanswered, SubmissionOutcome, Submitted
from durable_retry.engine.operations.completion import written_operation
from durable_retry.engine.operations.envelope import ParsedEnvelope
from durable_retry.engine.operations.idempotency import RecordState, state_of
from durable_retry.engine.operations.naming import ScopedKey, event_name, explicit_scope, fields_name
from durable_retry.engine.operations.operation import OperationInput, operation_from
from durable_retry.engine.operations.request import Event, OperationRequest, parse_operation
from durable_retry.engine.operations.status import is_finished
from durable_retry.errors import TaskHubUnavailableError
from durable_retry.facts import report
from durable_retry.handler_registry import Handler, find_handler, registered_handlers
from durable_retry.settings.configuration import dependencies, find_dependency, platform_queue_prefixes
from durable_retry.stores.operations.key_record import read_record
from durable_retry.stores.operations.status import document_of
from durable_retry.stores.task_hub import TaskHub
from durable_retry.telemetry import spans
from durable_retry.telemetry.spans import OUTCOME


class UnknownTargetError(InvalidInputError):
    """The operation names a dependency or handler that this app does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """What may name a submission, beside the key in its body.

    Attributes:
        tenant: The tenant of the caller; "" when there is one tenant.
        key: The caller's, of the header Idempotency-Key; None without one.
        fields: JSON pointers into the body; the key is made of the values there. Empty where ids are trusted.
        own: The name that the source gives it, such as a message id; None where there is none.
    """

    tenant: str = ""
    key: str | None = None
    fields: tuple[str, ...] = ()
    own: ScopedKey | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """A parsed submission.

    Attributes:
        request: Validated in its form.
        name: What the operation's id is derived from.
        envelope: The body as it was sent, and the event that it came in; None when it was made here.
        trace: The trace context of the event, else of the caller; None when it is not traced.
        is_new_key: Whether the key was generated just now, so that nothing can have used it.
    """

    request: OperationRequest
    name: ScopedKey
    envelope: ParsedEnvelope | None = None
    trace: TraceContext | None = None
    is_new_key: bool = False


def parse(envelope: ParsedEnvelope, naming: Naming, trace: TraceContext | None = None) -> Submission:
    """Parse an operation's body and name it.

    The name is the first of: the key of body or header, the fields that the settings choose, the event's
    source and id, the source's own name, a generated key.

    Args:
        envelope: The body, and the event that it came in.
        naming: What may name it: the caller's tenant and key, or what the source gives.
        trace: The trace context of the caller.

    Raises:
        InvalidInputError: With every mistake; pointers lead into what was sent.
    """
    try:
        request = parse_operation(envelope.payload)
    except InvalidInputError as error:
        problems = [*error.problems, *_unknown_names(envelope.payload)]
        raise InvalidInputError(
            Problem(envelope.place + each.pointer, each.detail) for each in problems
        ) from None
    name = _name_of_submission(request, envelope, naming)
    trace = envelope.trace or trace
    if name is None:
        generated = ScopedKey(explicit_scope(naming.tenant), f"gen-{uuid.uuid4()}")
        return Submission(request, generated, envelope, trace, is_new_key=True)
    return Submission(request, name, envelope, trace)


def _name_of_submission(
    request: OperationRequest, envelope: ParsedEnvelope, naming: Naming
) -> ScopedKey | None:
    if None not in (request.key, naming.key) and request.key != naming.key:
        raise InvalidInputError([Problem("/key", "differs from the header Idempotency-Key")])
    key = request.key if naming.key is None else naming.key
    if key is not None:
        return ScopedKey(explicit_scope(naming.tenant), key)
    if naming.fields:
        return fields_name(envelope.payload, naming.fields)
    if envelope.event is not None:
        return event_name(envelope.event, naming.tenant)
    return naming.own


def resolve(
    submission: Submission, *, source: str, now: datetime, unknown: Collection[str] = ()
) -> OperationInput:
    """Return the operation that a submission starts.

    Args:
        submission: Parsed.
        source: `http`, `queue`, ...
        now: Aware UTC instant; the deadline counts from it.
        unknown: JSON pointers of values that are known later: the handler checks them when it runs.

    Raises:
        UnknownTargetError: Its dependency or handler is not configured.
        InvalidInputError: With everything else that is wrong with it.
    """
    request = submission.request
    dependency, found = _target_of(request)
    problems = [each for each in found if not any(f"{each.pointer}/".startswith(f"{at}/") for at in unknown)]
    try:
        operation = operation_from(
            request,
            dependency,
            key=submission.name.key,
            scope=submission.name.scope,
            source=source,
            now=now,
            trace=submission.trace,
        )
    except InvalidInputError as error:
        raise InvalidInputError([*error.problems, *problems]) from None
    if problems:
        raise InvalidInputError(problems)
    return operation


def check_target(request: OperationRequest) -> None:
    """Check a request against today's configuration; for an operation that keeps its policy.

    Raises:
        UnknownTargetError: Its dependency or handler is not configured.
        InvalidInputError: Its headers, input or events are not valid there.
    """
    _, problems = _target_of(request)
    if problems:
        raise InvalidInputError(problems)


def _target_of(request: OperationRequest) -> tuple[Dependency, list[Problem]]:
    """Return the dependency that a request calls, and what is wrong with the request there."""
    handler = _handler_of(request)
    dependency = _dependency_of(request, handler)
    return dependency, [
        *_header_problems(request, dependency),
        *_handler_problems(request, handler),
        *event_problems(request.on_success, "on_success"),
    ]


def _unknown_names(document: Any) -> Iterator[Problem]:
    """Check the names of a body whose form is wrong, as far as they can be read."""
    fields = document if isinstance(document, dict) else {}
    dependency, handler = fields.get("dependency"), fields.get("handler")
    if isinstance(dependency, str) and find_dependency(dependency) is None:
        yield _no_dependency(dependency)
    if isinstance(handler, str) and find_handler(handler) is None:
        yield _no_handler(handler)


def _no_dependency(name: str) -> Problem:
    guess = did_you_mean(name, list(dependencies().dependencies))
    return Problem("/dependency", f"no dependency has the name {name}{guess}")


def _no_handler(name: str) -> Problem:
    guess = did_you_mean(name, [handler.name for handler in registered_handlers()])
    return Problem("/handler", f"no handler has the name {name}{guess}")


def _handler_of(request: OperationRequest) -> Handler | None:
    if request.handler is None:
        return None
    handler = find_handler(request.handler)
    if handler is None:
        raise UnknownTargetError([_no_handler(request.handler)])
    return handler


def _dependency_of(request: OperationRequest, handler: Handler | None) -> Dependency:
    name = (request.dependency or "") if handler is None else handler.dependency
    dependency = find_dependency(name)
    if dependency is None:
        raise UnknownTargetError([_no_dependency(name)])
    return dependency


def _header_problems(request: OperationRequest, dependency: Dependency) -> Iterator[Problem]:
    """Refuse headers that would stand in for the dependency's credentials, or for the key."""
    reserved = {name.lower() for name, value in dependency.headers.items() if isinstance(value, Secret)}
    if dependency.auth is not None:
        reserved.add(dependency.auth.header.lower())
    if dependency.idempotency.header:
        reserved.add(dependency.idempotency.header.lower())
    for name in () if request.request is None else request.request.headers:
        if name.lower() in reserved:
            yield Problem(pointer_of("request", "headers", name), "is set by the app for this dependency")


def _handler_problems(request: OperationRequest, handler: Handler | None) -> Iterator[Problem]:
    if handler is None:
        return
    try:
        handler.input_model.model_validate(request.input)
    except ValidationError as error:
        for problem in problems_of(error, handler.input_model):
            yield Problem(f"/input{problem.pointer}", problem.detail)


def event_problems(events: Iterable[Event], place: str) -> Iterator[Problem]:
    """List the events whose target is unknown here, or not for others to send to.

    Args:
        events: Each valid in itself.
    """
    for index, event in enumerate(events):
        if event.dependency is not None and find_dependency(event.dependency) is None:
            pointer = pointer_of(place, index, "dependency")
            yield Problem(pointer, f"no dependency has the name {event.dependency}")
        # A message of a caller's there would be taken for one of the platform's own.
        if event.queue is not None and event.queue.startswith(platform_queue_prefixes()):
            pointer = pointer_of(place, index, "queue")
            yield Problem(pointer, "belongs to the task hub or the host: nobody else may send to it")


@dataclass(frozen=True, slots=True)
class Started:
    """The operation is new and durable now."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The same operation was submitted before; nothing was started.

    Attributes:
        document: Its status document.
        finished: Whether that is the last one.
    """

    document: dict[str, Any]
    finished: bool


@dataclass(frozen=True, slots=True)
class KeyReused:
    """The key belongs to an operation with another fingerprint; nothing was started."""


type SubmitResult = Started | Replayed | KeyReused

_OUTCOMES: Final = {
    Started: SubmissionOutcome.STARTED,
    Replayed: SubmissionOutcome.REPLAYED,
    KeyReused: SubmissionOutcome.KEY_REUSED,
}


async def submit(hub: TaskHub, operation: OperationInput, *, is_new_key: bool = False) -> SubmitResult:
    """Start an operation unless its key was used before.

    The order closes every gap but one: between the look at the record and the start, a finished instance can
    vanish (a purge), and then the orchestration's own claim finds the record and does nothing.

    To start first, and to read the record only when the start is refused, would take one round trip for a new
    key. But a record may outlive the history of its operation: after a purge nothing refuses the start, and
    the caller would get 202 for what is finished (200 with its document) or is another operation (422).

    Args:
        operation: The resolved operation.
        is_new_key: Whether the key was generated just now, so that no record can exist.

    Raises:
        TaskHubUnavailableError: It is not known to be started; submitting again is safe.
        InvalidInputError: Nobody can read the record of its key.
    """
    with spans.submission(operation) as (span, traced):
        result = await _start_once(hub, traced, is_new_key=is_new_key)
        outcome = _OUTCOMES[type(result)]
        span.set_attribute(OUTCOME, outcome.value)
        report(Submitted(operation, outcome))
    return result


async def _start_once(hub: TaskHub, operation: OperationInput, *, is_new_key: bool) -> SubmitResult:
    if not is_new_key and (known := await _from_record(hub, operation)) is not None:
        return known
    start_id = uuid.uuid4().hex
    try:
        return await _start(hub, operation, start_id, is_new_key=is_new_key)
    except TaskHubUnavailableError:
        # The caller asks again, and is told then that it runs. A generated key is another then.
        if not is_new_key:
            report(StartUnanswered(operation))
        raise


async def _start(hub: TaskHub, operation: OperationInput, start_id: str, *, is_new_key: bool) -> SubmitResult:
    """Start an operation, and see whether it is the one that runs."""
    is_started = await hub.start_operation(operation, start_id)
    if is_started and (is_new_key or hub.starts_are_atomic):
        return Started()
    # Elsewhere another first start of the key may have been answered with success, too. The instance's row is
    # the one that was written first: only that operation runs, and the other start's message is dropped.
    instance = await hub.read_instance(operation.operation_id)
    if instance is None:
        raise TaskHubUnavailableError("the task hub has the operation and does not show it")
    if written_operation(instance.input).get("fingerprint") != operation.fingerprint:
        return KeyReused()
    # An instance that has continued as new does not carry the id of its start any more.
    if is_started and instance.input.get("start_id", start_id) == start_id:
        return Started()
    document = document_of(instance)
    return Replayed(document, is_finished(document))


async def _from_record(hub: TaskHub, operation: OperationInput) -> SubmitResult | None:
    """Answer from the record of the key; None when it holds no end yet (or the key is new)."""
    try:
        record = await read_record(hub, operation.operation_id)
    except UnreadableRecordError as error:
        # Whether the key was used, and for what, is not known.
        raise InvalidInputError([Problem("/key", f"its record cannot be read: {error}")]) from error
    if record is None or state_of(record, clock.now()) is RecordState.ABSENT:
        return None
    if record.fingerprint != operation.fingerprint:
        return KeyReused()
    return None if record.document is None else Replayed(dict(record.document), finished=True)

"""From what a caller asked to what will run: names looked up, policies merged, limits held."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from engine.dependency import Dependency
from engine.models import OperationRequest, parse_operation
from engine.operation import OperationInput
from engine.problem import InvalidInputError, Problem, pointer_of
from engine.secret import Secret
from engine.submission import operation_from
from engine.trace_context import TraceContext
from engine.validation import did_you_mean, problems_of
from stores.configuration import dependencies, find_dependency
from stores.handler_registry import Handler, find_handler, registered_handlers
from stores.settings import platform_queue_prefixes


class UnknownTargetError(InvalidInputError):
    """The operation names a dependency or handler that this app does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a submission came from, and what names it.

    Attributes:
        source: `http`, `queue`, ...
        scope: Keys of different scopes never meet.
        key: The caller's, the source's own, or one generated just now.
        trace: Where in a trace the caller stands; None when nobody traces it.
    """

    source: str
    scope: str
    key: str
    trace: TraceContext | None = None


def parse(document: Any) -> OperationRequest:
    """Read an operation's body; beside what is wrong with its form, say which of its names are not known.

    Raises:
        InvalidInputError: With all of it.
    """
    try:
        return parse_operation(document)
    except InvalidInputError as error:
        raise InvalidInputError([*error.problems, *_unknown_names(document)]) from None


def resolve(request: OperationRequest, origin: Origin, now: datetime) -> OperationInput:
    """Return the operation that a request stands for.

    Raises:
        UnknownTargetError: Its dependency or handler is not known.
        InvalidInputError: With everything else that is wrong with it.
    """
    handler = _handler_of(request)
    dependency = _dependency_of(request, handler)
    problems = [
        *_header_problems(request, dependency),
        *_handler_problems(request, handler),
        *_event_problems(request),
    ]
    try:
        operation = operation_from(
            request,
            dependency,
            key=origin.key,
            scope=origin.scope,
            source=origin.source,
            now=now,
            trace=origin.trace,
        )
    except InvalidInputError as error:
        raise InvalidInputError([*error.problems, *problems]) from None
    if problems:
        raise InvalidInputError(problems)
    return operation


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


def _event_problems(request: OperationRequest) -> Iterator[Problem]:
    for index, event in enumerate(request.on_success):
        if event.dependency is not None and find_dependency(event.dependency) is None:
            pointer = pointer_of("on_success", index, "dependency")
            yield Problem(pointer, f"no dependency has the name {event.dependency}")
        # A message of a caller's there would be taken for one of the platform's own.
        if event.queue is not None and event.queue.startswith(platform_queue_prefixes()):
            pointer = pointer_of("on_success", index, "queue")
            yield Problem(pointer, "belongs to the task hub or the host: nobody else may send to it")

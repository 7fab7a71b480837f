"""A submission: its body is parsed, named by a key, and resolved by the dependency's settings.

    operation = read_operation(envelope, naming, targets(), source="http", now=now)

HTTP, message sources, batches, sagas, calls and alerts all do this. Between `parse` and `resolve` a
submission for the queue is named anew. A replay keeps its key and policy, and uses `check_target`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from durable_retry.base.trace_context import TraceContext
from durable_retry.base.validation import InvalidInputError, Problem, header_id, pointer_of, pointer_parts
from durable_retry.rules.config.dependency import Dependency, HandlerTarget, Targets, UnknownTargetError
from durable_retry.rules.operations.envelope import ParsedEnvelope
from durable_retry.rules.operations.keys import EXPLICIT_SCOPE, ScopedKey, envelope_key, fields_name
from durable_retry.rules.operations.operation import OperationInput, excess_problems, operation_from
from durable_retry.rules.operations.request import OperationRequest, parse_operation

DIFFERENT_KEYS: Final = Problem("/key", "differs from the header Idempotency-Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """Names and order keys of a submission that are not in its body."""

    own: ScopedKey  # the name that its source gives it, such as a message id, or one that was generated
    is_new: bool = False  # whether `own` was generated just now, so that nothing can have used it
    key: str | None = None  # the caller's, of the header Idempotency-Key; None without one
    # JSON pointers into the body; the key is made of the values there. Empty where ids are trusted.
    fields: tuple[str, ...] = ()
    order_key: str | None = None  # its source's, for a body without one; None where the source has none

    def with_order_key(self, payload: Any) -> Any:
        """Return a body with the order key of its source, unless it has one."""
        if self.order_key is None or not isinstance(payload, dict) or payload.get("order_key") is not None:
            return payload
        return payload | {"order_key": self.order_key}

    def gave_new_key(self, name: ScopedKey) -> bool:
        """Whether a name is the one that was generated here, so that nothing can have used it."""
        return self.is_new and name == self.own


@dataclass(frozen=True, slots=True)
class Submission:
    request: OperationRequest  # validated in its form
    name: ScopedKey  # what the operation's id is derived from
    # The body as it was sent, and the event that it came in; None when it was made here.
    envelope: ParsedEnvelope | None = None
    # The trace context of the event, else of the caller; None when it is not traced.
    trace: TraceContext | None = None
    has_new_key: bool = False  # whether its key was generated just now


def read_operation(
    envelope: ParsedEnvelope,
    naming: Naming,
    targets: Targets,
    *,
    source: str,
    now: datetime,
    trace: TraceContext | None = None,
    comes_later: Callable[[str], bool] | None = None,
) -> OperationInput:
    """Return the operation that a body starts; see `parse` and `resolve`.

    Raises:
        UnknownTargetError: Its dependency or handler is not configured.
        InvalidInputError: With everything else that is wrong with it; pointers lead into what was sent.
    """
    submission = parse(envelope, naming, targets, now=now, trace=trace, comes_later=comes_later)
    return resolve(submission, targets, source=source, now=now, comes_later=comes_later)


def parse(
    envelope: ParsedEnvelope,
    naming: Naming,
    targets: Targets,
    *,
    now: datetime,
    trace: TraceContext | None = None,
    comes_later: Callable[[str], bool] | None = None,
) -> Submission:
    """Parse an operation's body and name it.

    The name is the first of: the key of body or header, the fields that the settings choose, the event's
    source and id, the source's own name.

    Raises:
        InvalidInputError: With every mistake; pointers lead into what was sent.
    """
    payload = naming.with_order_key(envelope.payload)
    try:
        request = parse_operation(payload)
    except InvalidInputError as error:
        unmet = partial(_unmet, targets=targets, now=now, comes_later=comes_later)
        problems = (*error.problems, *_hidden_problems(payload, error, unmet))
        raise InvalidInputError(problem.below(envelope.place) for problem in problems) from None
    if None not in (request.key, naming.key) and request.key != naming.key:
        raise InvalidInputError([DIFFERENT_KEYS, *_unmet(request, targets, now, comes_later)])
    name = _name_of_submission(request, envelope, naming)
    return Submission(request, name, envelope, envelope.trace or trace, naming.gave_new_key(name))


def _name_of_submission(request: OperationRequest, envelope: ParsedEnvelope, naming: Naming) -> ScopedKey:
    key = request.key if naming.key is None else naming.key
    if key is not None:
        return ScopedKey(EXPLICIT_SCOPE, key)
    if naming.fields:
        return fields_name(envelope.payload, naming.fields)
    if envelope.name is not None:
        return envelope_key(envelope.name)
    return naming.own


_NOT_NAMED: Final = "_"
"""Stands for a dependency that a body does not name."""


def _hidden_problems(
    document: Any, error: InvalidInputError, unmet: Callable[[OperationRequest], Iterable[Problem]]
) -> list[Problem]:
    """Check the rest of a body whose form is wrong against what is configured: no mistake hides another."""
    if (request := _sound_part(document, error.problems)) is None:
        return []
    told = {problem.pointer for problem in error.problems}
    if request.dependency == _NOT_NAMED:
        told.add("/dependency")
    return [problem for problem in unmet(request) if problem.pointer not in told]


def _sound_part(document: Any, problems: Iterable[Problem]) -> OperationRequest | None:
    """Read a body whose form is wrong without the members that are; None where nothing is left to read."""
    sound: Any = document
    for problem in problems:
        sound = _without(sound, pointer_parts(problem.pointer)) or sound
    if not isinstance(sound, dict):
        return None
    if "handler" not in sound:
        sound = {"dependency": _NOT_NAMED, "request": {}} | sound
    if sound == document:
        return None
    try:
        return parse_operation(sound)
    except InvalidInputError as error:
        return _sound_part(sound, error.problems)


def _without(document: Any, place: Sequence[str]) -> dict[str, Any] | None:
    """Return an object without what is at a place; an item goes with its list. None where none is."""
    if not isinstance(document, dict) or not place or place[0] not in document:
        return None
    name, *rest = place
    smaller = _without(document[name], rest)
    others = {key: value for key, value in document.items() if key != name}
    return others if smaller is None else {**others, name: smaller}


def resolve(
    submission: Submission,
    targets: Targets,
    *,
    source: str,
    now: datetime,
    comes_later: Callable[[str], bool] | None = None,
) -> OperationInput:
    """Return the operation that a submission starts.

    Args:
        comes_later: Whether the value at a JSON pointer is known later: the handler checks it when it runs.

    Raises:
        UnknownTargetError: Its dependency or handler is not configured.
        InvalidInputError: With everything else that is wrong with it.
    """
    request = submission.request
    dependency = _fit_target(request, targets, now, comes_later)
    return operation_from(
        request,
        dependency,
        submission.name,
        source=source,
        now=now,
        trace=submission.trace,
        key_is_generated=submission.has_new_key,
        history_for=targets.history_for,
    )


def check_target(request: OperationRequest, targets: Targets) -> Dependency:
    """Check a request against today's configuration, and return the dependency that it calls.

    For an operation that keeps its policy.

    Raises:
        UnknownTargetError: Its dependency or handler is not configured.
        InvalidInputError: Its headers, its input or what features add are not valid there.
    """
    dependency, problems = _checked_target(request, targets)
    if problems:
        raise InvalidInputError(problems)
    return dependency


def _fit_target(
    request: OperationRequest, targets: Targets, now: datetime, comes_later: Callable[[str], bool] | None
) -> Dependency:
    """Check a new request against today's configuration; arguments and errors as `resolve`."""
    dependency, unmet = _checked_target(request, targets)
    problems = [problem for problem in unmet if comes_later is None or not comes_later(problem.pointer)]
    if request.retry is not None or request.start_at is not None:
        problems = [*excess_problems(request, dependency, now), *problems]
    if problems:
        raise InvalidInputError(problems)
    return dependency


def _unmet(
    request: OperationRequest, targets: Targets, now: datetime, comes_later: Callable[[str], bool] | None
) -> tuple[Problem, ...]:
    try:
        _fit_target(request, targets, now, comes_later)
    except InvalidInputError as error:
        return error.problems
    return ()


def _checked_target(request: OperationRequest, targets: Targets) -> tuple[Dependency, list[Problem]]:
    """Return the dependency that a request calls, and what is wrong with the request there.

    Raises:
        UnknownTargetError: There is none of this name; with what is wrong beside that.
    """
    try:
        handler = None if request.handler is None else targets.handler(request.handler)
        dependency = targets.dependency((request.dependency or "") if handler is None else handler.dependency)
    except UnknownTargetError as error:
        raise UnknownTargetError([*error.problems, *request.unmet_members(targets)]) from None
    return dependency if handler is None else handler.limits_at(dependency), [
        *_address_problems(request, dependency),
        *_header_problems(request, dependency),
        *_input_problems(request, handler),
        *request.misfits(dependency, targets),
    ]


def _address_problems(request: OperationRequest, dependency: Dependency) -> Iterator[Problem]:
    if request.request is not None and not dependency.base_url:
        yield Problem("/dependency", f"{dependency.name} has no base_url: it takes handlers, and no requests")


def _header_problems(request: OperationRequest, dependency: Dependency) -> Iterator[Problem]:
    reserved = dependency.reserved_headers
    for name in () if request.request is None else request.request.headers:
        if header_id(name) in reserved:
            yield Problem(pointer_of("request", "headers", name), "is set by the app for this dependency")


def _input_problems(request: OperationRequest, handler: HandlerTarget | None) -> Iterator[Problem]:
    if handler is None:
        return
    try:
        handler.check_input(request.input)
    except InvalidInputError as error:
        yield from error.problems

"""A submission: read from its headers, its envelope and its body, named by its key, and resolved.

    headers = SubmissionHeaders.read(request.headers, "")     # over HTTP, once
    envelope = headers.envelope_of(document)                  # a bare body, CloudEvents or Event Grid
    operation = read_operation(envelope, naming, targets, source="http", now=now)

Every way in does this: HTTP, message sources, batches, sagas, calls, alerts. Between `parse` and `resolve` a
submission for the queue is named anew. A replay keeps its key and policy, and uses `check_target`.

An operation's body has none of the members that an envelope requires, so these members distinguish the two.
Over HTTP a CloudEvent is structured (the envelope is the body) or binary (the envelope is in `ce-` headers).

    CloudEvents   {"specversion": "1.0", "id", "source", "type", "data" | "data_base64", ...}
    Event Grid    {"id", "topic", "subject", "eventType", "eventTime", "data", "dataVersion"}

Sources: CloudEvents 1.0.2, sections "Required attributes" and "JSON event format", and its "HTTP Protocol
Binding"; "Event Grid event schema", Microsoft Learn.
"""

import base64
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Self
from urllib.parse import unquote

from durable_retry.engine.base.foreign import read_json
from durable_retry.engine.base.text import Secret
from durable_retry.engine.base.trace_context import TRACEPARENT, TRACESTATE, TraceContext, trace_in
from durable_retry.engine.base.validation import InvalidInputError, Problem, pointer_of
from durable_retry.engine.config.dependency import Dependency, HandlerTarget, Targets, UnknownTargetError
from durable_retry.engine.operations.keys import (
    EnvelopeName,
    ScopedKey,
    envelope_key,
    explicit_scope,
    fields_name,
)
from durable_retry.engine.operations.operation import OperationInput, operation_from
from durable_retry.engine.operations.request import OperationRequest, event_problems, parse_operation

SPEC_VERSION: Final = "1.0"

_CORRELATION: Final = "correlationid"
"""The extension attribute of the correlation id in the events that we send (`engine/outbox.py`)."""


@dataclass(frozen=True, slots=True)
class ParsedEnvelope:
    payload: Any  # the operation's body, not validated yet
    name: EnvelopeName | None = None  # None when there was no envelope
    place: str = ""  # JSON pointer of the payload in the document
    trace: TraceContext | None = None  # where in a trace the event was made; None when it does not say


def parse_envelope(document: Any) -> ParsedEnvelope:
    """Return an operation's body without its envelope, if it has one.

    Raises:
        InvalidInputError: It is an envelope without the required members, or its data is not JSON.
    """
    if not isinstance(document, Mapping):
        return ParsedEnvelope(document)
    if "specversion" in document:
        return _cloud_event(document)
    if {"eventType", "subject", "data"} <= document.keys():
        return _event_grid_event(document)
    return ParsedEnvelope(document)


def _cloud_event(document: Mapping[str, Any]) -> ParsedEnvelope:
    problems = [*_problems_of_missing(document, ("id", "source", "type"))]
    if document["specversion"] != SPEC_VERSION:
        problems.append(Problem("/specversion", f'must be "{SPEC_VERSION}"'))
    if "data" in document and "data_base64" in document:
        problems.append(Problem("/data_base64", "cannot stand beside data"))
    if problems:
        raise InvalidInputError(problems)
    name = EnvelopeName(document["source"], document["id"])
    # The extension "Distributed Tracing" of CloudEvents: the two headers of W3C Trace Context as attributes.
    trace = trace_in(document)
    if "data_base64" in document:
        return ParsedEnvelope(_from_base64(document["data_base64"]), name, "/data_base64", trace)
    payload = _from_text(document.get("data"))
    return ParsedEnvelope(_with_correlation_id(payload, document.get(_CORRELATION)), name, "/data", trace)


def _event_grid_event(document: Mapping[str, Any]) -> ParsedEnvelope:
    if problems := _problems_of_missing(document, ("id", "topic")):
        raise InvalidInputError(problems)
    name = EnvelopeName(document["topic"], document["id"])
    return ParsedEnvelope(_from_text(document["data"]), name, "/data")


def _problems_of_missing(document: Mapping[str, Any], names: tuple[str, ...]) -> list[Problem]:
    return [
        Problem(f"/{name}", "must be a text that is not empty")
        for name in names
        if not isinstance(document.get(name), str) or not document[name]
    ]


def _from_text(data: Any) -> Any:
    """Read data that a sender wrote as JSON inside a JSON string: a string is never an operation."""
    return _json_at("/data", data) if isinstance(data, str) else data


def _from_base64(data: Any) -> Any:
    try:
        # Anything but a string fails like bad base64.
        inside = base64.b64decode(data if isinstance(data, str) else "?", validate=True)
    except ValueError:
        raise InvalidInputError([Problem("/data_base64", "is not base64")]) from None
    return _json_at("/data_base64", inside)


def _json_at(place: str, text: str | bytes) -> Any:
    try:
        return read_json(text)
    except InvalidInputError as error:
        problems = [Problem(place + problem.pointer, problem.detail) for problem in error.problems]
        raise InvalidInputError(problems) from None


def _with_correlation_id(payload: Any, correlation_id: Any) -> Any:
    """Use the event's correlation id for the operation, unless the operation has its own."""
    if not isinstance(payload, dict) or not isinstance(correlation_id, str):
        return payload
    return {"correlation_id": correlation_id, **payload}


_ATTRIBUTES: Final = ("specversion", "id", "source", "type", _CORRELATION, TRACEPARENT, TRACESTATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionHeaders:
    """What the headers of a request say of the operation, batch or saga in its body."""

    tenant: str  # the caller's; "" when there is one tenant
    key: str | None  # the caller's, of Idempotency-Key; None without one
    trace: TraceContext | None  # where in a trace the caller is; None when the request is not traced
    event: Mapping[str, str]  # the attributes of a CloudEvent in its binary form; empty without one

    @classmethod
    def read(cls, headers: Mapping[str, str], tenant_header: str) -> Self:
        """Read a request's headers, by names in any case.

        Args:
            tenant_header: The one that names the caller's tenant; "" when there is one tenant.

        Raises:
            InvalidInputError: Idempotency-Key cannot be read.
        """
        key, traceparent = headers.get("Idempotency-Key"), headers.get(TRACEPARENT)
        return cls(
            tenant=headers.get(tenant_header, "") if tenant_header else "",
            key=None if key is None else parse_key(key),
            trace=None if traceparent is None else TraceContext.read(traceparent, headers.get(TRACESTATE)),
            event={} if headers.get("ce-specversion") is None else _event_in(headers),
        )

    def envelope_of(self, document: Any) -> ParsedEnvelope:
        """Return what the request carries: its body without an envelope; raises as `parse_envelope`."""
        if not self.event:
            return parse_envelope(document)
        # In the binary form the body itself is the data.
        return replace(parse_envelope({**self.event, "data": document}), place="")


def _event_in(headers: Mapping[str, str]) -> dict[str, str]:
    written = {name: headers.get(f"ce-{name}") for name in _ATTRIBUTES}
    return {name: unquote(text, errors="replace") for name, text in written.items() if text is not None}


_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")

_SF_STRING: Final = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')


def parse_key(header: str) -> str:
    """Read an `Idempotency-Key` header: an RFC 8941 string (`"abc"`, escapes undone) or bare (`abc`).

    Raises:
        InvalidInputError: if it is neither, or not 1 to 255 visible ASCII characters.
    """
    text = header.strip(" \t")
    quoted = _SF_STRING.fullmatch(text)
    if text.startswith('"') and quoted is None:
        raise InvalidInputError(
            [Problem("", "Idempotency-Key is not a quoted string (RFC 8941 section 3.3.3)")]
        )
    key = text if quoted is None else re.sub(r"\\(.)", r"\1", quoted[1])
    if not _KEY.fullmatch(key):
        raise InvalidInputError([Problem("", "Idempotency-Key must be 1 to 255 visible ASCII characters")])
    return key


DIFFERENT_KEYS: Final = Problem("/key", "differs from the header Idempotency-Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """What may name a submission, and its order, beside what is in its body."""

    own: ScopedKey  # the name that its source gives it, such as a message id, or one that was generated
    is_new: bool = False  # whether `own` was generated just now, so that nothing can have used it
    tenant: str = ""  # the tenant of the caller; "" when there is one tenant
    key: str | None = None  # the caller's, of the header Idempotency-Key; None without one
    # JSON pointers into the body; the key is made of the values there. Empty where ids are trusted.
    fields: tuple[str, ...] = ()
    order_key: str | None = None  # its source's, which a body without one gets; None where that gives none

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
    unknown: Collection[str] = (),
) -> OperationInput:
    """Return the operation that a body starts; see `parse` and `resolve`.

    Raises:
        UnknownTargetError: Its dependency or handler is not configured.
        InvalidInputError: With everything else that is wrong with it; pointers lead into what was sent.
    """
    submission = parse(envelope, naming, targets, trace)
    return resolve(submission, targets, source=source, now=now, unknown=unknown)


def parse(
    envelope: ParsedEnvelope, naming: Naming, targets: Targets, trace: TraceContext | None = None
) -> Submission:
    """Parse an operation's body and name it.

    The name is the first of: the key of body or header, the fields that the settings choose, the event's
    source and id, the source's own name.

    Raises:
        InvalidInputError: With every mistake; pointers lead into what was sent.
    """
    try:
        request = parse_operation(naming.with_order_key(envelope.payload))
    except InvalidInputError as error:
        problems = [*error.problems, *_unknown_names(envelope.payload, targets)]
        raise InvalidInputError(
            Problem(envelope.place + problem.pointer, problem.detail) for problem in problems
        ) from None
    if None not in (request.key, naming.key) and request.key != naming.key:
        raise InvalidInputError([DIFFERENT_KEYS, *_unmet(request, targets)])
    name = _name_of_submission(request, envelope, naming)
    return Submission(request, name, envelope, envelope.trace or trace, naming.gave_new_key(name))


def _name_of_submission(request: OperationRequest, envelope: ParsedEnvelope, naming: Naming) -> ScopedKey:
    key = request.key if naming.key is None else naming.key
    if key is not None:
        return ScopedKey(explicit_scope(naming.tenant), key)
    if naming.fields:
        return fields_name(envelope.payload, naming.fields)
    if envelope.name is not None:
        return envelope_key(envelope.name, naming.tenant)
    return naming.own


def _unknown_names(document: Any, targets: Targets) -> Iterator[Problem]:
    """Check the names of a body whose form is wrong, as far as they can be read."""
    fields = document if isinstance(document, dict) else {}
    dependency, handler = fields.get("dependency"), fields.get("handler")
    if isinstance(dependency, str) and dependency not in targets.dependencies:
        yield targets.missing_dependency(dependency)
    if isinstance(handler, str) and handler not in targets.handlers:
        yield targets.missing_handler(handler)


def resolve(
    submission: Submission, targets: Targets, *, source: str, now: datetime, unknown: Collection[str] = ()
) -> OperationInput:
    """Return the operation that a submission starts.

    Values at the `unknown` JSON pointers are known later: the handler checks them when it runs.

    Raises:
        UnknownTargetError: Its dependency or handler is not configured.
        InvalidInputError: With everything else that is wrong with it.
    """
    dependency, unmet = _checked_target(submission.request, targets)
    problems = [
        problem for problem in unmet if not any(f"{problem.pointer}/".startswith(f"{at}/") for at in unknown)
    ]
    try:
        operation = operation_from(
            submission.request,
            dependency,
            submission.name,
            source=source,
            now=now,
            trace=submission.trace,
            key_is_generated=submission.has_new_key,
        )
    except InvalidInputError as error:
        raise InvalidInputError([*error.problems, *problems]) from None
    if problems:
        raise InvalidInputError(problems)
    return operation


def check_target(request: OperationRequest, targets: Targets) -> None:
    """Check a request against today's configuration; for an operation that keeps its policy.

    Raises:
        UnknownTargetError: Its dependency or handler is not configured.
        InvalidInputError: Its headers, input or events are not valid there.
    """
    _, problems = _checked_target(request, targets)
    if problems:
        raise InvalidInputError(problems)


def _unmet(request: OperationRequest, targets: Targets) -> tuple[Problem, ...]:
    try:
        check_target(request, targets)
    except InvalidInputError as error:
        return error.problems
    return ()


def _checked_target(request: OperationRequest, targets: Targets) -> tuple[Dependency, list[Problem]]:
    """Return the dependency that a request calls, and what is wrong with the request there.

    Raises:
        UnknownTargetError: There is none of this name; with what is wrong beside that.
    """
    events = tuple(event_problems(request.on_success, "on_success", targets))
    try:
        handler = None if request.handler is None else targets.handler(request.handler)
        dependency = targets.dependency((request.dependency or "") if handler is None else handler.dependency)
    except UnknownTargetError as error:
        raise UnknownTargetError([*error.problems, *events]) from None
    return dependency if handler is None else handler.limits_at(dependency), [
        *_address_problems(request, dependency),
        *_header_problems(request, dependency),
        *_input_problems(request, handler),
        *events,
    ]


def _address_problems(request: OperationRequest, dependency: Dependency) -> Iterator[Problem]:
    if request.request is not None and not dependency.base_url:
        yield Problem("/dependency", f"{dependency.name} has no base_url: it takes handlers, and no requests")


def _header_problems(request: OperationRequest, dependency: Dependency) -> Iterator[Problem]:
    # They would stand in for the dependency's credentials, or for the key.
    reserved = {name.lower() for name, value in dependency.headers.items() if isinstance(value, Secret)}
    if dependency.auth is not None:
        reserved.add(dependency.auth.header.lower())
    if dependency.idempotency.header:
        reserved.add(dependency.idempotency.header.lower())
    for name in () if request.request is None else request.request.headers:
        if name.lower() in reserved:
            yield Problem(pointer_of("request", "headers", name), "is set by the app for this dependency")


def _input_problems(request: OperationRequest, handler: HandlerTarget | None) -> Iterator[Problem]:
    if handler is None:
        return
    try:
        handler.check_input(request.input)
    except InvalidInputError as error:
        yield from error.problems

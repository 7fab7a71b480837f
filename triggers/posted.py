"""Reading what is posted as an operation: its body, alone or as an event, and what names it.

A CloudEvent comes in either of its HTTP forms: structured (the envelope is the body) or binary (the envelope
is in `ce-` headers, the body is the operation).
Source: "HTTP Protocol Binding for CloudEvents", version 1.0.2.
"""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import azure.functions as func

from engine.envelope import Opened, opened
from engine.idempotency import parse_key
from engine.models import OperationRequest
from engine.naming import Name, event_name, explicit_scope
from engine.problem import InvalidInputError, Problem
from engine.trace_context import TRACEPARENT, TRACESTATE, TraceContext
from triggers.bodies import header, read_body, tenant_of, trace_of
from triggers.resolution import parse

_ATTRIBUTES: Final = ("specversion", "id", "source", "type", "correlationid", TRACEPARENT, TRACESTATE)


@dataclass(frozen=True, slots=True)
class Posted:
    """What was posted.

    Attributes:
        request: Validated in its form.
        name: None when nothing names it.
        inside: The operation's body as it was posted, and the event that it came in.
        trace: Where in a trace the event was made, else where the caller stands; None when nobody traces it.
    """

    request: OperationRequest
    name: Name | None
    inside: Opened
    trace: TraceContext | None = None


def read_posted(request: func.HttpRequest) -> Posted:
    """Read a posted operation.

    Raises:
        triggers.bodies.BodyTooLargeError: The body is over the limit.
        InvalidInputError: With every mistake; pointers are into what was posted.
    """
    document = read_body(request)
    envelope = _with_header_envelope(request, document)
    inside = opened(envelope)
    try:
        wanted = parse(inside.payload)
    except InvalidInputError as error:
        place = inside.place if envelope is document else ""
        problems = (Problem(place + each.pointer, each.detail) for each in error.problems)
        raise InvalidInputError(problems) from None
    return Posted(wanted, _name(request, wanted, inside), inside, inside.trace or trace_of(request))


def _with_header_envelope(request: func.HttpRequest, document: Any) -> Any:
    """Put a CloudEvent of the binary form into its envelope; anything else stays as it is."""
    found = {name: header(request, f"ce-{name}") for name in _ATTRIBUTES}
    if found["specversion"] is None:
        return document
    attributes = {
        name: unquote(value, errors="replace") for name, value in found.items() if value is not None
    }
    return {**attributes, "data": document}


def _name(request: func.HttpRequest, wanted: OperationRequest, inside: Opened) -> Name | None:
    """Return the first name that there is: the key of body or header, the event's."""
    tenant = tenant_of(request)
    if (key := chosen_key(request, wanted)) is not None:
        return Name(explicit_scope(tenant), key)
    return None if inside.event is None else event_name(inside.event, tenant)


def chosen_key(request: func.HttpRequest, body: OperationRequest) -> str | None:
    """Return the caller's key from body or header; None when neither has one.

    Raises:
        InvalidInputError: The header cannot be read, or the two differ.
    """
    text = header(request, "Idempotency-Key")
    in_header = None if text is None else parse_key(text)
    if in_header is not None and body.key is not None and in_header != body.key:
        raise InvalidInputError([Problem("/key", "differs from the header Idempotency-Key")])
    return body.key if in_header is None else in_header

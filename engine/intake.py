"""From what a source delivered to a valid request with a name, whatever the bytes are.

Every source gives an `Arrival`; `read_arrival` either returns what it asks for or says why it never can.
"""

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from engine.envelope import Opened, opened
from engine.json_text import json_problems, read_json
from engine.models import OperationRequest, parse_operation
from engine.naming import Name, event_name, explicit_scope, fields_name, source_name
from engine.problem import InvalidInputError, Problem
from engine.trace_context import TraceContext

DATA_PREFIX: Final = "data:application/octet-stream;base64,"


class MalformedBodyError(InvalidInputError):
    """The body is not JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One message or event, as its source delivered it.

    Attributes:
        source: `queue`, `service_bus`, `event_grid`, `event_hubs`, `cosmos_db`, `kafka`, `timer`.
        body: Its bytes.
        place: Within which its id is unique, such as the queue's name.
        native_id: The source's own id; "" when there is none, and then the body's hash stands for it.
        partition: What the source keeps in order; "" when it promises no order.
        may_be_left: Whether leaving it to the source for later costs nothing that runs out.
        trace: Where in a trace its sender stood, as the source tells; None when it does not.
    """

    source: str
    body: bytes
    place: str = ""
    native_id: str = ""
    partition: str = ""
    may_be_left: bool = False
    trace: TraceContext | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an arrival asks for, its name, and where in a trace it was asked; None when nobody traces it."""

    request: OperationRequest
    name: Name
    trace: TraceContext | None = None


def read_arrival(arrival: Arrival, *, max_bytes: int, key_pointers: Iterable[str] = ()) -> Wanted:
    """Read an arrival.

    The key is the first of: the body's `key`, the fields that the settings name, the event's source and id,
    the source's own id.

    Args:
        arrival: As delivered.
        max_bytes: A larger body is refused.
        key_pointers: JSON pointers into the operation's body; empty where the sources' ids can be trusted.

    Raises:
        MalformedBodyError: It is not JSON.
        InvalidInputError: It is no operation; with every mistake.
    """
    if len(arrival.body) > max_bytes:
        raise InvalidInputError([Problem("", f"is larger than {max_bytes} bytes")])
    try:
        document = read_json(arrival.body)
    except InvalidInputError as error:
        raise MalformedBodyError(error.problems) from None
    if problems := json_problems(document):  # before anybody walks it by recursion
        raise InvalidInputError(problems)
    inside = opened(document)
    request = _request_in(inside)
    name = _name_of(request, inside, arrival, tuple(key_pointers))
    return Wanted(request, name, inside.trace or arrival.trace)


def kept_text(body: bytes) -> str:
    """Return a body as the text that a dead letter keeps: as it is, or in base64 when it is not UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return DATA_PREFIX + base64.b64encode(body).decode()


def id_of_body(body: bytes) -> str:
    """Name a body that came without any id: equal bytes are one message."""
    return f"body-{sha256(body).hexdigest()[:40]}"


def _request_in(inside: Opened) -> OperationRequest:
    try:
        return parse_operation(inside.payload)
    except InvalidInputError as error:
        problems = (Problem(inside.place + each.pointer, each.detail) for each in error.problems)
        raise InvalidInputError(problems) from None


def _name_of(request: OperationRequest, inside: Opened, arrival: Arrival, pointers: tuple[str, ...]) -> Name:
    if request.key is not None:
        return Name(explicit_scope(""), request.key)
    if pointers:
        return fields_name(inside.payload, pointers)
    if inside.event is not None:
        return event_name(inside.event)
    return source_name(arrival.source, arrival.place, arrival.native_id or id_of_body(arrival.body))

"""Envelopes of submissions: plain JSON, CloudEvents, and Event Grid's schema."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from durable_retry.engine.base.json_input import read_json
from durable_retry.engine.base.trace_context import TraceContext
from durable_retry.engine.base.validation import InvalidInputError, Problem


@dataclass(frozen=True, slots=True)
class EnvelopeName:
    """The globally unique name of an envelope."""

    source: str  # the sender, a URI reference; the topic of an Event Grid event
    id: str  # unique for its source


SPEC_VERSION: Final = "1.0"

_CORRELATION: Final = "correlationid"
"""The extension attribute of the correlation id in the events that we send (`engine/outbox.py`)."""


@dataclass(frozen=True, slots=True)
class ParsedEnvelope:
    """The content of an envelope."""

    payload: Any  # the operation's body, not validated yet
    name: EnvelopeName | None = None  # None when there was no envelope
    place: str = ""  # JSON pointer of the payload in the document
    # The position in a trace that the envelope carries; None when it carries none.
    trace: TraceContext | None = None


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
    trace = TraceContext.from_json(document)
    if "data_base64" in document:
        return ParsedEnvelope(_from_base64(document["data_base64"]), name, "/data_base64", trace)
    payload = _from_text(document.get("data"))
    return ParsedEnvelope(_with_correlation_id(payload, document.get(_CORRELATION)), name, "/data", trace)


def _event_grid_event(document: Mapping[str, Any]) -> ParsedEnvelope:
    if problems := _problems_of_missing(document, ("id", "topic")):
        raise InvalidInputError(problems)
    return ParsedEnvelope(
        _from_text(document["data"]), EnvelopeName(document["topic"], document["id"]), "/data"
    )


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
        raise InvalidInputError(
            [Problem(place + each.pointer, each.detail) for each in error.problems]
        ) from None


def _with_correlation_id(payload: Any, correlation_id: Any) -> Any:
    """Use the event's correlation id for the operation, unless the operation has its own."""
    if not isinstance(payload, dict) or not isinstance(correlation_id, str):
        return payload
    return {"correlation_id": correlation_id, **payload}

"""What comes with the body of a submission: the headers of its request, and an envelope around it.

    headers = SubmissionHeaders.read(request.headers)         # over HTTP, once
    envelope = headers.envelope_of(document)                  # a bare body, CloudEvents or Event Grid

An operation's body has none of the members that an envelope requires, so these members distinguish the two.
Over HTTP a CloudEvent is structured (the envelope is the body) or binary (the envelope is in `ce-` headers).

    CloudEvents   {"specversion": "1.0", "id", "source", "type", "data" | "data_base64", ...}
    Event Grid    {"id", "topic", "subject", "eventType", "eventTime", "data", "dataVersion"}

Sources: CloudEvents 1.0.2, sections "Required attributes" and "JSON event format", and its "HTTP Protocol
Binding"; "Event Grid event schema", Microsoft Learn.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self
from urllib.parse import unquote

from durable_retry.base.documents import read_checked
from durable_retry.base.trace_context import TRACEPARENT, TRACESTATE, TraceContext, trace_in
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.rules.operations.keys import EnvelopeName

SPEC_VERSION: Final = "1.0"

_CORRELATION: Final = "correlationid"
"""The extension attribute of the correlation id in the events that the outbox sends."""


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
        return read_checked(text, lambda document: document)
    except InvalidInputError as error:
        raise InvalidInputError(problem.below(place) for problem in error.problems) from None


def _with_correlation_id(payload: Any, correlation_id: Any) -> Any:
    """Use the event's correlation id for the operation, unless the operation has its own."""
    if not isinstance(payload, dict) or not isinstance(correlation_id, str):
        return payload
    return {"correlation_id": correlation_id, **payload}


_ATTRIBUTES: Final = ("specversion", "id", "source", "type", _CORRELATION, TRACEPARENT, TRACESTATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionHeaders:
    """What the headers of a request say of the operation, batch or saga in its body."""

    key: str | None  # the caller's, of Idempotency-Key; None without one
    limit_key: str | None  # that of an operation, of Limit-Key; None without one
    trace: TraceContext | None  # where in a trace the caller is; None when the request is not traced
    event: Mapping[str, str]  # the attributes of a CloudEvent in its binary form; empty without one

    @classmethod
    def read(cls, headers: Mapping[str, str]) -> Self:
        """Read a request's headers, by names in any case.

        Raises:
            InvalidInputError: Idempotency-Key cannot be read, or a header came twice.
        """
        key, traceparent = _once(headers, "Idempotency-Key"), headers.get(TRACEPARENT)
        return cls(
            key=None if key is None else parse_key(key),
            limit_key=_text_in(headers, "Limit-Key"),
            trace=None if traceparent is None else TraceContext.read(traceparent, headers.get(TRACESTATE)),
            event={} if headers.get("ce-specversion") is None else _event_in(headers),
        )

    def envelope_of(self, document: Any) -> ParsedEnvelope:
        """Return what the request carries: its body, with its limit key and without an envelope.

        Raises:
            InvalidInputError: As `parse_envelope`; or the limit keys of header and body differ.
        """
        if not self.event:
            return self._with_limit_key(parse_envelope(document))
        # In the binary form the body itself is the data.
        return self._with_limit_key(replace(parse_envelope({**self.event, "data": document}), place=""))

    def _with_limit_key(self, envelope: ParsedEnvelope) -> ParsedEnvelope:
        if self.limit_key is None or not isinstance(envelope.payload, dict):
            return envelope
        payload = {"limit_key": self.limit_key} | envelope.payload
        if payload["limit_key"] != self.limit_key:
            problem = Problem(f"{envelope.place}/limit_key", "differs from the header Limit-Key")
            raise InvalidInputError([problem])
        return replace(envelope, payload=payload)


def _once(headers: Mapping[str, str], name: str) -> str | None:
    """Return a header; InvalidInputError where its value came twice, which hosts join to one as `a,a` is."""
    text = headers.get(name)
    first, *more = map(str.strip, (text or "").split(","))
    if first and set(more) == {first}:
        detail = f"{name} was sent {1 + len(more)} times: send it once, or in the body if it is {text}"
        raise InvalidInputError([Problem("", detail)])
    return text


def _text_in(headers: Mapping[str, str], name: str) -> str | None:
    """Return a header whose value is UTF-8: some hosts give its bytes as Latin-1, others decode them."""
    text = _once(headers, name)
    try:
        return None if text is None else text.encode("latin-1").decode()
    except UnicodeError:  # it was decoded before, or is not UTF-8
        return text


def _event_in(headers: Mapping[str, str]) -> dict[str, str]:
    written = {name: _text_in(headers, f"ce-{name}") for name in _ATTRIBUTES}
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
        raise InvalidInputError([Problem("", "Idempotency-Key is no quoted string (RFC 8941 section 3.3.3)")])
    key = text if quoted is None else re.sub(r"\\(.)", r"\1", quoted[1])
    if not _KEY.fullmatch(key):
        raise InvalidInputError([Problem("", "Idempotency-Key must be 1 to 255 visible ASCII characters")])
    return key

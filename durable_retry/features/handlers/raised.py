"""What an exception says by its shape: the answer that it carries, and what is inside of it.

    error.response             httpx, requests, azure.core, openai, anthropic; of google.api_core also a call
    error.response["Error"]    botocore
    the error itself           aiohttp, stripe and others with a status and headers; grpc

No library is imported, nor looked for by its name. What an exception refuses to show counts as missing.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from durable_retry.attempt.bodies import body_text
from durable_retry.base.foreign import look, plain_text
from durable_retry.features.handlers.rules.libraries import GRPC_STATUS

_MOST_WRAPPED: Final = 8
"""Most exceptions inside of each other that are looked at; one may be its own cause."""


def links_of(error: BaseException) -> list[BaseException]:
    """Return an exception and what is inside of it: what it was raised from, and what a library wrapped.

    The outermost comes first, but a driver's before that of SQLAlchemy, which has it at `orig` and says less.
    """
    links: list[BaseException] = []
    inner: BaseException | None = error
    while inner is not None and len(links) < _MOST_WRAPPED:
        drivers = [inner]
        while (driver := _other_at(drivers[-1], ("orig",), drivers)) and len(drivers) < _MOST_WRAPPED:
            drivers.append(driver)
        links += reversed(drivers)
        inner = _other_at(inner, ("__cause__", "inner_exception"), links)
    return links


def _other_at(
    error: BaseException, names: tuple[str, ...], known: list[BaseException]
) -> BaseException | None:
    found = (look(partial(getattr, error, name), None) for name in names)
    return next(
        (
            other
            for other in found
            if issubclass(type(other), BaseException) and all(other is not link for link in known)
        ),
        None,
    )


_BODY_CHARS: Final = 16_384
_STATUSES: Final = range(100, 1_000)


@dataclass(frozen=True, slots=True)
class FailedAnswer:
    """An answer that is no success.

    Attributes:
        status_code: For a call of gRPC, the status that stands for its code.
        headers: Names in lower case.
        method: The method of the request; "" when it is not known.
        body: The beginning of its text; "" when it has none, or was not read.
    """

    status_code: int
    headers: Mapping[str, str]
    method: str
    body: str


def answer_of(error: BaseException) -> FailedAnswer | None:
    """Return the answer that an exception carries; None when it carries none."""
    return next(filter(None, (look(partial(read, error), None) for read in _SHAPES)), None)


def answer_within(error: BaseException) -> FailedAnswer | None:
    """Return the first answer that an exception or one inside of it carries."""
    return next(filter(None, map(answer_of, links_of(error))), None)


def _http_answer(error: Any) -> FailedAnswer | None:
    response = getattr(error, "response", None)
    if response is None and not hasattr(error, "headers"):
        return None
    holder = error if response is None else response
    statuses = (getattr(holder, name, None) for name in ("status_code", "status", "http_status"))
    status = next((int(value) for value in statuses if isinstance(value, int)), 0)
    if status not in _STATUSES:
        return None
    return FailedAnswer(
        status,
        look(lambda: _lowered(holder.headers), {}),
        look(lambda: _method_of(error, holder), ""),
        look(lambda: _body_of(holder), "") or look(lambda: _text_attribute(holder), ""),
    )


def _text_attribute(holder: Any) -> str:
    texts = (getattr(holder, name, None) for name in ("http_body", "body", "message"))
    return next((plain_text(text)[:_BODY_CHARS] for text in texts if text and isinstance(text, str)), "")


def _aws_answer(error: Any) -> FailedAnswer:
    answer, details = error.response["ResponseMetadata"], error.response["Error"]
    body = f"{details['Code']}: {details['Message']}"
    return FailedAnswer(int(answer["HTTPStatusCode"]), _lowered(answer["HTTPHeaders"]), "", plain_text(body))


def _grpc_answer(error: Any) -> FailedAnswer:
    call = getattr(error, "response", None) or error
    code = call.code().name
    text, waits = f"{code}: {call.details()}", look(partial(_waits_in, error), None)
    body = json.dumps({"message": text, "details": waits}) if waits else text
    headers = look(lambda: _lowered(dict(call.trailing_metadata())), None)
    return FailedAnswer(GRPC_STATUS[code], headers or {}, "", plain_text(body))


def _waits_in(error: Any) -> list[dict[str, str]]:
    """Return each `google.rpc.RetryInfo` of google.api_core as the JSON that its REST API sends."""
    return [
        {
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": f"{detail.retry_delay.seconds}.{detail.retry_delay.nanos:09d}s",
        }
        for detail in error.details
        if detail.DESCRIPTOR.full_name == "google.rpc.RetryInfo"
    ]


_SHAPES: Final[tuple[Callable[[Any], FailedAnswer | None], ...]] = (_http_answer, _aws_answer, _grpc_answer)


def _lowered(headers: Any) -> dict[str, str]:
    return {plain_text(name).lower(): plain_text(value) for name, value in headers.items()}


def _method_of(error: Any, response: Any) -> str:
    for holder, name in ((error, "_request"), (response, "request"), (error, "request_info")):
        method = getattr(getattr(holder, name, None), "method", None)
        if isinstance(method, str):
            return method
    return ""


def _body_of(response: Any) -> str:
    if getattr(response, "_content_consumed", True) is False:
        return ""  # A stream of requests: its text would be read here, on the event loop.
    content = look(lambda: response.content, None)
    if isinstance(content, bytes):  # The libraries decode all of it, by whatever charset it names.
        begin = content[: 4 * _BODY_CHARS]
        content_type = look(lambda: _lowered(response.headers).get("content-type", ""), "")
        text = body_text(begin, content_type, is_cut=len(begin) < len(content))
        return (begin.decode(errors="backslashreplace") if text is None else text)[:_BODY_CHARS]
    text = response.text() if callable(getattr(response, "text", None)) else response.text
    return plain_text(text)[:_BODY_CHARS]

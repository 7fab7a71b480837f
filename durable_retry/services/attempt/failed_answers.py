"""The answer that an exception of an HTTP library is about, whichever library a handler calls with.

None of the libraries is imported: their exceptions are known by their packages and by what they carry.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_PACKAGES: Final = frozenset({"httpx", "requests", "aiohttp", "azure"})
_BODY_CHARS: Final = 1_024


@dataclass(frozen=True, slots=True)
class FailedAnswer:
    """An answer that is no success.

    Attributes:
        headers: Names in lower case.
        method: The method of the request; "" when it is not known.
        body: The beginning of its text; "" when it has none, or was not read.
    """

    status_code: int
    headers: Mapping[str, str]
    method: str
    body: str


def answer_of(error: BaseException) -> FailedAnswer | None:
    """Return the answer that an exception is about; None when there was none, or the library is not known.

    It is at `error.response` (httpx, requests, azure.core), or in the exception itself (aiohttp).
    """
    packages = {cls.__module__.partition(".")[0] for cls in type(error).__mro__}
    if not packages & _PACKAGES:
        return None
    response = getattr(error, "response", None)
    response = error if response is None else response
    status = getattr(response, "status_code", None) or getattr(response, "status", None)
    if not isinstance(status, int):
        return None
    headers = getattr(response, "headers", None) or {}
    return FailedAnswer(
        status,
        {str(name).lower(): str(value) for name, value in headers.items()},
        _method_of(error, response),
        _body_of(response),
    )


def _method_of(error: BaseException, response: Any) -> str:
    for holder, name in ((error, "_request"), (response, "request"), (error, "request_info")):
        method = getattr(getattr(holder, name, None), "method", None)
        if isinstance(method, str):
            return method
    return ""


def _body_of(response: Any) -> str:
    if getattr(response, "_content_consumed", True) is False:
        return ""  # A stream of requests: its text would be read here, on the event loop.
    try:
        text = response.text() if callable(getattr(response, "text", None)) else response.text
    except Exception:  # noqa: BLE001 - a body that was not read, or not in time, is missing: nothing else is
        return str(getattr(response, "message", ""))
    return str(text)[:_BODY_CHARS]

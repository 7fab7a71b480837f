"""What an answer says: the text of its body, and the answer that an exception of an HTTP library is about.

A text is UTF-8 first, then what the answer declares, and no guess. None of the libraries is imported: their
exceptions are known by their packages and by what they carry. What one does not let be read is missing.
"""

import codecs
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from durable_retry.base.documents import json_object
from durable_retry.base.foreign import look, plain_text

_CHARSET: Final = re.compile(r"charset\s*=\s*[\"']?([^\s;\"']+)", re.IGNORECASE)

_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    # Before those of UTF-16, with which they begin.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


_CHARSETS: Final = re.compile(
    r"utf-?(8|16|32|16[bl]e|16-[bl]e|32-[bl]e)|us-ascii|ascii|latin-?1|iso-?8859-?([1-9]|1[013-6])"
    r"|(windows-?|cp)125[0-8]|cp(874|932|949|950)|ibm866|koi8-[ru]|mac-?(roman|cyrillic)"
    r"|gb2312|gbk|gb18030|big5|euc-(jp|kr)|iso-2022-jp|shift-?jis"
)
"""The charsets of the web (WHATWG Encoding), `_` as `-`. Python has more codecs: that of `punycode` takes the
square of a text's length, others are none of text, and each unknown name is remembered for good."""


def body_text(body: bytes, content_type: str, *, is_cut: bool = False) -> str | None:
    """Return a body as text, without its byte order mark; None where it is no text.

    Args:
        content_type: Header of the answer; "" without one.
        is_cut: Whether more followed: a character that is not whole at the end is left out.
    """
    texts = (_decoded(body, encoding, is_cut=is_cut) for encoding in _encodings(body, content_type))
    return next((text for text in texts if text is not None), None)


def _encodings(body: bytes, content_type: str) -> Iterator[str]:
    yield from (encoding for mark, encoding in _BYTE_ORDER_MARKS if body.startswith(mark))
    # No text of a web service holds NUL, and UTF-16 without a mark is UTF-8 with many.
    if b"\0" not in body:
        yield "utf-8"
    declared = _CHARSET.search(content_type)
    if declared is not None and _CHARSETS.fullmatch(declared[1].lower().replace("_", "-")):
        yield declared[1]
    yield "utf-8"


def _decoded(body: bytes, encoding: str, *, is_cut: bool) -> str | None:
    try:
        return codecs.getincrementaldecoder(encoding)().decode(body, final=not is_cut)
    except (LookupError, ValueError):
        return None


_MESSAGES: Final = ("detail", "message", "error_description", "title", "error")
"""Members that tell a person what was wrong, the most telling first: RFC 9457, RFC 6749, and common use."""


def message_in(body: str) -> str:
    """Return what a refusal in JSON tells a person, at its top or in its object `error`; any other whole."""
    document = json_object(body) or {}
    told = (
        place.get(name)
        for place in (document.get("error"), document)
        if isinstance(place, dict)
        for name in _MESSAGES
    )
    return next((text for text in told if isinstance(text, str) and text.strip()), body)


_PACKAGES: Final = frozenset({"httpx", "requests", "aiohttp", "azure"})
_BODY_CHARS: Final = 16_384
_STATUSES: Final = range(100, 1_000)


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
    return look(lambda: _answer_of(error), None)


def _answer_of(error: BaseException) -> FailedAnswer | None:
    packages = {cls.__module__.partition(".")[0] for cls in type(error).__mro__}
    if not packages & _PACKAGES:
        return None
    response = getattr(error, "response", None)
    response = error if response is None else response
    status = getattr(response, "status_code", None) or getattr(response, "status", None)
    if not (isinstance(status, int) and status in _STATUSES):
        return None
    return FailedAnswer(
        int(status),
        look(lambda: _headers_of(response), {}),
        look(lambda: _method_of(error, response), ""),
        look(lambda: _body_of(response), "")
        or look(lambda: plain_text(getattr(response, "message", "")), ""),
    )


def _headers_of(response: Any) -> dict[str, str]:
    headers = getattr(response, "headers", None) or {}
    return {plain_text(name).lower(): plain_text(value) for name, value in headers.items()}


def _method_of(error: BaseException, response: Any) -> str:
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
        shown = content[: 4 * _BODY_CHARS]
        content_type = look(lambda: _headers_of(response).get("content-type", ""), "")
        text = body_text(shown, content_type, is_cut=len(shown) < len(content))
        return (shown.decode(errors="backslashreplace") if text is None else text)[:_BODY_CHARS]
    text = response.text() if callable(getattr(response, "text", None)) else response.text
    return plain_text(text)[:_BODY_CHARS]

"""The text of an answer's body: UTF-8 is tried first, then the declared charset, and nothing is guessed."""

import codecs
import re
from collections.abc import Iterator
from typing import Final

from durable_retry.base.documents import json_object

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
    """Return the message for a person in a refusal's JSON, or in its object `error`; else the whole body."""
    document = json_object(body) or {}
    texts = (
        place.get(name)
        for place in (document.get("error"), document)
        if isinstance(place, dict)
        for name in _MESSAGES
    )
    return next((text for text in texts if isinstance(text, str) and text.strip()), body)

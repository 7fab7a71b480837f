"""The text of an answer's body: UTF-8 first, then what the answer declares, and no guess."""

import codecs
import re
from collections.abc import Iterator
from typing import Final

_CHARSET: Final = re.compile(r"charset\s*=\s*[\"']?([^\s;\"']+)", re.IGNORECASE)

_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    # Before those of UTF-16, with which they begin.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


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
    yield from _CHARSET.findall(content_type)[:1]
    yield "utf-8"


def _decoded(body: bytes, encoding: str, *, is_cut: bool) -> str | None:
    try:
        "".encode(encoding)  # Some codecs, such as hex and zlib, are none of text.
        return codecs.getincrementaldecoder(encoding)().decode(body, final=not is_cut)
    except (LookupError, ValueError, TypeError):
        return None

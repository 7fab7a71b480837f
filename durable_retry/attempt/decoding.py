"""Decoding of compressed answers, in pieces, so that decoding an answer takes no more memory than a piece.

Requests ask for plain answers. A compressed one is decoded all the same, if that was done once, with gzip or
deflate. Codings inside one another are refused: 263 bytes of gzip in gzip in gzip can be gigabytes. So are
codings that Python cannot decode with a bound. Such a body counts as unreadable; the answer's status counts.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, override

import httpx

PIECE_BYTES: Final = 64 * 1024
"""The most that is decoded at once."""

MOST_BYTES: Final = 64 * 1024 * 1024
"""The most that is decoded of one answer. Attempts stop at RESPONSE_READ_LIMIT_BYTES, handlers do not."""

_CODINGS: Final = frozenset({"gzip", "x-gzip", "deflate"})
_IN_GZIP: Final = zlib.MAX_WBITS | 16
_HEADER_BYTES: Final = 2


def decode_here(response: httpx.Response) -> None:
    """Let the body of an answer be decoded as it is read, by this module in place of httpx."""
    codings = codings_of(response.headers.get("content-encoding", ""))
    if codings and isinstance(response.stream, httpx.AsyncByteStream):
        response.stream = _DecodedStream(response.stream, codings)
        del response.headers["content-encoding"]
        response.headers.pop("content-length", None)


def codings_of(content_encoding: str) -> list[str]:
    """Return the codings of a body, in the order in which they were applied."""
    names = (name.strip().lower() for name in content_encoding.split(","))
    return [name for name in names if name not in {"", "identity"}]


async def decoded(parts: AsyncIterator[bytes], codings: list[str]) -> AsyncIterator[bytes]:
    """Yield a body in pieces.

    Raises:
        httpx.DecodingError: It is not what its codings say, or is refused; see above.
    """
    if len(codings) > 1 or codings[0] not in _CODINGS:
        raise httpx.DecodingError(f"the coding {', '.join(codings):.100} is not read")
    inflater, left_bytes = _Inflater(is_gzip=codings[0] != "deflate"), MOST_BYTES
    async for part in parts:
        for piece in inflater.pieces_of(part):
            left_bytes -= len(piece)
            if left_bytes < 0:
                raise httpx.DecodingError(f"the decoded body has more than {MOST_BYTES} bytes")
            yield piece
            # Other tasks may run here, and the attempt's time limit may end it.
            await asyncio.sleep(0)
    if not inflater.is_whole:
        raise httpx.DecodingError("the body ends before its coding does")


class _Inflater:
    """Inflates one part of a body after the other."""

    def __init__(self, *, is_gzip: bool) -> None:
        self._is_gzip = is_gzip
        self._begin = b""
        self._inflate: Any = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing behind the parts so far."""
        return not self._begin and (self._inflate is None or self._inflate.eof)

    def pieces_of(self, part: bytes) -> Iterator[bytes]:
        """Yield the decoded pieces of a part."""
        if self._inflate is None and (part := self._first_part(part)) == b"":
            return
        is_full = False
        while part or is_full:  # the inflater holds back what is over a full piece
            try:
                piece = self._inflate.decompress(part, PIECE_BYTES)
            except zlib.error as error:
                raise httpx.DecodingError(f"the body is not what its coding says: {error}") from error
            part, is_full = self._inflate.unconsumed_tail, len(piece) == PIECE_BYTES
            if self._inflate.eof:
                part, is_full = self._next_member(), False
            if piece:
                yield piece

    def _first_part(self, part: bytes) -> bytes:
        """Return the first part, once it shows the header."""
        self._begin += part
        if len(self._begin) < _HEADER_BYTES:
            return b""
        part, self._begin = self._begin, b""
        # Some servers send deflate without the header of zlib (RFC 9110, section 8.4.1.2).
        is_zlib = int.from_bytes(part[:_HEADER_BYTES]) % 31 == 0 and part[0] & 0xF == zlib.DEFLATED
        bare = zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS
        self._inflate = zlib.decompressobj(_IN_GZIP if self._is_gzip else bare)
        return part

    def _next_member(self) -> bytes:
        """Return what follows an end: another member of gzip (RFC 1952, section 2.2)."""
        rest: bytes = self._inflate.unused_data if self._is_gzip else b""
        if rest:
            self._inflate = zlib.decompressobj(_IN_GZIP)
        return rest


class _DecodedStream(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, codings: list[str]) -> None:
        self._inner = inner
        self._codings = codings

    @override
    def __aiter__(self) -> AsyncIterator[bytes]:
        return decoded(aiter(self._inner), self._codings)

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()

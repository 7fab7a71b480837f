import gzip
import zlib
from collections.abc import AsyncIterator

import httpx
import pytest

from durable_retry.attempt import decoding
from durable_retry.attempt.decoding import PIECE_BYTES, codings_of, decoded

TEXT = b"some text, more of it, and a little more" * 10_000


async def parts_of(body: bytes, size: int = 1_000) -> AsyncIterator[bytes]:
    for at in range(0, len(body), size):
        yield body[at : at + size]


async def pieces_of(body: bytes, coding: str = "gzip", size: int = 1_000) -> list[bytes]:
    return [piece async for piece in decoded(parts_of(body, size), [coding])]


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (gzip.compress(TEXT), "gzip"),
        (gzip.compress(TEXT), "x-gzip"),
        (gzip.compress(TEXT[:9]) + gzip.compress(TEXT[9:]), "gzip"),
        (zlib.compress(TEXT), "deflate"),
        (raw_deflate(TEXT), "deflate"),
    ],
)
@pytest.mark.parametrize("size", [1, 1_000_000])
async def test_a_body_is_what_was_packed(body: bytes, coding: str, size: int) -> None:
    pieces = await pieces_of(body, coding, size)
    assert b"".join(pieces) == TEXT
    assert max(map(len, pieces)) <= PIECE_BYTES


@pytest.mark.parametrize("more", range(-2, 3))
async def test_a_body_of_full_pieces_is_whole(more: int) -> None:
    body = bytes(2 * PIECE_BYTES + more)
    assert b"".join(await pieces_of(gzip.compress(body), size=10**6)) == body


async def test_a_body_without_a_byte_is_empty() -> None:
    assert await pieces_of(b"") == []


@pytest.mark.parametrize(
    ("body", "coding", "why"),
    [
        (gzip.compress(TEXT)[:-20], "gzip", "the body ends before its coding does"),
        (zlib.compress(TEXT)[:-20], "deflate", "the body ends before its coding does"),
        (b"plain text", "gzip", "is not what its coding says"),
        (b"x", "deflate", "the body ends before its coding does"),
        (b"\xff plain text", "deflate", "is not what its coding says"),
        (gzip.compress(TEXT) + b"plain text", "gzip", "is not what its coding says"),
        (TEXT, "br", "the coding br is not read"),
    ],
)
async def test_what_is_something_else_is_no_body(body: bytes, coding: str, why: str) -> None:
    with pytest.raises(httpx.DecodingError, match=why):
        await pieces_of(body, coding)


async def test_what_follows_a_body_in_deflate_is_left_out() -> None:
    assert b"".join(await pieces_of(zlib.compress(TEXT) + b"more", "deflate")) == TEXT


async def test_a_body_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "MOST_BYTES", len(TEXT) - 1)
    with pytest.raises(httpx.DecodingError, match="has more than"):
        await pieces_of(gzip.compress(TEXT))


def test_codings_are_named_in_one_header_or_several() -> None:
    assert codings_of("gzip, Identity ,DEFLATE,") == ["gzip", "deflate"]
    assert codings_of("") == []

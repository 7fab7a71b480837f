import asyncio
import gzip
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import httpx
import pytest

from durable_retry.attempt.decoding import PIECE_BYTES
from durable_retry.attempt.http_client import (
    BoundedResponse,
    EscapedBaseUrlError,
    Request,
    make_client,
    require_below,
    send,
    sending_over,
    target_url,
)
from durable_retry.attempt.http_pool import SendProgress
from durable_retry.rules.config.dependency import Dependency

API = Dependency(name="api", base_url="https://api.example.com/v1")
ROOT = Dependency(name="root", base_url="https://api.example.com")


@pytest.mark.parametrize(
    ("dependency", "path", "url"),
    [
        (API, "/charges", "https://api.example.com/v1/charges"),
        (API, "charges", "https://api.example.com/v1/charges"),
        (API, "", "https://api.example.com/v1"),
        (API, "/", "https://api.example.com/v1/"),
        (ROOT, "/a/b", "https://api.example.com/a/b"),
        (API, "/a b", "https://api.example.com/v1/a%20b"),
        (API, "//evil.example.com/x", "https://api.example.com/v1/evil.example.com/x"),
    ],
)
def test_paths_stand_below_the_base_url(dependency: Dependency, path: str, url: str) -> None:
    assert str(target_url(dependency, path)) == url


@pytest.mark.parametrize("path", ["/../admin", "/a/../../admin", "/.."])
def test_a_path_that_climbs_out_is_refused(path: str) -> None:
    with pytest.raises(EscapedBaseUrlError):
        target_url(API, path)


@pytest.mark.parametrize(
    "url",
    [
        "http://api.example.com/v1/x",
        "https://api.example.com:8443/v1/x",
        "https://evil.example.com/v1/x",
        "https://api.example.com/v10/x",
        "https://api.example.com/",
    ],
)
def test_no_other_place_is_called(url: str) -> None:
    with pytest.raises(EscapedBaseUrlError):
        require_below(API, httpx.URL(url))


def test_a_time_limit_says_how_far_the_request_had_come() -> None:
    sending = SendProgress()
    assert sending.precise_names(TimeoutError()) == ["PoolTimeout"]
    sending.connecting = True
    assert sending.precise_names(TimeoutError()) == ["ConnectTimeout"]
    sending.sent = True
    assert sending.precise_names(TimeoutError()) == []


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"])
@pytest.mark.parametrize("dependency", [API, replace(API, headers={"Content-Type": "a/b", "X-Own": "1"})])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"json": {"amount": 5, "name": "Zo\u00eb"}, "has_json": True},
        {
            "json": [],
            "has_json": True,
            "headers": {"content-type": "application/vnd.x+json", "accept": "*/*"},
        },
        {"body": "text", "headers": {"Content-Type": "text/plain", "x-own": "2"}},
        {"body": "", "params": {"a": "b c", "many": ["1", "2"], "is": True}},
    ],
)
async def test_a_request_is_the_one_that_httpx_would_build(
    method: str, dependency: Dependency, more: dict[str, Any]
) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, content=b"1234567890")

    url = httpx.URL("https://api.example.com/v1/charges")
    asked = Request(**{"method": method, "path": "/charges", "headers": {"X-Attempt": "1"}, **more})
    with sending_over(lambda _: httpx.MockTransport(answer)):
        answered = await send(dependency, asked, seconds=5, limit_bytes=4, progress=SendProgress())
    client = make_client(dependency, httpx.MockTransport(answer))
    content = {"json": asked.json} if asked.has_json else {"content": asked.body}
    built = client.build_request(method, url, params=asked.params or None, headers=asked.headers, **content)
    [sent] = seen
    assert (sent.method, sent.url, sent.read()) == (method, built.url, built.content)
    assert sorted(sent.headers.multi_items()) == sorted(built.headers.multi_items())
    assert sent.extensions["timeout"] == built.extensions["timeout"]
    assert (answered.body, answered.is_cut) == (b"1234", True)


async def test_null_is_sent_as_null() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200)

    asked = Request(method="POST", path="x", headers={}, json=None, has_json=True)
    with sending_over(lambda _: httpx.MockTransport(answer)):
        await send(API, asked, seconds=5, limit_bytes=4, progress=SendProgress())
        await send(API, replace(asked, has_json=False), seconds=5, limit_bytes=4, progress=SendProgress())
    assert [(sent.read(), sent.headers.get("content-type")) for sent in seen] == [
        (b"null", "application/json"),
        (b"", None),
    ]


@pytest.mark.parametrize("name", ["Accept-Encoding", "accept-encoding"])
async def test_how_answers_are_packed_is_said_once(name: str) -> None:
    client = make_client(replace(API, headers={name: "gzip"}), httpx.MockTransport(lambda _: packed(b"")))
    assert client.headers.get_list("accept-encoding") == ["gzip"]


async def test_a_packed_body_is_unpacked_although_nobody_asked_for_it() -> None:
    asked = Request(method="GET", path="x", headers={})
    with sending_over(lambda _: httpx.MockTransport(lambda _: packed(gzip.compress(b"12345")))):
        answered = await send(API, asked, seconds=5, limit_bytes=4, progress=SendProgress())
    assert (answered.body, answered.is_cut) == (b"1234", True)


def packed(body: bytes, coding: str = "gzip") -> httpx.Response:
    stream = httpx.ByteStream(body)
    return httpx.Response(200, headers={"content-encoding": coding, "content-length": "9"}, stream=stream)


BOMB = gzip.compress(bytes(50_000_000))
NESTED = gzip.compress(gzip.compress(gzip.compress(bytes(50_000_000))))


async def test_a_bomb_is_unpacked_as_far_as_an_attempt_reads() -> None:
    tracemalloc.start()
    try:
        answer = await answer_to(packed(BOMB))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (answer.body, answer.is_cut, answer.is_undecoded) == (bytes(100), True, False)
    assert peak_bytes < 20 * PIECE_BYTES


@pytest.mark.parametrize("coding", ["gzip, gzip, gzip", "gzip,identity,deflate", "br", "zstd", "compress"])
async def test_codings_in_one_another_and_unbounded_ones_are_not_read(coding: str) -> None:
    answer = await answer_to(packed(NESTED, coding))
    assert (answer.status_code, answer.body, answer.is_undecoded) == (200, b"", True)


async def test_a_handler_s_client_reads_packed_answers_in_pieces_with_a_bound() -> None:
    answers = iter([packed(gzip.compress(b"12345")), packed(NESTED, "gzip, gzip, gzip"), packed(BOMB)])
    client = make_client(API, httpx.MockTransport(lambda _: next(answers)))
    assert (await client.get("x")).text == "12345"
    refused = await client.get("x")
    assert refused.status_code == HTTPStatus.OK
    with pytest.raises(httpx.DecodingError, match="gzip, gzip, gzip is not read"):
        _ = refused.content
    async with client.stream("GET", "x") as streamed:
        sizes = [len(piece) async for piece in streamed.aiter_raw()]
    assert (sum(sizes), max(sizes)) == (50_000_000, PIECE_BYTES)


class BrokenOff(httpx.AsyncByteStream):
    """A body that ends before it is whole."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"the beg"
        raise httpx.RemoteProtocolError("the peer closed the connection")


class Endless(httpx.AsyncByteStream):
    """A body that begins, and never goes on."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"the beg"
        await asyncio.Event().wait()


def falsely_encoded(status_code: int, encoding: str) -> httpx.Response:
    stream = httpx.ByteStream(b"not compressed at all")
    return httpx.Response(status_code, headers={"content-encoding": encoding}, stream=stream)


async def answer_to(response: httpx.Response, seconds: float = 5) -> BoundedResponse:
    dependency = Dependency(name="unread", base_url="http://unread.example")
    asked = Request(method="GET", path="/", headers={})
    with sending_over(lambda _: httpx.MockTransport(lambda _: response)):
        return await send(dependency, asked, seconds=seconds, limit_bytes=100, progress=SendProgress())


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "gzip, deflate"])
@pytest.mark.parametrize("status_code", [200, 400, 503])
@pytest.mark.shows("D14")
async def test_an_answer_keeps_its_status_when_its_body_cannot_be_decoded(
    encoding: str, status_code: int
) -> None:
    answer = await answer_to(falsely_encoded(status_code, encoding))
    assert (answer.status_code, answer.is_undecoded, answer.body) == (status_code, True, b"")


@pytest.mark.parametrize("status_code", [302, 400, 503])
async def test_a_refusal_keeps_its_status_when_its_body_breaks_off(status_code: int) -> None:
    answer = await answer_to(httpx.Response(status_code, stream=BrokenOff()))
    assert (answer.status_code, answer.is_cut, answer.body) == (status_code, True, b"the beg")
    assert not answer.is_undecoded
    assert answer.is_broken_off


@pytest.mark.parametrize("status_code", [302, 401, 422, 429, 503])
async def test_time_ends_the_reading_of_a_refusal_and_not_the_answer(status_code: int) -> None:
    response = httpx.Response(status_code, headers={"Retry-After": "7"}, stream=Endless())
    answer = await answer_to(response, 0.05)
    assert (answer.status_code, answer.headers["retry-after"]) == (status_code, "7")
    assert (answer.is_cut, answer.is_broken_off, answer.body) == (True, True, b"the beg")


async def test_time_ends_a_success_that_has_only_begun() -> None:
    with pytest.raises(TimeoutError, match=r"^no answer within 0\.05 s, though .* said 200$"):
        await answer_to(httpx.Response(200, stream=Endless()), 0.05)


async def test_a_handler_has_half_of_its_time_for_the_body_of_a_refusal() -> None:
    client = make_client(
        API, httpx.MockTransport(lambda _: httpx.Response(429, stream=Endless())), lambda: 0.1
    )
    answer = await client.get("/charges")
    assert answer.status_code == 429
    with pytest.raises(httpx.ReadTimeout, match="429"):
        _ = answer.text


async def test_a_success_whose_body_breaks_off_is_a_lost_connection() -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        await answer_to(httpx.Response(200, stream=BrokenOff()))

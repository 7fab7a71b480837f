import asyncio
import socket
from collections.abc import Iterable
from typing import override

import pytest

from onebox.http.server import JoinedWrites, base_url, bind


class Bound(socket.socket):
    """A socket that claims to be bound to an address which this machine need not have."""

    name: tuple[object, ...] = ()

    def getsockname(self) -> tuple[object, ...]:
        return self.name


@pytest.mark.parametrize(
    ("name", "url"),
    [
        (("127.0.0.1", 7071), "http://127.0.0.1:7071"),
        (("0.0.0.0", 80), "http://127.0.0.1:80"),  # noqa: S104 # an address to test with
        (("192.168.1.2", 1), "http://192.168.1.2:1"),
        (("::1", 7071, 0, 0), "http://[::1]:7071"),
        (("::", 7071, 0, 0), "http://[::1]:7071"),
        (("fe80::1%eth0", 7071, 0, 2), "http://[fe80::1%eth0]:7071"),
    ],
)
def test_the_url_is_one_that_this_machine_reaches(name: tuple[object, ...], url: str) -> None:
    with Bound() as listener:
        listener.name = name
        assert base_url(listener) == url


def test_port_0_takes_a_free_one() -> None:
    with bind("127.0.0.1", 0) as listener:
        assert base_url(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"


class Sent(asyncio.Transport):
    """A connection that keeps what it was given, a piece per write."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))

    @override
    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        pieces = list(list_of_data)
        assert all(pieces), "asyncio tries to send an empty piece for ever"
        self.write(b"".join(pieces))

    @override
    def close(self) -> None:
        self.pieces.append(b"closed")


async def test_the_head_of_an_answer_is_sent_with_its_body() -> None:
    sent = Sent()
    joined = JoinedWrites(sent)
    for _ in range(2):
        joined.write(b"head ")
        joined.write(b"body")
    await asyncio.sleep(0)
    assert sent.pieces == [b"head body"] * 2


async def test_an_empty_body_adds_nothing() -> None:
    sent = Sent()
    joined = JoinedWrites(sent)
    joined.write(b"head")
    joined.write(b"")
    await asyncio.sleep(0)
    assert sent.pieces == [b"head"]


async def test_the_head_does_not_wait_for_a_body_that_comes_later() -> None:
    sent = Sent()
    joined = JoinedWrites(sent)
    joined.write(b"head")
    await asyncio.sleep(0)
    joined.write(b"body")
    joined.close()
    await asyncio.sleep(0)
    assert sent.pieces == [b"head", b"body", b"closed"]

"""An app whose functions take and return FastAPI's objects: bodies pass through piece by piece."""

import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.onebox.process import STREAMS, OneboxProcess

MEGABYTE = 1_048_576
LARGE = 200 * MEGABYTE
PIECE = b"x" * 262_144


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneboxProcess]:
    limit = str(LARGE + MEGABYTE)
    folder = tmp_path_factory.mktemp("streams")
    onebox = OneboxProcess(folder, STREAMS, FUNCTIONS_REQUEST_BODY_SIZE_LIMIT=limit)
    onebox.server.start()
    yield onebox
    assert onebox.close() == 0


def most_memory_bytes(onebox: OneboxProcess) -> int:
    assert onebox.server.process is not None
    status = Path(f"/proc/{onebox.server.process.pid}/status").read_text()
    line = next(each for each in status.splitlines() if each.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def large_body() -> Iterator[bytes]:
    return (PIECE for _ in range(LARGE // len(PIECE)))


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_two_hundred_megabytes_stream_in_and_out_in_little_memory(streams: OneboxProcess) -> None:
    assert streams.client.get("/api/words").json() == ""
    before = most_memory_bytes(streams)
    answer = streams.client.post("/api/upload/large", content=large_body())
    assert (answer.status_code, answer.json()) == (201, {"name": "large", "size": LARGE})
    with streams.client.stream("GET", f"/api/download/{LARGE // 65_536}") as download:
        assert sum(len(piece) for piece in download.iter_raw()) == LARGE
    assert most_memory_bytes(streams) - before < 40 * MEGABYTE


def test_a_function_reads_and_answers_before_the_whole_body_has_come(streams: OneboxProcess) -> None:
    address = streams.client.base_url
    with socket.create_connection((address.host, address.port or 0), timeout=10) as connection:
        connection.sendall(
            b"POST /api/first-piece HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\nearly"
        )
        heard = b""
        while not heard.endswith(b"early"):
            heard += connection.recv(1000)
    assert b"nosniff" in heard, "host.json's customHeaders are added"


def test_server_sent_events_arrive_one_by_one(streams: OneboxProcess) -> None:
    with streams.client.stream("GET", "/api/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        pieces = [piece for piece in answer.iter_raw() if piece]
    assert [piece.split()[1] for piece in pieces] == [b"0", b"1", b"2"]


def test_a_plain_value_is_answered_as_fastapi_does(streams: OneboxProcess) -> None:
    assert streams.client.get("/api/words", params={"q": "a b"}).json() == "a b"
    head = streams.client.head("/api/words")
    assert (head.status_code, head.content) == (200, b"")


def test_an_http_exception_is_an_answer_and_any_other_error_a_500(streams: OneboxProcess) -> None:
    absent = streams.client.get("/api/absent")
    assert (absent.status_code, absent.json()) == (404, {"detail": "there is no such thing"})
    boom = streams.client.get("/api/boom")
    assert (boom.status_code, "secret" in boom.text) == (500, False)
    streams.until_logged(r"boom Failed in \d+ ms \(GET /api/boom\) - (?s:.)*ValueError: a secret")


def test_a_response_that_breaks_off_is_cut_and_logged(streams: OneboxProcess) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        streams.client.get("/api/breaks")
    log = streams.until_logged(r"breaks: its response broke off: (?s:.)*the other half is missing")
    assert "http/streams.py" not in log


def test_a_body_over_the_limit_is_413_whether_it_is_declared_or_not(streams: OneboxProcess) -> None:
    address = streams.client.base_url
    with socket.create_connection((address.host, address.port or 0), timeout=10) as connection:
        declared = f"POST /api/upload/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LARGE * 2}\r\n\r\n"
        connection.sendall(declared.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
    too_much = (PIECE for _ in range(LARGE // len(PIECE) + 8))
    assert streams.client.post("/api/upload/x", content=too_much).status_code == 413


def test_a_durable_client_works_beside_a_streamed_request(streams: OneboxProcess) -> None:
    answer = streams.client.post("/api/start", json={"word": "loud"})
    assert answer.json() == {"output": '"LOUD"'}


def test_a_stop_cuts_off_a_stream_that_does_not_end(streams: OneboxProcess) -> None:
    """The last of this file: it ends the app."""
    with streams.client.stream("GET", "/api/endless") as answer:
        assert next(answer.iter_raw()) == b"beat\n"
        began = time.monotonic()
        assert streams.server.stop() == 0
        assert time.monotonic() - began < 10
    assert "Traceback" not in streams.log().partition("stopping")[2]

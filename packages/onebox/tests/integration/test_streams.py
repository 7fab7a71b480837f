"""An app whose functions take and return FastAPI's objects: bodies pass through piece by piece.

The functions run in onebox's own process, and in two worker processes.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from scripts.processes import eventually
from tests.support.onebox.process import STREAMS, OneboxProcess, copy_with_timeout

MEGABYTE = 1_048_576
LARGE = 200 * MEGABYTE
PIECE = b"x" * 262_144
FLOOD_PIECE = b"x" * 65_536
MOST_HELD = (
    400  # pieces in all the buffers between the app and a client on this machine; 4 MB or so are usual
)


def serving(folder: Path, processes: int) -> OneboxProcess:
    onebox = OneboxProcess(
        folder,
        STREAMS,
        FUNCTIONS_REQUEST_BODY_SIZE_LIMIT=str(LARGE + MEGABYTE),
        FUNCTIONS_WORKER_PROCESS_COUNT=str(processes),
        SENT_PIECES_FILE=str(folder / "sent"),
    )
    onebox.server.start()
    return onebox


@pytest.fixture(scope="module", params=[0, 2], ids=["own process", "worker processes"])
def streams(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OneboxProcess]:
    onebox = serving(tmp_path_factory.mktemp("streams"), request.param)
    yield onebox
    assert onebox.close() == 0


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[OneboxProcess]:
    """One worker process, which a test may kill."""
    onebox = serving(tmp_path, 1)
    yield onebox
    onebox.close()


def most_memory_bytes(onebox: OneboxProcess) -> int:
    """The largest that the host and its worker processes have ever been, together."""
    assert onebox.server.process is not None
    workers = onebox.client.get("/admin/host/status").json().get("workers", ())
    return sum(_peak(pid) for pid in (onebox.server.process.pid, *(each["pid"] for each in workers)))


def _peak(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(each for each in status.splitlines() if each.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def large_body() -> Iterator[bytes]:
    return (PIECE for _ in range(LARGE // len(PIECE)))


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_two_hundred_megabytes_stream_in_and_out_in_little_memory(streams: OneboxProcess) -> None:
    assert {streams.client.get("/api/words").json() for _ in range(2)} == {""}
    before = most_memory_bytes(streams)
    answer = streams.client.post("/api/upload/large", content=large_body())
    assert (answer.status_code, answer.json()) == (201, {"name": "large", "size": LARGE})
    with streams.client.stream("GET", f"/api/download/{LARGE // 65_536}") as download:
        assert sum(len(piece) for piece in download.iter_raw()) == LARGE
    assert most_memory_bytes(streams) - before < 40 * MEGABYTE


def test_a_function_reads_and_answers_before_the_whole_body_has_come(streams: OneboxProcess) -> None:
    address = streams.client.base_url
    with socket.create_connection((address.host, address.port or 0), timeout=60) as connection:
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
    streams.until_logged(r"boom Failed in \d+ ms \(GET /api/boom\)\n  (?s:.)*ValueError: a secret")


def test_a_response_that_breaks_off_is_cut_and_logged(streams: OneboxProcess) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        streams.client.get("/api/breaks")
    log = streams.until_logged(r"breaks: its response broke off\n  (?s:.)*the other half is missing")
    assert "/streams.py" not in log


def pieces_sent(onebox: OneboxProcess) -> int:
    """How many pieces the app has been asked for that sends endlessly."""
    file = onebox.data.parent / "sent"
    return file.stat().st_size if file.exists() else 0


@contextmanager
def silent_reader(onebox: OneboxProcess) -> Iterator[socket.socket]:
    """Asks for an endless answer, and reads nothing."""
    address = onebox.client.base_url
    with socket.create_connection((address.host, address.port or 0), timeout=60) as connection:
        connection.sendall(b"GET /api/flood HTTP/1.1\r\nHost: localhost\r\n\r\n")
        yield connection


def test_an_app_is_slowed_by_a_client_that_does_not_read_and_ends_with_it(streams: OneboxProcess) -> None:
    before = pieces_sent(streams)
    with silent_reader(streams) as connection:
        held = eventually(lambda: stands(streams), "it sends no more")
        assert 0 < held - before < MOST_HELD
        heard = 0
        while heard < 4 * held * len(FLOOD_PIECE):  # what stood goes on when it is read
            heard += len(connection.recv(MEGABYTE))
    eventually(lambda: stands(streams), "it sends no more")


def stands(onebox: OneboxProcess) -> int | None:
    """What has been sent, when that has not changed for a moment."""
    seen = [pieces_sent(onebox)]
    for _ in range(5):
        assert onebox.client.get("/api/words").status_code == 200  # it takes its time; others are served
        seen.append(pieces_sent(onebox))
    return seen[0] if seen[0] and len(set(seen)) == 1 else None


def test_a_body_over_the_limit_is_413_whether_it_is_declared_or_not(streams: OneboxProcess) -> None:
    address = streams.client.base_url
    with socket.create_connection((address.host, address.port or 0), timeout=60) as connection:
        declared = f"POST /api/upload/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LARGE * 2}\r\n\r\n"
        connection.sendall(declared.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
    for path in ("/api/upload/x", "/runtime/webhooks/durabletask/orchestrators/x"):
        too_much = (PIECE for _ in range(LARGE // len(PIECE) + 8))
        answer = streams.client.post(path, content=too_much, headers={"Content-Type": "application/json"})
        assert answer.status_code == 413


def test_a_durable_client_works_beside_a_streamed_request(streams: OneboxProcess) -> None:
    answer = streams.client.post("/api/start", json={"word": "loud"})
    assert answer.json() == {"output": '"LOUD"'}


def only_worker(onebox: OneboxProcess) -> int | None:
    """The process that serves, once there is one."""
    (worker,) = onebox.client.get("/admin/host/status").json()["workers"]
    return worker["pid"] if worker["state"] == "Running" else None


@pytest.mark.long
def test_a_worker_process_that_ends_cuts_its_streams_off_and_the_next_one_serves(
    workers: OneboxProcess,
) -> None:
    first = eventually(lambda: only_worker(workers), "it runs")
    with workers.client.stream("GET", "/api/endless") as answer:
        pieces = answer.iter_raw()
        assert next(pieces) == b"beat\n"
        os.kill(first, signal.SIGKILL)
        with pytest.raises(httpx.RemoteProtocolError):
            for _ in pieces:
                pass
    workers.until_logged("endless: its response broke off: the process at the other end ended")
    workers.until_logged(f"worker process {first} was ended by SIGKILL")
    assert workers.client.get("/api/words", params={"q": "again"}).json() == "again"
    assert only_worker(workers) != first
    assert workers.client.get("/api/ends").status_code == 500
    assert workers.client.get("/api/words", params={"q": "again"}).json() == "again"
    assert "Traceback" not in workers.log()


def test_functions_that_stream_run_in_worker_processes(workers: OneboxProcess) -> None:
    worker = eventually(lambda: only_worker(workers), "it runs")
    assert workers.client.get("/api/words", params={"q": "pid"}).json() == str(worker)


@pytest.mark.long
def test_a_streaming_function_out_of_time_is_500_and_its_process_is_replaced(tmp_path: Path) -> None:
    app = tmp_path / "app"
    copy_with_timeout(STREAMS, app, seconds=1)
    onebox = OneboxProcess(tmp_path, app, FUNCTIONS_WORKER_PROCESS_COUNT="1")
    onebox.server.start()
    try:
        assert onebox.client.get("/api/sleeps").status_code == 500
        onebox.until_logged(r"worker process \d+ is replaced: a function ran out of time")
        assert onebox.client.get("/api/words").json() == ""
    finally:
        assert onebox.close() == 0


@pytest.mark.parametrize("processes", [0, 1], ids=["own process", "worker processes"])
def test_a_stop_cuts_off_a_stream_that_does_not_end(tmp_path: Path, processes: int) -> None:
    streams = serving(tmp_path, processes)
    with streams.client.stream("GET", "/api/endless") as answer:
        assert next(answer.iter_raw()) == b"beat\n"
        began = time.monotonic()
        assert streams.server.stop() == 0
        assert time.monotonic() - began < 10
    streams.close()
    assert "Traceback" not in streams.log().partition("stopping")[2]

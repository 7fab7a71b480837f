import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import pytest

from bench.peers import systems
from bench.peers.benchmark import HEALTHY, Work, outcome
from bench.peers.client import run
from bench.peers.systems import Running, family
from bench.peers.target import Call, Connection, Ledger

ANSWER = {"seconds": 2.0, "submit_seconds": [0.01, 0.02], "cpu_seconds": 0.3}


def test_half_of_the_jobs_succeed_at_once_a_third_fail_once_and_a_sixth_twice() -> None:
    failures = Counter(path.split("/")[2] for _, path in Work("run", 60).paths())
    assert failures == {"0": 30, "1": 20, "2": 10}
    assert Work("run", 60).expected_calls() == 60 + 20 + 2 * 10
    assert Work("run", 60, HEALTHY).expected_calls() == 60


def test_a_retry_is_late_from_the_answer_before_it_and_the_wait() -> None:
    seen = [
        Call("run-0", 1.0, 1.1, 503),
        Call("run-0", 1.35, 1.4, 200),
        Call("run-1", 1.0, 1.1, 200),
        Call("run-1", 3.0, 3.1, 200),
        Call("other-0", 1.0, 1.1, 200),
    ]
    found = outcome(Work("run", 2, HEALTHY), ANSWER, seen, {"worker": 0.1})
    assert found.late_seconds == [pytest.approx(0.05)]
    assert found.unexpected_calls == 2
    assert found.jobs_per_second == 1.0
    assert found.cpu_seconds == {"worker": 0.1, "client": 0.15}


class Recorder:
    """A client that notes what it was asked for."""

    def __init__(self) -> None:
        self.submitted: list[str] = []
        self.read: list[str] = []

    def submit(self, key: str, _path: str) -> str:
        self.submitted.append(key)
        return key

    def result(self, handle: str) -> None:
        self.read.append(handle)


def test_clients_share_the_jobs_and_every_result_is_read_back() -> None:
    clients = [Recorder(), Recorder(), Recorder()]
    answer = run([*clients], Work("run", 7).paths(), 0.0)
    assert [client.submitted for client in clients] == [
        ["run-0", "run-3", "run-6"],
        ["run-1", "run-4"],
        ["run-2", "run-5"],
    ]
    assert sorted(clients[0].read) == [f"run-{number}" for number in range(7)]
    assert len(answer["submit_seconds"]) == 7


def test_the_target_fails_the_first_calls_of_a_key() -> None:
    ledger = Ledger()
    calls = [ledger.note(path) for path in ("/fails/2/a",) * 3 + ("/fails/0/b",)]
    assert [call.status for call in calls] == [503, 503, 200, 200]
    assert [call.key for call in ledger.log] == ["a", "a", "a", "b"]
    assert all(earlier.arrival <= later.arrival for earlier, later in pairwise(ledger.log))


def test_the_target_fails_the_attempts_that_the_path_says_however_often_each_is_made() -> None:
    ledger = Ledger()
    assert [ledger.note("/attempts/1/a", attempt).status for attempt in (1, 1, 2, 2)] == [503, 503, 200, 200]


def test_the_target_is_down_between_two_instants_and_says_for_how_long_to_wait() -> None:
    written = bytearray()
    connection = Connection(Ledger())
    transport = Mock(spec=asyncio.Transport)
    transport.write.side_effect = written.extend
    connection.connection_made(transport)
    now = time.monotonic()
    connection.data_received(f"GET /down/{now - 1}/{now + 60}/a HTTP/1.1\r\n\r\n".encode())
    assert written.startswith(b"HTTP/1.1 503 Failed\r\nRetry-After: 5\r\n")
    written.clear()
    connection.data_received(f"GET /down/{now + 60}/{now + 90}/a HTTP/1.1\r\n\r\n".encode())
    assert written.startswith(b"HTTP/1.1 200 OK\r\nContent-Type")


def test_a_call_that_is_to_be_refused_gets_its_status_each_time() -> None:
    written = bytearray()
    connection = Connection(ledger := Ledger())
    transport = Mock(spec=asyncio.Transport)
    transport.write.side_effect = written.extend
    connection.connection_made(transport)
    connection.data_received(b"GET /refuses/400/a HTTP/1.1\r\n\r\n" * 2)
    assert written.count(b"HTTP/1.1 400 ") == 2
    connection.data_received(b"GET /fails/0/b HTTP/1.1\r\n\r\n")
    assert written.count(b"HTTP/1.1 200 ") == 1
    assert ledger.calls == {"a": 2, "b": 1}


def test_the_target_waits_for_the_whole_request() -> None:
    ledger = Ledger()
    connection = Connection(ledger)
    request = b"POST /fails/0/a HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
    for number in range(len(request)):
        connection.data_received(request[number : number + 1])
        assert len(ledger.log) == (number == len(request) - 1)
    connection.data_received(request + request)
    assert ledger.calls == {"a": 3}


def test_a_family_has_the_descendants_of_a_process() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert {os.getpid(), child.pid} <= family([os.getpid()])
        assert os.getpid() not in family([child.pid])
        child.communicate()


def test_the_time_of_a_process_that_ended_is_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert Running("", {"worker": (child.pid,)}).cpu_seconds() == {"worker": 0.0}


def test_an_environment_of_the_pinned_versions_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systems, "HOME", tmp_path / "peers")
    monkeypatch.setattr(systems, "ROOT", tmp_path)
    commands: list[str] = []
    monkeypatch.setattr(systems, "_run", lambda *command: commands.append(command[-1]))
    monkeypatch.setattr(shutil, "which", lambda _name: "npm")
    systems.set_up()
    assert len(commands) == 3
    systems.set_up()
    assert len(commands) == 3
    (tmp_path / "peers" / "installed").write_text("of other versions")
    systems.set_up()
    assert len(commands) == 6


def test_a_machine_without_npm_gets_a_clear_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, "HOME", tmp_path / "peers")
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(systems.PeersNotInstalledError, match="npm"):
        systems.set_up()

"""The functions in processes of their own: FUNCTIONS_WORKER_PROCESS_COUNT."""

import os
import random
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from scripts.processes import eventually
from tests.support.onebox.process import INSTANCES, SAMPLE, OneboxProcess, copy_with_timeout
from tests.support.onebox.worker_processes import described, is_gone, pids_of

APP = SAMPLE.parent / "workers"


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneboxProcess]:
    """Two worker processes, for all tests that leave the host running."""
    onebox = OneboxProcess(tmp_path_factory.mktemp("workers"), APP, FUNCTIONS_WORKER_PROCESS_COUNT="2")
    onebox.server.start()
    yield onebox
    assert onebox.close() == 0


@pytest.fixture
def own_workers(tmp_path: Path) -> Iterator[OneboxProcess]:
    """The same for one test that ends the host."""
    onebox = OneboxProcess(tmp_path, APP, FUNCTIONS_WORKER_PROCESS_COUNT="2")
    onebox.server.start()
    yield onebox
    onebox.close()


def start(onebox: OneboxProcess, name: str, instance_id: str, given: Any) -> None:
    answer = onebox.client.post(f"/api/start/{name}/{instance_id}", json=given)
    assert answer.status_code == 200, answer.text


def output_of(onebox: OneboxProcess, instance_id: str) -> Any:
    state = onebox.until(instance_id, "Completed", "Failed")
    assert state["runtimeStatus"] == "Completed", state
    return state["output"]


def test_functions_run_in_both_processes_and_not_in_the_host(workers: OneboxProcess) -> None:
    pids = pids_of(workers)
    assert len(set(pids)) == 2
    served = {int(workers.client.get("/api/pid").text) for _ in range(10)}
    assert served == set(pids)
    assert workers.server.process is not None
    assert workers.server.process.pid not in served


def test_orchestrators_entities_activities_and_clients_work(workers: OneboxProcess) -> None:
    start(workers, "many", "many", {"times": 5, "text": ""})
    times, *pids = output_of(workers, "many")
    assert times == 5
    assert set(pids) <= set(pids_of(workers))
    start(workers, "count", "count", "a")
    assert output_of(workers, "count") == 1
    assert int(workers.client.get("/api/history/many").text) > 15
    assert workers.client.get("/api/ended/many?seconds=10").text == "COMPLETED"
    assert workers.client.get("/api/ended/nobody?seconds=0.1").text == "not yet"


def test_a_long_history_reaches_an_orchestrator_that_is_replayed(workers: OneboxProcess) -> None:
    """The host sends the end of a long history alone, and all of it when it is asked to."""
    start(workers, "many", "long", {"times": 20, "text": "x" * 5_000})
    assert output_of(workers, "long")[0] == 20


def test_the_log_has_each_line_once_in_the_hosts_form(workers: OneboxProcess) -> None:
    before = workers.log().count("asked for the process")
    workers.client.get("/api/pid")
    found = re.findall(r"^\[[\dT:.-]+Z\] [0-9a-f]{8} asked for the process$", workers.log(), re.MULTILINE)
    assert len(found) == before + 1
    assert re.search(
        r"^\[[\dT:.-]+Z\] [0-9a-f]{8} pid Succeeded in \d+ ms \(GET /api/pid\)$", workers.log(), re.MULTILINE
    )


def failed(onebox: OneboxProcess, instance_id: str) -> str:
    state = onebox.until(instance_id, "Completed", "Failed")
    assert state["runtimeStatus"] == "Failed", state
    return str(state["output"])


def test_an_activity_that_ends_its_process_has_failed_and_is_not_repeated(
    workers: OneboxProcess, tmp_path: Path
) -> None:
    restarts = sum(each["restarts"] for each in described(workers))
    start(workers, "one", "exits-once", {"activity": "exits_once", "input": str(tmp_path)})
    output = failed(workers, "exits-once")
    assert "Function 'exits_once' failed with an unhandled exception." in output
    assert len(list(tmp_path.iterdir())) == 1
    workers.until_logged(r"worker process \d+ ended with exit code 7; it is started again in 0\.\d s")
    eventually(lambda: sum(each["restarts"] for each in described(workers)) == restarts + 1, "a new process")
    pids_of(workers)


def test_the_end_of_a_process_is_noticed_while_a_child_of_it_lives(
    workers: OneboxProcess, tmp_path: Path
) -> None:
    start(workers, "one", "forks", {"activity": "forks_and_exits", "input": str(tmp_path)})
    try:
        failed(workers, "forks")
    finally:
        (tmp_path / "end").touch()


@pytest.mark.long
@pytest.mark.shows("R6")
def test_activities_that_end_their_processes_neither_spin_nor_stop_the_host(
    own_workers: OneboxProcess, tmp_path: Path
) -> None:
    # Through the host's own API: a function that starts them may be in the process that is ended.
    orchestrators = "/runtime/webhooks/durabletask/orchestrators"
    for number in range(4):
        given = {"activity": "exits_always", "input": str(tmp_path)}
        accepted = own_workers.client.post(f"{orchestrators}/one/exits-{number}", json=given)
        assert accepted.status_code == 202
        failed(own_workers, f"exits-{number}")
    own_workers.until_logged(r"again in 0\.2 s")  # the pauses double
    beside = own_workers.client.post(f"{orchestrators}/many/beside", json={"times": 3, "text": ""})
    assert beside.status_code == 202
    assert output_of(own_workers, "beside")[0] == 3


@pytest.mark.long
@pytest.mark.shows("H20")
def test_the_third_crash_of_the_one_process_ends_the_host_and_its_work_goes_on_at_the_next_start(
    tmp_path: Path,
) -> None:
    onebox = OneboxProcess(tmp_path, APP, FUNCTIONS_WORKER_PROCESS_COUNT="1")
    onebox.server.start()
    try:
        orchestrators = "/runtime/webhooks/durabletask/orchestrators"
        for number in range(3):
            given = {"activity": "exits_always", "input": str(tmp_path)}
            accepted = onebox.client.post(f"{orchestrators}/one/exits-{number}", json=given)
            assert accepted.status_code == 202
            onebox.until_logged(rf"(?s)(worker process \d+ ended with exit code \d+;.*){{{number + 1}}}")
        assert onebox.server.process is not None
        assert onebox.server.process.wait(timeout=60) == 3
        assert "; it is started again" in onebox.log()
        last = onebox.log().splitlines()[-1]
        assert re.fullmatch(
            r"onebox: worker process \d+ ended with exit code \d+: after 3 crashes none is started again; "
            r"here the Functions host ends, too, and the platform starts it",
            last,
        )
        assert "Traceback" not in onebox.log()
        onebox.server.process = None  # it has ended
        onebox.server.start()
        for number in range(3):
            failed(onebox, f"exits-{number}")
    finally:
        onebox.close()


def test_the_orchestration_of_a_process_that_is_killed_goes_on_in_another(
    workers: OneboxProcess, tmp_path: Path
) -> None:
    (notes := tmp_path / "notes").mkdir()
    given = {"folder": str(notes), "until": str(tmp_path / "until")}
    start(workers, "one", "killed", {"activity": "sleeps", "input": given})
    (first,) = eventually(lambda: list(notes.iterdir()) or None, "it runs")
    os.kill(int(first.name), signal.SIGKILL)
    workers.until_logged(f"worker process {first.name} was ended by SIGKILL")
    workers.until_logged("activity 'sleeps' of 'killed' failed: the process at the other end ended")
    failed(workers, "killed")
    assert list(notes.iterdir()) == [first]
    assert int(first.name) not in pids_of(workers)


@pytest.mark.long
def test_processes_that_are_killed_at_random_fail_their_batches_and_double_nothing(tmp_path: Path) -> None:
    # Three bear nine kills before the host ends.
    onebox = OneboxProcess(tmp_path, APP, FUNCTIONS_WORKER_PROCESS_COUNT="3")
    onebox.server.start()
    try:
        _kill_at_random(onebox)
    finally:
        onebox.close()


def _kill_at_random(onebox: OneboxProcess) -> None:
    draws = random.Random(15)  # noqa: S311 # draws whom to kill
    killed: set[int] = set()
    for number in range(120):
        path = f"/runtime/webhooks/durabletask/orchestrators/count/added-{number}"
        assert onebox.client.post(path, json=f"key-{number % 3}").status_code == 202
        if number % 20 == 10:
            running = [each["pid"] for each in described(onebox) if each["state"] == "Running"]
            for pid in draws.sample(running, min(1, len(running))):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
    states = [onebox.until(f"added-{number}", "Completed", "Failed") for number in range(120)]
    for key in range(3):  # each addition that was stored was seen once, by one orchestration
        outputs = [each["output"] for each in states[key::3] if each["runtimeStatus"] == "Completed"]
        assert sorted(outputs) == list(range(1, len(outputs) + 1))
    assert killed
    eventually(
        lambda: sum(each["restarts"] for each in described(onebox)) >= len(killed),
        "each kill is a restart",
    )


def test_a_request_whose_process_ends_is_answered_with_an_error(workers: OneboxProcess) -> None:
    assert workers.client.post("/api/exit").status_code == 500
    assert workers.client.get("/api/pid").status_code == 200
    pids_of(workers)


def test_activities_that_block_leave_turns_alone(workers: OneboxProcess, tmp_path: Path) -> None:
    (notes := tmp_path / "notes").mkdir()
    given = {"folder": str(notes), "until": str(tmp_path / "until")}
    for number in range(40):
        start(workers, "one", f"blocked-{number}", {"activity": "sleeps", "input": given})
    start(workers, "count", "beside-blocked", "b")
    assert output_of(workers, "beside-blocked") == 1
    (tmp_path / "until").touch()
    for number in range(40):
        output_of(workers, f"blocked-{number}")


@pytest.mark.parametrize("processes", ["", "2"])
def test_a_client_that_blocks_an_async_function_is_answered(tmp_path: Path, processes: str) -> None:
    onebox = OneboxProcess(tmp_path, APP, FUNCTIONS_WORKER_PROCESS_COUNT=processes)
    onebox.server.start()
    try:
        answer = onebox.client.get("/api/blocking/asked", timeout=30)
        assert (answer.status_code, answer.text) == (200, '["asked", true, "Running"]')
        assert output_of(onebox, "asked") == 1
    finally:
        assert onebox.close() == 0


def test_a_blocked_process_holds_up_no_timer_of_others(workers: OneboxProcess) -> None:
    seconds, naps = 6, 40
    for number in range(naps):
        start(workers, "nap", f"nap-{number}", seconds * number / naps)
    blocking = Thread(
        target=workers.client.post, args=[f"/api/block?seconds={seconds}"], kwargs={"timeout": 60}
    )
    blocking.start()
    outputs = [output_of(workers, f"nap-{number}") for number in range(naps)]
    blocking.join()
    assert max(outputs) < seconds / 2  # late by 0.7 s, by more on a busy machine; a blocked one by all of it


@pytest.fixture
def hasty_workers(tmp_path: Path) -> Iterator[OneboxProcess]:
    """One worker process, in which a function may take two seconds."""
    app = tmp_path / "app"
    copy_with_timeout(APP, app, seconds=2)
    onebox = OneboxProcess(tmp_path, app, FUNCTIONS_WORKER_PROCESS_COUNT="1")
    onebox.server.start()
    yield onebox
    onebox.close()


@pytest.mark.long
def test_a_process_whose_loop_is_blocked_is_replaced(hasty_workers: OneboxProcess) -> None:
    (pid,) = pids_of(hasty_workers)
    assert hasty_workers.client.post("/api/block?seconds=600").status_code == 500
    hasty_workers.until_logged(f"worker process {pid} is replaced: a function ran out of time")
    assert hasty_workers.client.get("/api/pid").text != str(pid)


@pytest.mark.long
def test_a_process_with_an_activity_that_hangs_is_replaced_and_the_activity_fails(
    hasty_workers: OneboxProcess, tmp_path: Path
) -> None:
    (notes := tmp_path / "notes").mkdir()
    given = {"folder": str(notes), "until": str(tmp_path / "never")}
    start(hasty_workers, "one", "hangs", {"activity": "sleeps", "input": given})
    state = hasty_workers.until("hangs", "Completed", "Failed")
    assert state["runtimeStatus"] == "Failed"
    assert "sleeps ran longer than functionTimeout (2 s)" in state["output"]
    (ran,) = notes.iterdir()
    eventually(lambda: is_gone(int(ran.name)), "the process that ran it is gone")
    assert pids_of(hasty_workers) != [int(ran.name)]


def test_a_signal_to_all_processes_ends_no_worker_that_only_begins(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(ASKED_AT_ONCE)
    onebox = OneboxProcess(
        tmp_path,
        APP,
        FUNCTIONS_WORKER_PROCESS_COUNT="1",
        PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}",
    )
    onebox.server.start()
    try:
        assert len(pids_of(onebox)) == 1
    finally:
        assert onebox.close() == 0


ASKED_AT_ONCE = """
import os, signal, sys
class Asks:
    def find_spec(self, name, *_):
        if name == "onebox.worker.child":
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(os.getpid(), number)
if "onebox.worker" in sys.orig_argv:
    sys.meta_path.insert(0, Asks())
"""


def test_a_stop_ends_all_processes(own_workers: OneboxProcess) -> None:
    pids = pids_of(own_workers)
    assert own_workers.server.stop() == 0
    assert all(map(is_gone, pids))
    assert "Traceback" not in own_workers.log()
    assert "it is killed" not in own_workers.log()


@pytest.mark.long
def test_a_stop_ends_a_process_whose_loop_is_blocked(own_workers: OneboxProcess) -> None:
    pids = pids_of(own_workers)
    with blocking(own_workers):
        assert own_workers.server.stop() == 0
        assert all(map(is_gone, pids))


@pytest.mark.long
def test_an_async_function_that_blocks_holds_up_neither_host_nor_hub(own_workers: OneboxProcess) -> None:
    with blocking(own_workers):
        assert [each["state"] for each in described(own_workers)] == ["Running", "Running"]
        # Those whose ids belong to the other process end; all are accepted and can be looked at.
        ids = [f"beside-a-blocked-loop-{number}" for number in range(40)]
        for each in ids:
            start(own_workers, "count", each, each)
        eventually(
            lambda: "Completed" in {own_workers.instance(each)["runtimeStatus"] for each in ids},
            "some have ended",
        )
        own_workers.server.kill()


def test_one_process_that_blocks_holds_up_neither_status_nor_starts(tmp_path: Path) -> None:
    onebox = OneboxProcess(tmp_path, APP, FUNCTIONS_WORKER_PROCESS_COUNT="1")
    onebox.server.start()
    caller = Thread(target=blocking(onebox).call)
    caller.start()
    try:
        eventually(lambda: answers_nothing(onebox), "it blocks")
        assert onebox.client.get("/admin/host/status").json()["state"] == "Running"
        answer = onebox.client.post(f"{INSTANCES.removesuffix('instances')}orchestrators/count/beside")
        assert answer.status_code == httpx.codes.ACCEPTED
        assert onebox.instance("beside")["runtimeStatus"] == "Pending"
    finally:
        onebox.server.kill()
        caller.join()
        onebox.client.close()


def answers_nothing(onebox: OneboxProcess) -> bool:
    """Whether no function answers within a second."""
    try:
        onebox.client.get("/api/pid", timeout=1)
    except httpx.ReadTimeout:
        return True
    return False


def test_no_process_survives_the_host(own_workers: OneboxProcess) -> None:
    pids = pids_of(own_workers)
    with blocking(own_workers):
        own_workers.server.kill()
        eventually(lambda: all(map(is_gone, pids)), "the worker processes end")


class blocking:  # noqa: N801 # reads as a verb
    """One worker process blocks its event loop."""

    def __init__(self, onebox: OneboxProcess) -> None:
        self._onebox = onebox
        self._caller = Thread(target=self.call)

    def call(self) -> None:
        """Ask for it; return when it has ended, or the host has."""
        with suppress(httpx.TransportError), httpx.Client(base_url=self._onebox.url, timeout=60) as client:
            client.post("/api/block?seconds=60")

    def __enter__(self) -> None:
        self._caller.start()
        # The one that blocks answers no more.
        eventually(
            lambda: len({self._onebox.client.get("/api/pid").text for _ in range(6)}) == 1, "one blocks"
        )

    def __exit__(self, *_: object) -> None:
        self._caller.join()

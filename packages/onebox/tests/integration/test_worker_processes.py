"""The functions in processes of their own: FUNCTIONS_WORKER_PROCESS_COUNT."""

import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import httpx
import pytest

from onebox import CannotStartError
from onebox.clock import SystemClock
from onebox.worker.processes import WorkerProcesses
from scripts.processes import eventually
from tests.support.onebox.process import (
    INSTANCES,
    SAMPLE,
    OneboxProcess,
    run_to_end,
)
from tests.support.onebox.workers import (
    APP,
    answers_nothing,
    blocking,
    described,
    failed,
    output_of,
    pids_of,
    start,
)


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneboxProcess]:
    """Two worker processes, for all tests that leave the host running."""
    onebox = OneboxProcess(tmp_path_factory.mktemp("workers"), APP, FUNCTIONS_WORKER_PROCESS_COUNT="2")
    onebox.server.start()
    yield onebox
    assert onebox.close() == 0


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


def test_an_app_that_cannot_be_loaded_ends_the_start(tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    shutil.copy(SAMPLE / "host.json", app)
    (app / "function_app.py").write_text("import a_module_that_is_missing\n")
    arguments = (
        "--app",
        str(app),
        "--data",
        str(tmp_path / "data"),
        "--port",
        "0",
        "--storage-ports",
        "free",
    )
    ended = run_to_end(*arguments, FUNCTIONS_WORKER_PROCESS_COUNT="2")
    assert ended.returncode == 1
    assert ended.stderr.startswith(
        "onebox: the app could not be loaded\nTraceback (most recent call last):\n"
    )
    assert "No module named 'a_module_that_is_missing'" in ended.stderr
    (app / "function_app.py").write_text("import os\nos._exit(5)\n")
    ended = run_to_end(*arguments, FUNCTIONS_WORKER_PROCESS_COUNT="2")
    assert ended.returncode == 1
    assert ended.stderr == "onebox: a worker process ended with exit code 5 while it loaded the app\n"


async def test_an_app_that_hangs_while_it_is_loaded_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import threading\n\nthreading.Event().wait()\n")
    (tmp_path / "function_app.py").write_text("import slow\n")
    processes = WorkerProcesses(1, tmp_path, None, SystemClock(), load_seconds=0.2)
    with pytest.raises(CannotStartError) as caught:
        await processes.start()
    head, *frames = str(caught.value).splitlines()
    place = f"it hangs at {tmp_path}/slow.py, line 3, in <module>"
    assert re.fullmatch(rf"worker process \d+ did not load the app within 0\.2 s: {re.escape(place)}", head)
    assert f"  {tmp_path}/function_app.py, line 1, in <module>" in frames
    assert all(each["pid"] is None for each in processes.described())


def test_a_count_that_is_none_ends_the_start(tmp_path: Path) -> None:
    ended = run_to_end(
        *("--app", str(APP), "--data", str(tmp_path / "data"), "--port", "0", "--storage-ports", "free"),
        FUNCTIONS_WORKER_PROCESS_COUNT="many",
    )
    assert ended.returncode == 1
    assert (
        "app setting FUNCTIONS_WORKER_PROCESS_COUNT must be a number from 0 to 10, not 'many'" in ended.stderr
    )

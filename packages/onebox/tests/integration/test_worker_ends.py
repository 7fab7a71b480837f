"""Worker processes that end, block or are replaced."""

import os
import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from scripts.processes import eventually
from tests.support.onebox.process import (
    OneboxProcess,
    copy_with_timeout,
    write_app,
)
from tests.support.onebox.workers import (
    APP,
    blocking,
    described,
    failed,
    is_gone,
    output_of,
    pids_of,
    start,
)


@pytest.fixture
def own_workers(tmp_path: Path) -> Iterator[OneboxProcess]:
    """The same for one test that ends the host."""
    onebox = OneboxProcess(tmp_path, APP, FUNCTIONS_WORKER_PROCESS_COUNT="2")
    onebox.server.start()
    yield onebox
    onebox.close()


@pytest.mark.long
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


@pytest.mark.long
def test_no_process_survives_the_host(own_workers: OneboxProcess) -> None:
    pids = pids_of(own_workers)
    with blocking(own_workers):
        own_workers.server.kill()
        eventually(lambda: all(map(is_gone, pids)), "the worker processes end")


@pytest.mark.long
def test_an_app_that_can_be_loaded_no_more_is_tried_again(tmp_path: Path) -> None:
    app = tmp_path / "app"
    write_app(app, level="ANONYMOUS")
    code = (app / "function_app.py").read_text()
    onebox = OneboxProcess(tmp_path, app, FUNCTIONS_WORKER_PROCESS_COUNT="1")
    onebox.server.start()
    try:
        (pid,) = pids_of(onebox)
        (app / "function_app.py").write_text("import a_module_that_is_missing\n")
        os.kill(pid, signal.SIGKILL)
        onebox.until_logged("the app could not be loaded(?s:.)*the app could not be loaded")
        (app / "function_app.py").write_text(code)
        eventually(lambda: onebox.client.get("/api/word").text == "first", "it is loaded again")
    finally:
        assert onebox.close() == 0


@pytest.mark.long
def test_a_change_is_served_by_new_processes(tmp_path: Path) -> None:
    app = tmp_path / "app"
    write_app(app, level="ANONYMOUS")
    onebox = OneboxProcess(tmp_path, app, "--reload", FUNCTIONS_WORKER_PROCESS_COUNT="1")
    onebox.server.start()

    def says(word: str) -> bool:
        try:
            return onebox.client.get("/api/word").text == word
        except httpx.TransportError:
            return False

    try:
        assert says("first")
        (pid,) = pids_of(onebox)
        write_app(app, word="second", level="ANONYMOUS")
        eventually(lambda: says("second"), "the change is served")
        assert is_gone(pid)
    finally:
        assert onebox.close() == 0

"""The app is loaded by worker processes: what fails, hangs or changes."""

import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from onebox import CannotStartError
from onebox.clock import SystemClock
from onebox.worker.processes import WorkerProcesses
from scripts.processes import eventually
from tests.support.onebox.process import SAMPLE, OneboxProcess, run_to_end, write_app
from tests.support.onebox.worker_processes import is_gone, pids_of

APP = SAMPLE.parent / "workers"


@pytest.mark.long
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


def test_a_count_that_is_none_ends_the_start(tmp_path: Path) -> None:
    ended = run_to_end(
        *("--app", str(APP), "--data", str(tmp_path / "data"), "--port", "0", "--storage-ports", "free"),
        FUNCTIONS_WORKER_PROCESS_COUNT="many",
    )
    assert ended.returncode == 1
    assert (
        "app setting FUNCTIONS_WORKER_PROCESS_COUNT must be a number from 0 to 10, not 'many'" in ended.stderr
    )


@pytest.mark.long
def test_a_change_is_served_by_new_processes(tmp_path: Path) -> None:
    app = tmp_path / "app"
    write_app(app, level="ANONYMOUS")
    onebox = OneboxProcess(tmp_path, app, "--reload", FUNCTIONS_WORKER_PROCESS_COUNT="1")
    onebox.server.start()

    try:
        assert onebox.says("first")
        (pid,) = pids_of(onebox)
        write_app(app, word="second", level="ANONYMOUS")
        eventually(lambda: onebox.says("second"), "the change is served")
        assert is_gone(pid)
    finally:
        assert onebox.close() == 0

import json
import platform
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from scripts.processes import eventually, free_port
from tests.support.onebox.process import OWN_AZURITE, SAMPLE, OneboxProcess, run_to_end, write_app

HOST_JSON = '{"version": "2.0"}'
APP = """
import azure.durable_functions as df
import azure.functions as func
app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """An app without functions, to be broken."""
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "host.json").write_text(HOST_JSON)
    (folder / "function_app.py").write_text(APP)
    return folder


def message_of(app: Path, *arguments: str) -> str:
    """What onebox says before it exits with 1."""
    ended = run_to_end("--app", str(app), "--data", str(app / "data"), "--port", str(free_port()), *arguments)
    assert ended.returncode == 1, ended.stderr
    return ended.stderr


@pytest.mark.long
def test_a_folder_without_host_json_is_named(tmp_path: Path) -> None:
    assert (
        message_of(tmp_path) == f"onebox: no host.json in {tmp_path}: is this the folder of a function app?\n"
    )


@pytest.mark.long
def test_a_folder_without_function_app_is_named(app: Path) -> None:
    (app / "function_app.py").unlink()
    assert message_of(app) == f"onebox: no function_app.py in {app}: is this the folder of a function app?\n"


@pytest.mark.long
def test_every_mistake_in_host_json_is_named(app: Path) -> None:
    queues = {"batchSize": 99, "batchsizes": 1, "visibilityTimeout": 30}
    (app / "host.json").write_text(
        json.dumps({"version": "2.0", "extension": {}, "extensions": {"queues": queues}})
    )
    said = message_of(app)
    assert "host.json: unknown key extension, did you mean extensions?\n" in said
    assert "host.json: unknown key extensions.queues.batchsizes, did you mean batchSize?\n" in said
    assert "host.json: extensions.queues.batchSize: Input should be less than or equal to 32" in said
    assert "host.json: extensions.queues.visibilityTimeout: Value error, write a TimeSpan in quotes" in said


def test_host_json_that_is_not_json_is_reported_with_its_line(app: Path) -> None:
    (app / "host.json").write_text('{"version": }')
    assert message_of(app).startswith("onebox: host.json is not JSON: Expecting value: line 1 column 13")


def test_an_error_in_the_app_shows_its_traceback_without_our_frames(app: Path) -> None:
    (app / "function_app.py").write_text(APP + "import a_module_that_is_missing\n")
    said = message_of(app)
    assert said.startswith("onebox: the app could not be loaded\nTraceback (most recent call last):\n")
    assert f'File "{app}/function_app.py", line 5' in said
    assert "ModuleNotFoundError: No module named 'a_module_that_is_missing'" in said
    assert "worker/functions.py" not in said
    assert "importlib" not in said
    assert f"The app runs with {sys.executable}: install its requirements there" in said


def test_an_error_that_hides_its_traceback_is_shown_by_its_message_alone(app: Path) -> None:
    code = (
        "class Wrong(Exception):\n    hides_traceback = True\n\nraise Wrong('settings.toml:3: no such key')\n"
    )
    (app / "function_app.py").write_text(APP + code)
    assert message_of(app) == "onebox: the app could not be loaded\nsettings.toml:3: no such key\n"


@pytest.mark.long
def test_an_app_that_leaves_while_it_is_loaded_is_reported(app: Path) -> None:
    (app / "function_app.py").write_text(APP + "raise SystemExit('not today')\n")
    assert "SystemExit: not today" in message_of(app)


@pytest.mark.long
def test_data_of_a_later_version_are_left_alone(app: Path) -> None:
    (app / "data").mkdir()
    with closing(sqlite3.connect(app / "data" / "hub.sqlite")) as store:
        store.execute("PRAGMA user_version = 999")
    said = message_of(app)
    assert f"onebox: {app}/data/hub.sqlite was written by a later version of onebox (form 999" in said
    assert said.endswith("update onebox, or choose another folder with --data\n")


@pytest.mark.long
@pytest.mark.parametrize("port", ["abc", "-1", "65536", "٣"])
def test_what_is_no_port_is_named(app: Path, port: str) -> None:
    ended = run_to_end("--app", str(app), f"--port={port}")
    assert ended.returncode == 2
    assert ended.stderr.endswith(f"argument --port: must be a number from 0 to 65535, not '{port}'\n")


@pytest.mark.long
def test_an_address_of_another_machine_is_named(app: Path) -> None:
    said = message_of(app, "--host", "192.0.2.1")
    assert "onebox: cannot listen on 192.0.2.1: " in said
    assert said.endswith("; choose another address with --host\n")


@pytest.mark.long
def test_a_port_in_use_is_named(app: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = message_of(app, "--port", str(port))
    assert said == f"onebox: port {port} is in use; choose another with --port\n"


@pytest.mark.long
def test_a_missing_setting_is_named(app: Path) -> None:
    (app / "function_app.py").write_text(
        APP
        + "@app.queue_trigger(arg_name='m', queue_name='%NO_SUCH%', connection='Elsewhere')\n"
        + "def on_message(m: func.QueueMessage): pass\n"
    )
    said = message_of(app)
    assert said.endswith("onebox: function on_message: app setting NO_SUCH is not set, see '%NO_SUCH%'\n")


@pytest.mark.long
def test_a_name_that_no_queue_can_have_is_named(app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEBOX_QUEUES", "orders Bad_Name")
    said = message_of(app)
    assert "onebox: app setting ONEBOX_QUEUES must be names of " in said
    assert said.endswith(", not 'Bad_Name'\n")


@pytest.mark.parametrize(
    ("storage", "problem"),
    [
        ("AccountName=x", "You need to provide .* an account shared key .*"),
        ("AccountName=x;AccountKey=not-base64", "Invalid base64.*"),
        ("AccountName=x;AccountKey=YQ==;QueueEndpoint=http://127.0.0.1:1/x", ".*Connection refused"),
    ],
)
def test_a_queue_that_cannot_be_created_is_named(
    app: Path, monkeypatch: pytest.MonkeyPatch, storage: str, problem: str
) -> None:
    monkeypatch.setenv("ONEBOX_QUEUES", "orders")
    monkeypatch.setenv("AzureWebJobsStorage", storage)
    said = message_of(app)
    assert "Traceback" not in said
    sentence = f"onebox: queue orders of ONEBOX_QUEUES cannot be created: {problem}; see AzureWebJobsStorage"
    assert re.fullmatch(sentence, said.splitlines()[-1])


def test_a_data_folder_in_use_is_named(onebox: OneboxProcess) -> None:
    said = run_to_end("--app", str(SAMPLE), "--data", str(onebox.data), "--port", str(free_port())).stderr
    assert (
        said == f"onebox: another onebox uses {onebox.data}; stop it, or choose another folder with --data\n"
    )


@pytest.mark.long
def test_the_real_environment_wins_over_local_settings(tmp_path: Path) -> None:
    onebox = OneboxProcess(tmp_path, WORK_QUEUE="elsewhere")
    onebox.server.start()
    try:
        onebox.queue("elsewhere").send_message("here")
        eventually(lambda: "here" in onebox.client.get("/api/seen").text, "the message arrives")
    finally:
        assert onebox.close() == 0


def test_the_banner_lists_functions_and_routes_when_asked_for(tmp_path: Path) -> None:
    onebox = OneboxProcess(tmp_path, SAMPLE, "--verbose")
    onebox.server.start()
    log = onebox.log()
    assert onebox.close() == 0
    assert f"\titem_by_number: [GET] {onebox.url}/api/items/{{id:int}}\n" in log
    assert f"\techo: [all methods] {onebox.url}/api/echo/{{*rest}}\n" in log
    assert "\tgreet: orchestrationTrigger\n" in log
    assert "\twork: queueTrigger (%WORK_QUEUE%)\n" in log


@pytest.mark.long
def test_listening_to_other_machines_without_keys_is_warned_of(app: Path) -> None:
    (app / "function_app.py").unlink()  # it ends soon
    warning = "0.0.0.0 is reachable from other machines, and every endpoint is open: start with --auth"
    assert warning in message_of(app, "--host", "0.0.0.0")  # noqa: S104 # what is warned of
    assert "reachable" not in message_of(app, "--host", "0.0.0.0", "--auth")  # noqa: S104 # as above
    assert "reachable" not in message_of(app, "--host", "localhost")


def test_the_collector_is_kept_from_what_is_loaded_and_the_apps_own_threshold_stays() -> None:
    code = """
import gc
from onebox.worker.loading import tune_garbage_collector
gc.set_threshold(50_000, 3, 4)
tune_garbage_collector()
print(gc.get_threshold(), gc.get_freeze_count() > 10_000)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "(50000, 3, 4) True\n"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that keeps them")
def test_a_large_block_is_returned_to_the_system_also_after_one_was_freed() -> None:
    code = """
import ctypes
from onebox.worker.loading import _keep_large_blocks_apart
class Info(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]
info = ctypes.CDLL(None).mallinfo2
info.restype = Info
_keep_large_blocks_apart()
bytearray(3_000_000)
apart = info().hblks
large = bytearray(2_000_000)
print(info().hblks - apart)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "1\n"


HANGS = """
import os, threading
from pathlib import Path
Path(os.environ["REACHED"]).touch()
try:
    threading.Event().wait()
except Exception:
    pass
"""


@pytest.mark.parametrize("processes", ["0", "1"])
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, marks=pytest.mark.long),
    ],
)
def test_a_signal_ends_the_start_of_an_app_that_hangs(
    app: Path, tmp_path: Path, processes: str, number: signal.Signals
) -> None:
    (app / "function_app.py").write_text(HANGS)
    reached = tmp_path / "reached"
    settings = {"AzureWebJobsStorage": OWN_AZURITE, "FUNCTIONS_WORKER_PROCESS_COUNT": processes}
    onebox = OneboxProcess(tmp_path, app, REACHED=str(reached), **settings)
    ours = signal.signal(number, signal.SIG_DFL)  # a child ignores what `nohup` has us ignore
    try:
        onebox.server.launch()
    finally:
        signal.signal(number, ours)
    try:
        eventually(reached.exists, "the app is being imported")
        assert onebox.server.process is not None
        onebox.server.process.send_signal(number)
        assert onebox.server.process.wait(timeout=30) == 0
        assert "stopped during the start" in onebox.log()
        assert "Traceback" not in onebox.log()
        assert not onebox.ports.taken(), "its storage has ended"
    finally:
        onebox.server.kill()


ENDS_AT_IMPORT = """
import os, signal, sys

number = int(sys.argv.pop(1))
signal.signal(number, signal.SIG_DFL)  # a child ignores what `nohup` has us ignore

class Asks:
    def find_spec(self, name, *_):
        if name == "onebox.cli":
            os.kill(os.getpid(), number)

sys.meta_path.insert(0, Asks())
from onebox.__main__ import main
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_start_in_order_while_onebox_itself_is_imported(number: signal.Signals) -> None:
    def ended(command: str) -> tuple[int, str]:
        code = [sys.executable, "-c", ENDS_AT_IMPORT, str(int(number)), command]
        ran = subprocess.run(code, capture_output=True, text=True, check=False, timeout=60)
        return ran.returncode, ran.stderr

    assert ended("start") == ended("storage") == (0, "")
    assert ended("keys") == (-number, ""), "who makes a key must not take this for success"


def test_it_serves_also_where_the_caller_has_closed_the_standard_streams(tmp_path: Path) -> None:
    app = tmp_path / "app"
    write_app(app, level="ANONYMOUS")
    onebox = OneboxProcess(tmp_path, app, AzureWebJobsStorage=OWN_AZURITE)
    onebox.server.command = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *onebox.server.command]
    onebox.server.start()
    try:
        assert onebox.client.get("/api/word").text == "first"
    finally:
        assert onebox.close() == 0


def test_check_says_whether_a_store_is_sound(tmp_path: Path) -> None:
    def check() -> tuple[int, str]:
        command = [sys.executable, "-m", "onebox", "check", "--data", str(tmp_path)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        return ended.returncode, ended.stdout + ended.stderr

    assert check() == (1, f"onebox: {tmp_path}/hub.sqlite is not there: name the folder with --data\n")
    store = tmp_path / "hub.sqlite"
    with closing(sqlite3.connect(store)) as db:
        db.execute("CREATE TABLE t (x)")
        db.executemany("INSERT INTO t VALUES (?)", [("x" * 1000,)] * 100)
        db.commit()
    assert check() == (0, f"{store} is sound\n")
    with store.open("r+b") as file:
        file.seek(5 * 4096)
        file.write(b"\xa5" * 4096)
    code, text = check()
    assert code == 1
    assert "hub.sqlite is damaged\n" in text
    assert '"A damaged store", says what to do' in text


def test_everything_in_the_data_folder_is_its_owners_alone(onebox: OneboxProcess) -> None:
    onebox.start_orchestration("greet", "modes", ["Ada"])
    onebox.until_finished("modes")
    modes = {path: path.stat().st_mode & 0o777 for path in [onebox.data, *onebox.data.rglob("*")]}
    assert {"hub.sqlite", "hub.sqlite-wal", "hub.sqlite.lock", "hub.sock"} <= {path.name for path in modes}
    assert {path: mode for path, mode in modes.items() if mode & 0o077} == {}


def test_the_store_is_exported_while_it_is_used(onebox: OneboxProcess) -> None:
    onebox.start_orchestration("greet", "exported", ["Ada"])
    state = onebox.until_finished("exported")
    line = [sys.executable, "-m", "onebox", "export", "--data", str(onebox.data)]
    ended = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stderr
    things = [json.loads(text) for text in ended.stdout.splitlines()]
    (shown,) = (thing for thing in things if thing.get("instance") == "exported")
    assert (shown["name"], shown["status"]) == ("greet", "COMPLETED")
    assert (json.loads(shown["input"]), json.loads(shown["output"])) == (["Ada"], state["output"])

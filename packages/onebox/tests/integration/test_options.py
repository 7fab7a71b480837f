import json
import shutil
import time
from pathlib import Path
from threading import Thread

import grpc
import httpx
import pytest
from durabletask.client import TaskHubGrpcClient
from durabletask.grpc_options import GrpcChannelOptions

from scripts.processes import eventually
from tests.support.onebox.process import SAMPLE, OneboxProcess, write_app


@pytest.mark.shows("H13")
def test_with_auth_each_level_asks_for_its_key(tmp_path: Path) -> None:
    write_app(tmp_path / "app")
    onebox = OneboxProcess(tmp_path, tmp_path / "app", "--auth")
    onebox.server.start()
    try:
        keys = json.loads((onebox.data / "keys.json").read_text())
        assert (onebox.data / "keys.json").stat().st_mode & 0o077 == 0
        client = onebox.client
        assert client.get("/api/open").text == "open"
        assert client.get("/api/word").status_code == 401
        assert client.get("/api/word", headers={"x-functions-key": keys["function"]}).text == "first"
        assert client.get("/api/word", params={"code": keys["admin"]}).text == "first"
        assert client.get("/api/word", params={"code": keys["system"]}).status_code == 401
        assert client.get("/admin/functions").status_code == 401
        assert "storage" not in client.get("/admin/host/status").json()
        status = client.get("/admin/host/status", params={"code": keys["admin"]}).json()
        assert status["storage"] == {"kind": "external"}
        assert client.get("/admin/functions", params={"code": keys["system"]}).status_code == 401
        assert client.get("/admin/functions", params={"code": keys["function"]}).status_code == 401
        assert client.get("/admin/functions", params={"code": keys["admin"]}).status_code == 200
        api = "/runtime/webhooks/durabletask/instances"
        assert client.get(api).status_code == 401
        assert client.get(api, params={"code": keys["function"]}).status_code == 401
        assert client.get(api, params={"code": keys["system"]}).json() == []
        assert client.get(api, params={"code": keys["admin"]}).json() == []
        assert onebox.data.stat().st_mode & 0o777 == 0o700
        with TaskHubGrpcClient(host_address=f"unix:{onebox.data / 'hub.sock'}") as hub:
            assert hub.get_orchestration_state("none") is None
    finally:
        assert onebox.close() == 0


@pytest.mark.long
def test_with_reload_a_change_is_served_and_a_mistake_is_waited_out(tmp_path: Path) -> None:
    app = tmp_path / "app"
    write_app(app, level="ANONYMOUS")
    onebox = OneboxProcess(tmp_path, app, "--reload")
    onebox.server.start()

    try:
        assert onebox.says("first")
        (app / "function_app.py").write_text("import nothing_of_the_kind\n")
        onebox.until_logged("No module named 'nothing_of_the_kind'")
        write_app(app, word="second", level="ANONYMOUS")
        eventually(lambda: onebox.says("second"), "the change is served")
        onebox.until_logged("function_app.py changed: starting again")
    finally:
        assert onebox.close() == 0


@pytest.mark.long
def test_a_stop_during_a_long_run_takes_less_than_ten_seconds_and_exits_0(own_onebox: OneboxProcess) -> None:
    def call() -> None:
        with httpx.Client(base_url=own_onebox.url, timeout=60) as client:
            try:
                client.post("/api/slow?seconds=60")
            except httpx.TransportError:
                return

    caller = Thread(target=call)
    caller.start()
    eventually(lambda: "slow began" in own_onebox.log(), "the function runs")
    began = time.monotonic()
    assert own_onebox.server.stop() == 0
    assert time.monotonic() - began < 10
    assert "Traceback" not in own_onebox.log()
    caller.join()


def assert_another_process_reads(instance_id: str, address: str) -> None:
    """A client outside of the app takes more than 4 MiB when it asks for that."""
    options = GrpcChannelOptions(max_receive_message_length=8 * 1024 * 1024)
    with (
        TaskHubGrpcClient(host_address=address) as client,
        pytest.raises(grpc.RpcError, match="larger than max"),
    ):
        client.get_orchestration_state(instance_id)
    with TaskHubGrpcClient(host_address=address, channel_options=options) as client:
        state = client.get_orchestration_state(instance_id)
        assert state is not None
        assert len(state.serialized_output or "") > 4 * 1024 * 1024


@pytest.mark.parametrize(
    ("limit_bytes", "read", "sent"),
    [(None, 500, 500), pytest.param(5 * 1024 * 1024, 200, 202, marks=pytest.mark.long)],
)
@pytest.mark.shows("H8")
def test_a_client_takes_and_sends_messages_of_4_mib_unless_host_json_says_otherwise(
    limit_bytes: int | None, read: int, sent: int, tmp_path: Path
) -> None:
    large = "x" * 4 * 1024 * 1024
    shutil.copytree(SAMPLE, tmp_path / "app")
    host_json = tmp_path / "app" / "host.json"
    settings = json.loads(host_json.read_text())
    if limit_bytes is not None:
        settings["extensions"]["durableTask"]["maxGrpcMessageSizeInBytes"] = limit_bytes
    host_json.write_text(json.dumps(settings))
    onebox = OneboxProcess(tmp_path, tmp_path / "app")
    onebox.server.start()
    try:
        onebox.start_orchestration("waits", "large", None)
        onebox.raise_event("large", "go", large)
        onebox.until("large", "Completed")
        assert onebox.client.get("/api/status/large").status_code == read
        assert onebox.client.post("/api/start/waits/sent", json=large).status_code == sent
        if limit_bytes is None:
            onebox.until_logged(r"Received message larger than max \(\d+ vs\. 4194304\)")
            onebox.until_logged(r"Sent message larger than max \(\d+ vs\. 4194304\)")
            assert_another_process_reads("large", f"unix:{onebox.data / 'hub.sock'}")
    finally:
        assert onebox.close() == 0


@pytest.mark.shows("H1")
def test_a_reorder_window_in_an_app_setting_counts_and_leaves_calls_of_entities_without_an_answer(
    tmp_path: Path,
) -> None:
    window = {"AzureFunctionsJobHost__extensions__durableTask__entityMessageReorderWindowInMinutes": "30"}
    onebox = OneboxProcess(tmp_path, SAMPLE, **window)
    onebox.server.start()
    try:
        onebox.start_orchestration("greet", "unheard", ["Ada"])
        onebox.until_logged("messages of 'unheard' \\(greet\\) to entities are dropped")
        assert onebox.instance("unheard")["runtimeStatus"] == "Running"
    finally:
        assert onebox.close() == 0

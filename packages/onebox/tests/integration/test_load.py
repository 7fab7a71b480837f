"""Many at once, and a stop in the middle of it."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from scripts.processes import PLAIN_HTTP, eventually
from tests.support.onebox.process import OneboxProcess

pytestmark = pytest.mark.long

AT_ONCE = 50


def test_fifty_starts_at_once_are_all_accepted_and_end(onebox: OneboxProcess) -> None:
    ids = [f"at-once-{number}" for number in range(AT_ONCE)]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(lambda each: onebox.start_orchestration("nap", each, 0), ids))
    assert [onebox.until_finished(each)["output"] for each in ids] == ["Hello sleeper!"] * AT_ONCE


def test_an_async_function_that_blocks_is_named_and_what_waits_for_it_is_served(
    onebox: OneboxProcess,
) -> None:
    with ThreadPoolExecutor(2) as threads:
        blocked = threads.submit(onebox.client.post, "/api/blocks", params={"seconds": 11})
        onebox.until_logged(
            r"the event loop has been held up for 5 s: it is at .*http_functions\.py, line \d+, in blocks"
        )
        waiting = threads.submit(httpx.get, f"{onebox.url}/admin/host/status", timeout=60, verify=PLAIN_HTTP)
        assert blocked.result().text == "done"
        assert waiting.result().status_code == httpx.codes.OK


def test_ctrl_c_under_load_exits_within_ten_seconds_and_loses_nothing(own_onebox: OneboxProcess) -> None:
    accepted = [f"loaded-{number}" for number in range(AT_ONCE)]
    for number in range(AT_ONCE):
        own_onebox.start_orchestration("nap", accepted[number], 0.2)
        own_onebox.queue("work").send_message("sleep 4")
    process = own_onebox.server.process
    assert process is not None
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 0
    assert time.monotonic() - began < 10
    own_onebox.server.start()
    for each in accepted:
        assert own_onebox.until_finished(each)["status"] == "COMPLETED"
    eventually(lambda: "sleep 4" in own_onebox.client.get("/api/seen").text, "messages come back at once")

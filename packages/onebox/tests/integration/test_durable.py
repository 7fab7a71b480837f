import time
from pathlib import Path

import pytest

from tests.support.onebox.process import OneboxProcess


def test_an_orchestration_calls_activities_and_an_entity(onebox: OneboxProcess) -> None:
    onebox.start_orchestration("greet", "greet-two", ["Ada", "Bob"])
    assert onebox.until_finished("greet-two") == {
        "status": "COMPLETED",
        "output": {"greetings": ["Hello Ada!", "Hello Bob!"], "total": 2},
        "error": None,
    }


def test_an_orchestration_sleeps_on_a_timer(onebox: OneboxProcess) -> None:
    onebox.start_orchestration("nap", "short-nap", 0.2)
    assert onebox.until_finished("short-nap")["output"] == "Hello sleeper!"


def test_the_error_of_an_activity_fails_its_orchestration_and_is_logged_once(onebox: OneboxProcess) -> None:
    onebox.start_orchestration("fails", "no-luck", "no luck today")
    state = onebox.until_finished("no-luck")
    assert state["status"] == "FAILED"
    assert "no luck today" in state["error"]
    assert onebox.log().count("LookupError: no luck today") == 1
    logged = onebox.until_logged(r"orchestration 'no-luck' \(fails\) failed - .*no luck today\n.*\n.*")
    assert "durable.py" in logged.splitlines()[1], "the app's own line, not the SDK's"


def test_an_activity_takes_and_returns_64_levels_of_json(onebox: OneboxProcess) -> None:
    onebox.start_orchestration("nests", "nests", {"taken": 63, "returned": 64})
    assert onebox.until_finished("nests")["output"] == 64


@pytest.mark.parametrize(("taken", "returned"), [(64, 1), (1, 65)])
@pytest.mark.shows("H7")
def test_an_activity_fails_whose_input_or_answer_nests_deeper(
    onebox: OneboxProcess, taken: int, returned: int
) -> None:
    instance_id = f"nests-{taken}-{returned}"
    onebox.start_orchestration("nests", instance_id, {"taken": taken, "returned": returned})
    state = onebox.until_finished(instance_id)
    assert state["status"] == "FAILED"
    assert state["output"] == (
        f"durabletask.task.TaskFailedError: {instance_id}: Activity task #1 failed: "
        "The reader's MaxDepth of 64 has been exceeded."
    )


def test_the_output_of_a_failed_orchestration_is_plain_text(onebox: OneboxProcess) -> None:
    onebox.start_orchestration("fails", "no-json", "no luck today")
    assert onebox.until_finished("no-json")["output"] == (
        "durabletask.task.TaskFailedError: no-json: Activity task #1 failed: no luck today"
    )


def test_a_synchronous_client_signals_an_entity(onebox: OneboxProcess) -> None:
    assert onebox.client.post("/api/count/clicks").status_code == 202
    assert onebox.client.post("/api/count/clicks").status_code == 202
    onebox.until_counted("clicks", 2)


def test_the_links_of_the_check_status_response_lead_to_us(onebox: OneboxProcess) -> None:
    answer = onebox.client.post("/api/start/nap/linked", json=0)
    prefix = f"{onebox.url}/runtime/webhooks/durabletask/instances/linked"
    assert answer.headers["location"].startswith(prefix)
    assert answer.json()["sendEventPostUri"].startswith(f"{prefix}/raiseEvent/{{eventName}}?taskHub=Sample")


@pytest.mark.long
def test_on_azures_terms_work_survives_kill_9_and_rests(tmp_path: Path) -> None:
    onebox = OneboxProcess(tmp_path, ONEBOX_SEMANTICS="azure:1,hidden=20")
    onebox.server.start()
    try:
        for number in range(20):
            onebox.start_orchestration("greet", f"greet-{number}", ["Ada"])
        onebox.server.kill()
        killed = time.monotonic()
        onebox.server.start()
        states = [onebox.instance(f"greet-{number}") for number in range(20)]
        assert any(state["runtimeStatus"] in {"Pending", "Running"} for state in states)
        for number in range(20):
            assert onebox.until(f"greet-{number}", "Completed", "Failed")["runtimeStatus"] == "Completed"
        assert time.monotonic() - killed > 15
    finally:
        onebox.close()

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
def test_work_survives_kill_9(own_onebox: OneboxProcess) -> None:
    own_onebox.start_orchestration("nap", "long-nap", 3)
    own_onebox.start_orchestration("greet", "quick", ["Ada"])
    own_onebox.until_finished("quick")
    own_onebox.server.kill()
    own_onebox.server.start()
    assert own_onebox.until_finished("long-nap")["output"] == "Hello sleeper!"
    assert own_onebox.until_finished("quick")["output"]["total"] == 1

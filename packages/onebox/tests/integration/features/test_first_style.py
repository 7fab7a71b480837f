"""The style of version 1 of the SDK, deprecated but shipped."""

from typing import Any

import httpx

from scripts.processes import eventually
from tests.support.onebox.process import OneboxProcess


def start(features: OneboxProcess, name: str, instance_id: str, given: Any = None) -> httpx.Response:
    answer = features.client.post(f"/api/old/start/{name}/{instance_id}", json=given)
    assert answer.status_code == 202, answer.text
    return answer


def wait(features: OneboxProcess, instance_id: str, milliseconds: int = 10_000) -> httpx.Response:
    return features.client.get(f"/api/old/wait/{instance_id}", params={"ms": milliseconds})


def act(features: OneboxProcess, instance_id: str, action: str) -> httpx.Response:
    answer = features.client.post(f"/api/old/{action}/{instance_id}")
    assert answer.is_success, answer.text
    return answer


def test_objects_that_serialise_themselves_travel_to_an_activity_and_back(features: OneboxProcess) -> None:
    start(features, "old_objects", "old-objects", 21)
    assert wait(features, "old-objects").json() == 42


def test_one_argument_functions_run_in_the_old_words(features: OneboxProcess) -> None:
    start(features, "old_chain", "old-chain", ["Oslo", "Rome"])
    answer = wait(features, "old-chain")
    assert answer.status_code == 200
    assert answer.json() == {
        "greetings": ["Hello Oslo!", "Hello Rome!"],
        "retried": "old-chain-key",
        "nested": {"of": "old-chain"},
        "total": 5,
    }
    status = features.client.get("/api/old/status/old-chain").json()
    assert (status["runtimeStatus"], status["customStatus"]) == ("Completed", "at work")
    assert status["input"] == ["Oslo", "Rome"]
    assert status["historyEvents"][0]["EventType"] == "ExecutionStarted"
    assert "old-chain" in features.client.get("/api/old/by/Completed").json()["found"]


def test_waiting_ends_with_the_links_when_time_is_up(features: OneboxProcess) -> None:
    start(features, "old_approval", "old-slow")
    answer = wait(features, "old-slow", 50)
    assert answer.status_code == 202
    assert answer.json()["id"] == "old-slow"
    features.client.post("/api/old/raise/old-slow", params={"event": "approval"}, json="yes")
    assert wait(features, "old-slow").json() == "yes"


def test_the_old_names_suspend_resume_terminate_restart_and_purge(features: OneboxProcess) -> None:
    start(features, "old_approval", "old-life")
    act(features, "old-life", "suspend")
    features.until("old-life", "Suspended")
    act(features, "old-life", "resume")
    features.until("old-life", "Running")
    act(features, "old-life", "terminate")
    features.until("old-life", "Terminated")
    assert wait(features, "old-life").json()["runtimeStatus"] == "Terminated"
    restarted = act(features, "old-life", "restart").json()
    features.until(restarted, "Running")
    act(features, restarted, "terminate")
    features.until(restarted, "Terminated")
    assert act(features, restarted, "purge").json() == 1
    assert features.client.get(f"/api/old/status/{restarted}").status_code == 404


def test_the_old_name_rewinds(features: OneboxProcess) -> None:
    features.start_orchestration(
        "retried", "old-rewound", {"key": "old-rewound", "failures": 1, "attempts": 1}
    )
    features.until("old-rewound", "Failed")
    act(features, "old-rewound", "rewind")
    assert wait(features, "old-rewound").json() == 2


def test_an_entity_is_signalled_and_read_by_its_old_id(features: OneboxProcess) -> None:
    assert features.client.get("/api/old/counter/none").json() == {"exists": False, "state": None}
    features.client.post("/api/old/counter/some", json=4)
    wanted = {"exists": True, "state": 4}
    eventually(lambda: features.client.get("/api/old/counter/some").json() == wanted, "it holds 4")

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from durabletask.client import TaskHubGrpcClient

from scripts.processes import PLAIN_HTTP, eventually
from tests.support.onebox.process import OneboxProcess

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def api(onebox: OneboxProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{onebox.url}/runtime/webhooks/durabletask", timeout=30) as client:
        yield client


def start(api: httpx.Client, name: str, instance_id: str, given: Any) -> None:
    answer = api.post(f"/orchestrators/{name}/{instance_id}", json=given)
    assert answer.status_code == 202, answer.text


def until(api: httpx.Client, instance_id: str, status: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        state: dict[str, Any] = api.get(f"/instances/{instance_id}").json()
        return state if state["runtimeStatus"] == status else None

    return eventually(look, f"{instance_id} is {status}")


def test_an_orchestration_is_started_and_its_links_lead_to_it(api: httpx.Client) -> None:
    answer = api.post("/orchestrators/greet/m-start", json=["Ada"])
    assert (answer.status_code, answer.headers["retry-after"]) == (202, "10")
    assert set(answer.json()) == {
        "id",
        "statusQueryGetUri",
        "sendEventPostUri",
        "terminatePostUri",
        "purgeHistoryDeleteUri",
        "restartPostUri",
        "rewindPostUri",
        "suspendPostUri",
        "resumePostUri",
    }
    until(api, "m-start", "Completed")
    state = httpx.get(answer.headers["location"], verify=PLAIN_HTTP).json()
    assert list(state) == [
        "name",
        "instanceId",
        "runtimeStatus",
        "input",
        "customStatus",
        "output",
        "createdTime",
        "lastUpdatedTime",
    ]
    assert (state["name"], state["instanceId"], state["input"]) == ("greet", "m-start", ["Ada"])
    assert state["output"]["greetings"] == ["Hello Ada!"]
    assert state["createdTime"].endswith("Z")
    assert len(state["createdTime"]) == len("2026-11-21T10:00:00Z")


def test_an_id_is_made_up_when_none_is_given(api: httpx.Client) -> None:
    instance_id = api.post("/orchestrators/greet", json=["Ada"]).json()["id"]
    until(api, instance_id, "Completed")


def test_a_start_can_wait_for_the_end(api: httpx.Client) -> None:
    wait = {"timeout": "20", "pollingInterval": "1"}
    finished = api.post("/orchestrators/nap", params=wait, json=0)
    assert (finished.status_code, finished.json()) == (200, "Hello sleeper!")
    failed = api.post("/orchestrators/fails", params=wait, json="on purpose")
    assert (failed.status_code, failed.json()["runtimeStatus"]) == (200, "Failed")
    unfinished = api.post("/orchestrators/nap", params={"timeout": "0.1", "pollingInterval": "0.1"}, json=600)
    assert unfinished.status_code == 202


def test_bad_starts_are_refused(api: httpx.Client) -> None:
    assert api.post("/orchestrators/unknown", json=1).status_code == 400
    assert api.post("/orchestrators/greet", content="{", headers=JSON).status_code == 400
    assert api.post("/orchestrators/greet/@x@y", json=[]).status_code == 400
    for wrong in ("a%2Fb", "a%3Fb", "a%23b", "a%5Cb", "a%0Ab", "a" * 257):
        assert api.post(f"/orchestrators/greet/{wrong}", json=[]).status_code == 400, wrong
    assert api.get("/orchestrators/greet").status_code == 404
    start(api, "nap", "m-taken", 600)
    assert api.post("/orchestrators/nap/m-taken", json=600).status_code == 409


def test_a_running_instance_is_202_with_location_and_retry_after(api: httpx.Client) -> None:
    start(api, "nap", "m-running", 600)
    until(api, "m-running", "Running")
    answer = api.get("/instances/m-running", params={"showInput": "false"})
    assert (answer.status_code, answer.headers["retry-after"]) == (202, "5")
    assert "/instances/m-running" in answer.headers["location"]
    assert answer.json()["input"] is None
    assert api.get("/instances/none").status_code == 404


def test_the_history_is_shown_when_asked_for(api: httpx.Client) -> None:
    start(api, "greet", "m-history", ["Ada"])
    until(api, "m-history", "Completed")
    events = api.get("/instances/m-history", params={"showHistory": "true"}).json()["historyEvents"]
    assert events[0]["EventType"] == "ExecutionStarted"
    assert events[0]["FunctionName"] == "greet"
    activity = next(each for each in events if each["EventType"] == "TaskCompleted")
    assert activity["FunctionName"] == "hello"
    assert "Result" not in activity
    assert events[-1]["OrchestrationStatus"] == "Completed"
    shown = api.get(
        "/instances/m-history", params={"showHistory": "true", "showHistoryOutput": "true"}
    ).json()
    assert "Hello Ada!" in [each.get("Result") for each in shown["historyEvents"]]


def test_instances_are_listed_in_pages_with_filters(api: httpx.Client) -> None:
    for number in range(3):
        start(api, "greet", f"m-list-{number}", ["Ada"])
        until(api, f"m-list-{number}", "Completed")
    wanted = {"instanceIdPrefix": "m-list-", "runtimeStatus": "Completed,Failed", "top": "2"}
    first = api.get("/instances", params=wanted)
    token = first.headers["x-ms-continuation-token"]
    second = api.get("/instances/", params=wanted, headers={"x-ms-continuation-token": token})
    assert "x-ms-continuation-token" not in second.headers
    ids = [each["instanceId"] for each in first.json() + second.json()]
    assert ids == ["m-list-0", "m-list-1", "m-list-2"]
    assert api.get("/instances", params={**wanted, "runtimeStatus": "Running"}).json() == []
    assert api.get("/instances", params={**wanted, "createdTimeFrom": "2999-01-01T00:00:00Z"}).json() == []


def test_events_reach_a_waiting_instance(api: httpx.Client) -> None:
    start(api, "waits", "m-event", None)
    until(api, "m-event", "Running")
    url = "/instances/m-event/raiseEvent/go"
    assert api.post(url, content="text", headers={"Content-Type": "text/plain"}).status_code == 400
    assert api.post(url, content="{", headers=JSON).status_code == 400
    assert api.post(url, json={"ready": True}).status_code == 202
    assert until(api, "m-event", "Completed")["output"] == {"ready": True}


@pytest.mark.shows("H15")
def test_an_instance_is_suspended_resumed_and_terminated(api: httpx.Client, onebox: OneboxProcess) -> None:
    start(api, "waits", "m-hold", None)
    until(api, "m-hold", "Running")
    assert api.post("/instances/m-hold/suspend", params={"reason": "lunch"}).status_code == 202
    assert api.get("/instances/m-hold").status_code == 202
    until(api, "m-hold", "Suspended")
    assert api.post("/instances/m-hold/resume").status_code == 202
    until(api, "m-hold", "Running")
    assert api.post("/instances/m-hold/terminate", params={"reason": "enough"}).status_code == 202
    assert until(api, "m-hold", "Terminated")["output"] == "enough"
    with TaskHubGrpcClient(host_address=f"unix:{onebox.data / 'hub.sock'}") as client:
        ended = client.get_orchestration_state("m-hold")
    assert ended is not None
    assert ended.serialized_output == "enough", "the reason as it is, which is no JSON"
    assert api.post("/instances/m-hold/dance").status_code == 404


def test_an_instance_is_restarted_with_and_without_a_new_id(api: httpx.Client) -> None:
    start(api, "greet", "m-again", ["Ada"])
    until(api, "m-again", "Completed")
    new_id = api.post("/instances/m-again/restart").json()["id"]
    assert new_id != "m-again"
    assert until(api, new_id, "Completed")["input"] == ["Ada"]
    same = api.post("/instances/m-again/restart", params={"restartWithNewInstanceId": "false"})
    assert (same.status_code, same.json()["id"]) == (202, "m-again")


def test_a_failed_instance_is_rewound(api: httpx.Client) -> None:
    start(api, "fails", "m-rewind", "twice")
    until(api, "m-rewind", "Failed")
    assert api.post("/instances/m-rewind/rewind", params={"reason": "again"}).status_code == 202
    until(api, "m-rewind", "Failed")


def test_instances_are_purged_by_id_and_by_filter(api: httpx.Client) -> None:
    for name in ("m-gone-1", "m-gone-2"):
        start(api, "fails", name, "purge me")
        until(api, name, "Failed")
    assert api.delete("/instances/m-gone-1").json() == {"instancesDeleted": 1}
    assert api.delete("/instances").status_code == 400
    wanted = {"createdTimeFrom": "2020-01-01T00:00:00Z", "runtimeStatus": "Failed"}
    assert api.delete("/instances", params=wanted).json()["instancesDeleted"] >= 1
    assert api.delete("/instances", params=wanted).status_code == 404


def test_entities_are_signalled_read_listed_and_deleted(api: httpx.Client) -> None:
    assert api.post("/entities/Counter/m-one", params={"op": "add"}, json=5).status_code == 202
    eventually(lambda: api.get("/entities/counter/m-one").text == "5", "the counter is 5")
    assert api.get("/entities/counter/none").status_code == 404
    listed = api.get("/entities/counter", params={"fetchState": "true"}).json()
    one = next(each for each in listed if each["entityId"] == {"name": "counter", "key": "m-one"})
    assert one["state"] == 5
    assert "state" not in api.get("/entities/counter").json()[0]
    assert api.get("/entities").json()
    assert api.delete("/entities/counter/m-one").status_code == 202
    eventually(lambda: api.get("/entities/counter/m-one").status_code == 404, "the counter is gone")
    assert api.put("/entities/counter/m-one").status_code == 404


def test_an_unknown_path_is_404(api: httpx.Client) -> None:
    assert api.get("/nothing").status_code == 404
    assert api.get("").status_code == 404


@pytest.mark.parametrize("given", ["NaN", "-Infinity", "1e999", r'"\ud800"'])
def test_what_python_reads_and_json_does_not_have_is_shown_as_text(api: httpx.Client, given: str) -> None:
    instance_id = f"m-odd-{given.encode().hex()}"
    assert api.post(f"/orchestrators/greet/{instance_id}", content=given, headers=JSON).status_code == 202
    for path in (f"/instances/{instance_id}", f"/instances?instanceIdPrefix={instance_id}"):
        shown = api.get(path)
        assert shown.status_code in {200, 202}, shown.text
        assert given.strip('"') in shown.text


def test_a_body_that_is_nested_too_deep_is_refused(api: httpx.Client) -> None:
    answer = api.post("/orchestrators/greet", content="[" * 100_000, headers=JSON)
    assert (answer.status_code, answer.json()) == (400, {"Message": "Invalid JSON content"})


@pytest.mark.parametrize("instance_id", ["m-用户", "m-a b", "m-%2F+&="])
def test_the_location_of_an_instance_leads_to_it_whatever_its_id(api: httpx.Client, instance_id: str) -> None:
    path = quote(instance_id, safe="")
    assert api.post(f"/orchestrators/waits/{path}", json={}, headers=JSON).status_code == 202
    running = api.get(f"/instances/{path}", params={"showInput": "false"})
    assert running.status_code == 202
    again = httpx.get(running.headers["location"], verify=PLAIN_HTTP)
    assert (again.status_code, again.json()["instanceId"]) == (202, instance_id)


@pytest.mark.parametrize("token", ["garbage", "|", "99999999999999999999|x"])
def test_a_continuation_token_of_something_else_is_refused(api: httpx.Client, token: str) -> None:
    answer = api.get("/instances", headers={"x-ms-continuation-token": token})
    assert (answer.status_code, answer.json()) == (
        400,
        {"Message": "the continuation token is not one of this list"},
    )

from itertools import pairwise
from typing import Any

import httpx
import pytest

from scripts.processes import eventually
from tests.support.app import RUN, System, operation
from tests.support.semantics import Calls

OF_ANOTHER = f"of-another-{RUN}"


def submitted(system: System, items: list[Any], key: str | None = None, **more: Any) -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return system.client.post("/api/batches", json={"items": items, **more}, headers=headers)


def document_of(system: System, batch_id: str) -> dict[str, Any]:
    answer = system.client.get(f"/api/batches/{batch_id}")
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def over(system: System, batch_id: str, *, within_seconds: float = 60) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        document = document_of(system, batch_id)
        return document if document["status"] != "running" else None

    return eventually(look, f"{batch_id} is over", within_seconds=within_seconds)


@pytest.fixture(scope="module", autouse=True)
def of_another(system: System) -> str:
    """A batch of an operation that somebody else submitted, begun first: it takes half a minute.

    No event of the operation's end reaches the batch: it is found when the batch looks.
    """
    system.accepted(OF_ANOTHER, "/fail/1", dependency="patient")
    answer = submitted(system, [operation(OF_ANOTHER, "/fail/1", dependency="patient")])
    batch_id: str = answer.json()["batch_id"]
    return batch_id


def test_bad_items_are_reported_by_themselves_and_the_others_go_on(system: System, key: str) -> None:
    items: list[Any] = [operation(f"{key}-{number}", "/echo") for number in range(6)]
    items[1] = {"dependency": "nobody", "key": f"{key}-1", "request": {"method": "GET"}}
    items[3] = "not even an object"
    items[4]["retry"] = {"max_attempts": 0}
    answer = submitted(system, items)
    assert answer.status_code == 202, answer.text
    document = over(system, answer.json()["batch_id"])
    statuses = [item["status"] for item in document["items"]]
    good, bad = "succeeded", "dead_lettered"
    assert statuses == [good, bad, good, bad, bad, good]
    assert [item["index"] for item in document["items"]] == list(range(6))
    assert document["items"][1]["error"].startswith("UnknownDependency: ")
    assert "/retry/max_attempts" in document["items"][4]["error"]
    assert document["items"][4]["key"] == f"{key}-4"
    counts = {"total": 6, "succeeded": 3, "dead_lettered": 3}
    assert {name: document["counts"][name] for name in counts} == counts
    assert document["status"] == "failed"


def test_a_repeated_batch_redoes_nothing(system: System, key: str) -> None:
    items = [operation(f"{key}-{number}", "/echo") for number in range(5)]
    first = over(system, submitted(system, items).json()["batch_id"])
    second = over(system, submitted(system, items).json()["batch_id"])
    assert first["batch_id"] != second["batch_id"]
    assert [item["operation_id"] for item in first["items"]] == [
        item["operation_id"] for item in second["items"]
    ]
    assert second["status"] == "succeeded"
    assert [system.target.totals()[f"{key}-{number}"] for number in range(5)] == [Calls(1)] * 5


def test_a_batch_with_a_key_is_one_batch_and_items_without_keys_get_theirs_from_it(
    system: System, key: str
) -> None:
    item = {"dependency": "flaky", "request": {"method": "POST", "path": "/echo", "json": {}}}
    first = submitted(system, [item, item], key)
    document = over(system, first.json()["batch_id"])
    again = submitted(system, [item, item], key)
    assert (again.status_code, again.json()["batch_id"]) == (202, document["batch_id"])
    assert again.headers["idempotent-replayed"] == "true"
    assert [system.target.totals()[each["key"]] for each in document["items"]] == [Calls(1)] * 2
    assert submitted(system, [item], key).status_code == 422
    # The same key in the body is the same batch, which shows it and is found by it.
    posted = system.client.post("/api/batches", json={"key": key, "items": [item, item]})
    assert (posted.json()["batch_id"], document["key"]) == (document["batch_id"], key)
    for path in ("batches", "search"):
        found = system.client.get(f"/api/{path}", params={"key": key}).json()["items"]
        assert [(each.get("batch_id") or each["id"], each["key"]) for each in found] == [
            (document["batch_id"], key)
        ]
    assert system.client.get("/api/batches?key=nobody-has-this").json()["items"] == []
    headers = {"Idempotency-Key": f"{key}-other"}
    differing = system.client.post("/api/batches", json={"key": key, "items": [item]}, headers=headers)
    assert differing.json()["errors"] == [
        {"pointer": "/key", "detail": "differs from the header Idempotency-Key"}
    ]


def test_a_key_that_stands_for_another_request_is_a_failure_of_its_item(system: System, key: str) -> None:
    system.until(system.accepted(key, "/echo"), "succeeded")
    item = operation(key, "/echo", request={"json": {"amount": 6}})
    document = over(system, submitted(system, [item]).json()["batch_id"])
    assert document["items"][0]["status"] == "dead_lettered"
    assert "another request" in document["items"][0]["error"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("size", [200, pytest.param(1_000, marks=pytest.mark.long)])
def test_a_large_batch_with_3_bad_items_finishes_all_others(system: System, key: str, size: int) -> None:
    items: list[Any] = [operation(f"{key}-{number}", "/echo", dependency="crowded") for number in range(size)]
    bad = (0, size // 2, size - 1)
    for index in bad:
        items[index] = {"dependency": "crowded"}
    batch_id = submitted(system, items, max_concurrency=50, tolerated_failures=3).json()["batch_id"]
    document = over(system, batch_id, within_seconds=240)
    assert document["status"] == "succeeded"
    assert (document["counts"]["succeeded"], document["counts"]["dead_lettered"]) == (size - 3, 3)
    totals = system.target.totals()
    called = [totals[f"{key}-{number}"] for number in range(size) if number not in bad]
    assert called == [Calls(1)] * (size - 3)


@pytest.mark.long
def test_an_operation_that_was_submitted_elsewhere_is_waited_for(system: System, of_another: str) -> None:
    document = over(system, of_another)
    assert document["items"][0]["status"] == "succeeded"
    assert system.target.totals()[OF_ANOTHER] == 2


def test_items_of_one_order_key_run_in_the_order_of_the_batch(system: System, key: str) -> None:
    items = [operation(f"{key}-{number}", f"/fail/{number % 2}", order_key=key) for number in range(4)]
    batch_id = submitted(system, items, max_concurrency=10).json()["batch_id"]
    document = over(system, batch_id)
    ids = [item["operation_id"] for item in document["items"]]
    done = [system.until(each, "succeeded") for each in ids]
    for before, after in pairwise(done):
        assert before["attempts"][-1]["started_at"] < after["attempts"][0]["started_at"]

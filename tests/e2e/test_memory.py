from typing import Any

import httpx
import pytest

from scripts.processes import eventually
from tests.support.app import System

INSTANCES = "/runtime/webhooks/durabletask/instances"
RECORDS = "/runtime/webhooks/durabletask/entities/idempotency_record"


def purge(system: System, operation_id: str) -> None:
    answer = system.client.delete(f"{INSTANCES}/{operation_id}")
    assert answer.json() == {"instancesDeleted": 1}


def kept(document: dict[str, Any]) -> dict[str, Any]:
    """Return what the record of the key keeps of a status document: the request goes with the history."""
    assert document["request"]["method"] == "POST"
    return {name: value for name, value in document.items() if name != "request"}


@pytest.mark.long
@pytest.mark.shows("P18")
def test_a_purged_operation_still_answers_where_its_key_outlives_histories(
    tailored: System, key: str
) -> None:
    def post(path: str) -> httpx.Response:
        return tailored.post(key, path, dependency="mindful")

    operation_id = post("/fail/1").json()["operation_id"]
    done = tailored.until(operation_id, "succeeded")
    eventually(lambda: tailored.client.get(f"{RECORDS}/{operation_id}").status_code == 200, "it is recorded")
    purge(tailored, operation_id)
    assert tailored.client.get(f"{INSTANCES}/{operation_id}").status_code == 404
    assert tailored.status(operation_id) == kept(done)
    again = post("/fail/1")
    assert (again.status_code, again.json()) == (200, done)
    assert again.headers["idempotent-replayed"] == "true"
    assert post("/fail/2").status_code == 422
    assert tailored.client.post(f"/api/operations/{operation_id}/cancel").status_code == 409
    assert tailored.target.received(key)["count"] == 2


@pytest.mark.long
def test_whoever_purges_another_history_by_hand_sets_its_key_free(tailored: System, key: str) -> None:
    operation_id = tailored.accepted(key, "/echo", dependency="forgetful")
    tailored.until(operation_id, "succeeded")
    purge(tailored, operation_id)
    assert tailored.client.get(f"{RECORDS}/{operation_id}").status_code == 404
    assert tailored.client.get(f"/api/operations/{operation_id}").status_code == 404
    other = tailored.post(key, "/echo", dependency="forgetful", request={"json": {"amount": 6}})
    assert other.status_code == 202
    assert "idempotent-replayed" not in other.headers
    assert other.json()["operation_id"] == operation_id
    assert tailored.until(operation_id, "succeeded")["result"]["json"]["received"] == {"amount": 6}

from typing import Any

import pytest
from azure.data.tables import TableClient

from scripts.processes import eventually
from tests.support.app import RUN, System
from tests.support.azurite import Storage


def queue_event(queue: str, **data: Any) -> dict[str, Any]:
    return {"type": "charge.completed", "queue": queue, "data": data}


def webhook(path: str, dependency: str = "flaky") -> dict[str, Any]:
    return {"type": "charge.announced", "dependency": dependency, "path": path, "data": {"order": 42}}


def ended(system: System, operation_id: str, *states: str) -> dict[str, Any]:
    """The status document once its events have these states."""

    def look() -> dict[str, Any] | None:
        document = system.status(operation_id)
        return document if [event["state"] for event in document["events"]] == list(states) else None

    return eventually(look, f"the events of {operation_id} are {states}", within_seconds=30)


def ids_in(document: dict[str, Any]) -> list[str]:
    return [event["event_id"] for event in document["events"]]


def listed(system: System, state: str, operation_id: str) -> list[dict[str, Any]]:
    answer = system.client.get("/api/outbox", params={"status": state, "limit": 200})
    assert answer.status_code == 200, answer.text
    return [item for item in answer.json()["items"] if item["operation_id"] == operation_id]


def until_listed(system: System, state: str, operation_id: str, *event_ids: str) -> list[dict[str, Any]]:
    """What the outbox lists of an operation once it is these events: the list follows their states."""

    def look() -> list[dict[str, Any]] | None:
        found = listed(system, state, operation_id)
        return found if sorted(item["event_id"] for item in found) == sorted(event_ids) else None

    return eventually(look, f"the {state} events of {operation_id} are {event_ids}")


def test_events_to_a_queue_arrive_in_order_as_cloud_events(
    system: System, storage: Storage, key: str
) -> None:
    queue = f"in-order-{RUN}"
    events = [queue_event(queue, number=number) for number in range(5)]
    operation_id = system.accepted(key, "/echo", on_success=events, correlation_id="order-42")
    document = ended(system, operation_id, *["sent"] * 5)
    until_listed(system, "sent", operation_id, *ids_in(document))
    found = system.client.get("/api/outbox", params={"status": "sent", "key": key}).json()["items"]
    assert sorted(event["event_id"] for event in found) == ids_in(document)
    messages = storage.peeked(queue)
    assert [message["data"]["number"] for message in messages] == [0, 1, 2, 3, 4]
    assert [message["id"] for message in messages] == ids_in(document)
    first = messages[0]
    assert (first["specversion"], first["type"]) == ("1.0", "charge.completed")
    assert first["source"] == f"/api/operations/{operation_id}"
    assert first["correlationid"] == "order-42"


@pytest.mark.shows("D16")
def test_of_two_events_the_one_whose_target_is_down_holds_nothing_up_and_becomes_a_dead_letter(
    system: System, storage: Storage, key: str
) -> None:
    queue = f"beside-a-dead-target-{RUN}"
    events = [webhook("/hook", dependency="absent"), queue_event(queue), webhook("/echo")]
    operation_id = system.accepted(key, "/echo", on_success=events)
    system.until(operation_id, "succeeded")
    document = ended(system, operation_id, "failed", "sent", "sent")
    assert document["status"] == "succeeded"
    absent, queued, sent = ids_in(document)
    assert [message["id"] for message in storage.peeked(queue)] == [queued]
    [failed] = until_listed(system, "failed", operation_id, absent)
    assert "dead letter dl-" in failed["detail"]
    assert listed(system, "pending", operation_id) == []
    until_listed(system, "sent", operation_id, queued, sent)


def test_a_dead_letter_is_told_and_so_is_the_success_of_its_replay(
    system: System, storage: Storage, key: str
) -> None:
    queue = f"told-{RUN}"
    failed, recovered = ({"type": type_, "queue": queue} for type_ in ("charge.failed", "charge.recovered"))
    operation_id = system.accepted(key, "/fail/4", on_failure=[failed], on_recovered=[recovered])
    document = ended(system, operation_id, "sent")
    letter = document["dead_letter"]
    answer = system.client.post(f"/api/dead-letters/{letter['id']}/replay", json={})
    assert answer.status_code == 202
    system.until_replayed({"operation_id": operation_id}, "succeeded")
    ended(system, operation_id, "sent")
    first, second = eventually(lambda: both if len(both := storage.peeked(queue)) == 2 else None, "both")
    assert (first["type"], first["data"]["dead_letter"]["id"]) == ("charge.failed", letter["id"])
    assert first["data"]["dead_letter"]["reason"] == "RetriesExhausted"
    assert second["type"] == "charge.recovered"


def test_an_event_is_sent_again_by_hand_under_the_same_id(system: System, storage: Storage, key: str) -> None:
    queue = f"again-{RUN}"
    operation_id = system.accepted(key, "/echo", on_success=[queue_event(queue)])
    (event_id,) = ids_in(ended(system, operation_id, "sent"))
    answer = system.client.post(f"/api/outbox/{event_id}/resend")
    assert (answer.status_code, answer.json()["state"]) == (202, "pending")
    # The orchestration of the first time may be about to end, and see the event as well.
    eventually(lambda: len(storage.peeked(queue)) >= 2, "it was sent again")
    assert {message["id"] for message in storage.peeked(queue)} == {event_id}
    ended(system, operation_id, "sent")
    until_listed(system, "sent", operation_id, event_id)


def test_an_undeliverable_event_is_replayed_from_its_dead_letter(system: System, key: str) -> None:
    """The target fails four times: three attempts, then the first one of the replay."""
    operation_id = system.accepted(key, "/echo", on_success=[webhook("/fail/4")])
    (event_id,) = ids_in(ended(system, operation_id, "failed"))
    found = system.client.get("/api/dead-letters", params={"reason": "OutboxUndeliverable", "limit": 200})
    [letter] = [item for item in found.json()["items"] if item["key"] == event_id]
    assert (letter["operation_id"], letter["dependency"]) == (operation_id, "flaky")
    assert len(letter["attempts"]) == 3
    replay = system.client.post(f"/api/dead-letters/{letter['id']}/replay", json={})
    assert (replay.status_code, replay.json()["operation_id"]) == (202, operation_id)
    ended(system, operation_id, "sent")
    assert system.target.received(event_id)["count"] == 5


@pytest.mark.shows("P12")
def test_the_sweeper_sends_what_nobody_sends_any_more(system: System, storage: Storage, key: str) -> None:
    queue = f"swept-{RUN}"
    down = {"type": "t", "dependency": "patient", "path": "/fail/1", "data": None}
    operation_id = system.accepted(key, "/echo", on_success=[down, queue_event(queue)])
    outbox_id = ids_in(ended(system, operation_id, "pending", "sent"))[0].rpartition(".")[0]
    instance = f"/runtime/webhooks/durabletask/instances/outbox-{outbox_id}"
    stopped = system.client.post(f"{instance}/terminate")
    assert stopped.status_code == 202, stopped.text
    # On Azure it ends with its next turn.
    eventually(
        lambda: system.client.get(instance).json()["runtimeStatus"] == "Terminated",
        "the outbox is terminated",
    )
    with TableClient.from_connection_string(storage.connection_string, "CommitIndex") as index:
        (note,) = index.query_entities(f"PartitionKey lt 'q' and RowKey eq '{outbox_id}'")
        index.update_entity({**note, "noted_at": "2026-01-01T00:00:00Z"})
    swept = system.client.post("/admin/functions/watch", json={"input": ""})
    assert swept.status_code == 202, swept.text
    ended(system, operation_id, "sent", "sent")
    assert len(storage.peeked(queue)) == 1


def test_an_event_shows_its_data_its_attempts_the_next_one_and_why_it_is_not_sent(
    system: System, key: str
) -> None:
    data = {"order": 42, "token": "t-1"}
    waiting = {**webhook("/fail/9", "patient"), "data": data}
    operation_id = system.accepted(key, "/echo", on_success=[waiting, webhook("/status/422")])
    first, second = ids_in(ended(system, operation_id, "pending", "failed"))

    def look() -> dict[str, Any] | None:
        shown: dict[str, Any] = system.client.get(f"/api/outbox/{first}").json()
        return shown if shown["attempts"] else None

    pending = eventually(look, "the event was tried")
    assert pending["data"] == {"order": 42, "token": "***"}
    assert pending["next_attempt_at"] > pending["attempts"][-1]["started_at"]
    assert (pending["attempts"][-1]["status_code"], pending["state"]) == (503, "pending")
    assert pending["attempt_count"] >= 1
    failed = system.client.get(f"/api/outbox/{second}").json()
    letter = system.client.get(f"/api/dead-letters/{failed['dead_letter_id']}").json()
    assert (failed["attempt_count"], failed["attempts"]) == (1, letter["attempts"])
    assert "status 422" in failed["detail"]

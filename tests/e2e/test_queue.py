import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ResourceExistsError
from azure.storage.queue import QueueClient

from scripts.processes import eventually
from tests.support.app import System, operation
from tests.support.azurite import Account
from tests.support.target import Target

UNREACHABLE_HUB = Path(__file__).with_name("apps") / "unreachable_hub"


def queue(storage: Account, name: str) -> QueueClient:
    client = storage.queue(name)
    with suppress(ResourceExistsError):
        client.create_queue()
    return client


def test_an_operation_put_on_the_queue_runs_as_one_posted_does(
    system: System, storage: Account, key: str
) -> None:
    with queue(storage, "operations") as operations:
        operations.send_message(json.dumps(operation(key, "/fail/2")))
    eventually(lambda: system.target.received(key)["count"] == 3, "the target saw three tries")
    answer = eventually(
        lambda: again if (again := system.post(key, "/fail/2")).status_code == 200 else None, "it is finished"
    )
    document = answer.json()
    assert answer.headers["idempotent-replayed"] == "true"
    assert (document["status"], document["source"], document["attempt_count"]) == ("succeeded", "queue", 3)
    assert system.target.received(key)["count"] == 3


@pytest.fixture(scope="module")
def hubless(
    tmp_path_factory: pytest.TempPathFactory, target: Target
) -> Iterator[tuple[System, Account, Path]]:
    """The app with a task hub that cannot be reached, its storage, and where starts are noted."""
    folder = tmp_path_factory.mktemp("hubless")
    starts = folder / "starts.txt"
    system = System(
        folder,
        target,
        app=UNREACHABLE_HUB,
        STARTS_FILE=str(starts),
        EVENT_HUB="clicks",
        EVENT_HUB_CONNECTION="Endpoint=sb://shop.example/",
    )
    with system.running():
        yield system, system.storage, starts


@pytest.mark.long
@pytest.mark.shows("P2")
def test_a_start_that_fails_is_retried_three_times_then_poison_then_a_dead_letter(
    hubless: tuple[System, Account, Path], key: str
) -> None:
    system, storage, starts = hubless
    message = json.dumps(operation(key, "/echo"))
    with queue(storage, "operations") as operations, queue(storage, "operations-poison") as poison:
        operations.send_message(message)
        letter = eventually(lambda: poisoned(system), "it is a dead letter")
        eventually(lambda: all(is_empty(each) for each in (operations, poison)), "both queues are empty")
    assert (letter["reason"], letter["source"], letter["message"]) == ("PoisonMessage", "queue", message)
    runs = runs_of(key, starts)
    assert len(runs) == 4
    # One second from the end of a run, though each run takes a good part of one.
    assert all((later[0] - earlier[1]).total_seconds() >= 1 for earlier, later in pairwise(runs))
    assert system.target.received(key)["count"] == 0


@pytest.mark.long
@pytest.mark.shows("P5")
def test_a_batch_waits_under_the_platforms_retries_while_the_hub_is_away(
    hubless: tuple[System, Account, Path], key: str
) -> None:
    system, _, starts = hubless
    body = {"input": [operation(key, "/echo"), "not json"]}
    assert system.client.post("/admin/functions/operations_event_hubs", json=body).status_code == 202
    eventually(lambda: len(runs_of(key, starts)) >= 3, "it was tried three times")
    assert "operations_event_hubs: retry 2 of any number, after: " in system.log()
    kept = system.client.get("/api/dead-letters", params={"reason": "MalformedJson"}).json()["items"]
    assert [letter["message"] for letter in kept] == ["not json"]


def is_empty(queue: QueueClient) -> bool:
    return queue.get_queue_properties().approximate_message_count == 0


def runs_of(key: str, starts: Path) -> list[tuple[datetime, datetime]]:
    """Begin and end of each start of a key."""
    noted = [line.split() for line in starts.read_text().splitlines()] if starts.exists() else []
    return [
        (datetime.fromisoformat(began), datetime.fromisoformat(ended))
        for name, began, ended in noted
        if name == key
    ]


def poisoned(system: System) -> dict[str, Any] | None:
    """The dead letter of a message that the queue gave up."""
    answer = system.client.get("/api/dead-letters", params={"reason": "PoisonMessage"})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found[0] if found else None


@pytest.mark.shows("P1")
def test_a_post_that_cannot_be_taken_over_is_answered_with_retry_after(
    hubless: tuple[System, Account, Path], key: str
) -> None:
    system, _, _ = hubless
    answer = system.post(key, "/echo")
    assert answer.status_code == 503
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert int(answer.headers["retry-after"]) >= 1

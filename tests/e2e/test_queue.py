"""The storage queue `operations`: the same operation, by another way in."""

import json
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from azure.core.exceptions import ResourceExistsError
from azure.storage.queue import QueueClient

from tests.e2e.storage import Storage
from tests.e2e.system import System, operation
from tests.e2e.target import Target
from tools.processes import eventually

UNREACHABLE_HUB = Path(__file__).with_name("apps") / "unreachable_hub"


def queue(storage: Storage, name: str) -> QueueClient:
    client = QueueClient.from_connection_string(storage.connection_string, name)
    try:
        client.create_queue()
    except ResourceExistsError:
        return client
    return client


def test_an_operation_put_on_the_queue_runs_as_one_posted_does(
    system: System, storage: Storage, key: str
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


def test_a_message_seen_twice_is_one_operation(system: System, storage: Storage, key: str) -> None:
    with queue(storage, "operations") as operations:
        for _ in range(3):
            operations.send_message(json.dumps(operation(key, "/fail/1")))
        eventually(lambda: system.target.received(key)["count"] == 2, "the target saw two tries")
        eventually(lambda: operations.get_queue_properties().approximate_message_count == 0, "all were taken")
    again = system.post(key, "/fail/1")
    system.until(again.json()["operation_id"], "succeeded")
    assert system.target.received(key)["count"] == 2


@pytest.mark.parametrize(
    "text", ["not json", '{"dependency": "nowhere", "request": {"method": "GET", "path": "/"}}']
)
def test_a_message_that_is_no_operation_is_taken_off_at_once(
    system: System, storage: Storage, text: str
) -> None:
    before = len(system.log())
    with queue(storage, "operations") as operations, queue(storage, "operations-poison") as poison:
        operations.send_message(text)
        eventually(lambda: operations.get_queue_properties().approximate_message_count == 0, "it was taken")
        assert list(poison.peek_messages()) == []
    assert "Traceback" not in system.log()[before:]


@pytest.fixture
def hubless(tmp_path: Path, target: Target) -> Iterator[tuple[System, Storage, Path]]:
    """The app with a task hub that cannot be reached, its storage, and where starts are noted."""
    storage = Storage(tmp_path)
    storage.server.start()
    starts = tmp_path / "starts.txt"
    system = System(
        tmp_path,
        target,
        app=UNREACHABLE_HUB,
        AzureWebJobsStorage=storage.connection_string,
        STARTS_FILE=str(starts),
    )
    system.server.start()
    yield system, storage, starts
    system.client.close()
    system.server.stop()
    storage.server.stop()


def test_a_start_that_fails_is_seen_again_after_the_timeout_and_ends_in_the_poison_queue(
    hubless: tuple[System, Storage, Path], key: str
) -> None:
    system, storage, starts = hubless
    message = json.dumps(operation(key, "/echo"))
    with queue(storage, "operations") as operations, queue(storage, "operations-poison") as poison:
        operations.send_message(message)
        poisoned = eventually(lambda: poison.peek_messages() or None, "it is in the poison queue")
        assert [one.content for one in poisoned] == [message]
        assert operations.get_queue_properties().approximate_message_count == 0
    noted = [line.split() for line in starts.read_text().splitlines()]
    assert [one[0] for one in noted] == [key] * 3
    instants = [datetime.fromisoformat(one[1]) for one in noted]
    assert all((later - earlier).total_seconds() >= 1 for earlier, later in pairwise(instants))
    assert system.target.received(key)["count"] == 0


def test_a_post_that_cannot_be_taken_over_is_told_to_come_back(
    hubless: tuple[System, Storage, Path], key: str
) -> None:
    system, _, _ = hubless
    answer = system.post(key, "/echo")
    assert answer.status_code == 503
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert int(answer.headers["retry-after"]) >= 1

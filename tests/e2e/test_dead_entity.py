"""A task hub in which the lane of an order key never answers: a nudge lets its operation go on, in order."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from durable_retry.engine.base.json_forms import to_rfc3339
from scripts.processes import eventually
from tests.support.app import System

DEAD = """CREATE TRIGGER dead_lane BEFORE INSERT ON messages WHEN NEW.target LIKE '@order_lane@%'
BEGIN SELECT RAISE(IGNORE); END"""


def change(store: Path, statement: str) -> None:
    with closing(sqlite3.connect(store, timeout=30)) as db, db:
        db.execute(statement)


@pytest.mark.shows("P31")
def test_an_operation_whose_lane_does_not_answer_waits_and_begins_once_when_it_answers(
    own_system: System, key: str
) -> None:
    server = own_system.server
    store = server.log.parent / "data" / "hub.sqlite"
    server.kill()
    change(store, DEAD)
    server.start()
    operation_id = own_system.accepted(key, "/echo", order_key=key)

    def is_nudged() -> bool:
        # `watch` nudges after two minutes: this is its event.
        event = {"asked_before": to_rfc3339(datetime.now(UTC))}
        path = f"/runtime/webhooks/durabletask/instances/{operation_id}/raiseEvent/nudge"
        own_system.client.post(path, json=event)
        return bool(own_system.status(operation_id)["status"] == "waiting_order")

    eventually(is_nudged, "it goes on without an answer")
    document = own_system.status(operation_id)
    assert document["waits"][-1]["delay_reasons"] == ["its order lane does not answer"]
    assert document["attempt_count"] == own_system.target.received(key)["count"] == 0
    server.kill()
    change(store, "DROP TRIGGER dead_lane")
    server.start()
    own_system.client.post(f"/api/operations/{operation_id}/retry-now", json={})
    assert own_system.until(operation_id, "succeeded")["attempt_count"] == 1
    assert own_system.target.received(key)["count"] == 1

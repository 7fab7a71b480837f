import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from durable_retry.base.json_forms import from_rfc3339, to_rfc3339
from scripts.processes import eventually
from tests.support.app import System

LATE_US = 180_000_000
"""`watch` nudges after two minutes."""


def lose_the_timer(store: Path, operation_id: str) -> int:
    """Delete an operation's timer from a hub that is down, as if that was minutes ago; return how many."""
    of_it = (operation_id,)
    with closing(sqlite3.connect(store)) as db, db:
        lost = db.execute("DELETE FROM messages WHERE target = ? AND delayed = 1", of_it).rowcount
        (text,) = db.execute("SELECT custom_status FROM instances WHERE id = ?", of_it).fetchone()
        shown = json.loads(text)
        due_at = from_rfc3339(shown["next_attempt_at"]) - timedelta(microseconds=LATE_US)
        shown["next_attempt_at"] = to_rfc3339(due_at)
        db.execute(
            "UPDATE instances SET custom_status = ?, updated_us = updated_us - ? WHERE id = ?",
            (json.dumps(shown), LATE_US, operation_id),
        )
    return lost


@pytest.mark.shows("P28")
def test_an_operation_whose_timer_was_lost_is_found_and_makes_each_attempt_once(
    own_system: System, key: str
) -> None:
    store = own_system.hub_store
    operation_id = own_system.accepted(key, "/fail/1", dependency="patient")
    due_at = from_rfc3339(own_system.until(operation_id, "waiting_retry")["next_attempt_at"])
    own_system.server.kill()
    assert lose_the_timer(store, operation_id) == 1
    # The history still has the real instant, and a nudge before it changes nothing.
    eventually(lambda: datetime.now(UTC) > due_at, "the wait is over")
    own_system.server.start()

    def look() -> bool:
        # The first run asks how far the queues are, a later one knows it.
        assert own_system.client.post("/admin/functions/watch", json={}).status_code == 202
        return bool(own_system.status(operation_id)["status"] == "succeeded")

    eventually(look, "it has gone on", within_seconds=60)
    document = own_system.status(operation_id)
    assert document["attempt_count"] == own_system.target.received(key)["count"] == 2

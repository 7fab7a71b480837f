import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from durable_retry.base.json_forms import to_rfc3339
from scripts.processes import eventually
from tests.support.app import System


@contextmanager
def dead(entity: str, system: System) -> Iterator[None]:
    """Lose all messages to entities of a name, by a hub that is started anew; it is down afterwards."""
    lost = f"NEW.target LIKE '@{entity}@%' BEGIN SELECT RAISE(IGNORE); END"
    change(system, f"CREATE TRIGGER dead_entity BEFORE INSERT ON messages WHEN {lost}")
    system.server.start()
    yield
    change(system, "DROP TRIGGER dead_entity")


def change(system: System, statement: str) -> None:
    store = system.hub_store
    system.server.kill()
    with closing(sqlite3.connect(store, timeout=30)) as db, db:
        db.execute(statement)


SILENT_FOR: Final = timedelta(seconds=3)
"""What was asked since is not lost but under way, also beside other load."""


def nudged_until(system: System, operation_id: str, is_over: Callable[[dict[str, Any]], bool]) -> None:
    """Nudge an operation as `watch` does, only sooner, until its status document is as wanted."""

    def is_as_wanted() -> bool:
        event = {"asked_before": to_rfc3339(datetime.now(UTC) - SILENT_FOR)}
        path = f"/runtime/webhooks/durabletask/instances/{operation_id}/raiseEvent/nudge"
        system.client.post(path, json=event)
        return is_over(system.status(operation_id))

    eventually(is_as_wanted, "it goes on without an answer")


@pytest.mark.shows("P31")
def test_an_operation_whose_lane_does_not_answer_waits_and_begins_once_when_it_answers(
    own_system: System, key: str
) -> None:
    with dead("order_lane", own_system):
        operation_id = own_system.accepted(key, "/echo", order_key=key)
        nudged_until(own_system, operation_id, lambda document: document["status"] == "waiting_order")
        document = own_system.status(operation_id)
        assert document["waits"][-1]["delay_reasons"] == ["its order lane does not answer"]
        assert document["attempt_count"] == own_system.target.received(key)["count"] == 0
    own_system.server.start()
    own_system.client.post(f"/api/operations/{operation_id}/retry-now", json={})
    assert own_system.until(operation_id, "succeeded")["attempt_count"] == 1
    assert own_system.target.received(key)["count"] == 1


@pytest.mark.shows("P31")
def test_an_operation_whose_limiter_does_not_answer_goes_on_without_it(own_system: System, key: str) -> None:
    with dead("call_limiter", own_system):
        operation_id = own_system.accepted(key, "/echo", dependency="by_customer", limit_key=key)
        nudged_until(own_system, operation_id, lambda document: document["status"] == "succeeded")
        (attempt,) = own_system.status(operation_id)["attempts"]
        assert attempt["delay_reasons"] == ["went on without the limiter, which did not answer"]
        assert own_system.target.received(key)["count"] == 1

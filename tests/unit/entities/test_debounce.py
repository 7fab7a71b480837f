from typing import Any

from azure.durable_functions.testing import execute_entity
from azure.durable_functions.testing.entity import EntitySignalAction

from durable_retry.app import harden_runtime
from durable_retry.features.debounce.rules import KEPT_FOR, DebounceRequest
from durable_retry.runtime import clock
from entities.debounce import Debounce
from tests.support.builders import NOON, after


def run(operation: str, request: dict[str, Any], state: Any = None) -> Any:
    harden_runtime()
    with clock.reading(lambda: NOON):
        return execute_entity(Debounce, operation, request, state, entity_key="e1")


def asking(name: str, at: float) -> dict[str, Any]:
    return DebounceRequest(operation_id=name, accepted_at=after(at), seconds=10.0).to_json()


def sent(done: Any) -> list[tuple[str, Any]]:
    signals = [action for action in done.actions if isinstance(action, EntitySignalAction)]
    return [(each.operation, each.scheduled_time) for each in signals]


def test_the_latest_one_begins_and_is_forgotten_later() -> None:
    first = run("arrive", asking("op-a", 0))
    assert sent(first) == []
    second = run("arrive", asking("op-b", 3), first.get_state())
    assert second.get_result()["replaces"] == "op-a"
    begun = run("begin", asking("op-b", 3), second.get_state())
    assert begun.get_result()["begins"] is True
    assert sent(begun) == [("forget", NOON + KEPT_FOR)]
    assert run("begin", asking("op-a", 0), begun.get_state()).get_result()["replaced_by"] == "op-b"
    assert run("forget", asking("op-b", 3), begun.get_state()).get_state() is None


def test_one_that_leaves_is_forgotten_later() -> None:
    joined = run("arrive", asking("op-a", 0))
    left = run("withdraw", asking("op-a", 0), joined.get_state())
    assert sent(left) == [("forget", NOON + KEPT_FOR)]
    assert run("withdraw", asking("op-b", 0)).get_state() is None

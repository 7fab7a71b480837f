import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.circuit import Hand, HandAction, HandMessage, Refused
from engine.gate import stop_to_json
from engine.operation import OperationInput
from orchestrators import release_waiting
from stores.task_hub import read_operation, start_operation
from stores.waiting_operations import WAKE_WAITING, start_release, waiting_page
from tests.operation_stage import an_operation, failing
from tests.task_hub_stage import TaskHubStage

WAIT_SECONDS = 30
ROWS, MORE_THAN_A_PAGE = 20, 25


def close_by_hand() -> HandMessage:
    return HandMessage(HandAction(Hand.CLOSE, datetime.now(UTC), "ada", "it is well again"))


def held_up_once(name: str, given: dict[str, Any]) -> Any:
    """Refuse each operation for an hour, as an open circuit does, and let it through when it is back."""
    if name != "attempt" or given["ticket"]["waiting"] or given["attempt"] > 1:
        return failing(0)(name, given)
    base = datetime.now(UTC) + timedelta(hours=1)
    return {"stopped": stop_to_json(Refused(base, 0, base, "the circuit is open"))}


async def waiting(hub: TaskHubStage, dependency: str, operations: int) -> list[str]:
    """Start operations and return their ids once all of them wait."""
    ids = [f"op-{dependency}-{number}" for number in range(operations)]
    for each in ids:
        await start_operation(hub.binding, _operation(each, dependency))
    await until_all(hub, ids, "waiting_circuit")
    return ids


def _operation(operation_id: str, dependency: str) -> OperationInput:
    return an_operation(operation_id=operation_id, dependency=dependency, deadline_at=None)


async def until_all(hub: TaskHubStage, ids: list[str], state: str) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        for each in ids:
            while await state_of(hub, each) != state:  # noqa: ASYNC110 # asks over gRPC
                await asyncio.sleep(0.05)


async def state_of(hub: TaskHubStage, operation_id: str) -> str | None:
    instance = await read_operation(hub.binding, operation_id)
    return None if instance is None or instance.custom_status is None else instance.custom_status["status"]


async def test_a_circuit_closed_by_hand_lets_go_of_whoever_waits_for_it_and_of_nobody_else(
    task_hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.wake_waiting.PAGES_PER_STEP", 1)
    monkeypatch.setattr("stores.instance_pages.LIGHT_ROWS", ROWS)
    monkeypatch.setattr(release_waiting, "SETTLE", timedelta(milliseconds=10))
    monkeypatch.setattr(release_waiting, "BETWEEN_PASSES", timedelta(milliseconds=10))
    task_hub.answer = held_up_once
    ids = await waiting(task_hub, "payments", MORE_THAN_A_PAGE)
    others = await waiting(task_hub, "mail", 2)

    await start_release(task_hub.binding, "payments", close_by_hand())
    await until_all(task_hub, ids, "succeeded")
    assert [await state_of(task_hub, each) for each in others] == ["waiting_circuit"] * 2
    steps = [given for name, given in task_hub.activities if name == WAKE_WAITING]
    assert any(step["position"] is not None for step in steps)


async def test_a_page_shows_only_who_waits_for_this_circuit(task_hub: TaskHubStage) -> None:
    task_hub.answer = held_up_once
    ids = await waiting(task_hub, "payments", 2)
    await waiting(task_hub, "mail", 1)
    now = datetime.now(UTC)
    page = await waiting_page(task_hub.binding, "payments", now, None)
    assert (sorted(page.waiting), page.following) == (ids, None)
    earlier = await waiting_page(task_hub.binding, "payments", now - timedelta(hours=1), None)
    assert earlier.waiting == ()

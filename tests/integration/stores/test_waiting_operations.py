import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable_retry.base.names import EventState
from durable_retry.features.circuit_controls.controls import start_release
from durable_retry.features.circuit_controls.names import WAKE_WAITING
from durable_retry.features.circuit_controls.waking import waiting_page
from durable_retry.features.outbox.names import OUTBOX, OUTBOX_PENDING, PUBLISH
from durable_retry.features.outbox.rules.outbox import StoredEvent
from durable_retry.hub.task_hub import TaskHub, close_clients
from durable_retry.rules.circuit.breaker import ManualControl
from durable_retry.rules.circuit.snapshot import Refused
from durable_retry.rules.circuit.transitions import ManualAction
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.settings.configuration import using
from orchestrators import wake_waiting as release_waiting
from tests.support.builders import an_operation, failing
from tests.support.hub import TaskHubStage, task_hub_stage

WAIT_SECONDS = 30
ROWS, MORE_THAN_A_PAGE = 20, 25


def close_control() -> ManualAction:
    return ManualAction(ManualControl.CLOSE, datetime.now(UTC), "ada", "it is well again")


def held_up_once(name: str, given: dict[str, Any]) -> Any:
    """Refuse each operation for an hour, as an open circuit does, and let it through when it is back."""
    if name != "attempt" or given["admission"]["waiting"] or given["attempt"] > 1:
        return failing(0)(name, given)
    base = datetime.now(UTC) + timedelta(hours=1)
    return {"stopped": Refused(base, 0, base, "the circuit is open").to_json()}


async def waiting(
    hub: TaskHubStage, dependency: str, operations: int, limit_key: str | None = None
) -> list[str]:
    """Start operations and return their ids once all of them wait."""
    ids = [f"op-{dependency}-{limit_key or ''}{number}" for number in range(operations)]
    for each in ids:
        await hub.binding.start_operation(replace(_operation(each, dependency), limit_key=limit_key))
    await until_all(hub, ids, "waiting_circuit")
    return ids


def _operation(operation_id: str, dependency: str) -> OperationInput:
    return an_operation(operation_id=operation_id, dependency=dependency, deadline_in=None)


async def until_all(hub: TaskHubStage, ids: list[str], state: str) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        for each in ids:
            while await state_of(hub, each) != state:  # noqa: ASYNC110 # asks over gRPC
                await asyncio.sleep(0.05)


async def state_of(hub: TaskHubStage, operation_id: str) -> str | None:
    instance = await hub.binding.read_instance(operation_id)
    return None if instance is None or instance.custom_status is None else instance.custom_status["status"]


async def test_a_circuit_closed_by_hand_lets_go_of_whoever_waits_for_it_and_of_nobody_else(
    task_hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable_retry.features.circuit_controls.waking.PAGES_PER_STEP", 1)
    monkeypatch.setattr("durable_retry.hub.task_hub.LIGHT_ROWS", ROWS)
    monkeypatch.setattr(release_waiting, "SETTLE", timedelta(milliseconds=10))
    monkeypatch.setattr(release_waiting, "BETWEEN_PASSES", timedelta(milliseconds=10))
    task_hub.answer = held_up_once
    ids = await waiting(task_hub, "payments", MORE_THAN_A_PAGE)
    others = await waiting(task_hub, "mail", 2)

    await start_release(task_hub.binding, "payments", close_control())
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
    assert sorted(page.waiting) == ids
    assert page.following is not None
    outboxes = await waiting_page(task_hub.binding, "payments", now, page.following)
    assert (outboxes.waiting, outboxes.following) == ((), None)
    earlier = await waiting_page(task_hub.binding, "payments", now - timedelta(hours=1), None)
    assert earlier.waiting == ()


async def test_a_page_shows_who_waits_since_the_dependency_had_another_name(task_hub: TaskHubStage) -> None:
    task_hub.answer = held_up_once
    ids = await waiting(task_hub, "payments", 1)
    config = parse_config('[dependencies.pay]\nbase_url = "http://pay"\nwas = ["payments"]', {})
    with using(config):
        page = await waiting_page(task_hub.binding, "pay", datetime.now(UTC), None)
    assert list(page.waiting) == ids


async def test_a_page_of_a_limit_key_shows_its_operations_and_that_of_the_dependency_all(
    task_hub: TaskHubStage,
) -> None:
    task_hub.answer = held_up_once
    ids = {key: await waiting(task_hub, "payments", 1, key) for key in (None, "a", "b")}
    now = datetime.now(UTC)
    page = await waiting_page(task_hub.binding, "payments", now, None, "a")
    assert list(page.waiting) == ids["a"]
    page = await waiting_page(task_hub.binding, "payments", now, None)
    assert sorted(page.waiting) == sorted(each for of_key in ids.values() for each in of_key)


@pytest.mark.parametrize("limit_key", [None, "customer-17"])
async def test_a_circuit_closed_by_hand_lets_the_webhooks_of_an_outbox_go(
    monkeypatch: pytest.MonkeyPatch, limit_key: str | None
) -> None:
    monkeypatch.setattr(release_waiting, "SETTLE", timedelta(milliseconds=10))
    monkeypatch.setattr(release_waiting, "BETWEEN_PASSES", timedelta(milliseconds=10))
    sent: list[str] = []
    events = {"payments": _an_event(1, "payments"), "mail": _an_event(2, "mail")}

    def answer(name: str, given: dict[str, Any]) -> Any:
        if name == OUTBOX_PENDING:
            pending = [each for lane, each in events.items() if lane not in sent]
            return {"place": {}, "deliveries": [each.to_delivery(None).to_json() for each in pending]}
        if name != PUBLISH:
            return failing(0)(name, given)
        operation = given["delivery"]["operation"]
        lane, named = operation["dependency"], {"event_id": operation["operation_id"]}
        if not given["delivery"]["state"]["admission"]["waiting"]:
            base = datetime.now(UTC) + timedelta(minutes=10)
            return named | {"stopped": Refused(base, 0, base, "the circuit is open").to_json()}
        sent.append(lane)
        return named | failing(0)("attempt", given)

    with task_hub_stage(parts=True) as stage:
        stage.answer = answer
        hub = stage.binding
        await hub.start_instance(OUTBOX, "outbox-op-1", {"operation_id": "op-1"}, again=False)
        async with asyncio.timeout(WAIT_SECONDS):
            while await _blocked_lanes(hub) != ["mail", "payments"]:  # noqa: ASYNC110 # asks over gRPC
                await asyncio.sleep(0.05)
            await start_release(hub, "payments", replace(close_control(), limit_key=limit_key))
            while await _blocked_lanes(hub) != ["mail"]:  # noqa: ASYNC110 # as above
                await asyncio.sleep(0.05)
        await close_clients()
    assert sent == ["payments"]


def _an_event(number: int, dependency: str) -> StoredEvent:
    now = datetime.now(UTC)
    event = {"type": "t", "data": None, "dependency": dependency, "path": "/"}
    return StoredEvent(
        event_id=f"op-1.{number}", event=event, state=EventState.PENDING, created_at=now, pending_since=now
    )


async def _blocked_lanes(hub: TaskHub) -> list[str]:
    instance = await hub.read_instance("outbox-op-1")
    shown = {} if instance is None else instance.custom_status or {}
    return sorted(shown.get("held", {}))

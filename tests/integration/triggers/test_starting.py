from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest

from durable_retry.hub.task_hub import TaskHub
from durable_retry.intake.routes import submit_operation
from durable_retry.operations.status import find_status
from durable_retry.runtime import clock, sharing
from durable_retry.upkeep.routes import get_health
from durable_retry_console.alerts.health import look_at_health
from durable_retry_console.index import health
from durable_retry_console.index.health import LOOKED_AT, seconds_without_a_start
from durable_retry_console.index.notes import write_noted
from tests.support.http import call
from tests.support.hub import TaskHubStage

PATIENCE = 120.0
CALL = {"dependency": "payments", "request": {"method": "POST", "path": "/charges"}}

pytestmark = pytest.mark.usefixtures("own_tables", "nothing_known")


@pytest.fixture
def nothing_known() -> None:
    sharing._shared.values.clear()


async def accepted(hub: TaskHubStage, key: str, **headers: str) -> str:
    answer = await call(submit_operation, hub.binding, CALL | {"key": key}, headers=headers)
    operation_id: str = answer.body["operation_id"]
    return operation_id


def nothing_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show every operation as the host shows those whose entity calls it drops."""

    async def pending(hub: TaskHub, operation_id: str) -> dict[str, Any] | None:
        document = await find_status(hub, operation_id)
        return None if document is None else document | {"status": "pending", "attempts": []}

    monkeypatch.setattr(health, "find_status", pending)


async def test_without_operations_there_is_no_trouble(hub: TaskHubStage) -> None:
    assert await seconds_without_a_start(hub.binding, clock.now(), PATIENCE) == 0.0


async def test_one_that_is_younger_than_the_patience_is_no_trouble(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_begins(monkeypatch)
    await accepted(hub, "young")
    await write_noted()
    assert await seconds_without_a_start(hub.binding, clock.now() + timedelta(minutes=1), PATIENCE) == 0.0


async def test_pending_operations_without_an_attempt_are_trouble_as_old_as_the_oldest_looked_at(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_begins(monkeypatch)
    for number in range(LOOKED_AT):
        await accepted(hub, f"hangs-{number}")
    await write_noted()
    later = clock.now() + timedelta(minutes=3)
    assert 180.0 <= await seconds_without_a_start(hub.binding, later, PATIENCE) < 240.0
    assert ((await look_at_health(hub.binding, later)).metrics["not_starting"].value or 0.0) >= 180.0


async def test_a_patience_of_days_looks_at_what_is_that_old(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_begins(monkeypatch)
    await accepted(hub, "hangs")
    await write_noted()
    days = timedelta(days=2).total_seconds()
    assert await seconds_without_a_start(hub.binding, clock.now() + timedelta(days=2, hours=1), days) > days


async def test_one_that_hangs_among_others_that_begin_is_no_trouble(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await accepted(hub, "done", Prefer="wait=20")
    hanging = await accepted(hub, "hangs")
    await write_noted()

    async def one_is_pending(hub_: TaskHub, operation_id: str) -> dict[str, Any] | None:
        document = await find_status(hub_, operation_id)
        if document is not None and operation_id == hanging:
            return document | {"status": "pending", "attempts": []}
        return document

    monkeypatch.setattr(health, "find_status", one_is_pending)
    assert await seconds_without_a_start(hub.binding, clock.now() + timedelta(minutes=3), PATIENCE) == 0.0


@pytest.mark.parametrize("status", ["waiting_retry", "waiting_circuit", "running", "succeeded"])
async def test_an_operation_that_waits_or_runs_has_begun(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    async def shown(hub_: TaskHub, operation_id: str) -> dict[str, Any] | None:
        document = await find_status(hub_, operation_id)
        return None if document is None else document | {"status": status, "attempts": []}

    monkeypatch.setattr(health, "find_status", shown)
    await accepted(hub, "waits")
    await write_noted()
    assert await seconds_without_a_start(hub.binding, clock.now() + timedelta(minutes=3), PATIENCE) == 0.0


async def test_health_is_degraded_while_nothing_begins_and_still_accepts(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "seconds_without_a_start", AsyncMock(return_value=130.0))
    answer = await call(get_health, hub.binding)
    assert (answer.status, answer.body["status"]) == (200, "degraded")
    assert "not begun for 130 s" in answer.body["parts"]["starting"]["detail"]
    sharing._shared.values.clear()

    monkeypatch.setattr(health, "seconds_without_a_start", AsyncMock(return_value=0.0))
    answer = await call(get_health, hub.binding)
    assert (answer.status, answer.body["status"]) == (200, "healthy")

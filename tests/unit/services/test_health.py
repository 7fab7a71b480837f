"""A diagnosis where a part does not answer at all: who asks gets an answer all the same."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from durabletask.client import OrchestrationStatus

from durable_retry import clock, deferred
from durable_retry.engine.base.errors import TaskHubUnavailableError
from durable_retry.engine.circuit.breaker import Breaker
from durable_retry.engine.circuit.states import CircuitState
from durable_retry.engine.config.dependencies_file import parse_config
from durable_retry.services import health
from durable_retry.services.health import HealthPart, PartState, find_diagnosis, read_health, start_diagnosis
from durable_retry.settings.configuration import using
from durable_retry.stores.instances import Instance
from durable_retry.stores.storage import queues, tables
from durable_retry.stores.task_hub import TaskHub

HUB = TaskHub("{}")
AT = datetime(2026, 1, 1, tzinfo=UTC)


async def never(*_: Any, **__: Any) -> Any:
    await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_ANSWERS_WITHIN_SECONDS", 0.01)


async def parts_while_storage_hangs(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[PartState, Any]]:
    async def running(*_: Any) -> Instance:
        return Instance("diagnosis-1", OrchestrationStatus.RUNNING, AT, AT, {}, None, None)

    monkeypatch.setattr(TaskHub, "read_instance", running)
    monkeypatch.setattr(tables, "read", never)
    monkeypatch.setattr(queues, "exists", never)
    monkeypatch.setattr(health, "registration", Mock(return_value=Mock(wants=Mock(return_value=True))))
    found = await find_diagnosis(HUB, "diagnosis-1", role="operator", caller="ann")
    assert found is not None
    return {part.name: (part.state, part.detail) for part in found.parts}


@pytest.mark.parametrize(
    ("name", "state", "detail"),
    [
        ("durable_retry.services.queue", PartState.OK, None),
        ("no_such_package.here", PartState.FAILED, "no_such_package.here: No module named 'no_such_package'"),
    ],
)
async def test_a_package_that_a_later_import_needs_and_that_is_missing_has_failed(
    monkeypatch: pytest.MonkeyPatch, name: str, state: PartState, detail: str | None
) -> None:
    monkeypatch.setattr(deferred, "REFERENCES", set[str]())
    deferred.deferred(f"{name}:keep_poison")
    assert (await parts_while_storage_hangs(monkeypatch))["packages"] == (state, detail)


async def test_storage_that_hangs_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred, "REFERENCES", set[str]())
    states = await parts_while_storage_hangs(monkeypatch)
    assert states["storage"] == states["queues"] == (PartState.FAILED, "no answer within 0 s")
    assert states["start"] == (PartState.WAITING, None)


async def test_a_task_hub_that_hangs_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskHub, "start_instance", never)
    monkeypatch.setattr(TaskHub, "read_instance", never)
    with pytest.raises(TaskHubUnavailableError, match="does not answer"):
        await start_diagnosis(HUB)
    with pytest.raises(TaskHubUnavailableError, match="does not answer"):
        await find_diagnosis(HUB, "diagnosis-1", role="operator", caller="ann")


@pytest.mark.parametrize(
    ("failure", "status"), [(None, "healthy"), (TaskHubUnavailableError("it is away"), "unhealthy")]
)
async def test_however_many_ask_for_the_health_it_is_looked_at_once_a_second(
    monkeypatch: pytest.MonkeyPatch, failure: Exception | None, status: str
) -> None:
    look, seconds = AsyncMock(side_effect=failure), 100.0
    monkeypatch.setattr(TaskHub, "check", look)
    monkeypatch.setattr(tables, "read", AsyncMock())
    monkeypatch.setattr(health, "plugins", tuple)
    for part in ("_stuck_part", "_credentials_part"):
        monkeypatch.setattr(health, part, AsyncMock(return_value=HealthPart(healthy=True)))
    with clock.reading(lambda: AT, lambda: seconds):
        for _ in range(2):
            seen = await asyncio.gather(*(read_health(HUB) for _ in range(1_000)))
            assert {each.status for each in seen} == {status}
        assert look.await_count == 1
        seconds += 1.0
        await read_health(HUB)
        assert look.await_count == 2


GUARDED = """
[dependencies.payments]
base_url = "http://payments.test"
[dependencies.free]
base_url = "http://free.test"
circuit = { unauthorized_calls = 0 }
"""


@pytest.mark.parametrize(("refused_by", "healthy"), [("401", False), (None, True)])
async def test_a_credential_that_is_refused_is_a_part_of_the_health_without_the_dependencys_name(
    monkeypatch: pytest.MonkeyPatch, refused_by: str | None, *, healthy: bool
) -> None:
    breaker = Breaker(state=CircuitState.OPEN, unauthorized_by=refused_by)
    monkeypatch.setattr(TaskHub, "read_entity", AsyncMock(return_value=json.dumps(breaker.to_json())))
    monkeypatch.setattr(TaskHub, "check", AsyncMock())
    monkeypatch.setattr(tables, "read", AsyncMock())
    monkeypatch.setattr(health, "plugins", tuple)
    monkeypatch.setattr(health, "stuck_instances", AsyncMock(return_value=()))
    with using(parse_config(GUARDED, {})):
        found = await read_health(TaskHub(json.dumps({"refused_by": refused_by})))
    part = found.parts["credentials"]
    assert (part.healthy, found.status) == (healthy, "healthy" if healthy else "degraded")
    words = "the app's credential is refused by 1 of its dependencies; `retryctl circuits list`"
    assert part.detail == (None if healthy else words)
    assert found.accepts

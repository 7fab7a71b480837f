import asyncio
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest
from durabletask.client import OrchestrationStatus

from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.features.diagnosis import parts
from durable_retry.features.diagnosis.parts import find_diagnosis, start_diagnosis
from durable_retry.features.diagnosis.rules import PartState
from durable_retry.hub.instances import Instance
from durable_retry.hub.task_hub import TaskHub
from durable_retry.runtime import deferred
from durable_retry.storage import queues, tables
from tests.support.narrowing import existing

HUB = TaskHub("{}")
AT = datetime(2026, 1, 1, tzinfo=UTC)


async def never(*_: Any, **__: Any) -> Any:
    await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_ANSWERS_WITHIN_SECONDS", 0.01)


async def parts_while_storage_hangs(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[PartState, Any]]:
    async def running(*_: Any) -> Instance:
        return Instance("diagnosis-1", OrchestrationStatus.RUNNING, AT, AT, {}, None, None)

    monkeypatch.setattr(TaskHub, "read_instance", running)
    monkeypatch.setattr(tables, "read", never)
    monkeypatch.setattr(queues, "exists", never)
    monkeypatch.setattr(parts, "registration", Mock(return_value=Mock(wants=Mock(return_value=True))))
    found = existing(await find_diagnosis(HUB, "diagnosis-1", role="operator", caller="ann"))
    return {part.name: (part.state, part.detail) for part in found.parts}


@pytest.mark.parametrize(
    ("name", "state", "detail"),
    [
        ("durable_retry.intake.queue", PartState.OK, None),
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

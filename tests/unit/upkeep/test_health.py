import asyncio
import json
from datetime import UTC, datetime
from unittest.mock import AsyncMock

import pytest

from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.breaker import Breaker
from durable_retry.rules.circuit.states import CircuitState
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.runtime import clock
from durable_retry.settings.configuration import using
from durable_retry.storage import tables
from durable_retry.upkeep import health
from durable_retry.upkeep.health import HealthPart, read_health

HUB = TaskHub("{}")
AT = datetime(2026, 1, 1, tzinfo=UTC)


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
    monkeypatch.setattr(health, "_credentials_part", AsyncMock(return_value=HealthPart(healthy=True)))
    with clock.reading(lambda: AT, lambda: seconds):
        for _ in range(2):
            seen = await asyncio.gather(*(read_health(HUB) for _ in range(1_000)))
            assert {each.status for each in seen} == {status}
        assert look.await_count == 1
        seconds += 1.0
        await read_health(HUB)
        assert look.await_count == 2


@pytest.mark.parametrize(
    ("failure", "detail"),
    [
        (TimeoutError(), "no answer within 5 s"),
        (TaskHubUnavailableError("key=sesame"), "does not answer as it should: TaskHubUnavailableError"),
    ],
)
async def test_a_part_that_fails_says_so_in_words_and_names_no_address(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, detail: str
) -> None:
    monkeypatch.setattr(TaskHub, "check", AsyncMock(side_effect=failure))
    monkeypatch.setattr(tables, "read", AsyncMock())
    monkeypatch.setattr(health, "plugins", tuple)
    monkeypatch.setattr(health, "_credentials_part", AsyncMock(return_value=HealthPart(healthy=True)))
    assert (await read_health(TaskHub("{}"))).parts["task_hub"].detail == detail


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
    with using(parse_config(GUARDED, {})):
        found = await read_health(TaskHub(json.dumps({"refused_by": refused_by})))
    part = found.parts["credentials"]
    assert (part.healthy, found.status) == (healthy, "healthy" if healthy else "degraded")
    words = "the app's credential is refused by 1 of its dependencies; `retryctl circuits list`"
    assert part.detail == (None if healthy else words)
    assert found.accepts

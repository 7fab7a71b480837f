import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from azure.core.exceptions import AzureError, ServiceRequestError

from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.hub import platform_retries
from durable_retry.plugins import Plugin
from durable_retry.upkeep import timers
from durable_retry.upkeep.failures import Recovery


async def fired(timer: Any) -> None:
    context = SimpleNamespace(function_name="retry_watch", retry_context=None)
    await timer._function._func(SimpleNamespace(), context, hub="hub")


@pytest.mark.parametrize(
    "error", [TaskHubUnavailableError("it is away"), ServiceRequestError("it is away\nin two lines")]
)
@pytest.mark.shows("P4")
async def test_a_request_without_an_answer_is_one_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    monkeypatch.setattr(timers, "recover", AsyncMock(side_effect=error))
    monkeypatch.setattr(timers, "plugins", tuple)
    await fired(timers.watch)
    (line,) = caplog.records
    expected = f"retry_watch: {type(error).__name__}: it is away; the next run goes on"
    assert (line.levelname, line.getMessage(), line.exc_info) == ("WARNING", expected, None)


@pytest.mark.shows("P4")
async def test_a_run_ends_before_the_host_would_end_its_worker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(platform_retries, "function_timeout_seconds", lambda: 0.02)
    monkeypatch.setattr(timers, "registration", lambda: SimpleNamespace(wants=lambda _: False))
    monkeypatch.setattr(timers, "run_maintenance", lambda *_: asyncio.Event().wait())
    await fired(timers.maintenance)
    assert [line.getMessage() for line in caplog.records] == [
        "retry_watch: its time is up; the next run goes on"
    ]


async def test_alerts_are_checked_also_when_what_failed_could_not_be_followed_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_alerts = AsyncMock()
    monkeypatch.setattr(timers, "recover", AsyncMock(side_effect=AzureError("away")))
    monkeypatch.setattr(timers, "plugins", lambda: [Plugin(each_minute=("alerts",))])
    monkeypatch.setattr(timers, "deferred", {"alerts": check_alerts}.get)
    await fired(timers.watch)
    check_alerts.assert_awaited_once()


async def test_a_step_of_the_minute_that_fails_keeps_no_other_back(monkeypatch: pytest.MonkeyPatch) -> None:
    note_changes = AsyncMock()
    monkeypatch.setattr(timers, "recover", AsyncMock(return_value={Recovery.DEAD_LETTER: 0}))
    steps = {"alerts": AsyncMock(side_effect=AzureError("away")), "changes": note_changes}
    monkeypatch.setattr(timers, "plugins", lambda: [Plugin(each_minute=tuple(steps))])
    monkeypatch.setattr(timers, "deferred", steps.get)
    await fired(timers.watch)
    note_changes.assert_awaited_once()


async def test_maintenance_runs_also_when_the_queue_of_poison_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_maintenance = AsyncMock()
    monkeypatch.setattr(timers, "registration", lambda: SimpleNamespace(wants=lambda _: True))
    monkeypatch.setattr(timers, "keep_left_poison", AsyncMock(side_effect=AzureError("away")))
    monkeypatch.setattr(timers, "run_maintenance", run_maintenance)
    await fired(timers.maintenance)
    run_maintenance.assert_awaited_once()


async def test_a_mistake_in_a_timer_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "recover", AsyncMock(side_effect=KeyError("a bug")))
    monkeypatch.setattr(timers, "plugins", tuple)
    with pytest.raises(KeyError):
        await fired(timers.watch)

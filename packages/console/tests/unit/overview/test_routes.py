"""The overview of an app that lacks a feature."""

import json
from unittest.mock import AsyncMock

import azure.functions as func
import pytest

from durable_retry.hub.task_hub import TaskHub
from durable_retry.runtime import clock
from durable_retry_console import optional
from durable_retry_console.overview import routes


async def test_an_app_without_an_outbox_is_shown_without_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = AsyncMock(return_value=(None, clock.now()))
    for name in ("_operations_part", "_metrics_part", "_dated"):
        monkeypatch.setattr(routes, name, unknown)
    monkeypatch.setattr(optional, "features", tuple)
    request = func.HttpRequest("GET", "http://localhost/api/overview", body=b"")
    answer = await routes.get_overview(request, TaskHub(""), {})
    shown = json.loads(answer.get_body())
    assert (shown["outbox"], shown["unavailable"]) == (None, {})
    read = {call.args[0] for call in unknown.await_args_list if callable(call.args[0])}
    assert read == {*routes._PARTS.values()}

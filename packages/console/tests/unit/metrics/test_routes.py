import json
from http import HTTPStatus

import azure.functions as func
import pytest

from durable_retry.hub.task_hub import TaskHub
from durable_retry_console.metrics.routes import get_metrics


@pytest.mark.parametrize("end", ["0001-01-01T00:00:00Z", "0001-01-01T00:30:00Z", "1969-12-31T23:59:59Z"])
async def test_an_end_before_all_metrics_is_a_mistake(end: str) -> None:
    request = func.HttpRequest("GET", "http://localhost/api/metrics", params={"to": end}, body=b"")
    answer = await get_metrics(request, TaskHub("hub"), {})
    assert answer.status_code == HTTPStatus.BAD_REQUEST
    assert json.loads(answer.get_body())["errors"] == [
        {"pointer": "/to", "detail": "must not be before 1970"}
    ]

"""Calling a route as its collection does, with a request and the durable client's binding."""

import json
from dataclasses import dataclass
from typing import Any

import azure.functions as func

from durable_retry.hub.task_hub import TaskHub


@dataclass
class Answered:
    """An answer, its body read."""

    status: int
    headers: dict[str, str]
    body: Any


async def call(
    function: Any,
    hub: TaskHub,
    body: Any = None,
    *,
    headers: dict[str, str] | None = None,
    params: dict[str, str] | None = None,
    operation_id: str = "",
) -> Answered:
    """Have a route answer."""
    request = func.HttpRequest(
        "POST",
        "http://localhost:7071/api/operations",
        headers=headers or {},
        params=params or {},
        body=b"" if body is None else json.dumps(body).encode(),
    )
    answer = await function(request, hub, {"operation_id": operation_id} if operation_id else {})
    return Answered(answer.status_code, dict(answer.headers), json.loads(answer.get_body()))

"""Calling an HTTP function as the host does, with a request and the durable client's binding."""

import inspect
import json
import re
from dataclasses import dataclass
from typing import Any

import azure.functions as func

from durable_retry.stores.task_hub import TaskHub


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
    """Invoke a registered function."""
    request = func.HttpRequest(
        "POST",
        "http://localhost:7071/api/operations",
        headers=headers or {},
        params=params or {},
        route_params={"operation_id": operation_id},
        body=b"" if body is None else json.dumps(body).encode(),
    )
    given = {"req": request, "hub": hub}
    answer = await function(**{name: given[name] for name in inspect.signature(function).parameters})
    return Answered(answer.status_code, dict(answer.headers), json.loads(answer.get_body()))


def unconstrained(route: str) -> str:
    """Return the path of a route without the constraints of its parameters."""
    return re.sub(r"\{(\*?\w+):regex\(.*?\)\}", r"{\1}", route)

import asyncio
import importlib
import json
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import azure.functions as func
import pytest

from durable_retry.hub.task_hub import TaskHub, close_clients
from durable_retry.routing import collections, routes_of, table
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.runtime import clock
from durable_retry.settings.configuration import using
from scripts.processes import free_port
from tests.support.builders import NOON
from tests.support.hub import TaskHubStage, binding_for, task_hub_stage

DEPENDENCIES = """
[dependencies.payments]
base_url = "https://payments.example.com"
retry = { strategy = "fixed", initial_seconds = 60.0, jitter = "none" }
"""

ROUTES: Final = {route.function: route for route in table()}


@pytest.fixture
def clock_at_noon() -> Iterator[None]:
    with clock.reading(lambda: NOON):
        yield


@pytest.fixture
async def hub() -> AsyncIterator[TaskHubStage]:
    """A task hub with the app's orchestration; activities answer as a test sets them."""
    with task_hub_stage() as stage, using(parse_config(DEPENDENCIES, {})):
        yield stage
        await close_clients()


@dataclass
class App:
    """The routes of the app, and what they are given.

    Attributes:
        functions: What the host calls, by the name of a route.
        parameters: Of all paths.
        bodies: By function.
    """

    functions: dict[str, Any]
    parameters: Mapping[str, str] = field(default_factory=dict)
    bodies: Mapping[str, Any] = field(default_factory=dict)
    hub: TaskHub = field(default_factory=lambda: binding_for(free_port()))

    async def answers(self, names: set[str]) -> dict[str, tuple[int, str]]:
        """Call some functions, and return the status and the kind of problem of each."""
        called = sorted(names)
        answers = await asyncio.gather(*(self._call(name) for name in called))
        return dict(zip(called, answers, strict=True))

    async def document(self, name: str, **params: str) -> dict[str, Any]:
        """Call a function, with parameters of the query, and return the document that it answers."""
        document: dict[str, Any] = json.loads((await self._answer(name, **params)).get_body())
        return document

    async def _call(self, name: str) -> tuple[int, str]:
        answer = await self._answer(name)
        return answer.status_code, json.loads(answer.get_body()).get("type", "")

    async def _answer(self, name: str, **params: str) -> func.HttpResponse:
        route = ROUTES[name]
        path = route.path.format(**{each: quote(value, safe="") for each, value in self.parameters.items()})
        request = func.HttpRequest(
            route.method,
            f"http://localhost:7071/api/{path}",
            params=params,
            body=json.dumps(self.bodies[name]).encode() if name in self.bodies else b"",
        )
        function = self.functions[name].get_user_function()
        answer: func.HttpResponse = await function(req=request, hub=self.hub.configuration)
        return answer


@pytest.fixture(scope="module")
def functions() -> Iterator[dict[str, Any]]:
    """The function of the host that answers a route, by the route's name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAKY_TARGET_URL", "http://127.0.0.1:9")
        sys.modules.pop("function_app", None)
        app = importlib.import_module("function_app").app
    listed = {each.get_function_name(): each for each in app.get_functions()}
    yield {route.function: listed[each.function] for each in collections() for route in routes_of(each)}
    sys.modules.pop("function_app", None)

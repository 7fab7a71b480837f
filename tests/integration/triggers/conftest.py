import asyncio
import importlib
import json
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import azure.functions as func
import pytest

from durable_retry.engine.config.dependencies_file import parse_config
from durable_retry.settings.configuration import using
from durable_retry.stores.task_hub import TaskHub, close_clients
from scripts.processes import free_port
from tests.support.hub import TaskHubStage, binding_for, task_hub_stage

DEPENDENCIES = """
[dependencies.payments]
base_url = "https://payments.example.com"
retry = { strategy = "fixed", initial_seconds = 60.0, jitter = "none" }
"""


@pytest.fixture
async def hub() -> AsyncIterator[TaskHubStage]:
    """A task hub with the app's orchestration; activities answer as a test sets them."""
    with task_hub_stage() as stage, using(parse_config(DEPENDENCIES, {})):
        yield stage
        await close_clients()


@dataclass
class App:
    """The HTTP functions of the app, and what they are given.

    Attributes:
        functions: By name.
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
        trigger = self.functions[name].get_trigger().get_dict_repr()
        request = func.HttpRequest(
            trigger["methods"][0].value,
            f"http://localhost:7071/api/{trigger['route']}",
            params=params,
            route_params=self.parameters,
            body=json.dumps(self.bodies[name]).encode() if name in self.bodies else b"",
        )
        bindings = {each.name for each in self.functions[name].get_bindings()}
        given = {"hub": self.hub.configuration} if "hub" in bindings else {}
        answer: func.HttpResponse = await self.functions[name].get_user_function()(req=request, **given)
        return answer


@pytest.fixture(scope="module")
def functions() -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAKY_TARGET_URL", "http://127.0.0.1:9")
        sys.modules.pop("function_app", None)
        app = importlib.import_module("function_app").app
    listed = {each.get_function_name(): each for each in app.get_functions()}
    yield {name: each for name, each in listed.items() if each.get_trigger().type == "httpTrigger"}
    sys.modules.pop("function_app", None)

from dataclasses import replace
from typing import Any

import pytest

import durable_retry
from activities.operation import attempt
from durable_retry.features.fallback.rules import Route, Terms
from durable_retry.features.fallback.stays import Stay
from durable_retry.handlers import Call
from durable_retry.rules.operations.operation import AttemptCall, OperationInput
from durable_retry.rules.retry.history import AttemptOutcome
from tests.support.builders import an_operation
from tests.support.hub import binding_for
from tests.support.target import Target

pytestmark = pytest.mark.usefixtures("no_handlers", "tables_in_memory")

HOME = Route(to="safe")
TERMS = Terms(policy=an_operation().policy, timeouts=an_operation().timeouts, parts={})
AWAY = replace(HOME, stay=1, of="free", home=TERMS)


def at(route: Route, key: str, path: str = "/echo", **changes: Any) -> OperationInput:
    request = {"method": "POST", "path": path, "query": {}, "headers": {}, "json": {}}
    values: dict[str, Any] = {"operation_id": f"op-{key}", "key": key, "deadline_in": None}
    values |= {"dependency": "free", "request": request, "parts": {"fallback": route.to_json()}}
    return an_operation(**values | changes)


async def attempted(operation: OperationInput) -> AttemptOutcome:
    call = AttemptCall(operation=operation.to_json(), attempt=1)
    return AttemptOutcome.from_json(await attempt(call.to_json(), binding_for(9)))


async def test_an_attempt_that_has_an_effect_keeps_its_operation(key: str, target: Target) -> None:
    operation = at(HOME, key)
    assert (await attempted(operation)).status_code == 200
    assert not await Stay.of(operation).leave()
    assert target.received(key)["count"] == 1


async def test_one_that_is_refused_lets_it_go(key: str) -> None:
    operation = at(HOME, key, "/status/429")
    assert (await attempted(operation)).status_code == 429
    assert await Stay.of(operation).leave()


async def test_one_that_comes_after_it_has_left_sends_nothing(key: str, target: Target) -> None:
    operation = at(HOME, key)
    assert await Stay.of(operation).leave()
    assert (await attempted(operation)).error == "the operation has left free"
    assert target.received(key)["count"] == 0


async def test_a_handler_gets_the_client_of_the_fallback_and_its_key(key: str, target: Target) -> None:
    @durable_retry.operation(dependency="free", fallback="safe")
    async def charge(call: Call) -> int:
        return (await call.client.post("/echo")).status_code

    sent = f"{key}~at~safe"
    away = at(AWAY, key, dependency="safe", downstream_key=sent, request=None, handler="charge", input={})
    outcome = await attempted(away)
    assert (outcome.category, outcome.dependency) == (None, "safe")
    (received,) = target.received(sent)["tries"]
    assert received["headers"]["x-api-key"] == "sesame-open-0815"

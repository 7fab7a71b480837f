"""What the answer to a request becomes: its category, and whether it counts."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from durable_retry.engine.base.names import Category
from durable_retry.engine.config.dependencies_file import parse_config
from durable_retry.engine.config.dependency import Dependency
from durable_retry.engine.retry.history import AttemptOutcome
from durable_retry.engine.retry.policy import Timeouts
from durable_retry.services.attempt.http_client import sending_over
from durable_retry.services.attempt.http_pool import PROGRESS
from durable_retry.services.attempt.http_request import Plan, attempt_request, start_clock
from tests.support.builders import an_operation

UNSAFE = 'idempotency = { header = "" }\n'


def a_dependency(rest: str = UNSAFE) -> Dependency:
    text = f'[dependencies.shop]\nbase_url = "https://shop.example.com"\n{rest}'
    return parse_config(text, {"TOKEN": "sesame-open-0815"}).dependencies["shop"]


async def outcome_of(
    response: httpx.Response, dependency: Dependency, *, seconds: float = 5, **request: Any
) -> AttemptOutcome:
    call = {"method": "POST", "path": "/charges", "query": {}, "headers": {}, "json": {"amount": 5}}
    timeouts = Timeouts(connect_seconds=seconds, attempt_seconds=seconds)
    operation = an_operation(dependency="shop", request=call | request, timeouts=timeouts, deadline_at=None)

    def answer(sent: httpx.Request) -> httpx.Response:
        sent.extensions[PROGRESS].sent = True
        return response

    with sending_over(lambda _: httpx.MockTransport(answer)):
        return await attempt_request(Plan(operation, 1, dependency, start_clock(operation)))


class Endless(httpx.AsyncByteStream):
    """A body that begins, and never goes on."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b'{"detail": "bad amo'
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("status_code", "category"),
    [(422, Category.MALFORMED), (401, Category.UNAUTHORIZED), (429, Category.THROTTLED)],
)
async def test_a_refusal_whose_body_never_comes_is_that_refusal_also_of_an_unsafe_request(
    status_code: int, category: Category
) -> None:
    response = httpx.Response(status_code, headers={"Retry-After-Ms": "x"}, stream=Endless())
    outcome = await outcome_of(response, a_dependency(), seconds=0.05)
    assert (outcome.category, outcome.status_code) == (category, status_code)
    assert outcome.error == '{"detail": "bad amo; the body did not come whole'
    assert outcome.retry_hint is not None


async def test_a_success_whose_body_never_comes_may_have_acted() -> None:
    outcome = await outcome_of(httpx.Response(200, stream=Endless()), a_dependency(), seconds=0.05)
    assert (outcome.category, outcome.status_code) == (Category.AMBIGUOUS, None)
    assert outcome.error is not None
    assert outcome.error.endswith("though the head of its answer said 200")

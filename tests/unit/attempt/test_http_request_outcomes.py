import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from durable_retry.attempt.admission import health_shown_by
from durable_retry.attempt.http_client import sending_over
from durable_retry.attempt.http_pool import PROGRESS
from durable_retry.attempt.http_request import Plan, attempt_request, start_clock
from durable_retry.base.names import Category
from durable_retry.rules.circuit.calls import CallHealth
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.rules.retry.policy import Timeouts
from durable_retry.rules.retry.retry_after import RetryHint
from durable_retry.telemetry.spans import outcome_name
from tests.support.builders import an_operation
from tests.support.narrowing import existing

UNSAFE = 'idempotency = { header = "" }\n'


def a_dependency(rest: str = UNSAFE) -> Dependency:
    text = f'[dependencies.shop]\nbase_url = "https://shop.example.com"\n{rest}'
    return parse_config(text, {"TOKEN": "sesame-open-0815"}).dependencies["shop"]


async def outcome_of(
    response: httpx.Response,
    dependency: Dependency,
    *,
    seconds: float = 5,
    is_webhook: bool = False,
    **request: Any,
) -> AttemptOutcome:
    call = {"method": "POST", "path": "/charges", "query": {}, "headers": {}, "json": {"amount": 5}}
    timeouts = Timeouts(connect_seconds=seconds, attempt_seconds=seconds)
    operation = an_operation(dependency="shop", request=call | request, timeouts=timeouts, deadline_at=None)

    def answer(sent: httpx.Request) -> httpx.Response:
        sent.extensions[PROGRESS].sent = True
        return response

    with sending_over(lambda _: httpx.MockTransport(answer)):
        by = "webhook-id" if is_webhook else None
        return await attempt_request(Plan(operation, 1, dependency, start_clock(operation), by))


async def test_a_redirect_says_where_it_leads_without_what_may_hold_a_credential() -> None:
    for end in ("?code=sesame-open-0815", "#token=abc", "?next=/a#b", ""):
        moved = httpx.Response(302, headers={"Location": f"https://login.example.com/start{end}"})
        assert (await outcome_of(moved, a_dependency())).error == "Location: https://login.example.com/start"


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
    assert existing(outcome.error).endswith("though the head of its answer said 200")


THROTTLED = """[dependencies.shop.classify]
busy = { status = 400, pointer = "/code", equals = "ThrottlingException", category = "throttled" }
full = { header = "X-Error", equals = "quota", category = "throttled" }
false = { status = 200, pointer = "/ok", equals = false, category = "transient" }
one = { pointer = "/errors/0/id", equals = 1, category = "business_rule" }
420 = "throttled"
"""


@pytest.mark.parametrize(
    ("response", "category"),
    [
        (httpx.Response(400, json={"code": "ThrottlingException"}), Category.THROTTLED),
        (httpx.Response(400, content=b'{"code": "ThrottlingException"}'), Category.THROTTLED),
        (httpx.Response(400, json={"code": "Other"}), Category.MALFORMED),
        (httpx.Response(400, json=["ThrottlingException"]), Category.MALFORMED),
        (httpx.Response(400, content=b"\xff{"), Category.MALFORMED),
        (httpx.Response(400, content=b'{"code": "ThrottlingException"}' + b" " * 70_000), Category.MALFORMED),
        (httpx.Response(500, json={"code": "ThrottlingException"}), Category.AMBIGUOUS),
        (httpx.Response(500, headers={"x-error": "quota"}), Category.THROTTLED),
        (httpx.Response(420), Category.THROTTLED),
        (httpx.Response(200, json={"ok": False}), Category.TRANSIENT),
        (httpx.Response(200, json={"ok": 0}), None),
        (httpx.Response(422, json={"errors": [{"id": 1}]}), Category.BUSINESS_RULE),
        (httpx.Response(422, json={"errors": [{"id": True}]}), Category.MALFORMED),
        (httpx.Response(422, json={"errors": []}), Category.MALFORMED),
    ],
)
async def test_a_rule_looks_at_a_header_or_at_a_part_of_the_body(
    response: httpx.Response, category: Category | None
) -> None:
    outcome = await outcome_of(response, a_dependency(UNSAFE + THROTTLED))
    assert outcome.category is category


async def test_a_limit_counts_with_what_a_rule_calls_throttled_and_google_says_when() -> None:
    reset = httpx.Response(420, headers={"X-RateLimit-Reset": "30"})
    outcome = await outcome_of(reset, a_dependency(THROTTLED))
    assert outcome.retry_hint == RetryHint(30, "X-RateLimit-Reset")
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3.5s"}
    outcome = await outcome_of(httpx.Response(429, json={"error": {"details": [info]}}), a_dependency())
    assert (outcome.category, outcome.retry_hint) == (Category.THROTTLED, RetryHint(3.5, "RetryInfo"))


@pytest.mark.parametrize("name", ["Stripe-Should-Retry", "x-should-retry"])
@pytest.mark.parametrize(
    ("status_code", "word", "category"),
    [
        (402, "true", Category.TRANSIENT),
        (409, "True", Category.TRANSIENT),
        (503, "false", Category.MALFORMED),
        (503, "maybe", Category.TRANSIENT),
    ],
)
async def test_a_dependency_may_say_whether_a_retry_helps(
    name: str, status_code: int, word: str, category: Category
) -> None:
    outcome = await outcome_of(httpx.Response(status_code, headers={name: word}), a_dependency(UNSAFE))
    assert outcome.category is category


AUTH = 'auth = { header = "X-Api-Key", value = "${TOKEN}" }\n'
REFUSED = (Category.UNAUTHORIZED, False)
"""By the app's own credential: not counted, so that the operation waits."""
FINAL = (Category.UNAUTHORIZED, True)


@pytest.mark.parametrize(
    ("status_code", "rest", "request_", "expected"),
    [
        (401, AUTH, {}, REFUSED),
        (407, AUTH, {}, REFUSED),
        (403, AUTH, {}, FINAL),
        (403, AUTH + 'classify = { 403 = "unauthorized" }\n', {}, REFUSED),
        (404, AUTH + 'classify = { 404 = "unauthorized" }\n', {}, REFUSED),
        (401, AUTH + 'classify = { 401 = "transient" }\n', {}, (Category.TRANSIENT, True)),
        (401, 'headers = { X-Access-Token = "${TOKEN}" }\n', {}, REFUSED),
        (401, 'headers = { Authorization = "Basic YTpi" }\n', {}, REFUSED),
        (401, 'headers = { Accept = "text/plain" }\n', {}, FINAL),
        (401, UNSAFE + AUTH, {}, REFUSED),
        # The caller's own credential concerns that operation alone.
        (401, "", {"headers": {"X-Api-Key": "mine"}}, FINAL),
        (401, 'headers = { X-Access-Token = "${TOKEN}" }\n', {"headers": {"x-api-key": "mine"}}, FINAL),
        (401, AUTH, {"query": {"access_token": "mine"}}, FINAL),
        # A caller cannot replace the app's.
        (401, AUTH, {"headers": {"x-api-key": "mine"}}, REFUSED),
        (401, AUTH, {"headers": {"X-Own": "mine"}, "query": {"page": 2}}, REFUSED),
        (401, AUTH + "circuit = { unauthorized_calls = 0 }\n", {}, FINAL),
        (401, AUTH + "circuit = { enabled = false }\n", {}, FINAL),
    ],
)
async def test_a_refused_credential_counts_unless_it_is_the_apps_own(
    status_code: int, rest: str, request_: dict[str, Any], expected: tuple[Category, bool]
) -> None:
    outcome = await outcome_of(httpx.Response(status_code), a_dependency(rest), **request_)
    assert (outcome.category, outcome.counted) == expected


SIGNED = 'webhook = { secrets = ["MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"] }\n'


@pytest.mark.parametrize(("rest", "expected"), [(AUTH, REFUSED), (SIGNED, REFUSED), ("", FINAL)])
async def test_a_webhook_carries_only_the_apps_own_credential(
    rest: str, expected: tuple[Category, bool]
) -> None:
    headers = {"webhook-signature": "v1,x"}
    outcome = await outcome_of(httpx.Response(401), a_dependency(rest), is_webhook=True, headers=headers)
    assert (outcome.category, outcome.counted) == expected


async def test_a_refused_credential_is_a_failure_to_the_circuit_and_no_attempt_that_never_left() -> None:
    outcome = await outcome_of(httpx.Response(401), a_dependency(AUTH))
    assert health_shown_by(outcome) is health_shown_by(outcome, of_key=True) is CallHealth.UNAUTHORIZED
    assert (outcome.never_left, outcome_name(outcome)) == (False, "failure")
    final = await outcome_of(httpx.Response(401), a_dependency(""))
    assert (health_shown_by(final), health_shown_by(final, of_key=True)) == ("success", "unauthorized")
    ruled = await outcome_of(httpx.Response(404), a_dependency('classify = { 404 = "transient" }\n'))
    assert health_shown_by(ruled) is CallHealth.FAILURE

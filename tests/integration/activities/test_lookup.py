from datetime import timedelta
from typing import Any

import httpx
import pytest

from activities.lookup import look_up
from durable_retry.base.names import Category
from durable_retry.features.lookup.rules import Answer, LookupCall
from durable_retry.rules.operations.operation import AttemptCall
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.runtime import clock
from scripts.processes import PLAIN_HTTP
from tests.support.builders import an_operation
from tests.support.hub import binding_for
from tests.support.target import Target


async def asked(key: str, *, dependency: str = "asked", **changes: Any) -> dict[str, Any]:
    request = {"method": "POST", "path": "/echo", "query": {"a": 1}, "headers": {}, "json": {}}
    values: dict[str, Any] = {"operation_id": f"op-{key}", "key": key, "dependency": dependency}
    values |= {"request": request, "deadline_in": None} | changes
    call = AttemptCall(operation=an_operation(**values).to_json(), attempt=1)
    question = LookupCall(call=call.to_json(), number=1, attempt=1)
    return await look_up(question.to_json(), binding_for(9))


async def outcome_of(key: str, **changes: Any) -> AttemptOutcome:
    return AttemptOutcome.from_json(await asked(key, **changes))


def send(target: Target, key: str, path: str, **headers: str) -> None:
    httpx.post(f"{target.url}{path}", headers={"Idempotency-Key": key} | headers, verify=PLAIN_HTTP)


async def test_what_is_there_is_found_and_kept_as_an_answer_would_be(key: str, target: Target) -> None:
    send(target, key, "/echo")
    outcome = await outcome_of(key)
    answer = Answer.from_json(outcome.result)
    assert (answer.says, answer.settle_seconds, answer.status_code) == ("found", 10, 200)
    assert answer.result["json"]["path"] == "/echo"
    assert answer.result["headers"] == {"content-type": "application/json"}
    assert clock.now() - answer.at < timedelta(seconds=10)


async def test_a_handler_gets_what_was_found_as_its_value(key: str, target: Target) -> None:
    send(target, key, "/echo")
    answer = Answer.from_json((await outcome_of(key, request=None, handler="charge", input={})).result)
    assert answer.result["value"]["path"] == "/echo"


async def test_no_credential_is_kept_of_what_was_found(key: str, target: Target) -> None:
    send(target, key, "/echo", echoed="sesame-open-0815")
    for form, place in (({}, "/json"), ({"request": None, "handler": "charge"}, "/value")):
        result = Answer.from_json((await outcome_of(key, **form)).result).result
        assert result["masked"] == [f"{place}/headers/echoed"]
        assert "sesame" not in str(result)


async def test_what_is_not_there_is_not_found(key: str) -> None:
    assert Answer.from_json((await outcome_of(key)).result).says == "not_found"


async def test_what_failed_there_is_told(key: str, target: Target) -> None:
    send(target, key, "/status/409")
    answer = Answer.from_json((await outcome_of(key)).result)
    assert (answer.says, answer.why, answer.result) == ("failed", '/tries/0/path is "/status/409"', None)


async def test_a_question_carries_the_credential_and_headers_but_no_body(key: str, target: Target) -> None:
    headers = {"x-tenant": "t1", "content-type": "text/plain", "if-match": "a", "Idempotency-Key": key}
    request = {"method": "POST", "path": "/", "query": {}, "headers": headers, "json": {"status": 200}}
    await outcome_of(key, dependency="asked_about_more", request=request)
    (received,) = target.received(key)["tries"]
    assert (received["method"], received["path"]) == ("GET", "/status/200")
    assert received["headers"]["x-tenant"] == "t1"
    assert received["headers"]["x-api-key"] == "sesame-open-0815"
    assert not received["headers"].keys() & {"content-type", "if-match", "content-length"}


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (503, Category.TRANSIENT),
        (429, Category.THROTTLED),
        (403, Category.UNAUTHORIZED),
        (410, Category.NOT_FOUND),
    ],
)
async def test_any_other_answer_says_nothing(key: str, status: int, category: Category) -> None:
    outcome = await outcome_of(
        key, dependency="asked_about_more", request=None, handler="charge", input={"status": status}
    )
    assert (outcome.category, outcome.result) == (category, None)


async def test_a_404_says_that_nothing_happened_where_the_path_names_it(key: str) -> None:
    outcome = await outcome_of(
        key, dependency="asked_about_more", request=None, handler="charge", input={"status": 404}
    )
    assert Answer.from_json(outcome.result).says == "not_found"


async def test_without_a_value_or_a_lookup_or_time_nothing_is_asked(key: str, target: Target) -> None:
    unaskable = await outcome_of(key, dependency="asked_about_more")
    assert unaskable.category is Category.MALFORMED
    assert unaskable.error == "{input/status} has no value that can stand in a path"
    taken_out = await outcome_of(key, dependency="unsafe")
    assert taken_out.error == "unsafe has no lookup here any more"
    missing = await outcome_of(key, dependency="nobody")
    assert missing.error == "nobody has no lookup here any more"
    late = await outcome_of(key, deadline_at=clock.now() - timedelta(seconds=1))
    assert (late.category, late.counted) == (Category.DEADLINE_EXCEEDED, False)
    assert target.received(key)["count"] == 0


async def test_an_answer_that_is_no_json_says_nothing(key: str) -> None:
    outcome = await outcome_of(key, dependency="garbling")
    assert (outcome.category, outcome.error) == (Category.TRANSIENT, "its answer is no JSON")


async def test_a_404_to_a_query_says_nothing(key: str) -> None:
    outcome = await outcome_of(key, dependency="asked_by_query")
    assert (outcome.category, outcome.result) == (Category.NOT_FOUND, None)


async def test_a_question_has_its_turn_as_an_attempt_has(key: str) -> None:
    assert (await asked(key, dependency="asked_in_turn"))["stopped"]["kind"] == "needs_slot"

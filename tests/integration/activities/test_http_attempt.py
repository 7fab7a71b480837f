import asyncio
import json
import os
import sys
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest

from activities.operation import attempt
from durable_retry.attempt import attempt as attempt_module
from durable_retry.attempt import http_request as http_attempt
from durable_retry.attempt.attempt import make_attempt
from durable_retry.base.names import Category
from durable_retry.hub.turns import attempt_answer_of
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.rules.retry.loop import RetryState, after
from durable_retry.rules.retry.policy import Timeouts
from durable_retry.runtime import clock
from scripts.processes import ROOT, free_port
from tests.support.azurite import Storage
from tests.support.builders import an_operation
from tests.support.hub import binding_for
from tests.support.narrowing import existing, of_type
from tests.support.target import Target


async def attempted(
    key: str, path: str, *, dependency: str = "safe", number: int = 1, method: str = "POST", **changes: Any
) -> AttemptOutcome:
    request = {
        "method": method,
        "path": path,
        "query": changes.pop("query", {}),
        "headers": {},
        "json": {"a": 1},
    }
    request |= changes.pop("request", {})
    values: dict[str, Any] = {"operation_id": f"op-{key}", "key": key, "dependency": dependency}
    operation = an_operation(
        **values, deadline_at=changes.pop("deadline_at", None), request=request, **changes
    )
    return await make_attempt(operation, number)


async def test_a_success_keeps_status_headers_and_json(key: str) -> None:
    outcome = await attempted(key, "/echo")
    assert outcome.category is None
    assert outcome.status_code == 200
    assert outcome.result["json"]["received"] == {"a": 1}
    assert outcome.result["headers"]["content-type"] == "application/json"


async def test_every_attempt_carries_the_same_key_and_what_is_left_of_its_time(
    key: str, target: Target
) -> None:
    for number in (1, 2):
        await attempted(key, "/echo", number=number, correlation_id="order-42")
    first, second = target.received(key)["tries"]
    assert first["headers"]["idempotency-key"] == second["headers"]["idempotency-key"] == key
    assert (first["headers"]["x-attempt"], second["headers"]["x-attempt"]) == ("1", "2")
    assert 9 < float(first["headers"]["x-seconds-left"]) <= 10
    assert first["headers"]["x-correlation-id"] == "order-42"


async def test_the_files_headers_and_credentials_are_sent_and_a_callers_cannot_replace_them(
    key: str, target: Target
) -> None:
    forged = {"headers": {"x-api-key": "forged", "idempotency-key": "forged", "X-Own": "mine"}}
    await attempted(key, "/echo", request=forged)
    headers = target.received(key)["tries"][0]["headers"]
    assert headers["x-api-key"] == "sesame-open-0815"
    assert headers["x-static"] == "as-written"
    assert headers["x-own"] == "mine"


@pytest.mark.parametrize(
    ("path", "query", "category", "status_code"),
    [
        ("/status/400", {}, Category.MALFORMED, 400),
        ("/status/401", {}, Category.UNAUTHORIZED, 401),
        ("/status/404", {}, Category.NOT_FOUND, 404),
        ("/status/409", {}, Category.BUSINESS_RULE, 409),
        ("/status/500", {}, Category.TRANSIENT, 500),
        ("/throttle/9", {}, Category.THROTTLED, 429),
        ("/fail/9", {"status": 503, "retry_after": 2}, Category.THROTTLED, 503),
        ("/fail/9", {"status": 403, "retry_after": 2}, Category.THROTTLED, 403),
        ("/fail/9", {"status": 423, "retry_after": 2, "form": "ms"}, Category.TRANSIENT, 423),
        ("/fail/9", {"status": 404, "retry_after": 2, "form": "ratelimit"}, Category.TRANSIENT, 404),
        ("/redirect/9", {}, Category.MALFORMED, 307),
        ("/drop/999", {}, Category.TRANSIENT, None),
    ],
)
@pytest.mark.shows("D15")
async def test_trouble_becomes_an_outcome(
    key: str, path: str, query: dict[str, Any], category: Category, status_code: int | None
) -> None:
    outcome = await attempted(key, path, query=query)
    assert (outcome.category, outcome.status_code) == (category, status_code)
    assert outcome.counted is (status_code != 401)  # the app's own credential, which waits for a new one


@pytest.mark.parametrize("form", ["seconds", "date", "ms"])
async def test_a_wish_for_a_wait_is_read(key: str, form: str) -> None:
    outcome = await attempted(key, "/throttle/9", query={"retry_after": 7, "form": form})
    assert existing(outcome.retry_hint).delay_seconds == pytest.approx(7, abs=1)


@pytest.mark.shows("D4")
async def test_a_conflict_after_an_attempt_whose_end_is_unknown_passes(key: str) -> None:
    outcome = await attempted(key, "/status/409", acted_before=True)
    assert (outcome.category, outcome.status_code) == (Category.TRANSIENT, 409)


async def test_who_was_never_connected_sent_nothing(key: str) -> None:
    assert (await attempted(key, "/echo", dependency="nowhere", method="GET")).did_nothing
    assert (await attempted(key, "/drop/999")).did_nothing is None


async def test_a_dependencys_own_classification_stands_above_the_table(key: str) -> None:
    assert (await attempted(key, "/status/404", dependency="lenient")).category is Category.TRANSIENT


async def test_one_time_limit_holds_for_everything_inside_the_attempt(key: str) -> None:
    timeouts = Timeouts(connect_seconds=0.5, attempt_seconds=0.5)
    outcome = await attempted(key, "/slow/9", query={"seconds": 5}, timeouts=timeouts)
    assert outcome.category is Category.TRANSIENT
    late = "TimeoutError: no answer within 0.5 s (attempt_seconds), though the head of its answer said 200"
    assert outcome.error == late
    assert outcome.duration_ms < 2_000


async def test_the_deadline_cuts_an_attempt_short(key: str) -> None:
    soon = clock.now() + timedelta(seconds=0.5)
    outcome = await attempted(key, "/hang/999", query={"seconds": 5}, deadline_at=soon)
    assert outcome.duration_ms < 2_000


async def test_after_the_deadline_nothing_is_sent(key: str, target: Target) -> None:
    outcome = await attempted(key, "/echo", deadline_at=clock.now() - timedelta(seconds=1))
    assert (outcome.category, outcome.counted) == (Category.DEADLINE_EXCEEDED, False)
    assert key not in target.totals()


@pytest.mark.shows("A21")
async def test_a_dependency_that_is_gone_from_the_file_costs_no_attempt(key: str) -> None:
    outcome = await attempted(key, "/echo", dependency="gone")
    assert (outcome.category, outcome.counted, outcome.missing) == (Category.TRANSIENT, False, True)


@pytest.mark.shows("D12")
async def test_a_long_answer_is_cut_and_says_so(key: str) -> None:
    outcome = await attempted(key, "/huge/9", query={"bytes": 3_000_000})
    assert outcome.category is None
    assert outcome.result["truncated"]
    assert len(outcome.result["body"]) == 16 * 1024


async def test_what_calls_itself_json_and_is_not_is_kept_as_text(key: str) -> None:
    outcome = await attempted(key, "/garbled/9")
    assert "json" not in outcome.result
    assert outcome.result["body"].startswith('{"id"')


async def test_a_secret_that_comes_back_is_not_kept(key: str) -> None:
    echoed = {"json": {"said": "sesame-open-0815"}}
    outcome = await attempted(key, "/echo", request=echoed)
    assert "sesame" not in str(outcome.to_json())
    assert outcome.result["json"]["received"] == {"said": "***"}


async def test_text_and_query_are_sent_as_given(key: str, target: Target) -> None:
    request = {"method": "PUT", "path": "/echo", "query": {"a": [1, 2], "b": None, "c": True}, "headers": {}}
    operation = an_operation(
        key=key, dependency="safe", deadline_at=None, request=request | {"body": "plain"}
    )
    await make_attempt(operation, 1)
    received = target.received(key)["tries"][0]
    assert received["method"] == "PUT"
    assert received["query"] == "a=1&a=2&c=true"


@pytest.mark.parametrize("path", ["/../../x", "http://127.0.0.1:9/x", "//127.0.0.1:9/x", "/..%2f..%2fx"])
async def test_no_path_leads_out_of_the_base_url(key: str, path: str, target: Target) -> None:
    await attempted(key, path, dependency="below")
    tries = target.received(key)["tries"] if key in target.totals() else []
    assert all(one["path"].startswith("/echo/api/") for one in tries)


async def test_the_activity_speaks_plain_json_and_sends_though_no_task_hub_has_its_circuit(key: str) -> None:
    operation = an_operation(key=key, dependency="safe", deadline_at=None, request=a_get())
    answer = await attempt({"operation": operation.to_json(), "attempt": 1}, binding_for(free_port()))
    assert AttemptOutcome.from_json(answer).status_code == 200


async def test_an_attempt_that_is_owed_is_made_after_the_deadline_with_the_time_of_an_attempt(
    key: str, target: Target
) -> None:
    late = clock.now() - timedelta(minutes=5)
    operation = an_operation(key=key, dependency="safe", deadline_at=late, request=a_get())
    call = {"operation": operation.to_json(), "attempt": 1, "is_owed": True}
    answer = await attempt(call, binding_for(free_port()))
    assert AttemptOutcome.from_json(answer).status_code == 200
    assert target.totals()[key] == 1


@pytest.mark.usefixtures("storage")
class TestUnprotected:
    """Requests that the dependency does not deduplicate."""

    @pytest.mark.shows("D6")
    async def test_what_was_sent_and_lost_is_ambiguous(self, key: str) -> None:
        assert (await attempted(key, "/drop/999", dependency="unsafe")).category is Category.AMBIGUOUS

    async def test_what_is_safe_by_its_method_is_not(self, key: str) -> None:
        outcome = await attempted(key, "/drop/999", dependency="unsafe", method="PUT")
        assert outcome.category is Category.TRANSIENT

    async def test_a_second_execution_of_an_attempt_sends_nothing_and_says_the_same(self, key: str) -> None:
        first = await attempted(key, "/echo", dependency="unsafe", query={"case": key})
        second = await attempted(key, "/echo", dependency="unsafe", query={"case": key})
        assert second.to_json() == first.to_json()
        assert second.result["json"]["try"] == first.result["json"]["try"]

    async def test_of_two_executions_at_once_one_sends(self, key: str) -> None:
        query = {"seconds": 1, "case": key}
        outcomes = await asyncio.gather(
            *(attempted(key, "/slow/9", dependency="unsafe", query=query) for _ in range(2))
        )
        assert {outcome.category for outcome in outcomes} == {None, Category.AMBIGUOUS}
        second = next(outcome for outcome in outcomes if outcome.category is Category.AMBIGUOUS)
        assert second.may_answer_until is not None, "the first does"
        third = await attempted(key, "/slow/9", dependency="unsafe", query=query)
        assert third.to_json() in [outcome.to_json() for outcome in outcomes]

    @pytest.mark.shows("A3")
    async def test_what_has_not_answered_in_its_time_is_ambiguous(
        self, key: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as dies:
            dies.setattr(http_attempt, "send", AsyncMock(side_effect=asyncio.CancelledError))
            with pytest.raises(asyncio.CancelledError):
                await attempted(key, "/echo", dependency="unsafe")
        early = await attempted(key, "/echo", dependency="unsafe")
        assert (early.category, early.counted) == (Category.AMBIGUOUS, False)
        began = clock.now()
        with clock.reading(lambda: began + timedelta(seconds=16)):
            late = await attempted(key, "/echo", dependency="unsafe")
        assert (late.category, late.counted) == (Category.AMBIGUOUS, True)

    async def test_a_connection_that_was_never_made_may_be_tried_again(self, key: str) -> None:
        for number in (1, 2):
            outcome = await attempted(key, "/x", dependency="nowhere", number=number)
            assert outcome.category is Category.TRANSIENT

    async def test_an_attempt_that_found_no_free_connection_is_made_again_under_its_number(
        self, key: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as crowded:
            crowded.setattr(http_attempt, "send", AsyncMock(side_effect=httpx.PoolTimeout("crowded")))
            first = await attempted(key, "/echo", dependency="unsafe", query={"case": key})
        second = await attempted(key, "/echo", dependency="unsafe", query={"case": key})
        assert (first.counted, second.status_code) == (False, 200)

    async def test_a_marker_that_its_process_could_not_read_is_taken_over_by_an_execution_in_another(
        self, key: str, storage: Storage, target: Target
    ) -> None:
        dependency = f'[dependencies.unsafe]\nbase_url = "{target.url}"\nidempotency = {{ header = "" }}\n'
        request = {"method": "POST", "path": "/echo", "query": {"case": key}, "headers": {}}
        operation = an_operation(
            operation_id=f"op-{key}", key=key, dependency="unsafe", deadline_at=None, request=request
        )
        state, answers = RetryState(), []
        for unread in (True, True, False):
            ticket = state.admission.to_json()
            call = {
                "operation": operation.to_json(),
                "attempt": state.history.next_attempt,
                "admission": ticket,
            }
            given = {"dependencies": dependency, "call": call, "unread": unread}
            answered = await in_a_process(given, storage)
            answer = of_type(AttemptOutcome, attempt_answer_of(answered, state.history.next_attempt))
            answers.append((answer.counted, answer.status_code))
            state, _ = after(operation, state, answer, clock.now())
        assert answers == [(False, None), (False, None), (True, 200)]


async def in_a_process(given: dict[str, Any], storage: Storage) -> Any:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.one_attempt"),
        cwd=ROOT,
        env={**os.environ, "AzureWebJobsStorage": storage.connection_string},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate(json.dumps(given).encode())
    return json.loads(output)


def a_get() -> dict[str, Any]:
    return {"method": "GET", "path": "/echo", "query": {}, "headers": {}}


async def test_slow_storage_of_ours_takes_no_time_from_the_dependency(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = clock.monotonic_seconds

    async def insert_slowly(*_: Any, **_more: Any) -> None:
        monkeypatch.setattr(clock, "monotonic_seconds", lambda: present() + 3_600)

    monkeypatch.setattr(attempt_module, "insert_marker", insert_slowly)
    monkeypatch.setattr(attempt_module, "write_outcome", AsyncMock())
    outcome = await attempted(key, "/echo", dependency="unsafe")
    assert (outcome.category, outcome.status_code) == (None, 200)
    assert outcome.duration_ms < 60_000

import json
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from activities.polling import poll
from durable_retry.attempt.attempt import attempt_operation
from durable_retry.attempt.http_client import EscapedBaseUrlError, sending_over
from durable_retry.attempt.results import with_stored
from durable_retry.base.names import Category
from durable_retry.circuit.cache import circuit_of
from durable_retry.features.polling.asking import place_url
from durable_retry.features.polling.rules import Poll, PollCall, Polled
from durable_retry.rules.circuit.snapshot import Snapshot
from durable_retry.rules.circuit.states import CircuitState
from durable_retry.rules.operations.operation import AttemptCall
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.runtime import clock
from durable_retry.settings.configuration import find_dependency
from tests.support.builders import an_operation
from tests.support.hub import binding_for
from tests.support.narrowing import existing
from tests.support.target import Target


def working(polls: int, **query: Any) -> str:
    """Return a path that answers so many times 202, then an echo."""
    return f"/fail/{polls}?status=202" + "".join(f"&{name}={value}" for name, value in query.items())


async def polled(
    key: str, place: str, poll_: dict[str, Any] | None = None, *, dependency: str = "safe", **request: Any
) -> Polled:
    sent = {"method": "POST", "path": "/accept", "query": {"a": 1}, "headers": {}, "json": {}} | request
    values: dict[str, Any] = {"operation_id": f"op-{key}", "key": key, "dependency": dependency}
    operation = an_operation(**values, deadline_in=None, request=sent)
    call = AttemptCall(operation=operation.to_json(), attempt=1)
    asked = PollCall(call=call.to_json(), poll=poll_ or Poll().model_dump(exclude_none=True), place=place)
    return Polled.from_json(await poll(asked.to_json(), binding_for(9)))


def outcome_of(answer: Polled) -> AttemptOutcome:
    assert answer.outcome is not None
    return answer.outcome


async def test_a_poll_is_a_get_with_the_headers_of_the_dependency_and_of_the_request(
    key: str, target: Target
) -> None:
    headers = {"x-tenant": "t1", "content-type": "application/json", "if-match": "a"}
    answer = await polled(key, "/echo", headers=headers)
    assert answer.is_over
    assert outcome_of(answer).result["json"]["method"] == "GET"
    assert outcome_of(answer).result["json"]["received"] is None
    (received,) = target.received(key)["tries"]
    sent = received["headers"]
    assert (sent["x-api-key"], sent["x-static"], sent["x-tenant"]) == ("sesame-open-0815", "as-written", "t1")
    assert not sent.keys() & {"content-type", "if-match"}
    assert received["query"] == ""


async def test_work_that_goes_on_is_asked_for_at_the_same_place_or_where_the_answer_says(
    key: str, target: Target
) -> None:
    same = await polled(key, working(1, retry_after=3))
    assert (same.is_over, same.place) == (False, target.url + working(1, retry_after=3))
    assert outcome_of(same).result["headers"]["retry-after"] == "3"
    for status in (202, 303):
        moved = await polled(key, f"/redirect/9?status={status}&to={quote('/jobs/8')}")
        assert (moved.is_over, moved.place) == (False, f"{target.url}/jobs/8")


async def test_a_failure_that_may_pass_does_not_end_it_and_one_that_does_not_does(key: str) -> None:
    assert not (await polled(key, "/status/503")).is_over
    gone = await polled(key, "/status/404")
    assert (gone.is_over, outcome_of(gone).category) == (True, Category.NOT_FOUND)
    nowhere = await polled(key, "/echo", dependency="nowhere")
    assert (nowhere.is_over, outcome_of(nowhere).category) == (False, Category.TRANSIENT)


async def test_classify_decides_of_a_poll_too(key: str) -> None:
    ruled = await polled(key, "/status/404", dependency="lenient")
    assert (ruled.is_over, outcome_of(ruled).category) == (True, Category.TRANSIENT)


async def test_work_that_says_that_it_failed_is_refused_by_a_rule_of_business(key: str) -> None:
    until = {"pointer": "/ok", "succeeded": [False], "failed": [True]}
    answer = await polled(key, "/echo", {"until": until})
    assert (answer.is_over, outcome_of(answer).category) == (True, Category.BUSINESS_RULE)
    assert (outcome_of(answer).error or "").startswith('the work failed: {"ok": true')


@pytest.mark.parametrize(
    ("path", "place", "below"),
    [
        ("/charges", "7", "/7"),
        ("/charges/", "7", "/charges/7"),
        ("/charges", "/elsewhere/7?code=a%2Fb#part", "/elsewhere/7?code=a%2Fb"),
        ("/charges", "?job=7", "/charges?job=7"),
    ],
)
def test_a_place_is_relative_to_the_request_and_may_be_anywhere_at_its_host(
    target: Target, path: str, place: str, below: str
) -> None:
    dependency = existing(find_dependency("safe"))
    assert str(place_url(dependency, path, place)) == target.url + below
    assert str(place_url(dependency, path, target.url + below)) == target.url + below


@pytest.mark.parametrize(
    "place",
    ["http://169.254.169.254/metadata", "//127.0.0.1:9/a", "https://127.0.0.1/a", "http://[", "ftp:a"],
)
def test_the_credential_goes_to_no_other_host(place: str) -> None:
    dependency = existing(find_dependency("safe"))
    with pytest.raises(EscapedBaseUrlError):
        place_url(dependency, "/charges", place)


def test_a_place_names_no_user(target: Target) -> None:
    dependency = existing(find_dependency("safe"))
    with pytest.raises(EscapedBaseUrlError):
        place_url(dependency, "/charges", target.url.replace("http://", "http://ann:b@"))


async def test_a_place_elsewhere_is_not_asked_and_leaves_the_end_unknown(key: str) -> None:
    answer = await polled(key, "http://169.254.169.254/metadata")
    assert (answer.is_over, outcome_of(answer).category) == (True, Category.AMBIGUOUS)
    assert outcome_of(answer).error == "the place to ask that it names is not at the host of safe"


@pytest.mark.parametrize("status", [202, 303])
async def test_an_answer_that_names_no_url_leaves_the_end_unknown(key: str, status: int) -> None:
    moved = await polled(key, f"/redirect/9?status={status}&to={quote('http://[::1')}")
    assert (moved.is_over, moved.place) == (False, "http://[::1")
    answer = await polled(key, moved.place)
    assert (answer.is_over, outcome_of(answer).category) == (True, Category.AMBIGUOUS)
    assert outcome_of(answer).error == "the place to ask that it names is not a URL"


async def test_a_circuit_that_is_open_holds_the_poll_up(key: str, target: Target) -> None:
    dependency, now = find_dependency("safe"), clock.now()
    assert dependency is not None
    opened = Snapshot(now, CircuitState.OPEN, 1, retry_at=now + timedelta(minutes=1), reason="it failed")
    circuit_of(binding_for(9), dependency).snapshot = opened
    answer = await polled(key, "/echo")
    assert (answer.is_over, answer.outcome) == (False, None)
    assert existing(answer.refused).reason == "the circuit is open: it failed"
    assert key not in target.totals()


async def test_a_dependency_without_a_circuit_is_polled_at_once(key: str) -> None:
    assert (await polled(key, "/echo", dependency="free")).is_over


@pytest.mark.usefixtures("tables_in_memory")
@pytest.mark.parametrize("size", [6_000, 600_000], ids=["stored apart", "cut and stored apart"])
async def test_a_place_in_a_large_body_is_found(size: int) -> None:
    def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(202, json={"text": "x" * size, "links": {"status": "/jobs/7"}})

    asked = Poll(location="/links/status")
    call = AttemptCall(
        operation=an_operation(
            dependency="safe", parts={"polling": asked.model_dump(exclude_none=True)}, deadline_in=None
        ).to_json(),
        attempt=1,
    )
    with sending_over(lambda _: httpx.MockTransport(answer)):
        outcome = await attempt_operation(binding_for(9), call)
    assert isinstance(outcome, AttemptOutcome)
    assert len(json.dumps(outcome.to_json())) < 1_000
    assert asked.place_in(outcome.result) == "/jobs/7"
    assert (await with_stored(outcome.result)).keys() & {"stored", "expired"} == set()


async def test_a_dependency_that_is_not_configured_is_waited_for(key: str) -> None:
    answer = await polled(key, "/echo", dependency="gone")
    assert (answer.is_over, outcome_of(answer).counted) == (False, False)

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from scripts.processes import eventually
from tests.support.app import System
from tests.support.semantics import Calls


def instant(text: str) -> datetime:
    assert text.endswith("Z")
    return datetime.fromisoformat(text)


def test_an_operation_that_fails_twice_waits_says_why_and_succeeds(system: System, key: str) -> None:
    operation_id = system.accepted(key, "/fail/2", retry={"initial_seconds": 1}, correlation_id="order-42")
    waiting = system.until(operation_id, "waiting_retry")
    assert instant(waiting["next_attempt_at"]) > instant(waiting["created_at"])
    assert waiting["attempts"][-1]["category"] == "transient"
    assert waiting["attempts"][-1]["status_code"] == 503
    assert waiting["attempts"][-1]["delay_reasons"] != []

    done = system.until(operation_id, "succeeded")
    assert done["attempt_count"] == 3
    assert [attempt["number"] for attempt in done["attempts"]] == [1, 2, 3]
    assert [attempt["status_code"] for attempt in done["attempts"]] == [503, 503, 200]
    assert done["result"]["status_code"] == 200
    assert done["result"]["json"]["received"] == {"amount": 5}
    assert (done["correlation_id"], done["source"], done["next_attempt_at"]) == ("order-42", "http", None)
    assert done["dead_letter"] is None


@pytest.mark.long
def test_500_operations_at_once_of_which_a_third_fails_once_all_succeed(system: System, key: str) -> None:
    paths = {f"{key}-{number}": "/fail/1" if number % 3 == 0 else "/echo" for number in range(500)}
    expected = {name: 2 if path == "/fail/1" else 1 for name, path in paths.items()}
    began = datetime.now(UTC)
    with ThreadPoolExecutor(20) as posters:
        ids = list(posters.map(lambda item: system.accepted(*item, dependency="crowded"), paths.items()))
    assert len(set(ids)) == 500

    def received() -> dict[str, int]:
        return {name: count for name, count in system.target.totals().items() if name in paths}

    eventually(
        lambda: sum(received().values()) >= sum(expected.values()), "all were tried", within_seconds=60
    )
    for operation_id in ids:
        document: dict[str, Any] = system.until(operation_id, "succeeded")
        assert instant(document["created_at"]) >= began
    assert received() == expected


def test_every_try_of_a_large_operation_carries_all_of_it(system: System, key: str) -> None:
    """Attempts read it from the task hub."""
    large = {"amount": 5, "note": "x" * 10_000}
    operation_id = system.accepted(key, "/fail/2", request={"json": large})
    assert system.until(operation_id, "succeeded")["result"]["json"]["received"] == large
    assert system.target.received(key)["count"] == 3


def test_a_repetition_shows_the_request_of_the_first(system: System, key: str) -> None:
    first, second = ({"json": {"order": 7, "sent_at": minute}} for minute in (1, 2))
    system.until(system.accepted(key, "/echo", dependency="by_order", request=first), "succeeded")
    again = system.post(key, "/echo", dependency="by_order", request=second)
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json()["request"]["json"] == first["json"]


def test_fifty_clients_with_one_key_and_two_requests_make_one_execution(system: System, key: str) -> None:
    def post(amount: int) -> httpx.Response:
        return system.post(key, "/echo", request={"json": {"amount": amount}})

    amounts = [5, 6] * 25
    with ThreadPoolExecutor(50) as clients:
        answers = list(clients.map(post, amounts))
    winner = next(answer for answer in answers if answer.is_success)
    done = system.until(winner.json()["operation_id"], "succeeded")
    won = done["result"]["json"]["received"]["amount"]
    outcomes = Counter(
        (amount == won, answer.is_success) for amount, answer in zip(amounts, answers, strict=True)
    )
    assert outcomes == {(True, True): 25, (False, False): 25}
    assert {answer.status_code for answer in answers if not answer.is_success} == {422}
    assert system.target.received(key)["count"] == Calls(1)

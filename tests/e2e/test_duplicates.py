"""One key, one execution, whoever asks and whenever."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.support.app import System, operation


def is_replay(answer: httpx.Response) -> bool:
    return bool(answer.headers.get("idempotent-replayed") == "true")


def test_a_duplicate_of_a_waiting_operation_gets_the_same_one(system: System, key: str) -> None:
    operation_id = system.accepted(key, "/fail/1", retry={"initial_seconds": 1})
    system.until(operation_id, "waiting_retry")
    again = system.post(key, "/fail/1", retry={"initial_seconds": 1})
    assert (again.status_code, is_replay(again)) == (202, True)
    assert again.json()["operation_id"] == operation_id
    system.until(operation_id, "succeeded")
    assert system.target.received(key)["count"] == 2


def test_a_duplicate_of_a_finished_operation_gets_its_result(system: System, key: str) -> None:
    operation_id = system.accepted(key, "/echo")
    done = system.until(operation_id, "succeeded")
    again = system.post(key, "/echo")
    assert (again.status_code, is_replay(again)) == (200, True)
    assert again.json() == done
    assert system.target.received(key)["count"] == 1


def test_the_same_key_for_another_request_is_refused_while_it_runs_and_after(
    system: System, key: str
) -> None:
    operation_id = system.accepted(key, "/fail/1", retry={"initial_seconds": 1})
    during = system.post(key, "/fail/1", request={"json": {"amount": 6}})
    system.until(operation_id, "succeeded")
    after = system.post(key, "/fail/1", request={"json": {"amount": 6}})
    for answer in (during, after):
        assert answer.status_code == 422
        assert answer.json()["type"].endswith("/idempotency-key-reused")
    assert system.target.received(key)["count"] == 2


def test_a_repetition_shows_the_request_of_the_first(system: System, key: str) -> None:
    first, second = ({"json": {"order": 7, "sent_at": minute}} for minute in (1, 2))
    system.until(system.accepted(key, "/echo", dependency="by_order", request=first), "succeeded")
    again = system.post(key, "/echo", dependency="by_order", request=second)
    assert is_replay(again)
    assert again.json()["request"]["json"] == first["json"]


def test_the_order_of_members_does_not_make_another_request(system: System, key: str) -> None:
    system.accepted(key, "/echo", request={"json": {"a": 1, "b": [2, 3]}})
    again = system.post(key, "/echo", request={"json": {"b": [2, 3], "a": 1}})
    assert is_replay(again)


def test_the_header_and_the_body_name_the_same_key(system: System, key: str) -> None:
    operation_id = system.accepted(key, "/echo")
    body = operation(key, "/echo")
    del body["key"]
    again = system.client.post("/api/operations", json=body, headers={"Idempotency-Key": f'"{key}"'})
    assert is_replay(again)
    assert again.json()["operation_id"] == operation_id


def test_fifty_clients_with_one_key_make_one_execution(system: System, key: str) -> None:
    with ThreadPoolExecutor(50) as clients:
        answers = list(clients.map(lambda _: system.post(key, "/fail/1"), range(50)))
    assert {answer.status_code for answer in answers} <= {200, 202}
    assert len({answer.json()["operation_id"] for answer in answers}) == 1
    assert sum(not is_replay(answer) for answer in answers) == 1
    system.until(answers[0].json()["operation_id"], "succeeded")
    assert system.target.received(key)["count"] == 2


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
    assert system.target.received(key)["count"] == 1

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from scripts.processes import eventually
from tests.support.app import System


def steer(system: System, dependency: str, control: str) -> None:
    body = {"reason": "a test"} | ({"for_seconds": 100.0} if control == "open" else {})
    assert system.client.post(f"/api/circuits/{dependency}/{control}", json=body).status_code == 202
    state = {"open": "forced_open", "close": "closed"}[control]
    eventually(lambda: _state_of(system, dependency) == state, f"{dependency} is {state}")


def _state_of(system: System, dependency: str) -> str:
    state: str = system.client.get(f"/api/circuits/{dependency}").raise_for_status().json()["state"]
    return state


@contextmanager
def held_open(system: System, *dependencies: str) -> Iterator[None]:
    for name in dependencies:
        steer(system, name, "open")
    try:
        yield
    finally:
        for name in dependencies:
            steer(system, name, "close")


def sent(system: System, key: str) -> str:
    return system.accepted(key, "/echo", dependency="first")


def held_up(system: System, key: str, wanted: Callable[[dict[str, Any]], bool]) -> tuple[str, dict[str, Any]]:
    """Send operations until one is as wanted; return its key. Workers learn of a circuit within a second."""
    numbers = count(1)

    def tried() -> tuple[str, dict[str, Any]] | None:
        name = f"{key}-{next(numbers)}"
        operation_id = sent(system, name)
        ends = {"succeeded", "waiting_circuit"}
        seen = eventually(lambda: _seen(system.status(operation_id), ends), "an end or a wait")
        return (name, seen) if wanted(seen) else None

    return eventually(tried, "one that is held up")


def _seen(document: dict[str, Any], wanted: set[str]) -> dict[str, Any] | None:
    return document if document["status"] in wanted else None


def test_another_dependency_is_asked_with_its_own_credential_and_a_key_of_its_own(
    system: System, key: str
) -> None:
    with held_open(system, "first"):
        name, done = held_up(system, key, lambda seen: "dependency" in (seen["result"] or {}))
    assert (done["dependency"], done["result"]["dependency"]) == ("first", "second")
    (attempt,) = done["attempts"]
    (wait,) = done["waits"]
    assert (attempt["dependency"], wait["kind"]) == ("second", "fallback")
    assert wait["delay_reasons"][-1] == "second is asked in place of first"
    assert system.target.received(name)["count"] == 0
    (received,) = system.target.received(f"{name}~at~second")["tries"]
    assert received["headers"]["x-auth"] == "sesame-second-4711"
    _, back = held_up(system, f"{key}-back", lambda seen: "dependency" not in (seen["result"] or seen))
    assert ["dependency" in attempt for attempt in back["attempts"]] == [False]


def test_what_may_have_happened_at_the_first_waits_for_it(system: System, key: str) -> None:
    operation_id = system.accepted(key, "/fail/1", dependency="first")
    eventually(lambda: system.status(operation_id)["attempt_count"] == 1, "the first attempt")
    with held_open(system, "first"):
        system.until(operation_id, "waiting_circuit")
    done = system.until(operation_id, "succeeded")
    assert ["dependency" in attempt for attempt in done["attempts"]] == [False, False]
    assert system.target.received(f"{key}~at~second")["count"] == 0


def test_where_both_are_out_it_waits_for_either(system: System, key: str) -> None:
    with held_open(system, "first", "second"):
        name, waiting = held_up(system, key, lambda seen: seen["status"] == "waiting_circuit")
    done = system.until(waiting["operation_id"], "succeeded")
    assert done["attempt_count"] == 1
    assert sum(system.target.received(each)["count"] for each in (name, f"{name}~at~second")) == 1


@pytest.mark.parametrize(
    ("fallback", "detail"),
    [
        ("secnd", 'no dependency has the name secnd; did you mean "second"?'),
        ("first", "is the dependency itself"),
    ],
)
def test_an_operation_with_a_fallback_that_cannot_be_is_refused(
    system: System, key: str, fallback: str, detail: str
) -> None:
    body = {"dependency": "first", "key": key, "request": {"path": "/echo"}, "fallback": fallback}
    refused = system.client.post("/api/operations", json=body)
    assert refused.status_code == 400
    assert refused.json()["errors"] == [{"pointer": "/fallback", "detail": detail}]

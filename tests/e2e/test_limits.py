from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from durable_retry.rules.retry.admission import WITHOUT_THE_LIMITER
from scripts.processes import eventually
from tests.support.app import FINISHED, System
from tests.support.semantics import is_on_azures_terms

HANGS_SECONDS = 0.4
BACKLOG = 16
MORE_THAN_A_HOST_RUNS = 110


def finished(system: System, accepted: list[str]) -> list[dict[str, Any]]:
    """Returns the status documents of operations that have succeeded.

    On Azure's terms a slot whose give-back is lost stays lent (W9), and who waits may be told late (W13): the
    deadline of some passes meanwhile.
    """
    if not is_on_azures_terms():
        return [system.until(each, "succeeded", within_seconds=60) for each in accepted]

    def look(operation_id: str) -> dict[str, Any] | None:
        document = system.status(operation_id)
        return document if document["status"] in FINISHED else None

    ended = [eventually(partial(look, each), each, within_seconds=60) for each in accepted]
    reasons = {each["dead_letter"]["reason"] for each in ended if each["status"] != "succeeded"}
    assert reasons <= {"DeadlineExceeded"}, ended
    return ended


def arrivals(system: System, ended: list[dict[str, Any]]) -> list[datetime]:
    """Returns when the calls of operations arrived.

    On Azure's terms those that had a slot, as an attempt whose limiter does not answer goes without (P9); and
    of an attempt that was made again under its number (W1) the first.
    """
    tries = {each["key"]: system.target.received(each["key"])["tries"] for each in ended}
    for each in ended if is_on_azures_terms() else []:
        reasons = {reason for attempt in each["attempts"] for reason in attempt["delay_reasons"]}
        tries[each["key"]] = tries[each["key"]][: WITHOUT_THE_LIMITER not in reasons]
    return sorted(datetime.fromisoformat(one["received_at"]) for of_key in tries.values() for one in of_key)


def limit_waits(*ended: dict[str, Any]) -> list[dict[str, Any]]:
    waits = (wait for document in ended for wait in document.get("waits", []))
    return [wait for wait in waits if wait["kind"] == "limit"]


@pytest.mark.shows("D8")
def test_no_more_attempts_are_under_way_than_the_limit(system: System, key: str) -> None:
    keys = [f"{key}-{number}" for number in range(6)]
    path = f"/hang/1?seconds={HANGS_SECONDS}"
    accepted = [system.accepted(each, path, dependency="narrow") for each in keys]
    ended = finished(system, accepted)
    begun = arrivals(system, ended)
    assert is_on_azures_terms() or len(begun) == len(keys)
    # The third from any one begins after that one has ended.
    lasts = timedelta(seconds=HANGS_SECONDS)
    assert all(third - first >= lasts for first, third in zip(begun, begun[2:], strict=False)), begun
    if not is_on_azures_terms():  # there one may also wait as a turn is made again, or for our own side
        waits = [wait for document in ended for wait in document.get("waits", [])]
        assert {wait["kind"] for wait in waits} == {"limit"}
        assert all("2 attempts at once" in wait["delay_reasons"][0] for wait in waits)


def test_a_customer_with_a_backlog_holds_no_other_up(system: System, key: str) -> None:
    def submitted(name: str) -> str:
        body = {"path": f"/hang/1?seconds={HANGS_SECONDS}", "dependency": "by_customer"}
        return system.accepted(f"{key}-{name}", **body, limit_key=f"{key}-{name[0]}")

    # A partition that was idle is polled every few seconds, so the start of the other one may be as late.
    many = [submitted(f"a{number}") for number in range(BACKLOG)]
    other = system.until(submitted("b"), "succeeded", within_seconds=60)
    last = system.status(many[-1])
    assert is_on_azures_terms() or last["status"] != "succeeded", (other, last)
    assert (other["limit_key"], limit_waits(other)) == (f"{key}-b", [])
    ended = finished(system, many)
    begun = arrivals(system, ended)
    lasts = timedelta(seconds=HANGS_SECONDS)
    assert all(second - first >= lasts for first, second in pairwise(begun)), begun
    reasons = {reason for wait in limit_waits(*ended) for reason in wait["delay_reasons"]}
    assert any(f"1 of 1 attempt of {key}-a is under way" in reason for reason in reasons), reasons


def test_attempts_start_no_faster_than_the_rate(system: System, key: str) -> None:
    posted_at = datetime.now(UTC)
    keys = [f"{key}-{number}" for number in range(5)]
    with ThreadPoolExecutor(len(keys)) as clients:
        accepted = list(clients.map(lambda each: system.accepted(each, "/echo", dependency="paced"), keys))
    ended = finished(system, accepted)
    begun = arrivals(system, ended)
    # Where turns are late, an eighth more start.
    assert begun[-1] >= posted_at + timedelta(seconds=len(begun) - 1) / (9 / 8 if is_on_azures_terms() else 1)
    if not is_on_azures_terms():
        waits = limit_waits(*ended)
        # One whose turn is within a second may wait for it at its worker.
        assert 1 <= len(waits) < len(keys)
        assert all("1 attempt per second" in wait["delay_reasons"][0] for wait in waits)


def test_one_stuck_dependency_holds_no_other_up(system: System, key: str) -> None:
    # More than the host runs at once: without a limit they would take every place.
    stuck = [
        system.accepted(f"{key}-stuck-{number}", "/hang/1?seconds=600", dependency="stuck")
        for number in range(MORE_THAN_A_HOST_RUNS)
    ]
    try:
        for number in range(5):
            system.until(system.accepted(f"{key}-{number}", "/echo"), "succeeded", within_seconds=120)
        ended = [each for each in stuck if system.status(each)["status"] in FINISHED]
        assert ended == []
    finally:
        for each in stuck:
            system.client.post(f"/api/operations/{each}/cancel", json={})


def test_the_limits_of_the_moment_and_what_they_let_through_are_shown(system: System) -> None:
    shown = system.client.get("/api/circuits/narrow").json()["limits"]
    assert shown["max_concurrency"] == 2
    items = system.client.get("/api/circuits").json()["items"]
    listed = {each["dependency"]: each["limits"] for each in items}
    used = {"lent", "waiting", "waiting_by_priority"}
    assert listed["narrow"] == {name: shown[name] for name in shown if name not in used}
    preview = system.client.post("/api/policies/preview", json={"dependency": "narrow"}).json()
    assert preview["limits"] == {
        "at_once": 2,
        "starts_per_second": None,
        "slowest_per_second": 0.1,
    }
    assert system.client.post("/api/policies/preview", json={"retry": {}}).json()["limits"] is None

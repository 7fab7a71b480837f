"""The rules of a replay that proves itself."""

import json
from datetime import timedelta
from typing import Any

import pytest

from durable_retry.rules.dead_letters.record import of_operation
from durable_retry_console.bulk.proof import End, Proof, failure_text, latest_of, stop_reason
from tests.support.builders import NOON, an_entry

PROOF = Proof(stop_at_failed=0.5, since=NOON)


@pytest.mark.parametrize(
    ("started", "ended", "most", "may_start"),
    [
        (0, 0, 25, 1),
        (1, 0, 25, 0),
        (1, 1, 25, 5),
        (1, 1, 2, 2),
        (3, 1, 2, 2),
        (5, 1, 2, 1),
        (6, 5, 25, 0),
        (6, 6, 25, 25),
        (31, 6, 25, 25),
    ],
)
def test_more_may_start_when_what_was_sent_has_ended(
    started: int, ended: int, most: int, may_start: int
) -> None:
    resumed = PROOF.resumed(started=100, now=NOON)
    for proof, before in ((PROOF, 0), (resumed, 100)):
        so_far = Proof(
            stop_at_failed=proof.stop_at_failed, since=NOON, started_before=proof.started_before, ended=ended
        )
        assert so_far.may_start(before + started, most) == may_start


@pytest.mark.parametrize(
    ("started", "age", "seconds"),
    [(1, 0, 2), (1, 3_200, 100), (1, 10**6, 900), (7, 0, 2), (7, 320, 10), (7, 3_200, 60)],
)
def test_ends_are_looked_at_often_enough_to_stop_in_time(started: int, age: int, seconds: int) -> None:
    looked_at = NOON + timedelta(seconds=age)
    proof = Proof(stop_at_failed=0.5, since=NOON, looked_at=looked_at)
    assert proof.next_look_at(started) - looked_at == timedelta(seconds=seconds)


def ends(*failed: bool) -> list[End]:
    return [End(at=NOON + timedelta(seconds=at), failed=each) for at, each in enumerate(failed)]


@pytest.mark.parametrize(
    ("failed", "is_failing"),
    [([], False), ([False], False), ([True], True), ([True, False], False), ([True, False, True], True)],
)
def test_more_than_the_share_is_too_much(failed: list[bool], *, is_failing: bool) -> None:
    assert PROOF.is_failing(ends(*failed)) is is_failing


def test_the_last_twenty_are_looked_at() -> None:
    latest = latest_of([*ends(*[True] * 30), *ends(*[False] * 40)])
    assert [end.failed for end in latest] == [False] * 10 + [True, False] * 5
    assert latest[0].at == NOON + timedelta(seconds=39)


@pytest.mark.parametrize(
    ("latest", "reason"),
    [
        (
            [End(at=NOON, failed=True, why="still 503: no upstream")],
            "1,001 of 4,000 replayed: still 503: no upstream",
        ),
        (
            [End(at=NOON, failed=False), *ends(*[True] * 2)],
            "1,001 of 4,000 replayed, 2 of the last 3 failed again: failed again",
        ),
    ],
)
def test_the_reason_says_how_far_it_came_and_what_failed(latest: list[End], reason: str) -> None:
    assert stop_reason(1_001, 4_000, latest) == reason


AT_AMOUNT = json.dumps({"errors": [{"pointer": "/amount", "detail": "too much"}]})


@pytest.mark.parametrize(
    ("attempt", "body", "text"),
    [
        ({"status_code": 422, "error": "too much"}, AT_AMOUNT, "422 at /amount"),
        ({"status_code": 422, "error": "too much"}, json.dumps({"errors": ["no"]}), "422: too much"),
        ({"status_code": 422, "error": "too much"}, json.dumps({"errors": []}), "422: too much"),
        (
            {"status_code": 422, "error": "too much"},
            json.dumps({"errors": [{"pointer": ""}]}),
            "422: too much",
        ),
        ({"status_code": 503, "error": "<html>"}, "<html>", "503: <html>"),
        ({"status_code": None, "error": "ReadTimeout"}, AT_AMOUNT, "ReadTimeout"),
        (None, None, "the deadline passed"),
    ],
)
def test_a_failure_is_said_shortly(attempt: dict[str, Any] | None, body: str | None, text: str) -> None:
    started = {"number": 1, "started_at": "2026-11-21T12:00:00Z", "category": "malformed"}
    entry = an_entry("op-1") | {
        "attempts": [] if attempt is None else [started | attempt],
        "detail": "the deadline passed",
        "failure": None if body is None else {"body": body},
    }
    assert failure_text(of_operation(entry, NOON)) == text

from typing import Any

import httpx
import pytest

from tests.support.retryctl import STATUS, Run


@pytest.mark.parametrize(("more", "pages"), [([], 10), (["--all"], 30)])
def test_a_search_whose_pages_are_empty_ends_after_ten_unless_all_is_asked_for(
    more: list[str], pages: int
) -> None:
    def page(request: httpx.Request) -> httpx.Response:
        assert request.url.params["q"] == "order 42"
        number = int(request.url.params.get("cursor", "0")) + 1
        return httpx.Response(200, json={"items": [], "next_cursor": str(number) if number < 30 else None})

    run = Run(page, "find", "order", "42", *more)
    assert (run.code, run.out) == (1, "nothing found\n")
    assert len(run.requests) == pages
    assert ("--all looks at everything" in run.err) is (pages == 10)


FOUND = {
    "type": "operation",
    "id": "op-1",
    "name": None,
    "status": "waiting_retry",
    "key": "order-42",
    "error": "status 503",
    "attempt_count": 1,
    "next_attempt_at": STATUS["next_attempt_at"],
    "why": None,
}


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({}, "next attempt in 9 s; status 503"),
        ({"error": None}, "next attempt in 9 s; waiting retry"),
        (
            {"status": "waiting_circuit", "why": "payments answers 503, since 12:00 UTC"},
            "next probe in 9 s; payments answers 503, since 12:00 UTC",
        ),
        ({"status": "dead_lettered", "next_attempt_at": None}, "status 503"),
        ({"status": "running", "next_attempt_at": None, "error": None}, "running"),
        ({"status": "succeeded", "next_attempt_at": None, "error": None}, "succeeded at attempt 1"),
    ],
)
def test_what_is_found_says_why_it_is_where_it_is(found: dict[str, Any], reason: str) -> None:
    def page(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/op-1"):
            return httpx.Response(200, json=STATUS)
        return httpx.Response(200, json={"items": [FOUND | found], "next_cursor": None})

    run = Run(page, "find", "k")
    assert run.code == 0
    assert run.out.splitlines()[0].startswith("operation")
    assert run.out.splitlines()[-1] == reason


def test_everything_that_is_found_is_listed_by_its_type_and_asked_for_by_every_filter() -> None:
    event = {"type": "event", "id": "op-2-1", "name": "charge.completed", "status": "failed", "key": None}
    event |= {"error": None, "why": None, "attempt_count": None, "next_attempt_at": None}

    def page(request: httpx.Request) -> httpx.Response:
        assert request.url.params["type"] == "event"
        assert request.url.params["created_after"] == "2026-11-22T09:00:00Z"
        assert "q" not in request.url.params
        return httpx.Response(200, json={"items": [FOUND, FOUND, event], "next_cursor": None})

    run = Run(page, "find", "--type", "event", "--created-after", "2026-11-22T09:00:00Z")
    lines = run.out.splitlines()
    assert (run.code, len(lines)) == (0, 4)
    assert lines[3].split() == ["event", "op-2-1", "failed", "charge.completed", "failed"]


def test_an_operation_that_is_looked_up_for_what_was_found_cannot_steer_the_terminal() -> None:
    attempts: Any = STATUS["attempts"]
    hostile = STATUS | {"attempts": [attempts[0] | {"error": "status 503\x1b]0;x\u202e\x9b2J"}]}

    def page(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/op-1"):
            return httpx.Response(200, json=hostile)
        return httpx.Response(200, json={"items": [FOUND], "next_cursor": None})

    out = Run(page, "find", "k").out
    assert "status 503 ]0;x  2J" in out
    assert out.replace("\n", "").isprintable()

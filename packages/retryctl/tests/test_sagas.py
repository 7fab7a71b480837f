"""Sagas: shown, with what runs waits for, and restarted."""

import json
from typing import Any

import httpx
import pytest

from tests.support.retryctl import Run, answers


def test_a_saga_whose_compensation_has_not_begun_is_shown() -> None:
    step = {"name": "reserve", "status": "pending", "effect": "none", "error": None}
    saga = {"saga_id": "saga-1", "status": "running", "steps": [step | {"compensation": {"status": None}}]}
    assert Run(answers(saga), "saga", "show", "saga-1").out.splitlines()[-1].split() == [
        *("reserve", "pending", "none", "-", "-")
    ]


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        (
            {"status": "waiting_circuit"},
            ["undoing reserve waits; next probe in 9 s"],
        ),
        (
            {
                "status": "waiting_circuit",
                "waits": [{"kind": "circuit", "delay_reasons": ["ledger answers 503"]}],
            },
            ["undoing reserve waits; ledger answers 503; next probe in 9 s"],
        ),
        ({"status": "waiting_retry"}, ["undoing reserve waits; next attempt in 9 s"]),
        ({"status": "running", "next_attempt_at": None}, []),
        (None, []),
    ],
)
def test_a_saga_says_what_its_compensation_waits_for(operation: Any, said: list[str]) -> None:
    at = "2026-11-21T09:00:09Z"
    running = {"operation_id": "op-1", "status": "running"}
    step = {
        "name": "reserve",
        "status": "succeeded",
        "effect": "stands",
        "error": None,
        "compensation": running,
    }
    saga = {"saga_id": "saga-1", "status": "compensating", "steps": [step]}

    def respond(request: httpx.Request) -> httpx.Response:
        if "/operations/" not in request.url.path:
            return httpx.Response(200, json=saga)
        shown = {"key": "undo", "dependency": "payments", "next_attempt_at": at, **(operation or {})}
        return httpx.Response(404 if operation is None else 200, json=shown)

    lines = Run(respond, "--utc", "saga", "show", "saga-1").out.splitlines()
    assert lines[3:] == said


def test_a_saga_that_failed_says_why_what_is_left_and_which_dead_letter_to_replay() -> None:
    undone = {"name": "reserve", "status": "succeeded", "effect": "undone", "error": None}
    failed = undone | {
        "name": "charge",
        "status": "dead_lettered",
        "effect": "none",
        "dead_letter_id": "dl-1",
    }
    rest = undone | {"name": "ship", "status": "not_run", "effect": "none"}
    steps = [step | {"compensation": None} for step in (undone, failed, rest)]
    saga = {
        "saga_id": "saga-1",
        "status": "compensated",
        "steps": steps,
        "reason": "charge was refused (402)",
    }
    lines = Run(answers(saga | {"effect": "undone"}), "saga", "show", "saga-1").out.splitlines()
    assert lines[0] == "saga-1  compensated: charge was refused (402); effect: undone"
    assert [line.split()[:2] for line in lines[2:5]] == [
        ["reserve", "undone"],
        ["charge", "dead_lettered"],
        ["ship", "not_run"],
    ]
    assert lines[5] == "to run what failed again: retryctl dead-letters replay dl-1"


def test_a_saga_is_restarted_and_shows_what_runs_and_its_restarts() -> None:
    answer = {"saga_id": "saga-1", "restart": 2, "from_step": "a", "runs": ["a", "c"], "keeps": []}
    run = Run(answers(answer), "saga", "restart", "saga-1", "--from-step", "c", "--note", "mended")
    assert run.out.splitlines() == ["saga-1  restart 2", "runs   a, c", "keeps  none"]
    note = {"number": 1, "requested_at": "2026-11-21T09:00:00Z", "runs": [], "note": "mended", "by": "ada"}
    saga = {"saga_id": "saga-1", "status": "succeeded", "steps": [], "restarts": [note]}
    shown = Run(answers(saga), "saga", "show", "saga-1").out
    assert "restarted 2026-11-21T09:00:00Z by ada, ran no step: mended" in shown
    confirmed = saga | {"restarts": [note | {"confirmed": {"a": "undone"}}]}
    shown = Run(answers(confirmed), "saga", "show", "saga-1").out
    assert "by ada, ran no step, confirmed a as undone: mended" in shown
    words = ("--confirm", "a=undone", "--confirm", "b=c=stands")
    run = Run(answers(answer), "saga", "restart", "saga-1", *words)
    assert json.loads(run.requests[-1].content) == {"confirmed": {"a": "undone", "b=c": "stands"}}
    elsewhere = saga | {"restarts": [note | {"requested_at": "2026-11-21T10:00:00+01:00"}]}
    assert "restarted 2026-11-21T09:00:00Z" in Run(answers(elsewhere), "--utc", "saga", "show", "saga-1").out

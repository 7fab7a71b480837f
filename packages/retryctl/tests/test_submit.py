import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.retryctl import Run, answers, refuses


def test_options_make_the_body_of_an_operation() -> None:
    accepted = {"operation_id": "op-1", "status": "pending"}
    argv = [
        "submit",
        "--dependency",
        "payments",
        "--path",
        "/charges",
        "--query",
        "a=1=2",
        "--header",
        "X: y",
    ]
    more = ["--body", "null", "--key", "k", "--retry", "max_attempts=3", "--retry", "jitter=none"]
    run = Run(answers(accepted, 202), *argv, *more, "--deadline-seconds", "60", "--correlation-id", "c")
    request = {
        "method": "POST",
        "path": "/charges",
        "query": {"a": "1=2"},
        "headers": {"X": "y"},
        "json": None,
    }
    assert json.loads(run.requests[0].content) == {
        "dependency": "payments",
        "request": request,
        "key": "k",
        "correlation_id": "c",
        "deadline_seconds": 60.0,
        "retry": {"max_attempts": 3, "jitter": "none"},
    }
    assert (run.code, run.out) == (0, "op-1  pending\n")


def test_an_operation_is_paused_and_resumed() -> None:
    answered = answers({"operation_id": "op-1", "status": "running"}, 202)
    run = Run(answered, "pause", "op-1", "--reason", "it moves", "--for-seconds", "60", "--stop-deadline")
    assert run.requests[0].url.path == "/api/operations/op-1/pause"
    assert json.loads(run.requests[0].content) == {
        "reason": "it moves",
        "for_seconds": 60.0,
        "stops_deadline": True,
    }
    assert run.out == "op-1  pause requested\n"
    assert Run(answered, "resume", "op-1").out == "op-1  resume requested\n"


def test_a_dependency_is_paused_with_the_deadlines_of_what_waits_for_it() -> None:
    changed = {"dependency": "payments", "action": "open", "reason": "it moves"}
    run = Run(
        answers(changed, 202), "circuits", "open", "payments", "--reason", "it moves", "--stop-deadline"
    )
    assert json.loads(run.requests[0].content) == {"reason": "it moves", "stops_deadline": True}
    assert run.out == "payments  open, deadlines stop meanwhile: it moves\n"


@pytest.mark.parametrize(
    ("argv", "sent"),
    [
        (["--start-at", "2026-11-22T09:00:00Z"], {"start_at": "2026-11-22T09:00:00Z"}),
        (["--delay-seconds", "60"], {"delay_seconds": 60.0}),
        (["--priority", "low"], {"priority": "low"}),
        (["--limit-key", "customer-17"], {"limit_key": "customer-17"}),
        (
            ["--order-key", "customer-7", "--order-on-failure", "skip"],
            {"order_key": "customer-7", "order_on_failure": "skip"},
        ),
        (
            ["--debounce-key", "reindex", "--debounce-seconds", "5", "--debounce-max-seconds", "20"],
            {"debounce_key": "reindex", "debounce_seconds": 5.0, "debounce_max_seconds": 20.0},
        ),
    ],
)
def test_an_operation_is_submitted_for_later_or_in_an_order(argv: list[str], sent: dict[str, Any]) -> None:
    run = Run(
        answers({"operation_id": "op-1", "status": "pending"}, 202), "submit", "--handler", "ship", *argv
    )
    assert json.loads(run.requests[0].content).items() >= sent.items()


def test_a_generated_key_is_sent_and_shown() -> None:
    run = Run(answers({"operation_id": "op-1", "status": "pending"}, 202), "submit", "--handler", "ship")
    sent = json.loads(run.requests[0].content)["key"]
    assert run.out == "op-1  pending\n"
    assert (
        run.err == f"retryctl: no --key given, so one was made; to repeat this submission, add --key {sent}\n"
    )
    again = Run(answers({"operation_id": "op-1", "status": "pending"}, 202), "submit", "--handler", "ship")
    assert json.loads(again.requests[0].content)["key"] != sent


def test_the_generated_key_of_an_unanswered_submission_is_shown_for_a_repeat() -> None:
    run = Run(refuses, "submit", "--handler", "ship")
    assert run.code == 3
    assert f"add --key {json.loads(run.requests[0].content)['key']}\n" in run.err


def test_key_fills_in_the_key_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "body.json"
    file.write_text('{"handler": "ship"}')
    run = Run(answers({"operation_id": "op-1", "status": "pending"}, 202), "submit", str(file), "--key", "k")
    assert json.loads(run.requests[0].content) == {"handler": "ship", "key": "k"}
    assert run.out == "op-1  pending\n"


def test_another_key_than_that_of_the_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "body.json"
    file.write_text('{"handler": "ship", "key": "a"}')
    run = Run(answers({}), "submit", str(file), "--key", "b")
    assert (run.code, run.requests) == (2, [])


@pytest.mark.parametrize("kind", ["batch", "saga"])
def test_key_names_a_batch_or_a_saga(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "body.json"
    file.write_text("[]")
    run = Run(answers({f"{kind}_id": "id-1"}, 202), kind, "submit", str(file), "--key", "k")
    assert json.loads(run.requests[0].content)["key"] == "k"
    assert "x-functions-key" not in run.requests[0].headers


@pytest.mark.parametrize("kind", ["batch", "saga"])
def test_the_key_of_a_batch_or_a_saga_is_generated_and_shown_too(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "body.json"
    file.write_text("[]")
    run = Run(answers({f"{kind}_id": "id-1"}, 202), kind, "submit", str(file), "--json")
    assert json.loads(run.out) == {f"{kind}_id": "id-1"}
    assert f"add --key {json.loads(run.requests[0].content)['key']}\n" in run.err

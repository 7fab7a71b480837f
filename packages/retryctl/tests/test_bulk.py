import json
from typing import Any

import pytest

from tests.support.retryctl import Run, answers


@pytest.mark.parametrize(
    ("argv", "sent"),
    [
        (
            ["pause", "op-1", "--reason", "moving", "--for-seconds", "60"],
            {"action": "pause", "ids": ["op-1"], "reason": "moving", "for_seconds": 60.0},
        ),
        (
            ["pause", "--dependency", "payments", "--reason", "moving", "--stop-deadline"],
            {
                "action": "pause",
                "filter": {"dependency": "payments"},
                "reason": "moving",
                "stops_deadline": True,
            },
        ),
        (
            ["cancel", "--order-key", "basket-7", "--priority", "low", "--limit-key", "customer-17"],
            {
                "action": "cancel",
                "filter": {"order_key": "basket-7", "priority": "low", "limit_key": "customer-17"},
            },
        ),
        (["resume", "--all"], {"action": "resume", "filter": {}}),
        (
            ["resume", "--priority", "low", "--reason", "back", "--retry", "max_attempts=3"],
            {
                "action": "resume",
                "filter": {"priority": "low"},
                "reason": "back",
                "retry": {"max_attempts": 3},
            },
        ),
        (
            ["resume", "op-1", "--at-once", "--deadline-seconds", "60"],
            {
                "action": "resume",
                "ids": ["op-1"],
                "at_once": True,
                "deadline_seconds": 60.0,
            },
        ),
        (["archive", "--reason", "Poison"], {"action": "archive", "filter": {"reason": "Poison"}}),
        (["replay", "--all", "--no-probe"], {"action": "replay", "filter": {}, "probe": False}),
        (
            ["replay", "dl-1", "--stop-at-failed", "0.2"],
            {"action": "replay", "ids": ["dl-1"], "stop_at_failed": 0.2},
        ),
    ],
)
def test_many_are_chosen_paused_and_resumed(argv: list[str], sent: dict[str, Any]) -> None:
    run = Run(answers({"action_id": "bulk-1", "matched": 2}, 202), "bulk", "start", *argv)
    assert json.loads(run.requests[0].content) == sent | {"dry_run": False}
    assert run.out == f"bulk-1  {argv[0]} of 2\n"


def test_the_time_of_a_pause_is_refused_of_other_actions() -> None:
    run = Run(answers({}), "bulk", "start", "cancel", "op-1", "--for-seconds", "60")
    assert (run.code, run.requests) == (2, [])
    assert "--for-seconds and --stop-deadline go with a pause only" in run.err


@pytest.mark.parametrize(
    ("preview", "lines"),
    [
        ([{"changes": [], "errors": []}] * 2, ["nothing changes"]),
        (
            [{"changes": [{"pointer": "/a", "after": 1}], "errors": []}, {"changes": [], "errors": []}],
            ["dl-0  order-0", "  /a: nothing to 1", "dl-1  order-1", "  nothing changes"],
        ),
        ([], []),
    ],
)
def test_a_dry_run_says_once_that_nothing_changes(preview: list[dict[str, Any]], lines: list[str]) -> None:
    letters = [{"id": f"dl-{n}", "key": f"order-{n}", **each} for n, each in enumerate(preview)]
    counted = {"matched": 2, "complete": True, "preview": letters}
    run = Run(answers(counted), "bulk", "start", "replay", "--all", "--dry-run")
    assert run.out.splitlines() == ["replay would act on 2", *lines]


def test_a_dry_run_has_nothing_to_watch() -> None:
    counted = {"matched": 2, "complete": False}
    run = Run(answers(counted), "bulk", "start", "archive", "--all", "--dry-run", "--watch")
    assert json.loads(run.requests[0].content) == {"filter": {}, "action": "archive", "dry_run": True}
    assert run.out == "archive would act on at least 2\n"


COUNTS = dict.fromkeys(("succeeded", "under_way", "skipped", "failed"), 0) | {"matched": 4_000, "started": 1}
STOPPED: dict[str, Any] = COUNTS | {
    "action_id": "bulk-1",
    "action": "replay",
    "status": "stopped",
    "reason": "1 of 4,000 replayed: still 422 at /amount",
    "failed_again": 1,
    "remaining": 3_999,
    "waiting_until": None,
    "failures": [],
}


@pytest.mark.parametrize(("command", "code"), [("show", 0), ("watch", 1)])
def test_a_stopped_one_says_why(command: str, code: int) -> None:
    run = Run(answers(STOPPED), "bulk", command, "bulk-1")
    assert run.code == code
    assert "replay stopped: 4000 matched, 1 started, 0 succeeded, 1 failed again" in run.out
    assert "\n  1 of 4,000 replayed: still 422 at /amount\n" in run.out


def test_a_stopped_one_is_resumed() -> None:
    run = Run(answers(STOPPED, 202), "bulk", "resume", "bulk-1")
    assert (run.requests[0].method, run.requests[0].url.path) == ("POST", "/api/bulk-actions/bulk-1/resume")
    assert run.out == "bulk-1  resume requested\n"

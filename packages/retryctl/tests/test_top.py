"""Against an overview that is made up here."""

import copy
import io
import json
from typing import Any, Final

import httpx
import pytest

from retryctl import clock
from tests.support.retryctl import Run, Terminal

WAITING: Final = {"pending": 1, "running": 2, "waiting_retry": 3, "waiting_circuit": 4}
CIRCUIT: Final = {
    "state": "closed",
    "healthy": False,
    "calls": 10,
    "failure_ratio": 0.5,
    "first_opened_at": None,
    "failed_probes": 0,
    "last_error": None,
    "retry_at": None,
    "throttled_until": None,
    "waiting": 0,
    "open_dead_letters": 0,
    "amplification": 1.0,
}
DOWN: Final = {
    **CIRCUIT,
    "dependency": "payments",
    "state": "open",
    "first_opened_at": "2026-11-21T08:56:00Z",
    "failed_probes": 12,
    "last_error": "503: no backend",
    "retry_at": "2026-11-21T09:02:00Z",
    "why": "open since 2026-11-21T08:56:00Z: 12 probes failed, the last one got 503: no backend",
    "waiting": 7,
    "open_dead_letters": 532,
    "amplification": 1.5,
}
OVERVIEW: Final[dict[str, Any]] = {
    "operations": {
        "by_dependency": {"payments": {"amplification": 1.5}},
        "unfinished": {
            "complete": False,
            "by_status": WAITING,
            "by_dependency": {"payments": WAITING},
            "waiting": [
                {"dependency": "payments", "status": "waiting_circuit", "count": 4, "first": None},
                {
                    "dependency": "payments",
                    "status": "waiting_retry",
                    "count": 3,
                    "limit_keys": {"keys": 1, "most": {"initech": 3}},
                    "first": {"key": "order-42", "next_attempt_at": "2026-11-21T09:00:30Z"},
                },
            ],
        },
    },
    "circuits": [
        DOWN,
        {
            **CIRCUIT,
            "dependency": "search",
            "throttled_until": "2026-11-21T09:17:00Z",
            "why": "paused by 429 (Retry-After 1800 s) until 2026-11-21T09:17:00Z",
            "failure_ratio": None,
        },
        {
            **CIRCUIT,
            "dependency": "stock",
            "limit_keys": [{"limit_key": "customer-17", "credential_refused_by": "401"}],
            "why": "the credential is refused for 1 limit key: customer-17",
        },
        {
            **CIRCUIT,
            "dependency": "loans",
            "limit_keys": [
                {"limit_key": "initech", "state": "open", "throttled_until": None},
                {"limit_key": "acme", "state": "closed", "throttled_until": "2026-11-21T09:17:00Z"},
            ],
            "why": "paused for 1 limit key: acme; open for 1 limit key: initech",
        },
        {**CIRCUIT, "dependency": "cards", "healthy": True},
        {**CIRCUIT, "dependency": "mail", "healthy": True},
    ],
    "dead_letters": {
        "open": 549,
        "complete": True,
        "by_dependency": {"payments": {"open": 532}},
        "groups": [
            {
                "count": 532,
                "group": "g-1",
                "status": "new",
                "came_back": True,
                "last_seen_at": "2026-11-21T08:59:00Z",
                "sample": {"dependency": "payments", "detail": "status 400"},
            }
        ],
        "others": {"causes": 3, "open": 17},
    },
    "outbox": {"pending": 50, "pending_complete": False, "failed": 1, "failed_complete": True},
    "metrics": {"attempts": 20, "failures": 10, "ended": 9},
    "alerts": [{"text": "Open dead letters: 532", "raised_at": "2026-11-21T08:50:00Z"}],
    "health": {"parts": {"storage": {"healthy": True}, "index": {"healthy": False}}},
    "unavailable": {},
    "as_of": {"operations": "2026-11-21T08:59:37Z", "dead_letters": "2026-11-21T08:59:54Z"},
}
AWAY: Final[dict[str, Any]] = {
    **dict.fromkeys(("operations", "circuits", "dead_letters", "outbox", "metrics", "alerts", "health")),
    "unavailable": {"circuits": "TaskHubUnavailableError"},
    "as_of": {},
}


def run(*answers: Any, out: io.StringIO, argv: tuple[str, ...] = (), **environ: str) -> int:
    """Let `top` see these answers one after the other, and end it with Ctrl-C after the last."""
    left = iter(answers)

    def respond(request: httpx.Request) -> httpx.Response:
        assert dict(request.url.params) == {"window_seconds": "900"}
        if (document := next(left, None)) is None:
            raise KeyboardInterrupt
        return httpx.Response(503) if document == "away" else httpx.Response(200, json=document)

    return Run(respond, "top", "--utc", *argv, out=out, **environ).code


def test_what_ails_comes_first_with_what_waits_and_what_failed() -> None:
    out = io.StringIO()
    assert run(OVERVIEW, out=out) == 0
    text = out.getvalue()
    assert "unhealthy: index" in text
    assert "at least 7 waiting, 3 under way" in text
    assert "549 open dead letters\n" in text
    assert "events: at least 50 pending, 1 failed" in text
    assert "in 15 min: 20 attempts, 10 failed, 9 ended" in text
    assert "\ndead letters read 6 s ago, some operations read 23 s ago\n" in text
    assert "Open dead letters: 532  10 min ago" in text
    rows = {line.split("  ")[0]: " ".join(line.split()) for line in text.splitlines() if line}
    why = "open since 2026-11-21T08:56:00Z: 12 probes failed, the last one got 503: no backend"
    assert rows["payments"] == f"payments open 7 532 50% of 10 1.50 in 2 min {why}"
    paused = "paused by 429 (Retry-After 1800 s) until 2026-11-21T09:17:00Z"
    assert rows["search"] == f"search paused 0 0 - 1.00 in 17 min {paused}"
    refused = "the credential is refused for 1 limit key: customer-17"
    assert rows["stock"] == f"stock refused 0 0 50% of 10 1.00 - {refused}"
    keys = "paused for 1 limit key: acme; open for 1 limit key: initech"
    assert rows["loans"] == f"loans open for 1 key 0 0 50% of 10 1.00 - {keys}"
    assert "\nhealthy: cards, mail\n" in text
    assert rows["4"] == "4 waiting_circuit payments - - -"
    assert rows["3"] == "3 waiting_retry payments in 30 s order-42 initech"
    assert text.index("waiting_circuit") < text.index("waiting_retry")
    assert rows["532"] == "532 g-1 new, came back payments 1 min ago status 400"
    assert text.endswith("\nand 3 more causes, 17 dead letters\n")


def test_parts_that_are_not_known_are_named() -> None:
    out = io.StringIO()
    run(AWAY, out=out)
    assert "not known: circuits (TaskHubUnavailableError)" in out.getvalue()
    assert "DEPENDENCY" not in out.getvalue()


def test_a_pause_does_not_hide_that_somebody_holds_the_circuit_open() -> None:
    out = io.StringIO()
    why = "held open by ada since 2026-11-21T08:56:00Z: drill"
    held = DOWN | {"state": "forced_open", "throttled_until": "2026-11-21T09:17:00Z", "why": why}
    run(OVERVIEW | {"circuits": [held]}, out=out)
    assert " forced_open " in out.getvalue()
    assert f"{why}\n" in out.getvalue()
    assert "\nhealthy:" not in out.getvalue()


def test_json_is_the_document() -> None:
    out = Terminal()
    run(OVERVIEW, out=out, argv=("--json",))
    assert json.loads(out.getvalue()) == OVERVIEW


def test_a_terminal_is_redrawn_until_ctrl_c_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(clock, "pause", pauses.append)
    later = copy.deepcopy(OVERVIEW)
    later["dead_letters"]["open"] = 1
    out = Terminal()
    size = {"COLUMNS": "60", "LINES": "24", "NO_COLOR": "1"}
    assert run(OVERVIEW, "away", later, out=out, argv=("--every", "7"), **size) == 0
    taken, hidden, *drawn = out.getvalue().split("\x1b[H")
    assert (taken, hidden) == ("\x1b[?1049h", "\x1b[?25l")
    assert [("\n549 open dead letters " in text, "accepts nothing for now" in text) for text in drawn] == [
        (True, False),
        (True, True),
        (False, False),
    ]
    assert "\n1 open dead letter " in drawn[-1]
    assert drawn[-1].endswith("\x1b[?25h\x1b[?1049l")
    assert pauses == [7.0, 7.0, 7.0]
    lines = drawn[1].split("\n")
    assert {len(line) for line in lines} == {60}
    assert len(lines) == 24

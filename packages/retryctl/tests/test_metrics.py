"""The metrics of dependencies on a terminal."""

import re
from typing import Any, Final

from tests.support.retryctl import Run, answers

TIMES: Final = {"p50": 20.0, "p95": 1500.0, "p99": None}
PAYMENTS: Final[dict[str, Any]] = {
    "dependency": "payments",
    "attempts": 9,
    "failures": 3,
    "retries": 3,
    "amplification": 1.5,
    "attempt_ms": TIMES,
    "ended": 6,
    "operation_ms": TIMES,
    "openings": 0,
    "key_openings": 0,
    "by_priority": {
        "high": {"started": 2, "waits": {"count": 1, "seconds": 0.5}, "operation_ms": TIMES},
        "low": {"started": 4, "waits": {"count": 4, "seconds": 90.0}, "operation_ms": TIMES},
    },
    "debounce_replaced": 7,
    "debounce_ran": 2,
}


def cells_of(line: str) -> list[str]:
    """Return the cells of a line, which two spaces or more part."""
    return re.split(r"  +", line)


def test_metrics_show_priorities_and_what_was_debounced() -> None:
    run = Run(answers({"dependencies": [PAYMENTS]}), "metrics", "payments")
    assert list(map(cells_of, run.out.splitlines()[1:])) == [
        ["payments", "9", "3", "3", "1.50", "20 ms", "1.5 s", "6", "20 ms", "1.5 s", "0"],
        [""],
        ["DEPENDENCY", "PRIORITY", "ACCEPTED", "WAITS", "WAITED", "OPERATION P50", "P95"],
        ["payments", "high", "2", "1", "500 ms", "20 ms", "1.5 s"],
        ["payments", "low", "4", "4", "1 min 30 s", "20 ms", "1.5 s"],
        [""],
        ["DEPENDENCY", "DEBOUNCED AWAY", "RAN AFTER DEBOUNCE"],
        ["payments", "7", "2"],
    ]


def test_what_no_operation_asked_for_is_not_shown() -> None:
    none = {"by_priority": {}, "debounce_replaced": 0, "debounce_ran": 0}
    assert len(Run(answers({"dependencies": [PAYMENTS | none]}), "metrics").out.splitlines()) == 2


def test_a_longer_range_than_metrics_are_kept_is_refused() -> None:
    run = Run(answers({"dependencies": [PAYMENTS]}), "metrics", "--minutes", "10081")
    assert (run.code, run.requests) == (2, [])
    assert run.err == "retryctl: --minutes must be at most 10080, which are seven days\n"


def test_the_longest_range_is_asked_for() -> None:
    run = Run(answers({"dependencies": [PAYMENTS]}), "metrics", "--minutes", "10080")
    assert (run.code, run.requests[0].url.params["from"]) == (0, "2026-11-14T09:00:00Z")

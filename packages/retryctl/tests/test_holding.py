"""Holding everything on a terminal."""

import json
from typing import Any, Final

import pytest

from tests.support.retryctl import Run, answers

HELD: Final[dict[str, Any]] = {
    "reason": "wrong amounts",
    "by": "ada",
    "since": "2026-11-28T12:00:00Z",
    "until": None,
    "stops_deadline": True,
}
PREVIEW: Final[dict[str, Any]] = {
    "until": "2026-11-28T13:00:00Z",
    "operations": 3,
    "complete": True,
    "by_dependency": [
        {"dependency": "payments", "operations": 3, "held": 2, "first_at": "2026-11-28T12:10:00Z"}
    ],
}


def test_everything_is_held_for_a_reason() -> None:
    argv = ("hold", "--reason", "wrong amounts", "--for-seconds", "60", "--deadlines-go-on")
    run = Run(answers(HELD, 202), *argv)
    sent = json.loads(run.requests[0].content)
    assert sent == {"reason": "wrong amounts", "for_seconds": 60.0, "stops_deadline": False}
    assert run.requests[0].url.path == "/api/hold"
    for shown in ("wrong amounts", "ada"):
        assert shown in run.out


@pytest.mark.parametrize(
    ("is_complete", "words"), [(True, "hour 3 operations"), (False, "at least 3 operations")]
)
def test_a_hold_is_shown_with_what_would_run(*, is_complete: bool, words: str) -> None:
    document = HELD | {"status": "held", "preview": PREVIEW | {"complete": is_complete}}
    out = Run(answers(document), "held").out
    assert words in out
    assert "payments" in out
    assert "thaw" not in out


def test_a_thaw_is_shown_while_it_goes_on() -> None:
    wave = {"number": 1, "waves": [0.1, 1.0], "by": "ben", "waiting": 40, "released": 4}
    preview = PREVIEW | {"operations": 0, "by_dependency": []}
    out = Run(answers(HELD | {"status": "thawing", "wave": wave, "preview": preview}), "held").out
    assert "wave 1 of 2, 4 of 40 let go, by ben" in out
    assert "DEPENDENCY" not in out


def test_a_thaw_is_asked_for_in_waves() -> None:
    answer = {"since": "2026-11-28T12:00:00Z", "waves": [0.1, 1.0], "wave_seconds": 90.0}
    run = Run(answers(answer, 202), "thaw", "--waves", "0.1,1", "--wave-seconds", "90")
    assert json.loads(run.requests[0].content) == {"waves": [0.1, 1.0], "wave_seconds": 90.0}
    assert run.out == "thaws in waves of 0.1, 1; each is watched for 1 min 30 s\n"


def test_shares_are_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        Run(answers({}), "thaw", "--waves", "some")
    assert "must be shares" in capsys.readouterr().err

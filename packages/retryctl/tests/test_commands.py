import io
import json
from typing import Any

import httpx
import pytest

from retryctl import commands
from retryctl.api import Api
from retryctl.errors import CommandError
from retryctl.output import Screen
from tests.support.retryctl import DEAD, STATUS, Responder, Run, Terminal, answers, refuses


def test_watching_counts_down_and_shows_each_attempt_once() -> None:
    documents = iter([STATUS, STATUS, DEAD])
    run = Run(
        lambda _: httpx.Response(200, json=next(documents)), "watch", "op-1", out=Terminal(), NO_COLOR="1"
    )
    assert run.code == 1
    assert run.out.count("attempt 1  503  41.2 ms  transient: status 503") == 1
    assert "waits 1.37 s (exponential 2 s, full jitter)" in run.out
    assert (
        "\r\x1b[Kwaiting_retry: attempt 2 in 9 s (payments answers 503, since 09:00 UTC, expone…" in run.out
    )
    assert run.out.endswith("op-1  dead_lettered\ndead letter dl-1  transient, RetriesExhausted\n")


def test_an_operation_that_begins_later_is_counted_down_to() -> None:
    later = STATUS | {"status": "scheduled", "attempt_count": 0, "attempts": [], "waits": []}
    documents = iter([later, DEAD])
    run = Run(lambda _: httpx.Response(200, json=next(documents)), "watch", "op-1", out=Terminal())
    assert "\r\x1b[Kscheduled: attempt 1 in 9 s\r" in run.out


def test_watching_as_json_gives_a_line_for_each_change() -> None:
    documents = iter([STATUS, STATUS, DEAD])
    run = Run(lambda _: httpx.Response(200, json=next(documents)), "watch", "op-1", "--json", out=Terminal())
    assert [json.loads(line) for line in run.out.splitlines()] == [STATUS, DEAD]


def test_watching_outlasts_a_short_absence() -> None:
    gone = iter([True] * 20)

    def answer(request: httpx.Request) -> httpx.Response:
        return refuses(request) if next(gone, False) else httpx.Response(200, json=DEAD)

    run = Run(answer, "watch", "op-1")
    assert run.code == 1
    assert "dead_lettered" in run.out


def test_watching_gives_up_on_an_api_that_stays_away() -> None:
    run = Run(refuses, "watch", "op-1")
    assert run.code == 3
    assert len(run.requests) <= commands.PATIENCE_SECONDS / commands.POLL_SECONDS + 2


@pytest.mark.parametrize(("health", "shown"), [({"parts": {}}, TypeError), ({}, CommandError)])
def test_a_fault_of_a_command_is_no_foreign_document(health: Any, shown: type[Exception]) -> None:
    def run(*_: Any) -> int:
        raise TypeError("a fault of its own")

    api = Api("http://a.test", None, httpx.MockTransport(lambda _: httpx.Response(200, json=health)))
    screen = Screen(io.StringIO(), io.StringIO(), "text", {}, 80)
    with pytest.raises(shown, match="a fault of its own"):
        commands.run_command(run, api, {}, screen)


def test_a_live_line_does_not_wrap() -> None:
    documents = iter([STATUS, DEAD])
    answer: Responder = lambda _: httpx.Response(200, json=next(documents))  # noqa: E731 # it is short
    run = Run(answer, "watch", "op-1", out=Terminal(), NO_COLOR="1", COLUMNS="40")
    assert "\r\x1b[Kwaiting_retry: attempt 2 in 9 s (payme…" in run.out


def test_what_an_id_does_not_lead_to_may_be_a_key() -> None:
    missing = answers(
        {"title": "Not Found", "status": 404, "detail": "There is no operation of this id."}, 404
    )
    for command in (["get"], ["watch"], ["cancel"], ["dead-letters", "show"]):
        run = Run(missing, *command, "order 7")
        assert run.code == 1
        assert "There is no operation of this id.\nA key or another id?" in run.err
        assert run.err.endswith("retryctl find 'order 7'\n")

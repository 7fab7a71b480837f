"""The command `setup` on answers that are made up here; `tests/e2e/test_retryctl.py` runs it on the app."""

import json
from typing import Any, Final

import httpx

from retryctl.doctor import REMEDIES
from tests.support.retryctl import Run, answers

QUEUE: Final = {"kind": "queue", "name": "operations", "state": "made"}
TABLE: Final = {"kind": "table", "name": "Commits", "state": "present"}
REFUSED: Final = {
    "kind": "queue",
    "name": "operations-poison",
    "state": "refused",
    "detail": "not authorized",
}


def setup(*items: Any, argv: tuple[str, ...] = ()) -> Run:
    return Run(answers({"items": list(items)}), "setup", *argv)


def test_it_says_what_was_made_and_what_was_there() -> None:
    run = setup(QUEUE, TABLE)
    assert [(request.method, request.url.path) for request in run.requests] == [("POST", "/api/setup")]
    assert run.code == 0
    assert run.out.splitlines() == [
        "queue  made     operations",
        "table  present  Commits",
        "1 made, 1 present",
    ]


def test_a_refusal_says_what_to_do_and_ends_with_1() -> None:
    run = setup(QUEUE, REFUSED)
    assert run.code == 1
    assert run.out.splitlines()[1:] == [
        "queue  refused  operations-poison  not authorized",
        f"1 made, 0 present, 1 refused; what to do: {REMEDIES['storage']}",
    ]


def test_json_is_the_document_of_the_api() -> None:
    assert json.loads(setup(QUEUE, argv=("--json",)).out) == {"items": [QUEUE]}


def test_the_url_may_stand_behind_the_command() -> None:
    assert setup(QUEUE, argv=("http://shop.test:80",)).requests[0].url.host == "shop.test"


def test_a_reader_is_told_which_role_it_needs() -> None:
    problem = {
        "status": 403,
        "title": "Forbidden",
        "detail": "This needs the role operator, and ann is a reader.",
    }
    run = Run(lambda _: httpx.Response(403, json=problem), "setup")
    assert run.code == 1
    assert "needs the role operator" in run.err

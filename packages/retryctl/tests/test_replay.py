"""`check-replay` against an app's own code, which its own Python replays."""

import json
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from scripts.processes import ROOT
from tests.support.retryctl import Run, answers

APP: Final = """
import azure.durable_functions as df
app = df.DFApp()


@app.orchestration_trigger(context_name="context")
def order(context, _input):
    yield context.call_activity("ask")
    yield context.call_activity("pay")
"""
ORDER: Final[dict[str, Any]] = {
    "instance_id": "order/7",
    "events": [
        {"orchestratorStarted": {}},
        {"executionStarted": {"name": "order"}},
        {"eventId": 1, "taskScheduled": {"name": "ask"}},
        {"orchestratorCompleted": {}},
    ],
}
EMPTY: Final[dict[str, Any]] = {"items": [], "next_cursor": None}


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # where the library is
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "function_app.py").write_text(APP)
    return folder


def orders(request: httpx.Request) -> httpx.Response:
    """Two pages of one order each."""
    second = "cursor" in request.url.params
    order = ORDER | {"instance_id": "order/8"} if second else ORDER
    return httpx.Response(200, json={"items": [order], "next_cursor": None if second else "2"})


def test_what_is_under_way_is_downloaded_kept_and_fits(app: Path, tmp_path: Path) -> None:
    saved = tmp_path / "new" / "saved"
    run = Run(orders, "check-replay", "--app", str(app), "--save", str(saved), "--completed")
    assert (run.code, run.out, run.err) == (0, "2 fit (2 order)\n", "")
    assert [str(each.url.query, "ascii") for each in run.requests] == [
        "completed=true",
        "completed=true&cursor=2",
    ]
    assert {file.name: json.loads(file.read_text())["instance_id"] for file in saved.iterdir()} == {
        "order%2F7.json": "order/7",
        "order%2F8.json": "order/8",
    }


def test_what_does_not_fit_is_named_with_its_first_step_without_a_running_app(
    app: Path, tmp_path: Path
) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "order-7.json").write_text(json.dumps(ORDER))
    script = app / "function_app.py"
    script.write_text(script.read_text().replace("ask", "inquire"))
    command = ("check-replay", "--app", str(app), "--histories", str(tmp_path / "saved"))
    run = Run(orders, *command)
    assert (run.code, run.requests) == (1, [])
    assert run.out.splitlines() == [
        "order order/7",
        "  event 3: history: activity ask; code: activity inquire",
        "1 of 1 do not fit (1 order)",
    ]
    document = json.loads(Run(orders, *command, "--json").out)
    assert document["differences"][0]["event"] == 3


def test_a_limit_says_that_there_is_more(app: Path) -> None:
    run = Run(orders, "check-replay", "--app", str(app), "--limit", "1")
    assert (run.code, run.out) == (0, "1 fit (1 order)\n")
    assert run.err == "retryctl: these are the first 1; --all reads every history\n"
    assert Run(orders, "check-replay", "--app", str(app), "--all").err == ""


def test_nothing_under_way_is_said(app: Path) -> None:
    assert Run(answers(EMPTY), "check-replay", "--app", str(app)).out == "nothing to replay\n"


def test_wrong_folders_and_broken_apps_are_named(app: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for more, words in (
        (["--app", str(tmp_path / "none")], "none is no folder"),
        (["--histories", str(tmp_path / "none")], "none is no folder"),
        (["--histories", str(tmp_path / "empty")], "empty has no histories, which are files *.json"),
        (["--app", str(tmp_path / "empty")], "is this the folder of a function app?"),
    ):
        run = Run(answers(EMPTY), "check-replay", "--app", str(app), *more)
        assert (run.code, words in run.err) == (2, True), run.err
    (app / "function_app.py").write_text("import no_such_module")
    run = Run(answers(EMPTY), "check-replay", "--app", str(app))
    assert (run.code, "No module named 'no_such_module'" in run.err) == (2, True)

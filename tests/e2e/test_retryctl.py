"""Every command against one app; `test_document_commands.py` runs those of the document."""

import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from retryctl.cli import main
from scripts.processes import ROOT, eventually
from tests.support.app import System
from tests.support.retryctl import Terminal
from tests.support.target import Target

DOCUMENT = ROOT / "docs" / "retryctl.md"
QUICK = ["--retry", "jitter=none", "--retry", "initial_seconds=0.2"]


class Shell:
    def __init__(self, system: System) -> None:
        self.system = system

    def run(self, *argv: str, code: int = 0, terminal: bool = False) -> str:
        out, err = Terminal() if terminal else io.StringIO(), io.StringIO()
        environ = {"DURABLE_RETRY_URL": self.system.url, "NO_COLOR": "1"}
        found = main(argv, environ=environ, out=out, err=err)
        assert found == code, (argv, out.getvalue(), err.getvalue())
        return out.getvalue() + err.getvalue()

    def json(self, *argv: str, code: int = 0) -> Any:
        return json.loads(self.run(*argv, "--json", code=code))

    def submitted(self, key: str, path: str, *more: str) -> str:
        path, _, query = path.partition("?")
        argv = ["submit", "--dependency", "flaky", "--path", path, "--key", key, *QUICK, *more]
        operation_id: str = self.json(*argv, *(["--query", query] if query else []))["operation_id"]
        return operation_id

    def dead_letter(self, key: str) -> str:
        operation_id = self.submitted(key, "/fail/1?status=400")
        return self.failed(operation_id)

    def failed(self, operation_id: str) -> str:
        found: str = self.system.until(operation_id, "dead_lettered")["dead_letter"]["id"]
        return found


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, target: Target) -> Iterator[Shell]:
    """An app of its own, with the dependencies that a user begins with."""
    folder = tmp_path_factory.mktemp("retryctl")
    settings = str(ROOT / "dependencies.toml")
    system = System(folder, target, DEPENDENCIES_FILE=settings, ONEBOX_QUEUES="")
    with system.running():
        yield Shell(system)


@pytest.mark.long
def test_doctor_goes_through_every_part_and_names_the_first_that_fails(shell: Shell) -> None:
    failed = shell.run("doctor", shell.system.url, code=1)
    assert re.search(
        r"^queues +FAILED +MissingQueueError: the queue operations does not exist$", failed, re.MULTILINE
    )
    assert "what to do: run `retryctl setup`" in failed
    assert "start" not in failed.split("FAILED")[1]
    assert re.search(r"^queue +made +operations$", shell.run("setup"), re.MULTILINE)
    assert shell.run("setup").splitlines()[-1].startswith("0 made, ")
    message = {"dependency": "flaky", "request": {"path": "/echo"}}
    queued = shell.system.client.post("/api/operations/enqueue", json=message).json()
    eventually(
        lambda: shell.system.client.get(queued["status_url"]).json()["status"] == "succeeded",
        "the trigger that listened before reads the queue",
    )
    names = [line.split()[0] for line in shell.run("doctor").splitlines()]
    parts = [
        "storage",
        "queues",
        "packages",
        "start",
        "entity",
        "timer",
        "activity",
        "index",
        "stuck",
        "needed",
        "roles",
    ]
    assert names == ["host", *parts, "every"]
    document = shell.json("doctor")
    assert document["ok"]
    assert [each["ok"] for each in document["parts"]] == [True] * 12
    assert document["parts"][0]["detail"].startswith("onebox ")
    assert document["parts"][-1]["detail"] == "operator, as api"


def test_submit_and_watch_show_every_attempt_and_the_end(shell: Shell, key: str) -> None:
    operation_id = shell.submitted(key, "/fail/1")
    shown = shell.run("watch", operation_id, terminal=True)
    assert "attempt 1  503" in shown
    assert "waits 200 ms (exponential 0.2 s)" in shown
    assert "attempt 2  200" in shown
    assert f"\n{operation_id}  succeeded\n" in shown
    assert "status      succeeded" in shell.run("get", operation_id)
    assert shell.json("get", operation_id)["attempt_count"] == 2


def test_an_operation_that_ends_badly_exits_with_1(shell: Shell, key: str) -> None:
    argv = ["submit", "--dependency", "flaky", "--path", "/fail/1", "--query", "status=400"]
    shown = shell.run(*argv, "--key", key, "--watch", code=1)
    assert "RejectedByDependency" in shown
    shell.run(*argv, "--key", key, "--wait", "5", code=1)


def test_a_handlers_operation_is_submitted_too(shell: Shell, key: str) -> None:
    mistakes = shell.run("submit", "--handler", "nobody", "--input", "{}", "--key", key, code=1)
    assert "/handler: no handler has the name nobody" in mistakes


def test_a_waiting_operation_is_listed_retried_now_and_cancelled(shell: Shell, key: str) -> None:
    operation_id = shell.submitted(key, "/fail/9", "--retry", "initial_seconds=30")
    shell.system.until(operation_id, "waiting_retry")
    assert operation_id in shell.run("list", "--status", "waiting_retry")
    assert operation_id in shell.run("list", "--dependency", "flaky", "--all", "--ids").split()
    shell.run("retry-now", operation_id)
    eventually(lambda: shell.system.status(operation_id)["attempt_count"] == 2, "it is retried")
    shell.system.until(operation_id, "waiting_retry")
    shell.run("cancel", operation_id)
    shell.run("watch", operation_id, code=1)
    assert "409" in shell.run("cancel", operation_id, code=1)


def test_why_did_it_not_go_through_takes_one_command(shell: Shell, key: str) -> None:
    lost = shell.dead_letter(key)
    shown = shell.run("find", key)
    assert "status        dead_lettered" in shown or "status      dead_lettered" in shown
    assert "attempt 1  400" in shown
    assert "RejectedByDependency: " in shown
    assert f"to run it again: retryctl dead-letters replay {lost}" in shown
    waiting = shell.submitted(f"{key}-waits", "/fail/9", "--retry", "initial_seconds=300")
    shell.system.until(waiting, "waiting_retry")
    both = shell.run("find", key, "asked to answer")
    assert re.search(r"next attempt in .*; flaky answers 503: ", both)
    assert "RejectedByDependency: " in both
    assert "nothing found" in shell.run("find", key, "moonlight", code=1)
    document = shell.json("find", f"{key}-waits")
    assert [(one["type"], one["id"]) for one in document["items"]] == [("operation", waiting)]
    letters = shell.json("find", key, "--type", "dead_letter", "--status", "open")
    assert [one["id"] for one in letters["items"]] == [lost]
    assert shell.run("list", "--key", f"{key}-waits", "--source", "http", "--ids").split() == [waiting]
    assert shell.run("list", "--q", key, "--status", "waiting_retry", "--ids").split() == [waiting]
    assert shell.run("dead-letters", "list", "--q", key, "--ids").split() == [lost]


def test_circuits_are_listed_shown_and_switched(shell: Shell) -> None:
    acts = ("open", "disable", "reset", "close")
    for act in acts:
        shell.run("circuits", act, "flaky_unsafe", "--reason", f"trying {act}")

    def shown() -> bool:
        text = shell.run("circuits", "show", "flaky_unsafe")
        return all(f"trying {act}" in text for act in acts)

    eventually(shown, "every change is shown")
    assert "flaky_unsafe  closed" in shell.run("circuits", "list")
    listed = ("activity", "--kind", "action", "--dependency", "flaky_unsafe")
    eventually(lambda: "trying open" in shell.run(*listed), "it is listed")
    assert "flaky_unsafe" in shell.run("metrics", "--minutes", "15")
    assert "/from" in shell.run("metrics", "flaky_unsafe", "--minutes", "0", code=1)
    assert "/reason" in shell.run("circuits", "open", "flaky_unsafe", "--reason", " ", code=1)
    assert "404" in shell.run("circuits", "show", "nobody", code=1)


def test_a_dead_letter_is_found_noted_put_away_brought_back_and_replayed(shell: Shell, key: str) -> None:
    found = shell.dead_letter(key)
    assert found in shell.run("dead-letters", "list", "--reason", "RejectedByDependency", "--ids").split()
    shell.dead_letter(f"{key}-2")
    count = len(shell.json("dead-letters", "list", "--all")["items"])
    assert f"1 of {count}; --all lists every one" in shell.run("dead-letters", "list", "--limit", "1")
    assert "RejectedByDependency" in shell.run("dead-letters", "groups")
    assert "flaky" in shell.run("dead-letters", "summary")
    shell.run("dead-letters", "note", found, "call the vendor")
    assert "call the vendor" in shell.run("dead-letters", "show", found)
    assert "archived" in shell.run("dead-letters", "archive", found)
    assert "409" in shell.run("dead-letters", "replay", found, code=1)
    assert "open" in shell.run("dead-letters", "restore", found)
    edit = ["--request", '{"path": "/echo", "query": {}}', "--note", "fixed"]
    operation_id = shell.json("dead-letters", "replay", found, *edit)["operation_id"]
    shell.run("watch", operation_id)
    assert operation_id in shell.run("dead-letters", "show", found)


async def test_an_assistant_finds_a_dead_letter_and_replays_it(shell: Shell, key: str) -> None:
    letter = shell.dead_letter(key)
    command = ["-m", "retryctl", "mcp", "--allow-changes", "--url", shell.system.url]
    server = StdioServerParameters(command=sys.executable, args=command, cwd=ROOT)
    async with Client(server) as client:

        async def said(tool: str, **arguments: Any) -> str:
            result = await client.call_tool(tool, arguments)
            (content,) = result.content
            assert content.type == "text"
            text: str = content.text
            assert not result.is_error, text
            return text

        assert letter in await said("find", words=[key])
        group = shell.json("dead-letters", "show", letter)["group"]
        assert group in await said("cause", id=group)
        for tool in ("overview", "circuits", "causes"):
            assert "flaky" in await said(tool)
        assert "replay would act on 1" in await said("replay", ids=[letter], dry_run=True)
        started = await said("replay", ids=[letter], note="asked by a test")
        assert started.startswith("bulk-")
        assert "replay" in await said("bulk_action", id=started.split()[0])
    eventually(
        lambda: shell.json("dead-letters", "show", letter)["status"] == "replayed",
        "the dead letter is replayed",
    )


def test_a_cause_is_shown_taken_over_and_resolved(shell: Shell, key: str) -> None:
    group = shell.json("dead-letters", "show", shell.dead_letter(key))["group"]
    assert "acknowledged" in shell.run("dead-letters", "acknowledge", group, "--note", "looking")
    shell.run("dead-letters", "note", group, "told the vendor")
    text = shell.run("dead-letters", "cause", group)
    assert "told the vendor" in text
    assert group in shell.run("dead-letters", "groups", "--status", "acknowledged")
    assert "resolved" in shell.run("dead-letters", "resolve", group)


def test_a_replay_of_many_is_counted_drawn_shown_and_not_cancelled_twice(shell: Shell, key: str) -> None:
    for number in range(3):
        shell.dead_letter(f"{key}-{number}")
    group = shell.json("dead-letters", "list", "--limit", "1")["items"][0]["group"]
    assert shell.json("bulk", "start", "replay", "--group", group, "--dry-run")["matched"] >= 3
    shown = shell.run("bulk", "start", "replay", "--group", group, "--rate", "50", "--watch", terminal=True)
    assert "] 100%" in shown or "completed" in shown
    action_id = shown[shown.index("bulk-") :].split()[0]
    assert "completed" in shell.run("bulk", "show", action_id)
    assert action_id in shell.run("bulk", "list", "--ids").split()
    shell.run("bulk", "watch", action_id)
    assert "409" in shell.run("bulk", "cancel", action_id, code=1)


def test_one_change_is_previewed_and_replayed(shell: Shell, key: str) -> None:
    argv = ("--path", "/fail/1", "--query", "status=418", "--body", '{"amount": 5}', "--dependency", "flaky")
    operation_id = shell.json("submit", *argv, "--key", key)["operation_id"]
    group = shell.json("dead-letters", "show", shell.failed(operation_id))["group"]
    change = ("bulk", "start", "replay", "--group", group, "--set", "/request/json/amount=6")
    assert "/request/json/amount: 5 to 6" in shell.run(*change, "--dry-run")
    text = shell.run(*change[:5], "--set", "/request/json/amuont=6", "--dry-run")
    assert "refused /request/json/amuont: is not there" in text
    shell.run(*change, "--downstream-key", "same", "--watch")
    assert shell.system.until(operation_id, "succeeded")["request"]["json"] == {"amount": 6}


def test_a_bulk_action_that_is_cancelled_ends_badly(shell: Shell, key: str) -> None:
    for number in range(2):
        shell.dead_letter(f"{key}-{number}")
    filters = ["--dependency", "flaky", "--reason", "RejectedByDependency"]
    action_id = shell.json("bulk", "start", "replay", *filters, "--rate", "0.01")["action_id"]
    shell.run("bulk", "cancel", action_id)
    assert "cancelled" in shell.run("bulk", "watch", action_id, code=1)


def test_events_are_listed_and_sent_once_more(shell: Shell, key: str, tmp_path: Path) -> None:
    request = {"method": "POST", "path": "/echo"}
    event = {"type": "charged", "queue": "charge-events", "data": 1}
    body = {"dependency": "flaky", "request": request, "key": key, "on_success": [event]}
    (tmp_path / "body.json").write_text(json.dumps(body))
    shown = shell.json("submit", str(tmp_path / "body.json"), "--wait", "10")
    event_id = shown["events"][0]["event_id"]

    def is_sent() -> bool:
        return event_id in shell.run("outbox", "list", "--status", "sent", "--ids").split()

    eventually(is_sent, "the event is sent")
    assert "charge-events" in shell.run("outbox", "show", event_id)
    assert event_id in shell.run("outbox", "resend", event_id)
    eventually(is_sent, "it is sent again")


def test_alerts_are_shown_and_tried(shell: Shell) -> None:
    assert "nobody gets messages" in shell.run("alerts", "test")
    eventually(lambda: "sent a test of the alerts" in shell.run("activity"), "the activity says who tried")
    assert "nobody gets messages" in shell.run("alerts", "show")


def test_a_batch_with_a_bad_item_ends_badly_and_shows_which(shell: Shell, tmp_path: Path) -> None:
    item = {"dependency": "flaky", "request": {"method": "POST", "path": "/echo"}}
    (tmp_path / "items.json").write_text(json.dumps([item, {}]))
    shown = shell.run("batch", "submit", str(tmp_path / "items.json"), "--watch", code=1, terminal=True)
    batch_id = shown[shown.index("batch-") :].split()[0]
    text = shell.run("batch", "show", batch_id, "--status", "dead_lettered")
    assert "ValidationFailed" in text
    assert "failed, since 1 dead letter of 2 items; none is tolerated" in text
    document = shell.json("batch", "show", batch_id, "--status", "succeeded")
    assert ([each["index"] for each in document["items"]], document["counts"]["total"]) == ([0], 2)
    shell.run("batch", "watch", batch_id, code=1)
    (line,) = (line for line in shell.run("batch", "list").splitlines() if line.startswith(batch_id))
    assert re.search(r"  failed  .+  1 succeeded, 1 dead_lettered  ", line)
    argv = ["batch", "submit", str(tmp_path / "items.json"), "--tolerated-failures", "1", "--key", "b"]
    shell.run(*argv, "--watch")
    assert shell.json(*argv)["batch_id"] != batch_id


def test_a_saga_that_is_undone_ends_badly_and_shows_what_stands(shell: Shell, tmp_path: Path) -> None:
    def call(path: str, **query: str) -> dict[str, Any]:
        return {"dependency": "flaky", "request": {"method": "POST", "path": path, "query": query}}

    steps = [
        {"name": "reserve", "operation": call("/echo"), "compensation": call("/echo")},
        {"name": "charge", "operation": call("/fail/1", status="400")},
    ]
    (tmp_path / "steps.json").write_text(json.dumps({"steps": steps}))
    shown = shell.run("saga", "submit", str(tmp_path / "steps.json"), "--watch", code=1, terminal=True)
    saga_id = shown[shown.index("saga-") :].split()[0]
    assert "undone" in shell.run("saga", "show", saga_id)
    shell.run("saga", "watch", saga_id, code=1)
    assert f"{saga_id}  compensated" in shell.run("saga", "list")


def test_many_are_acted_on(shell: Shell, key: str) -> None:
    found = [shell.dead_letter(f"{key}-{number}") for number in range(2)]
    assert "give filters, or ids, or --batch, or --all" in shell.run("bulk", "start", "archive", code=2)
    assert "would act on 2" in shell.run("bulk", "start", "archive", *found, "--dry-run")
    shown = shell.run("bulk", "start", "archive", *found, "--note", "a test", "--rate", "50", "--watch")
    assert "archive completed: 2 matched, 2 started" in shown
    (action_id, *_) = shell.run("bulk", "list", "--ids").split()
    assert "completed" in shell.run("bulk", "show", action_id)
    shell.run("bulk", "watch", action_id)
    assert "409" in shell.run("bulk", "cancel", action_id, code=1)


def test_dependencies_policies_and_health_are_shown(shell: Shell) -> None:
    assert "flaky_unsafe" in shell.run("dependencies")
    preview = shell.run("policy", "preview", "--dependency", "flaky", "--deadline-seconds", "1")
    assert "does NOT fit" in preview
    assert "+----" in preview
    assert len(shell.json("policy", "preview", "--retry", "max_attempts=3")["waits"]) == 2
    assert "/retry/factor" in shell.run("policy", "preview", "--retry", "factor=0", code=1)
    assert "works" in shell.run("health")


def test_top_shows_what_ails_and_what_waits(shell: Shell, key: str) -> None:
    waiting = shell.submitted(key, "/fail/9", "--retry", "initial_seconds=300")
    shell.system.until(waiting, "waiting_retry")
    eventually(lambda: bool(re.search(r"waiting_retry +flaky", shell.run("top"))), "the wait is counted")
    assert "flaky_unsafe" in shell.run("top")
    assert shell.json("top")["unavailable"] == {}
    assert "did you mean flaky_unsafe?" in shell.run("circuits", "show", "flaky_unsaf", code=1)


CHANGED = """
import azure.durable_functions as df
app = df.DFApp()


@app.orchestration_trigger(context_name="context")
def operation(context, _input):
    yield context.call_activity("something_else")
"""


def test_what_is_under_way_is_replayed_against_the_code_and_against_a_change(
    shell: Shell, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation_id = shell.submitted(key, "/fail/9", "--retry", "initial_seconds=30")
    shell.system.until(operation_id, "waiting_retry")
    saved = tmp_path / "saved"
    assert " fit (" in shell.run("check-replay", "--app", str(ROOT), "--save", str(saved))
    assert (saved / f"{operation_id}.json").is_file()
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "function_app.py").write_text(CHANGED)
    document = shell.json("check-replay", "--app", str(tmp_path), "--histories", str(saved), code=1)
    (found,) = (each for each in document["differences"] if each["instance_id"] == operation_id)
    assert (found["event"], found["history"]) == (3, "activity attempt")
    assert found["code"] == "activity something_else"
    shell.run("cancel", operation_id)


def test_every_command_stands_in_the_document() -> None:
    text = DOCUMENT.read_text()
    ran = {" ".join(words.split()[:2]) for words in re.findall(r"retryctl ([a-z-]+(?: [a-z-]+)?)", text)}
    groups = (
        "circuits list",
        "dead-letters replay",
        "bulk start",
        "batch submit",
        "saga submit",
        "outbox list",
    )
    assert {*groups, "policy preview"} <= ran
    assert {"submit", "get", "list", "retry-now", "cancel", "dependencies", "health"} <= {
        words.split()[0] for words in ran
    }


def test_a_closed_pipe_and_an_absent_app_leave_no_stack_trace(shell: Shell) -> None:
    python = f"{sys.executable} -m retryctl"
    absent = f"{python} list --url http://127.0.0.1:1; test $? = 3 || exit 1"
    script = f"{absent}; {python} dependencies --url {shell.system.url} | true"
    ran = subprocess.run(  # a script of our own
        ["bash", "-c", script],  # noqa: S607 # bash as it is found
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "does not answer" in ran.stderr
    assert "Traceback" not in ran.stderr

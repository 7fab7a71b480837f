"""Against answers that are made up here; `tests/e2e/test_retryctl.py` runs every command against the app."""

import json
import subprocess
import sys
from typing import Any, Final

import httpx
import pytest

from retryctl import __version__
from retryctl.api import Api
from retryctl.cli import main
from tests.support.retryctl import DEAD, STATUS, Responder, Run, Terminal, answers, refuses


def test_url_and_function_key_come_from_the_environment() -> None:
    run = Run(
        answers(STATUS), "get", "op-1", DURABLE_RETRY_URL="https://app.test/", DURABLE_RETRY_KEY="secret"
    )
    assert str(run.requests[0].url) == "https://app.test/api/operations/op-1"
    assert run.requests[0].headers["x-functions-key"] == "secret"


@pytest.mark.parametrize(("scheme", "proxies"), [("http", 0), ("https", 1)])
def test_no_proxy_reads_the_function_key(scheme: str, proxies: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://proxy.test:3128")
    client = Api(f"{scheme}://a.test", "secret")._client._http
    is_direct = client._transport_for_url(httpx.URL(f"{scheme}://a.test")) is client._transport
    assert is_direct is (proxies == 0)


def test_a_url_with_a_path_is_that_of_the_api() -> None:
    run = Run(answers(STATUS), "get", "op-1", DURABLE_RETRY_URL="https://app.test/api/retries/")
    assert str(run.requests[0].url) == "https://app.test/api/retries/operations/op-1"


@pytest.mark.parametrize(
    "argv",
    [
        ["--url", "http://a.test", "--function-key", "k", "health"],
        ["health", "--url", "http://a.test", "--function-key=k"],
    ],
)
def test_flags_win_over_the_environment_on_either_side_of_the_command(argv: list[str]) -> None:
    run = Run(answers({"status": "healthy", "parts": {}}), *argv, DURABLE_RETRY_URL="http://b.test")
    assert run.requests[0].url.host == "a.test"
    assert run.requests[0].headers["x-functions-key"] == "k"


def test_an_id_cannot_lead_to_another_route() -> None:
    run = Run(answers(STATUS), "get", "../circuits?x#y")
    assert run.requests[0].url.raw_path == b"/api/operations/..%2Fcircuits%3Fx%23y"


def test_an_id_that_no_encoding_keeps_in_its_place_is_refused() -> None:
    run = Run(answers(STATUS), "cancel", "..")
    assert (run.code, run.err) == (2, "retryctl: 'operations/../cancel' leads to another path\n")
    assert run.requests == []


CHANGES: Final = (
    "cancel op-1",
    "circuits open payments --reason why",
    "dead-letters replay dl-1",
    "dead-letters note g-1 why",
    "bulk resume bulk-1",
    "outbox resend op-1-1 --json",
    "hold --reason why",
)


@pytest.mark.parametrize("command", ["get op-1", "list", "circuits list", "dead-letters groups", *CHANGES])
@pytest.mark.parametrize("document", [{}, {"items": [None], "next_cursor": None}])
def test_a_document_of_something_else_is_no_stack_trace(command: str, document: Any) -> None:
    run = Run(answers(document), *command.split())
    assert run.code == 1
    assert run.err.startswith("retryctl: http://localhost:7071 answers with something else (")
    assert run.err.endswith("): this is not an answer of Durable Retry; is the URL right?\n")


def test_every_invalid_field_is_shown_with_its_pointer() -> None:
    errors = [
        {"pointer": "/retry/max_attempts", "detail": "must be\x1b[31m red"},
        {"pointer": "", "detail": "no"},
    ]
    problem = {"title": "Bad Request", "status": 400, "detail": "2 mistakes", "errors": errors}
    run = Run(answers(problem, 400), "submit", "--dependency", "payments", "--key", "k")
    assert run.code == 1
    assert run.err == (
        "retryctl: 400 Bad Request: 2 mistakes\n  /retry/max_attempts: must be [31m red\n  (document): no\n"
    )


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        (refuses, 3, "http://localhost:7071 does not answer"),
        (refuses, 3, "Set --url or DURABLE_RETRY_URL"),
        (answers({"detail": "the task hub is away"}, 503), 3, "the task hub is away"),
        (lambda _: httpx.Response(401), 1, "set --function-key or DURABLE_RETRY_KEY"),
        (lambda _: httpx.Response(502, text="<html>"), 1, "is the URL right?"),
        (lambda _: httpx.Response(200, text="<html>"), 1, "is the URL right?"),
    ],
)
def test_an_error_has_its_exit_code_and_advice(answer: Responder, code: int, message: str) -> None:
    run = Run(answer, "get", "op-1")
    assert (run.code, run.out) == (code, "")
    assert message in run.err
    assert "Traceback" not in run.err


@pytest.mark.parametrize(
    "argv",
    [
        ["submit"],
        ["submit", "--dependency", "a", "--handler", "b"],
        ["submit", "no-such-file.json"],
        ["submit", "no-such-file.json", "--handler", "b"],
        ["policy", "preview"],
        ["list", "--url", "ftp://app.test"],
    ],
)
def test_a_wrong_command_has_another_exit_code_than_a_refusal(argv: list[str]) -> None:
    def fails(request: httpx.Request) -> httpx.Response:
        raise AssertionError(request)

    run = Run(fails, *argv)
    assert run.code == 2
    assert run.err.startswith("retryctl: ")


@pytest.mark.parametrize(
    ("argv", "mistake"),
    [
        ([], "COMMAND"),
        (["nonsense"], "choose from"),
        (["circuits", "open", "payments"], "--reason"),
        (["get"], "id"),
        (["submit", "--body", "{"], "argument --body: is not JSON: Expecting property name"),
        (["submit", "--body", "[" * 100_000], "argument --body: is not JSON: maximum recursion depth"),
        (["submit", "--retry", "max_attempts"], "argument --retry: must look like NAME=VALUE"),
        (["submit", "--header", "a=b"], "argument --header: must look like NAME:VALUE"),
        (["submit", "--delay-seconds", "soon"], "argument --delay-seconds: invalid float value: 'soon'"),
        (["submit", "--start-at", "x", "--delay-seconds", "1"], "not allowed with argument --start-at"),
        (["bulk", "start", "replay", "--patch", "{}"], "argument --patch: must be a list of steps"),
        (["saga", "restart", "s-1", "--confirm", "a=gone"], "must be STEP=undone or STEP=stands"),
    ],
)
def test_argparse_refuses_what_is_no_command(
    argv: list[str], mistake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        main(argv)
    assert error.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("usage:")
    assert mistake in said


def test_a_dead_letter_is_shown_with_who_did_what_to_it() -> None:
    letter = {
        "id": "dl-1",
        "status": "replayed",
        "operation_id": "op-1",
        "key": "order-7",
        "source": "http",
        "dependency": "payments",
        "category": "malformed",
        "reason": "RejectedByDependency",
        "detail": "x" * 100,
        "attempts": [],
        "request": {"method": "POST", "path": "/charges"},
        "replays": [
            {
                "operation_id": "op-2",
                "requested_at": "2026-11-21T09:00:00Z",
                "by": "ada",
                "note": "the amount was wrong",
                "dead_letter_id": "dl-2",
                "action_id": None,
                "changes": [{"pointer": "/request/json/amount", "before": 5, "after": 6}, {"pointer": "/x"}],
            }
        ],
        "notes": [{"text": "asked them", "at": "2026-11-21T09:05:00Z", "by": None}],
    }
    run = Run(answers(letter), "dead-letters", "show", "dl-1")
    lines = run.out.splitlines()
    assert f"detail {'x' * 100}" in lines
    replayed = lines.index("replayed 2026-11-21T09:00:00Z by ada as op-2, which became dl-2")
    assert lines[replayed + 1 :] == [
        "  note  the amount was wrong",
        "  changed /request/json/amount: 5 to 6",
        "  changed /x: nothing to nothing",
        "note 2026-11-21T09:05:00Z  asked them",
    ]


@pytest.mark.parametrize(
    ("argv", "route", "item", "shown"),
    [
        (
            ["batch", "list"],
            "batches",
            {
                "batch_id": "batch-1",
                "key": "order-7",
                "status": "running",
                "counts": {"total": 3, "succeeded": 2, "running": 1},
                "created_at": "2026-11-21T09:00:00Z",
                "finished_at": None,
            },
            "batch-1  running  order-7  2 succeeded, 1 running  2026-11-21T09:00:00Z  -",
        ),
        (
            ["saga", "list"],
            "sagas",
            {
                "saga_id": "saga-1",
                "status": "running",
                "steps": [
                    {"name": "reserve", "status": "succeeded", "effect": None},
                    {"name": "charge", "status": "pending", "effect": None},
                ],
                "created_at": "2026-11-21T09:00:00Z",
            },
            "saga-1  running  -    reserve succeeded, charge pending  2026-11-21T09:00:00Z",
        ),
        (
            ["bulk", "list"],
            "bulk-actions",
            {
                "action_id": "bulk-1",
                "action": "replay",
                "status": "completed",
                "matched": 3,
                "succeeded": 1,
                "failed_again": 1,
                "under_way": 0,
                "refused": 1,
                "remaining": 0,
                "created_at": "2026-11-21T09:00:00Z",
                "by": "ada",
                "note": None,
            },
            (
                "bulk-1  replay  completed  3        1          1             0          1        0          "
                "2026-11-21T09:00:00Z  ada  -"
            ),
        ),
        (
            ["bulk", "items", "bulk-1"],
            "bulk-actions/bulk-1/items",
            {
                "id": "dl-1",
                "key": "order-1",
                "outcome": "done",
                "detail": None,
                "operation_id": "op-1",
                "event_id": None,
                "at": "2026-11-21T09:00:00Z",
                "status": "dead_lettered",
                "failed_again": "dl-2",
            },
            "dl-1  order-1  done     op-1       dead_lettered  dl-2             2026-11-21T09:00:00Z  -",
        ),
        (
            ["bulk", "items", "bulk-1"],
            "bulk-actions/bulk-1/items",
            {
                "id": "op-1",
                "key": "order-2",
                "outcome": "skipped",
                "detail": "it ended",
                "operation_id": "op-1",
                "event_id": None,
                "at": "2026-11-21T09:00:00Z",
                "status": "succeeded",
                "failed_again": None,
            },
            "op-1  order-2  skipped  op-1       succeeded  -                2026-11-21T09:00:00Z  it ended",
        ),
    ],
)
def test_batches_sagas_and_bulk_actions_are_listed(
    argv: list[str], route: str, item: dict[str, Any], shown: str
) -> None:
    answer = answers({"items": [item], "next_cursor": None})
    run = Run(answer, *argv)
    assert run.requests[0].url.path == f"/api/{route}"
    assert run.out.splitlines()[1] == shown
    assert Run(answer, *argv, "--ids").out.split() == [shown.split(maxsplit=1)[0]]


def test_a_replay_sends_the_edits_that_are_given_and_nothing_else() -> None:
    answer = answers({"operation_id": "op-1"}, 202)
    edited = ["--input", "null", "--message", "{", "--downstream-key", "same", "--note", "n"]
    run = Run(answer, "dead-letters", "replay", "dl-1", *edited)
    sent = {"input": None, "message": "{", "downstream_key": "same", "note": "n"}
    assert json.loads(run.requests[0].content) == sent
    assert json.loads(Run(answer, "dead-letters", "replay", "dl-1").requests[0].content) == {}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_of_a_shell_has_commands_and_options(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(
        word in script for word in ("dead-letters", "retry-now", "tolerated-failures", "waiting_retry")
    )


def test_bash_completes_by_the_script() -> None:
    ask = "COMP_WORDS=(retryctl outbox list --status ''); COMP_CWORD=4; _shtab_retryctl; echo ${COMPREPLY[@]}"
    script = f"source <({sys.executable} -m retryctl completion bash); {ask}"
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=300, check=True)  # noqa: S607 # bash as it is found
    assert ran.stdout.split() == ["pending", "sent", "failed"]


def test_the_start_imports_no_http_client() -> None:
    """It takes longer than everything else, and neither help nor a mistake needs it."""
    code = "import sys, retryctl.cli; sys.exit(not sys.modules.keys().isdisjoint({'httpx', 'shtab'}))"
    subprocess.run([sys.executable, "-c", code], timeout=300, check=True)


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"retryctl {__version__}\n")


def test_a_list_is_gathered_from_its_pages_up_to_the_limit() -> None:
    def page(request: httpx.Request) -> httpx.Response:
        first, size = int(request.url.params.get("cursor", "0")), int(request.url.params["limit"])
        items = [STATUS | {"operation_id": f"op-{number}"} for number in range(first, first + size)]
        return httpx.Response(200, json={"items": items, "next_cursor": str(first + size)})

    run = Run(page, "list", "--limit", "450", "--ids")
    assert [request.url.params["limit"] for request in run.requests] == ["200", "200", "50"]
    assert run.out.splitlines() == [f"op-{number}" for number in range(450)]


def test_all_goes_on_to_the_last_page() -> None:
    def page(request: httpx.Request) -> httpx.Response:
        following = {None: "a", "a": "b", "b": None}[request.url.params.get("cursor")]
        return httpx.Response(200, json={"items": [STATUS], "next_cursor": following})

    document = json.loads(Run(page, "list", "--all", "--json").out)
    assert (len(document["items"]), document["next_cursor"]) == (3, None)


@pytest.mark.parametrize(
    ("argv", "guess"),
    [
        (["dead-leters", "list"], "did you mean dead-letters?"),
        (["dead-letters", "lst"], "did you mean list?"),
        (["list", "--status", "waiting_retri"], "did you mean waiting_retry?"),
        (["zzz"], "choose from"),
    ],
)
def test_a_wrong_word_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str], argv: list[str], guess: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert guess in capsys.readouterr().err


@pytest.mark.parametrize(("environ", "colours"), [({}, 1), ({"NO_COLOR": "1"}, 0), ({"TERM": "dumb"}, 0)])
def test_a_terminal_has_colours_unless_they_are_switched_off(environ: dict[str, str], colours: int) -> None:
    shown = Run(answers(DEAD), "get", "op-1", out=Terminal(), **environ).out
    assert shown.count("\x1b[31mdead_lettered\x1b[0m") == colours
    assert "\x1b" not in Run(answers(DEAD), "get", "op-1").out


def with_dependencies(answer: Responder) -> Responder:
    """Answers of an app with two dependencies."""

    def respond(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/dependencies"):
            return httpx.Response(200, json={"items": [{"name": "payments"}, {"name": "warehouse"}]})
        return answer(request)

    return respond


@pytest.mark.parametrize(
    ("argv", "answer", "code"),
    [
        (["circuits", "show"], answers({"title": "Not Found", "status": 404, "detail": ""}, 404), 1),
        (["list", "--dependency"], answers({"items": [], "next_cursor": None}), 0),
        (["list", "--ids", "--dependency"], answers({"items": [], "next_cursor": None}), 0),
        (["find", "--dependency"], answers({"items": [], "next_cursor": None}), 1),
        (
            ["bulk", "start", "replay", "--dry-run", "--dependency"],
            answers({"matched": 0, "complete": True}),
            0,
        ),
    ],
)
def test_a_wrong_dependency_is_answered_with_the_nearest(
    argv: list[str], answer: Responder, code: int
) -> None:
    wrong = Run(with_dependencies(answer), *argv, "paymens")
    assert wrong.code == code
    assert "no dependency has the name paymens; did you mean payments?" in wrong.err
    assert "there are payments, warehouse" in Run(with_dependencies(answer), *argv, "zzz").err
    assert "no dependency" not in Run(with_dependencies(answer), *argv, "payments").err


def test_another_refusal_asks_for_no_names() -> None:
    conflict = answers({"title": "Conflict", "status": 409, "detail": ""}, 409)
    run = Run(conflict, "circuits", "open", "payments", "--reason", "r")
    assert (run.code, len(run.requests)) == (1, 1)


def test_a_document_that_nests_without_end_is_no_health_document() -> None:
    run = Run(lambda _: httpx.Response(200, content=b'{"a":' * 100_000 + b"1" + b"}" * 100_000), "health")
    assert run.code == 3
    assert "has no health document" in run.err


def test_ids_cannot_steer_the_terminal_and_reach_a_pipe_as_they_are() -> None:
    lanes = answers({"items": [{"order_key": "a\x1b[31m"}], "next_cursor": None})
    assert Run(lanes, "lanes", "list", "--ids", out=Terminal()).out == "a [31m\n"
    assert Run(lanes, "lanes", "list", "--ids").out == "a\x1b[31m\n"


def test_ctrl_c_shows_no_stack_trace_while_the_command_is_imported() -> None:
    code = (
        "import signal, sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'retryctl.cli': signal.raise_signal(signal.SIGINT)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "from retryctl.__main__ import main\n"
        "sys.exit(main())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300, check=False)
    assert (ran.returncode, ran.stderr) == (130, b"")


@pytest.mark.parametrize(
    ("arguments", "type_"),
    [
        (("list", "--limit"), "int"),
        (("circuits", "open", "payments", "--reason", "r", "--for-seconds"), "float"),
    ],
)
@pytest.mark.parametrize("text", ["٣", "1_0", " 1", "nan", "inf", "1e3"])
def test_a_number_is_written_in_plain_digits(
    arguments: tuple[str, ...], type_: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*arguments, text])
    assert f"invalid {type_} value: {text!r}" in capsys.readouterr().err


def test_shares_are_written_in_plain_digits(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["thaw", "--waves", "0.1,nan"])
    assert "must be shares, such as 0.01,0.1,1" in capsys.readouterr().err

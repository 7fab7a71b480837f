"""`retryctl mcp` as a process, asked by the SDK's own client, against an API that is made up here."""

import json
import os
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from retryctl.mcp import ASKING, CHANGING, MOST_CHARACTERS, Tool
from retryctl.options import options_of
from tests.support.retryctl import STATUS, Run, refuses

type Asked = tuple[str, str, Any]
"""Method, path with its query, and the body of a request."""

LETTER = {"type": "dead_letter", "id": "dl-1", "name": None, "status": "open", "key": "k" * 300}
LETTER |= {"error": "status 422", "why": None, "attempt_count": None, "next_attempt_at": None}
ANSWERS: dict[str, tuple[int, Any]] = {
    "/api/operations/op-1": (200, STATUS),
    "/api/operations/op-2": (404, {"title": "Not Found", "status": 404, "detail": "no operation op-2"}),
    "/api/operations/op-3": (200, STATUS | {"status": "succeeded", "result": {"value": "x" * 99_000}}),
    "/api/operations/op-1/retry-now": (202, {"operation_id": "op-1"}),
    "/api/search": (200, {"items": [LETTER, LETTER], "next_cursor": "more"}),
    "/api/bulk-actions": (200, {"action_id": "bulk-1", "matched": 3, "complete": True}),
}


class Fake:
    """The API, and what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self.asked))
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def assistant(self, *argv: str) -> Client:
        """Start `retryctl mcp` when it is entered."""
        command = ["-m", "retryctl", "mcp", *argv, "--url", self.url]
        env = {"PYTHONPATH": os.pathsep.join(sys.path)}
        return Client(StdioServerParameters(command=sys.executable, args=command, env=env))


async def said(client: Client, tool: str, **arguments: Any) -> tuple[str, bool]:
    """A tool's text, and whether it is an error."""
    result = await client.call_tool(tool, arguments)
    (content,) = result.content
    assert content.type == "text"
    return content.text, result.is_error


def _handler(asked: list[Asked]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("content-length", "0"))
            body = json.loads(self.rfile.read(length) or "null")
            asked.append((self.command, self.path, body))
            status, document = ANSWERS[self.path.partition("?")[0]]
            answer = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_GET  # noqa: N815 - the base class's name

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    return Handler


@pytest.fixture
def api() -> Iterator[Fake]:
    fake = Fake()
    thread = Thread(target=fake.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield fake
    fake.server.shutdown()
    thread.join()
    fake.server.server_close()


async def test_it_lists_what_only_reads_and_what_changes_where_that_is_allowed(api: Fake) -> None:
    async with api.assistant() as client:
        assert "never as instructions" in (client.instructions or "")
        asking = {tool.name: tool for tool in (await client.list_tools()).tools}
        refused = await said(client, "retry_now", id="op-1")
    async with api.assistant("--allow-changes") as client:
        every = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert asking.keys() == {tool.name for tool in ASKING}
    assert every.keys() - asking.keys() == {"replay", "retry_now", "pause"}
    reads = {name for name, tool in every.items() if tool.annotations and tool.annotations.read_only_hint}
    assert reads == asking.keys()
    limit = every["find"].input_schema["properties"]["limit"]
    assert (limit["type"], limit["maximum"]) == ("integer", 50)
    assert every["operation"].input_schema["required"] == ["id"]
    assert (refused[0].startswith("there is no tool retry_now"), refused[1]) == (True, True)
    assert api.asked == []


async def test_a_tool_says_what_the_command_says_and_a_refusal_in_words(api: Fake) -> None:
    async with api.assistant() as client:
        shown = await said(client, "operation", id="op-1")
        look = "A key or another id? Look everywhere: retryctl find op-2"
        refusal = f"404 Not Found: no operation op-2\n{look}"
        assert await said(client, "operation", id="op-2") == (refusal, True)
        unknown = await said(client, "find", words="order", url="http://elsewhere.test")
        assert not (await said(client, "find", words=["order", "42"], limit=2))[1]
    assert "payments answers 503, since 09:00 UTC, exponential 2 s" in shown[0]
    assert not shown[1]
    assert unknown[1]
    assert "words: 'order' is not of type 'array'" in unknown[0]
    assert "'url' was unexpected" in unknown[0]
    assert api.asked[-1][1] == "/api/search?q=order+42&limit=2"


async def test_answers_are_a_page_of_cut_cells_and_a_bounded_text(api: Fake) -> None:
    async with api.assistant() as client:
        found, _ = await said(client, "find", type="dead_letter", limit=2)
        huge, _ = await said(client, "operation", id="op-3")
        too_many = await said(client, "find", limit=51)
    assert max(map(len, found.splitlines())) <= 200
    assert "there may be more" in found
    assert len(huge) < MOST_CHARACTERS + 50
    assert huge.endswith("more characters)")
    assert too_many == ("limit: 51 is greater than the maximum of 50", True)
    assert len(api.asked) == 2


async def test_a_replay_is_refused_before_a_dry_run_of_the_same_and_after_it_ran(api: Fake) -> None:
    async with api.assistant("--allow-changes") as client:
        first = await said(client, "replay", group="g-1")
        assert await said(client, "replay", group="g-1", dry_run=True) == ("replay would act on 3\n", False)
        other = await said(client, "replay", group="g-2", dry_run=False)
        replayed = await said(client, "replay", group="g-1", note="mended")
        again = await said(client, "replay", group="g-1", note="mended")
        assert await said(client, "retry_now", id="op-1") == ("op-1  retry-now requested\n", False)
    assert first == other == again
    assert (first[0].startswith("first call it with dry_run"), first[1]) == (True, True)
    assert replayed == ("bulk-1  replay of 3\n", False)
    sent = {"filter": {"group": "g-1"}, "action": "replay"}
    assert [body for _, path, body in api.asked if path == "/api/bulk-actions"] == [
        sent | {"dry_run": True},
        sent | {"dry_run": False, "note": "mended"},
    ]


async def test_an_api_that_does_not_answer_is_an_error_of_the_tool(api: Fake) -> None:
    api.url = "http://127.0.0.1:1"
    async with api.assistant() as client:
        text, is_error = await said(client, "circuits")
    assert is_error
    assert "does not answer" in text


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.stdio", None)
    run = Run(refuses, "mcp")
    assert (run.code, run.err) == (2, "retryctl: needs the package mcp: install retryctl[mcp]\n")


@pytest.mark.parametrize("tool", [*ASKING, *CHANGING], ids=lambda tool: tool.name)
def test_a_tool_takes_options_of_its_command(tool: Tool) -> None:
    def taken(names: str) -> set[str]:
        return {
            option.dest
            for each in options_of(names)
            for option in (each if isinstance(each, tuple) else (each,))
        }

    assert taken(tool.takes) | tool.fixed.keys() <= taken(tool.command.takes)

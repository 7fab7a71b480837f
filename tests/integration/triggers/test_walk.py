"""How far a reader walks through the code along one request, with default settings and the circuit on.

`docs/architecture.md` publishes what is measured here: a longer way fails.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from operator import le
from typing import Any, Final

import pytest

from activities.operation import attempt
from durable_retry.attempt import http_client
from durable_retry.attempt.http_pool import PooledTransport
from durable_retry.dead_letters.records import keep_operation
from durable_retry.hub.task_hub import close_clients
from durable_retry.intake.intake import http_admission
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.runtime import clock
from durable_retry.settings.configuration import using
from scripts.processes import ROOT
from tests.integration.triggers.conftest import App
from tests.support.builders import an_entry, failing
from tests.support.hub import task_hub_stage
from tests.support.narrowing import existing
from tests.support.stage import Stage
from tests.support.walk import WORDS, Walk, walking

pytestmark = pytest.mark.usefixtures("own_tables")

BODY: Final = {"dependency": "payments", "request": {"method": "POST", "path": "/charges", "json": {"n": 5}}}
ROW: Final = re.compile(r"^\| (from [^|]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)


class ScheduledError(Exception):
    """The orchestration has called the activity."""


@asynccontextmanager
async def dependency(calls: list[Walk]) -> AsyncIterator[int]:
    """A dependency that answers 200; a call that reaches it ends the latest walk."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"(?i)content-length: (\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                calls[-1].is_over = True
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok")
                await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
async def app(functions: dict[str, Any]) -> AsyncIterator[App]:
    with task_hub_stage() as stage:
        stage.answer = failing(99)  # What has succeeded is not replayed.
        yield App(functions, hub=stage.binding)
        await close_clients()


async def posted(app: App, key: str, walk: Walk) -> OperationInput:
    """Post an operation, and return what was started."""
    app.bodies = {"submit_operation": BODY | {"key": key}}
    with walking(walk):
        answer = await app.document("submit_operation")
    instance = existing(await app.hub.read_instance(answer["operation_id"]))
    return OperationInput.from_json(instance.input["operation"])


def called_activity(operation: OperationInput, walk: Walk) -> dict[str, Any]:
    """Play the orchestration until it calls its first activity, and return the call."""
    called: list[dict[str, Any]] = []

    def schedule(_name: str, call: dict[str, Any]) -> Any:
        called.append(call)
        raise ScheduledError

    with walking(walk), suppress(ScheduledError):
        Stage(operation, schedule).run()
    return called[0]


async def replayed(app: App, operation: OperationInput, walk: Walk) -> None:
    entry = an_entry(operation.operation_id) | {"operation": operation.to_json()}
    app.parameters = {"dead_letter_id": await keep_operation(entry, clock.now())}
    app.bodies = {"replay_one_dead_letter": {}}
    with walking(walk):
        await app.document("replay_one_dead_letter")


def published() -> Mapping[str, tuple[int, ...]]:
    """Return what the document says of each way: returns, files, files whose code runs, returns of rooms."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = ROW.findall(text)
    return {way: (int(returns), int(files), int(ran), int(rooms)) for way, files, returns, ran, rooms in rows}


async def walked(app: App, key: str, calls: list[Walk]) -> dict[str, Walk]:
    """Post an operation, play its first attempt and replay it; return the ways by their published names."""
    answer, replay = Walk(), Walk(last_function="start_operation")
    http_admission().monitor.probes.clear()  # One of the first would be looked at once a second.
    operation = await posted(app, key, answer)
    calls.append(Walk())
    scheduled = called_activity(operation, calls[-1])
    with walking(calls[-1]):
        await attempt(scheduled, app.hub)
    assert calls[-1].is_over
    await replayed(app, operation, replay)
    return {
        "from `POST` to the answer": answer,
        "from the start to the call": calls[-1],
        "from `POST` to a replay's start": replay,
    }


async def test_no_way_is_longer_than_what_is_published(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    # A connection that is opened anew makes a way longer, as where a busy machine takes seconds for a walk.
    monkeypatch.setitem(existing(PooledTransport.__init__.__kwdefaults__), "idle_seconds", 3_600.0)
    # Time stands still: on a busy machine what a process knows of a circuit would be too old, and read again.
    at, calls = clock.now(), [Walk()]
    async with dependency(calls) as port:
        config = parse_config(f'[dependencies.payments]\nbase_url = "http://127.0.0.1:{port}"', {})
        with clock.reading(lambda: at), using(config):
            # What a process does once, such as opening connections, is not on the way of each request.
            first = await posted(app, "first", Walk())
            await attempt(called_activity(first, Walk()), app.hub)
            await replayed(app, first, Walk())
            # A way is as long as the shortest walk.
            walks = [await walked(app, f"walked-{number}", calls) for number in range(3)]
            await http_client.close_clients()
    assert walks[0].keys() == published().keys()
    for name, most in published().items():
        way = min((walk[name] for walk in walks), key=lambda walk: len(walk.returns))
        measured = (len(way.returns), len(way.files), len(way.ran), len(way.room_returns))
        assert all(map(le, measured, most)), f"{name}: {measured}, published {most}: {way.returns}"


def test_what_a_reader_takes_by_its_name_is_there() -> None:
    assert all((ROOT / word).exists() for word in WORDS)

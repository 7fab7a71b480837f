"""From a message on the queue to a started operation: how many a second, and where the time goes.

`python -m bench.intake FOLDER TARGET_URL MESSAGES` measures the steps in a process of its own, since a
process can load the app once.
"""

import asyncio
import inspect
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
from azure.storage.queue import QueueClient

from bench.child import run_child
from bench.metered_app import served_app
from bench.numbers import Row, Table, milliseconds
from bench.systems import flaky_target, onebox
from durable_retry.engine.intake import Arrival
from durable_retry.services import intake as intake_service
from durable_retry.services import submit as submission
from durable_retry.services.intake import BackpressureMonitor, intake
from onebox.clock import SystemClock
from onebox.storage.azurite import Azurite
from onebox.storage.ports import free_ports
from scripts.processes import ROOT

MOST_MESSAGES = 1_000
"""Azurite takes a few milliseconds for each; more would only take longer."""
PAGE = 200
POLL_SECONDS = 0.2
FINISH_SECONDS = 120
WARM_UP = 20

STEPS: dict[str, tuple[Any, str]] = {
    "validate and name": (intake_service, "parse"),
    "resolve names and policy": (intake_service, "resolve"),
    "is something behind?": (BackpressureMonitor, "admit"),
    "look for the key's record": (submission, "read_record"),
    "start the orchestration": (submission, "start_operation"),
}


async def measure(folder: Path, operations: int) -> list[Table]:
    """Empties a full queue on onebox, then takes messages one after the other and times the steps.

    Args:
        folder: Where the systems keep their data and logs.
        operations: How many messages, at most 1,000 of them.
    """
    messages = min(operations, MOST_MESSAGES)
    async with flaky_target(folder) as target_url:
        per_second = await _queue_rate(folder, target_url, messages)
        seconds = await _in_own_process(folder / "steps", target_url, messages)
    return [_rate_table(per_second, messages), _step_table(seconds, messages)]


async def _queue_rate(folder: Path, target_url: str, messages: int) -> float:
    async with _filled_queue(folder / "storage", messages) as connection:
        env = {"FLAKY_TARGET_URL": target_url, "AzureWebJobsStorage": connection}
        async with onebox(folder, ROOT, **env) as client:
            starts = await _all_starts(client, messages)
    return (messages - 1) / (max(starts) - min(starts))


@asynccontextmanager
async def _filled_queue(folder: Path, messages: int) -> AsyncIterator[str]:
    ports = free_ports()
    azurite = Azurite(folder, ports)
    await azurite.start()
    try:
        await asyncio.to_thread(_fill, ports.connection_string, messages)
        yield ports.connection_string
    finally:
        await azurite.stop()


def _fill(connection: str, messages: int) -> None:
    with QueueClient.from_connection_string(connection, "operations") as queue:
        queue.create_queue()
        for number in range(messages):
            queue.send_message(json.dumps(_operation(f"rate-{number}")))


def _operation(key: str) -> dict[str, Any]:
    request = {"method": "POST", "path": "/echo", "json": {"amount": 5}}
    return {"dependency": "flaky", "key": key, "request": request}


async def _all_starts(client: httpx.AsyncClient, messages: int) -> list[float]:
    """Returns when each operation was started, in seconds since 1970, once all of them were."""
    async with asyncio.timeout(FINISH_SECONDS):
        while len(starts := await _starts(client)) < messages:  # noqa: ASYNC110 # asks over HTTP
            await asyncio.sleep(POLL_SECONDS)
    return starts


async def _starts(client: httpx.AsyncClient) -> list[float]:
    found: list[float] = []
    parameters = {"limit": str(PAGE)}
    while True:
        page = (await client.get("/api/operations", params=parameters)).raise_for_status().json()
        found += [datetime.fromisoformat(item["created_at"]).timestamp() for item in page["items"]]
        if page["next_cursor"] is None:
            return found
        parameters["cursor"] = page["next_cursor"]


async def _in_own_process(folder: Path, target_url: str, messages: int) -> dict[str, float]:
    arguments = ("-m", "bench.intake", folder, target_url, messages)
    seconds: dict[str, float] = await run_child(*arguments, log=folder.with_suffix(".log"))
    return seconds


async def take_and_time(folder: Path, target_url: str, messages: int) -> dict[str, float]:
    """Takes messages one after the other; returns the seconds of each step, and of all under `total`."""
    seconds = dict.fromkeys(STEPS, 0.0)
    async with served_app(folder, target_url, SystemClock()) as (hub, _):
        for number in range(WARM_UP):
            await intake().accept(hub, _arrival(f"warm-{number}"))
        with _timed(seconds):
            began = time.perf_counter()
            for number in range(messages):
                await intake().accept(hub, _arrival(f"step-{number}"))
            seconds["total"] = time.perf_counter() - began
    return seconds


def _arrival(key: str) -> Arrival:
    return Arrival(source="queue", body=json.dumps(_operation(key)).encode(), native_id=key)


@contextmanager
def _timed(seconds: dict[str, float]) -> Iterator[None]:
    """Lets each step add its time."""
    with ExitStack() as stack:
        for name, (owner, function) in STEPS.items():
            stack.enter_context(
                patch.object(owner, function, _timing(getattr(owner, function), name, seconds))
            )
        yield


def _timing(function: Callable[..., Any], name: str, seconds: dict[str, float]) -> Callable[..., Any]:
    def timed(*arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            seconds[name] += time.perf_counter() - began

    async def timed_coroutine(*arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return await function(*arguments, **options)
        finally:
            seconds[name] += time.perf_counter() - began

    return timed_coroutine if inspect.iscoroutinefunction(function) else timed


def _rate_table(per_second: float, messages: int) -> Table:
    rows = (Row("messages to started operations", "1/s", (f"{per_second:.0f}",)),)
    notes = (
        f"{messages} messages lie on the queue before the app starts; from the first start to the last.",
        "The operations themselves run meanwhile, in the same process.",
        "host.json as shipped: 16 at a time, more when 8 are left; Azurite on disk, one process of the app.",
    )
    return Table("From the queue to a started operation", ("Durable Retry, onebox",), rows, notes)


def _step_table(seconds: dict[str, float], messages: int) -> Table:
    total = seconds["total"]
    parts = {name: seconds[name] for name in STEPS}
    parts["the rest"] = total - sum(parts.values())
    rows = [
        Row(name, "ms", (milliseconds(part / messages), f"{part / total:.0%}"))
        for name, part in parts.items()
    ]
    rows.append(Row("all", "ms", (milliseconds(total / messages), "100%")))
    notes = (
        f"{messages} messages taken one after the other, each with a new key, onebox's hub over gRPC.",
        "The operations run in the same process meanwhile, so waiting for the hub includes its other work.",
    )
    return Table("Where the intake's time goes, per message", ("time", "share"), tuple(rows), notes)


def main() -> None:
    """Measures the steps as the command line says and prints them as JSON."""
    folder, target_url, messages = sys.argv[1:]
    print(json.dumps(asyncio.run(take_and_time(Path(folder), target_url, int(messages)))))


if __name__ == "__main__":
    main()

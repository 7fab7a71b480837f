"""The task hub by itself: rates beside the in-memory backend's, and what waiting costs.

Each side runs in a process of its own, which prints what it measured as JSON: `python -m bench.hub rates
onebox|memory FOLDER` and `python -m bench.hub waiting FOLDER`. Beside each rate stands the processor time
that a step took, which other work on the machine hardly changes. The first instance's time counts from the
start of the hub, imports left out.
"""

import asyncio
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent import futures
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
from azure.durable_functions.internal.serialization import DEFAULT_FUNCTIONS_DATA_CONVERTER
from durabletask import task
from durabletask.client import AsyncTaskHubGrpcClient, OrchestrationStatus
from durabletask.entities import DurableEntity, EntityInstanceId
from durabletask.internal.orchestrator_service_pb2_grpc import add_TaskHubSidecarServiceServicer_to_server
from durabletask.testing import InMemoryOrchestrationBackend
from durabletask.worker import TaskHubGrpcWorker

from bench.baseline import BACKEND_THREADS
from bench.child import run_child
from bench.memory import MEBI, resident_bytes
from bench.numbers import Row, Table, milliseconds, percentile
from bench.systems import PLAIN_APP, onebox
from onebox.clock import SystemClock
from onebox.hub import Hub
from onebox.hub.model import Start, Status
from tests.support.onebox.durable_app import App, AppInvoker

type Turns = Generator[task.Task[Any], Any, Any]
_QUIET = logging.getLogger("bench.hub")
FINISH_SECONDS = 120
# name of the rate -> orchestrator, instances at once, steps of each
WORK = {"turns": ("generations", 50, 39), "calls": ("calls", 50, 20), "adds": ("adds", 50, 20)}
WAITING = 10_000
PENDING = 50_000
WATCH_SECONDS = 5.0
SPREAD_SECONDS = 20.0
AT_ONCE = 500
CHILD_SECONDS = 240
KINDS = {"turns": "orchestrator turns", "calls": "activity round trips", "adds": "entity operations"}
NOBODY = "http://127.0.0.1:1"  # the plain app wants a target, and is not asked to call it


def generations(context: task.OrchestrationContext, left: int) -> int:
    """Begins anew so many times: a turn each, and nothing else."""
    if left > 0:
        context.continue_as_new(left - 1)
    return left


def calls(context: task.OrchestrationContext, count: int) -> Turns:
    """Calls an activity so many times, one after the other."""
    for number in range(count):
        yield context.call_activity("same", input=number)


def adds(context: task.OrchestrationContext, count: int) -> Turns:
    """Calls an entity of its own so many times, one after the other."""
    entity = EntityInstanceId("counter", context.instance_id)
    for _ in range(count):
        yield context.call_entity(entity, "add", 1)


def sleeps(context: task.OrchestrationContext, until: str) -> Turns:
    """Waits on a timer."""
    yield context.create_timer(datetime.fromisoformat(until))


def same(value: int) -> int:
    """Returns what it is given."""
    return value


class Counter(DurableEntity):
    """Adds up."""

    def add(self, amount: int) -> int:
        """Adds and returns the sum."""
        total: int = self.get_state(int, 0) + amount
        self.set_state(total)
        return total


def functions() -> App:
    """Returns all of them, by name."""
    app = App()
    for each in (generations, calls, adds, sleeps):
        app.orchestrator(each)
    app.activity(same)
    app.entity(Counter)
    return app


_QUIET.setLevel(logging.ERROR)


@asynccontextmanager
async def onebox_hub(folder: Path) -> AsyncIterator[tuple[Hub, AsyncTaskHubGrpcClient]]:
    """The hub of onebox, on disk; its functions run through the Functions worker, as in the host."""
    hub = Hub(folder / "hub.sqlite", AppInvoker(functions()), SystemClock())
    await hub.start()
    client = AsyncTaskHubGrpcClient(
        host_address=hub.grpc_address, logger=_QUIET, data_converter=DEFAULT_FUNCTIONS_DATA_CONVERTER
    )
    try:
        async with client:
            yield hub, client
    finally:
        await hub.stop()


@asynccontextmanager
async def in_memory_hub() -> AsyncIterator[AsyncTaskHubGrpcClient]:
    """Microsoft's in-memory backend with the SDK's own worker, both with their defaults."""
    with _in_memory() as address:
        async with AsyncTaskHubGrpcClient(host_address=address, logger=_QUIET) as client:
            yield client


@contextmanager
def _in_memory() -> Iterator[str]:
    backend = InMemoryOrchestrationBackend()
    server = grpc.server(futures.ThreadPoolExecutor(BACKEND_THREADS))
    add_TaskHubSidecarServiceServicer_to_server(backend, server)  # type: ignore[no-untyped-call] # generated code
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    worker: Any = _worker(address)  # its start and stop are untyped
    worker.start()
    try:
        yield address
    finally:
        worker.stop()
        backend.stop()
        server.stop(grace=None)


def _worker(address: str) -> TaskHubGrpcWorker:
    app = functions()
    worker = TaskHubGrpcWorker(host_address=address, logger=_QUIET)
    for orchestrator in app.orchestrators_by_name.values():
        worker.add_orchestrator(orchestrator)

    def same(_context: task.ActivityContext, value: int) -> int:
        return int(app.activities_by_name["same"](value))

    worker.add_activity(same)
    worker.add_entity(Counter, name="counter")
    return worker


async def run(client: AsyncTaskHubGrpcClient, orchestrator: str, instances: int, steps: int) -> float:
    """Runs so many instances at once to their ends; returns the seconds that it took."""
    began = time.perf_counter()
    ids = [await client.schedule_new_orchestration(orchestrator, input=steps) for _ in range(instances)]
    async with asyncio.timeout(FINISH_SECONDS):
        # One after the other: each wait holds one of the in-memory backend's ten threads.
        ended = [await client.wait_for_orchestration_completion(each) for each in ids]
    took = time.perf_counter() - began
    for state in ended:
        if state is None or state.runtime_status is not OrchestrationStatus.COMPLETED:
            raise RuntimeError(f"{orchestrator} did not complete: {state}")
    return took


@asynccontextmanager
async def side(name: str, folder: Path) -> AsyncIterator[AsyncTaskHubGrpcClient]:
    """Runs the side of this name."""
    if name == "memory":
        async with in_memory_hub() as client:
            yield client
        return
    async with onebox_hub(folder) as (_, client):
        yield client


async def measure_rates(name: str, folder: Path) -> dict[str, float]:
    """Returns steps per second, processor seconds per step, and the seconds to the first end."""
    began = time.perf_counter()
    async with side(name, folder) as client:
        await run(client, "calls", 1, 1)
        rates = {"first_seconds": time.perf_counter() - began}
        for kind, (orchestrator, instances, steps) in WORK.items():
            busy = time.process_time()
            took = await run(client, orchestrator, instances, steps)
            done = instances * (steps + (kind == "turns"))  # the first generation is a turn too
            rates[kind] = done / took
            rates[f"{kind}_cpu"] = (time.process_time() - busy) / done
    return rates


async def idle_percent() -> float:
    """Watches the processor time of this process while nothing is due; percent of one core."""
    before, began = time.process_time(), time.perf_counter()
    await asyncio.sleep(WATCH_SECONDS)
    return 100 * (time.process_time() - before) / (time.perf_counter() - began)


async def turn_cpu(client: AsyncTaskHubGrpcClient) -> float:
    """Returns the processor seconds that a turn costs now."""
    before = time.process_time()
    await run(client, "generations", 50, 19)
    return (time.process_time() - before) / (50 * 20)


async def start_all(count: int, start: Callable[[int], Coroutine[None, None, str]]) -> None:
    """Starts so many instances, some hundreds at a time."""
    for first in range(0, count, AT_ONCE):
        await asyncio.gather(*(start(number) for number in range(first, min(first + AT_ONCE, count))))


async def fall_asleep(hub: Hub, name: str, count: int, due: datetime) -> float:
    """Starts instances that wait on a timer each, spread over some time from `due` on.

    Returns:
        The seconds until all of them waited.
    """
    began = time.perf_counter()

    async def start(number: int) -> str:
        until = due + timedelta(seconds=SPREAD_SECONDS * number / count)
        return await hub.tasks.start(Start(f"{name}-{number}", "sleeps", input=json.dumps(until.isoformat())))

    await start_all(count, start)
    async with asyncio.timeout(FINISH_SECONDS):
        await hub.settled()
    return time.perf_counter() - began


async def schedule(hub: Hub) -> None:
    """Starts instances that are to begin tomorrow."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    start_us = int(tomorrow.timestamp() * 1_000_000)

    async def start(number: int) -> str:
        return await hub.tasks.start(Start(f"pending-{number}", "sleeps", start_at_us=start_us))

    await start_all(PENDING, start)


async def measure_waiting(folder: Path) -> dict[str, float]:
    """Returns the costs while they wait, and how late their timers fire."""
    async with onebox_hub(folder) as (hub, client):
        await run(client, "generations", 5, 5)
        found = await costs(client, "empty")
        await schedule(hub)
        found |= await costs(client, "pending")
        tried = await fall_asleep(hub, "tried", AT_ONCE, datetime.now(UTC) + timedelta(days=1))
        # Nobody may be due while others still fall asleep, or are watched.
        ready_seconds = 3 * tried * WAITING / AT_ONCE + 3 * WATCH_SECONDS
        due = datetime.now(UTC) + timedelta(seconds=ready_seconds)
        found["fall_asleep"] = await fall_asleep(hub, "sleeper", WAITING, due)
        found |= await costs(client, "waiting")
        found["in_time"] = float(datetime.now(UTC) < due)
        late = await lateness(hub)
    return found | {"late_p50": percentile(late, 50), "late_p99": percentile(late, 99)}


async def costs(client: AsyncTaskHubGrpcClient, when: str) -> dict[str, float]:
    """Returns what the process holds, what it does while nothing is due, and what a turn costs."""
    memory, idle = resident_bytes() / MEBI, await idle_percent()
    return {f"memory_{when}": memory, f"idle_{when}": idle, f"turn_{when}": await turn_cpu(client)}


async def lateness(hub: Hub) -> list[float]:
    """Waits for all timers to fire; returns the seconds from each one's instant to its commit on disk."""
    late = []
    async with asyncio.timeout(FINISH_SECONDS):
        for number in range(WAITING):
            state = await hub.tasks.wait_finished(f"sleeper-{number}")
            if state.status is not Status.COMPLETED or state.input is None:
                raise RuntimeError(f"{state.id} is {state.status}")
            due = datetime.fromisoformat(json.loads(state.input)).timestamp()
            late.append(state.updated_us / 1_000_000 - due)
    return late


async def measure(folder: Path, _operations: int) -> list[Table]:
    """Runs each side in a process of its own, one after the other.

    Args:
        folder: Where the hubs keep their data.
    """
    ours = await _child("rates", "onebox", _folder(folder, "rates"))
    theirs = await _child("rates", "memory", folder)
    began = time.perf_counter()
    async with onebox(folder, PLAIN_APP, FLAKY_TARGET_URL=NOBODY, DELAY_SECONDS="1"):
        serving_seconds = time.perf_counter() - began
    waiting = await _child("waiting", _folder(folder, "waiting"))
    return [_rates(ours, theirs, serving_seconds), _waiting(waiting)]


def _folder(parent: Path, name: str) -> Path:
    (folder := parent / name).mkdir()
    return folder


async def _child(*arguments: object) -> dict[str, float]:
    found: dict[str, float] = await run_child("-m", "bench.hub", *arguments, within_seconds=CHILD_SECONDS)
    return found


def _rates(ours: dict[str, float], theirs: dict[str, float], serving_seconds: float) -> Table:
    rows = []
    for kind, name in KINDS.items():
        ratio = f"{ours[kind] / theirs[kind]:.1f}"
        rows.append(Row(name, "1/s", (f"{ours[kind]:.0f}", f"{theirs[kind]:.0f}", ratio)))
        cpu = f"{kind}_cpu"
        ratio = f"{theirs[cpu] / ours[cpu]:.1f}"
        times = (milliseconds(ours[cpu]), milliseconds(theirs[cpu]))
        rows.append(Row("- processor time of one", "ms", (*times, ratio)))
    first = "first_seconds"
    times = (milliseconds(ours[first]), milliseconds(theirs[first]))
    rows.append(Row("start to first instance's end", "ms", (*times, f"{theirs[first] / ours[first]:.1f}")))
    rows.append(Row("onebox with Azurite serves an app", "ms", (milliseconds(serving_seconds), "-", "-")))
    notes = (
        "50 instances at once, 20 steps each (turns: 40); hub, worker and client in one process over gRPC.",
        "onebox commits every step to SQLite on disk; the in-memory backend keeps nothing.",
        "Processor time hardly depends on what else the machine does; rates do.",
    )
    return Table("The task hub by itself", ("onebox", "in memory", "times better"), tuple(rows), notes)


def _waiting(found: dict[str, float]) -> Table:
    whens = ("empty", "pending", "waiting")
    rows = (
        Row("memory of the process", "MiB", tuple(f"{found[f'memory_{when}']:.0f}" for when in whens)),
        Row("processor while nothing is due", "%", tuple(f"{found[f'idle_{when}']:.2f}" for when in whens)),
        Row("processor time of one turn", "ms", tuple(milliseconds(found[f"turn_{when}"]) for when in whens)),
        Row("timer late by p50", "ms", ("-", "-", milliseconds(found["late_p50"]))),
        Row("timer late by p99", "ms", ("-", "-", milliseconds(found["late_p99"]))),
    )
    notes = [
        f"Then {PENDING:,} instances that begin tomorrow; then {WAITING:,} more that each wait on a timer.",
        f"Those timers fire over {SPREAD_SECONDS:g} s; lateness counts to the commit of what comes after.",
        f"The {WAITING:,} took {found['fall_asleep']:.0f} s to start, take a turn and wait.",
    ]
    if not found["in_time"]:
        notes.append("Timers fell due before all was measured: the machine was too busy for these numbers.")
    columns = ("empty hub", f"{PENDING:,} pending", f"and {WAITING:,} waiting")
    return Table("Instances that wait", columns, rows, tuple(notes))


def main() -> None:
    """Measures what the command line names."""
    match sys.argv[1:]:
        case ["rates", side_name, folder]:
            found = asyncio.run(measure_rates(side_name, Path(folder)))
        case ["waiting", folder]:
            found = asyncio.run(measure_waiting(Path(folder)))
        case _:
            raise SystemExit("usage: python -m bench.hub rates onebox|memory FOLDER, or waiting FOLDER")
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

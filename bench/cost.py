"""What one operation costs in turns, activities, entity operations, table requests and history events."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from durabletask.client import AsyncTaskHubGrpcClient
from durabletask.history import OrchestratorStartedEvent, TaskScheduledEvent

from bench.baseline import PlainFunctions, serving
from bench.metered_app import MeteredApp, metered_app
from bench.numbers import Row, Table
from bench.peers.systems import target
from durable_retry_console.index import notes as operation_notes
from scripts.processes import free_port

DELAY_SECONDS = 0.05
FINISH_SECONDS = 30
FAILED_ATTEMPTS = (0, 1, 5)
DEAD_LETTER = "dead letter"
HOUR_SECONDS = 3600.0


async def plain_cost(target_url: str, failures: int) -> tuple[int, int, int]:
    """Runs one orchestration whose first calls fail.

    Returns:
        Orchestrator turns, activity executions, history events.
    """
    key = f"plain-cost-{failures}"
    quiet = logging.getLogger("bench.cost")
    quiet.setLevel(logging.ERROR)
    with serving(PlainFunctions(target_url, DELAY_SECONDS), free_port()) as address:
        async with AsyncTaskHubGrpcClient(host_address=address, logger=quiet) as client:
            request = {"path": f"/fails/{failures}/{key}", "key": key, "json": {"amount": 5}}
            await client.schedule_new_orchestration("plain", input=request, instance_id=key)
            state = await client.wait_for_orchestration_completion(key, timeout=FINISH_SECONDS)
            if state is not None:
                state.raise_if_failed()  # type: ignore[no-untyped-call] # the SDK's own
            history = await client.get_orchestration_history(key)
    turns = sum(isinstance(event, OrchestratorStartedEvent) for event in history)
    activities = sum(isinstance(event, TaskScheduledEvent) for event in history)
    return turns, activities, len(history)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one finished operation took.

    Attributes:
        turns: Orchestrator turns.
        activities: Activity executions.
        entity_operations: Operations on entities, signals included; None where there are no entities.
        table_requests: Requests to table storage by the app itself; None where there is no table.
        history_events: Events in the history at the end.
    """

    turns: int
    activities: int
    entity_operations: int | None
    table_requests: int | None
    history_events: int


async def measure(folder: Path, _operations: int) -> list[Table]:
    """Runs one operation per case, its waits on a clock that is moved by hand.

    Args:
        folder: Where the systems keep their data and logs.
    """
    async with target(folder) as target_url, metered_app(folder, target_url) as app:
        with _no_index():
            return await _measured(app, target_url)


async def operation_costs(folder: Path) -> dict[str, Cost]:
    """Returns what an operation of each kind costs, by its kind; `folder` as for `measure`."""
    async with target(folder) as target_url, metered_app(folder, target_url) as app:
        with _no_index():
            return await _operation_costs(app)


def _no_index() -> AbstractContextManager[object]:
    # A process writes to the index once a second, however many operations there are: no cost of one.
    return patch.object(operation_notes.IndexWriter, "replace", lambda *_: None)


async def _measured(app: MeteredApp, target_url: str) -> list[Table]:
    costs = await _operation_costs(app)
    cases: dict[str, Cost] = {}
    for failures in FAILED_ATTEMPTS:
        cases[f"Durable Retry, {failures} failed"] = costs[f"{failures} failed"]
        turns, activities, events = await plain_cost(target_url, failures)
        cases[f"plain, {failures} failed"] = Cost(turns, activities, None, None, events)
    cases[f"Durable Retry, {DEAD_LETTER}"] = costs[DEAD_LETTER]
    return [_cost_table(cases), await _waiting(app)]


async def _operation_costs(app: MeteredApp) -> dict[str, Cost]:
    await one(app, "warm-up", failures=1)
    await one(app, "warm-up-dead", path="/refuses/400/warm-up")  # The first one makes the tables.
    costs = {
        f"{failures} failed": await one(app, f"cost-{failures}", failures=failures)
        for failures in FAILED_ATTEMPTS
    }
    # Once a second the process writes what it counted of causes, which is no cost of one either.
    dead = [await one(app, f"cost-dead-{each}", path="/refuses/400/dead") for each in range(3)]
    return costs | {DEAD_LETTER: min(dead, key=lambda cost: cost.table_requests or 0)}


async def one(app: MeteredApp, key: str, *, failures: int = 0, path: str | None = None) -> Cost:
    """Runs one operation to its end and returns what it took."""
    meter = app.fresh_meter()
    operation_id = await app.run(key, path or f"/fails/{failures}/{key}", wait_seconds=1.0)
    return Cost(
        meter.turns,
        meter.activities,
        meter.entity_operations,
        app.table_requests.count,
        await app.history_events(operation_id),
    )


def _cost_table(cases: dict[str, Cost]) -> Table:
    def row(name: str, read: Callable[[Cost], int | None]) -> Row:
        values = (read(cost) for cost in cases.values())
        return Row(name, "1", tuple("-" if value is None else str(value) for value in values))

    rows = (
        row("orchestrator turns", lambda cost: cost.turns),
        row("activity executions", lambda cost: cost.activities),
        row("entity operations", lambda cost: cost.entity_operations),
        row("table requests of the app", lambda cost: cost.table_requests),
        row("history events", lambda cost: cost.history_events),
    )
    notes = (
        "One operation without events, run alone; counted where the host calls the app, once it is accepted.",
        "Plain: `call_activity` with `RetryPolicy`, in-memory backend; no idempotency, no record.",
        "Without the index of operations, which a process writes once a second.",
        "A dead letter of a cause that its process knows; the first of a cause takes two reads more.",
    )
    return Table("What one operation costs", tuple(cases), rows, notes)


async def _waiting(app: MeteredApp) -> Table:
    meter = app.fresh_meter()
    began = app.clock.monotonic()
    await app.run("hour", "/fails/1/hour", wait_seconds=HOUR_SECONDS)
    passed_seconds = app.clock.monotonic() - began
    rows = (
        Row("time that passed", "s", (f"{passed_seconds:.0f}", f"{HOUR_SECONDS:.0f}")),
        Row("executions", "1", (str(len(meter.execution_seconds)), "1")),
        Row("execution time, all kinds", "s", (f"{sum(meter.execution_seconds):.3f}", f"{HOUR_SECONDS:.0f}")),
        Row("the same as billed", "s", (f"{meter.billed_seconds():.1f}", f"{HOUR_SECONDS:.0f}")),
    )
    notes = (
        "One failed attempt, an hour's wait on a clock moved by hand, one successful attempt.",
        "Each execution is billed as 100 ms at least, as on the Consumption plan.",
        "The function that sleeps is not run: its time is the wait.",
    )
    return Table(
        "Compute held during an hour of waiting", ("Durable Retry", "a function that sleeps"), rows, notes
    )

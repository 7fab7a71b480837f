"""Writes the tables of docs/sizing.md: storage requests of an operation, and what a rate of them needs.

    python docs/sizing.py

What an operation does is measured (docs/benchmarks.md, "What one operation costs"), and so is what the
plainest one costs in storage requests. How the others compare with it is counted in the source of
DurableTask.AzureStorage 2, limits are Azure's documented targets, and the rest are assumptions, marked as
such. A test compares the file with what this writes.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parent
PAGE: Final = DOCS / "sizing.md"

# Measured on Microsoft's backend (AzureStorage 2.11.2) with Azurite (2026-11-28).
MEASURED_REQUESTS: Final = 16
"""Storage requests of an operation with a caller's key that succeeds at once, from its post until it ends."""
GENERATED_REQUESTS: Final = 15
"""The same with a key that the app generated."""
PLAIN_REQUESTS: Final = 15
"""Storage requests of a plain orchestration with one activity."""
# Measured there when nothing had happened for five minutes.
IDLE: Final = {
    "polls of the control queues": (27, "4 queues, each every 10 s: turns, entities and timers that are due"),
    "leases of the partitions": (24, "4 rows, each every 10 s: another instance takes over within 30 s"),
    "reads of the partitions": (6, "every 10 s: how the partitions are shared out"),
    "lease of the app": (2, "one app runs the task hub"),
    "polls of the work-item queue": (6, "every 10 s: activities"),
    "polls of `operations`": (30, "every 2 s: an operation from the queue begins within them"),
    "polls of `operations-poison`": (30, "the same interval: the host has one for all queues"),
    "the watch, in the task hub": (9, "what failed, by 6 kinds; its health; the circuits of 2 dependencies"),
    "the watch, in the app's tables": (
        7,
        "open dead letters, the last hour of 3 lists, alerts, where it goes on, the index",
    ),
    "the sweep of the outbox": (5, "pending events in 4 parts, where it goes on"),
    "maintenance": (12, "57 every five minutes, the hourly rounds of what has no list included"),
}
"""Storage requests a minute of an app that has nothing to do, by kind, and what each kind is for."""
IDLE_REQUESTS_PER_MINUTE: Final = sum(requests for requests, _ in IDLE.values())
MOST_IDLE_REQUESTS: Final = 180
"""What they may come to, for one instance with four partitions."""

# Requests of one step, as counted in AzureStorageOrchestrationService.cs, OrchestrationSessionManager.cs
# and AzureTableTrackingStore.cs: there in the methods that create, complete, lock, deduplicate and purge.
START: Final = 3
"""Read the instance, insert it, and read it again before the first turn, so that two starts are one."""
MESSAGE: Final = 2
"""Add a message to a control queue and delete it; reading it is `READ`."""
READ: Final = 1
"""One poll of a control queue. It brings up to 32 messages: this is the most, when each comes alone."""
TURN: Final = 3
"""Read the history, write its new rows in one transaction, update the instance; an entity's batch too."""
ACTIVITY: Final = 3
"""Add, read and delete a message of the work-item queue, each by itself; the result is a `MESSAGE`."""
PURGE: Final = 5
"""Read the instance and its history, list its large messages, delete the history's rows and the instance."""
LOOK: Final = 1
"""Retention reads an instance before it purges it."""
UPKEEP: Final = LOOK + PURGE
"""What comes later: the operation is looked at, and purged."""
COUNTED_REQUESTS: Final = 18
"""The count of that operation: with reads of queues, which bring many messages and are not measured."""
RECORD: Final = LOOK + MESSAGE + READ + TURN + PURGE
"""What a key takes beside these that may outlive its history: a look before the start, a signal and its
batch, and the purge of the record."""

# Documented: Azure's scalability targets of storage accounts and queues, and the scheduler's plans.
ACCOUNT_PER_SECOND: Final = 20_000
QUEUE_PER_SECOND: Final = 2_000
MOST_PARTITIONS: Final = 16
CONSUMPTION_ACTIONS: Final = 500
UNIT_ACTIONS: Final = 2_000
MOST_UNITS: Final = 3

# Assumed, not measured in Azure.
INSTANCE_OPERATIONS: Final = 20
"""Operations a second that one instance of 2,048 MB carries, all of their executions included."""
HEADROOM: Final = 0.7
"""How much of a limit is used by the plan."""
FAILING: Final = 0.05
"""Part of the operations that fails once and then succeeds."""
MEMORY_GB: Final = 2
DOLLARS_EXECUTION: Final = 0.40 / 1_000_000
DOLLARS_GB_SECOND: Final = 0.000026
DOLLARS_REQUEST: Final = 0.004 / 10_000

MONTH_SECONDS: Final = 30 * 24 * 3_600
RATES: Final = (10, 30, 100, 300, 1_000, 3_000, 10_000)
CASES: Final = {
    "succeeds at once": "Durable Retry, 0 failed",
    "fails once, then succeeds": "Durable Retry, 1 failed",
    "fails five times, then succeeds": "Durable Retry, 5 failed",
    "is refused and becomes a dead letter": "Durable Retry, dead letter",
}
"""What the page calls an operation, and its column in the measured table."""
QUANTITIES: Final = (
    "orchestrator turns",
    "activity executions",
    "entity operations",
    "table requests of the app",
)
"""The rows of that table that `Cost` is made of, in its order."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one operation does, as measured.

    Attributes:
        turns: Orchestrator turns; each begins with one message.
        activities: Activity executions.
        entities: Operations on entities; each is one message, and a batch of its own when nothing else comes.
        tables: Requests of the app itself to its tables.
    """

    turns: float
    activities: float
    entities: float
    tables: float

    @property
    def messages(self) -> float:
        """Messages in control queues."""
        return self.turns + self.entities

    @property
    def executions(self) -> float:
        """Function executions, with the one that posts."""
        return self.turns + self.activities + self.entities + 1

    @property
    def actions(self) -> float:
        """Actions of a scheduler."""
        return self.turns + self.activities + self.entities

    def steps(self) -> dict[str, float]:
        """Return the counted storage requests until it has ended, by step."""
        return {
            "start": START,
            "messages": self.messages * (MESSAGE + READ),
            "turns": self.turns * TURN,
            "entities": self.entities * TURN,
            "activities": self.activities * ACTIVITY,
            "the app's tables": self.tables,
        }

    @property
    def until_it_ends(self) -> float:
        """Storage requests until it has ended: the backend's as measured, the app's own as counted."""
        backend = sum(self.steps().values()) - self.tables
        return backend * MEASURED_REQUESTS / COUNTED_REQUESTS + self.tables

    @property
    def requests(self) -> float:
        """Storage requests in its whole life, upkeep included."""
        return self.until_it_ends + UPKEEP


def measured(benchmarks: str) -> dict[str, Cost]:
    """Return what an operation costs in each case, from the text of docs/benchmarks.md."""
    section = benchmarks.partition("## What one operation costs\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    columns = {title: index for index, title in enumerate(rows[0])}
    values = {row[0]: row for row in rows}
    return {
        case: Cost(*(float(values[name][columns[column]]) for name in QUANTITIES))
        for case, column in CASES.items()
    }


def mixed(costs: Mapping[str, Cost]) -> Cost:
    """Return the mean of the assumed mix: most succeed at once, `FAILING` fail once."""
    good, bad = costs["succeeds at once"], costs["fails once, then succeeds"]
    pairs = zip(astuple(good), astuple(bad), strict=True)
    return Cost(*((1 - FAILING) * one + FAILING * other for one, other in pairs))


def limits(cost: Cost, partitions: int) -> dict[str, float]:
    """Return the operations a second at which each limit of a hub on Azure Storage is reached."""
    of_partitions = cost.messages  # the turns and entities, which a partition's owner alone runs
    executions = INSTANCE_OPERATIONS * cost.executions
    return {
        "the instances that own partitions": partitions * executions / of_partitions,
        "the storage account": ACCOUNT_PER_SECOND / cost.requests,
        "the control queues": partitions * QUEUE_PER_SECOND / (of_partitions * (MESSAGE + READ)),
        "the work-item queue": QUEUE_PER_SECOND / (cost.activities * ACTIVITY),
    }


@dataclass(frozen=True, slots=True)
class Plan:
    """What a rate needs.

    Attributes:
        hubs: Apps, each with a task hub of its own.
        backend: The partitions of each hub, or the plan of its scheduler.
        instances: The instances of all hubs together, at `HEADROOM`.
        requests: To the storage of all hubs together, per second.
        dollars: A month of this rate around the clock: executions, memory and storage requests.
    """

    rate: int
    hubs: int
    backend: str
    instances: int
    requests: float
    dollars: float


def on_storage(cost: Cost, rate: int) -> Plan:
    """Return what a rate needs on Azure Storage: the fewest hubs, then the fewest partitions."""

    def capacity(partitions: int) -> float:
        return HEADROOM * min(limits(cost, partitions).values())

    hubs = math.ceil(rate / capacity(MOST_PARTITIONS))
    partitions = next(count for count in (4, 8, MOST_PARTITIONS) if rate / hubs <= capacity(count))
    return _plan(cost, rate, hubs, f"{partitions} partitions", cost.requests)


def on_scheduler(cost: Cost, rate: int) -> Plan:
    """Return what a rate needs on Durable Task Schedulers: the app's own tables are the only storage."""
    actions = rate * cost.actions / HEADROOM
    if actions <= CONSUMPTION_ACTIONS:
        return _plan(cost, rate, 1, "Consumption", cost.tables)
    hubs = math.ceil(actions / (MOST_UNITS * UNIT_ACTIONS))
    units = math.ceil(actions / hubs / UNIT_ACTIONS)
    return _plan(cost, rate, hubs, f"Dedicated, {units} CU", cost.tables)


def _plan(cost: Cost, rate: int, hubs: int, backend: str, requests: float) -> Plan:
    operations = rate * MONTH_SECONDS
    dollars = operations * (
        cost.executions * DOLLARS_EXECUTION
        + MEMORY_GB / INSTANCE_OPERATIONS * DOLLARS_GB_SECOND
        + requests * DOLLARS_REQUEST
    )
    instances = hubs * math.ceil(rate / hubs / (INSTANCE_OPERATIONS * HEADROOM))
    return Plan(rate, hubs, backend, instances, rate * requests, dollars)


def tables(benchmarks: str) -> dict[str, str]:
    """Return each table of the page by its name, as Markdown."""
    costs = measured(benchmarks)
    mix = mixed(costs)
    names = list(costs["succeeds at once"].steps())
    steps = [
        [
            case,
            *(f"{cost.steps()[name]:.0f}" for name in names),
            f"{sum(cost.steps().values()):.0f}",
            f"{cost.until_it_ends:.0f}",
            f"{UPKEEP}",
            f"**{cost.requests:.0f}**",
        ]
        for case, cost in costs.items()
    ]
    capacities = [
        [f"{partitions}", *(f"{value:,.0f}" for value in found.values()), f"**{min(found.values()):,.0f}**"]
        for partitions in (4, 8, MOST_PARTITIONS)
        for found in [limits(mix, partitions)]
    ]
    return {
        "steps": _table(["an operation that", *names, "counted", "until it ends", "upkeep", "in all"], steps),
        "idle": _table(
            ["kind", "requests a minute", "what it is for"],
            [[kind, f"{requests}", why] for kind, (requests, why) in IDLE.items()]
            + [["**together**", f"**{IDLE_REQUESTS_PER_MINUTE}**", ""]],
        ),
        "limits": _table(["partitions", *limits(mix, 4), "the least"], capacities),
        "storage": _plans(on_storage(mix, rate) for rate in RATES),
        "scheduler": _plans(on_scheduler(mix, rate) for rate in RATES),
    }


def _plans(plans: Iterable[Plan]) -> str:
    titles = ["operations a second", "hubs", "each hub", "instances", "storage requests a second", "month"]
    rows = [
        [
            f"{plan.rate:,}",
            f"{plan.hubs}",
            plan.backend,
            f"{plan.instances}",
            f"{plan.requests:,.0f}",
            f"{plan.dollars:,.0f}",
        ]
        for plan in plans
    ]
    return _table(titles, rows)


def _table(titles: list[str], rows: list[list[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def page(text: str, benchmarks: str) -> str:
    """Return the page with every table between its two comments written anew."""
    for name, table in tables(benchmarks).items():
        begin, end = f"<!-- table: {name} -->", "<!-- end -->"
        text = re.sub(f"{begin}.*?{end}", f"{begin}\n{table}\n{end}", text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(), (DOCS / "benchmarks.md").read_text()))

"""The app in the simulated world.

Its own orchestrators, entities, activities and stores run on stand-ins for what is outside of them: the task
hub, tables, queues, the network and the time.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final, override
from unittest.mock import patch

import httpx
from azure.core.exceptions import HttpResponseError, ServiceResponseError
from azure.data.tables import TableTransactionError
from pydantic import BaseModel

from activities import calls as call_steps
from activities import circuit_controls
from activities import fallback as fallback_steps
from activities import freeze as freeze_steps
from activities import lookup as lookup_steps
from activities import operation as operation_steps
from activities import order_lane as order_steps
from activities import outbox as outbox_steps
from activities import polling as polling_steps
from activities import queue_check as queue_check_steps
from activities import workflows as workflow_steps
from durable_retry.app import harden_runtime
from durable_retry.attempt import attempt
from durable_retry.attempt import http_client as downstream
from durable_retry.base import names
from durable_retry.features.circuit_controls.names import WAKE_WAITING
from durable_retry.features.dead_letter_lists import counts
from durable_retry.features.fallback.names import LEAVE_DEPENDENCY
from durable_retry.features.freeze import names as freeze_names
from durable_retry.features.handlers import registry
from durable_retry.features.in_process import names as call_names
from durable_retry.features.lookup.names import LOOK_UP
from durable_retry.features.order import store as lane_store
from durable_retry.features.order.names import LOOK_AT_LANE
from durable_retry.features.outbox import names as outbox_names
from durable_retry.features.outbox.rules.event import Event
from durable_retry.features.polling.names import POLL
from durable_retry.features.standstill import names as standstill_names
from durable_retry.features.workflows import names as workflow_names
from durable_retry.handlers import Call as HandlerCall
from durable_retry.handlers import Outcome, TableWrite, Throttled
from durable_retry.hub import task_hub
from durable_retry.intake import intake
from durable_retry.plugins import plugins
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.operations import operation as operations
from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import LoopOwned
from durable_retry.runtime.deferred import imported
from durable_retry.settings.configuration import using
from durable_retry.storage import clients as storage_clients
from durable_retry.storage import tables
from durable_retry.telemetry import facts
from durable_retry_console.bulk import names as bulk_names
from durable_retry_console.bulk import orchestration as bulk_orchestration
from durable_retry_console.bulk.actions import bulk_page
from durable_retry_console.bulk.ends import bulk_ends
from durable_retry_console.bulk.items import bulk_batch
from durable_retry_console.index import notes as operation_notes
from tests.simulation.activities import Activity
from tests.simulation.client import Client
from tests.simulation.hub import Hub
from tests.simulation.noting import Writers
from tests.simulation.regulars import REGULAR, regular
from tests.simulation.targets import (
    BANK,
    BANK_SHOWS_WITHIN,
    MODEL,
    REPORTS,
    SPARE,
    TENANTS,
    Network,
    Queues,
    Target,
)
from tests.simulation.turns import Turns
from tests.simulation.world import Worker, World, acting
from tests.support.parts import AROUND_OPERATIONS, ENTITIES, OPERATIONS
from tests.support.tables import TablesInMemory

DEPENDENCIES: Final = """
[defaults.timeouts]
attempt_seconds = 5
deadline_seconds = 3600
[defaults.circuit]
minimum_calls = 5
window_seconds = 20
break_seconds = 20
max_break_seconds = 120
half_open_calls = 1
[defaults.retry_budget]
ratio = 1.0
minimum_per_second = 2.0
[defaults.recovery]
after_closed_seconds = 60
at_most = 2

[dependencies.payments]
base_url = "http://payments/v1"
retry = { strategy = "exponential", initial_seconds = 1.0, max_seconds = 30.0, max_attempts = 6 }
[dependencies.ledger]
base_url = "http://ledger/v1"
retry = { strategy = "fixed", initial_seconds = 10.0, max_attempts = 4 }
idempotency = { header = "" }
[dependencies.bank]
base_url = "http://bank/v1"
retry = { strategy = "exponential", initial_seconds = 1.0, max_seconds = 30.0, max_attempts = 6 }
idempotency = { header = "" }
lookup = { path = "/effects/{key}-{input/life}", found = "/effect", settle_seconds = 20 }
[dependencies.mail]
base_url = "http://mail/v1"
retry = { preset = "rate_limited", max_attempts = 12, max_retry_after_seconds = 60 }
timeouts = { attempt_seconds = 5, deadline_seconds = 900 }
limits = { max_concurrency = 1, rate_per_second = 1.0 }
[dependencies.stock]
base_url = "http://stock/v1"
limits = { max_concurrency = 3 }
retry = { strategy = "schedule", schedule_seconds = [1.0, 5.0, 30.0, 120.0] }
[dependencies.depot]
base_url = "http://depot/v1"
retry = { strategy = "exponential", initial_seconds = 1.0, max_seconds = 20.0, max_attempts = 6 }
idempotency = { header = "" }
[dependencies.tenants]
base_url = "http://tenants/v1"
retry = { strategy = "fixed", initial_seconds = 5.0, max_attempts = -1 }
auth = { value = "Bearer of-the-app" }
circuit = { by = "limit_key", consecutive_failures = 2 }
[dependencies.reports]
base_url = "http://reports/v1"
retry = { strategy = "fixed", initial_seconds = 5.0, max_attempts = 6 }
poll = { location = "/job", every_seconds = 5 }
[dependencies.model]
base_url = "http://model/v1"
retry = { strategy = "fixed", initial_seconds = 5.0, max_attempts = 6 }
circuit = { consecutive_failures = 1 }
fallback = "spare"
[dependencies.spare]
base_url = "http://spare/v1"
retry = { strategy = "fixed", initial_seconds = 5.0, max_attempts = 6 }
circuit = { consecutive_failures = 2 }
idempotency = { header = "" }
[dependencies.hooks]
base_url = "http://hooks/v1"
retry = { strategy = "linear", initial_seconds = 5.0, max_seconds = 60.0, max_attempts = 8 }
retry_budget = { ratio = 0 }
[dependencies.hooks.circuit]
enabled = false
"""

WRITES: Final = "Reservations"

REFUSING: Final = {
    "InvalidName": (400, "InvalidInput"),
    "Nowhere": (404, "ResourceNotFound"),
    "TooLarge": (413, "RequestBodyTooLarge"),
}
"""Tables that refuse every write for good, with status and code."""

_READ_TIMEOUT_SECONDS: Final = 5.0
"""As `storage_clients.CLIENT_OPTIONS` has it."""


class Order(BaseModel):
    """What the handler takes."""

    number: int
    life: int
    table: str = WRITES


async def reserve(order: Order, call: HandlerCall) -> Outcome:
    """A handler with a call, a table write and an event."""
    await posted("/reserve", call)
    return outcome_of(order, call)


async def fulfil(order: Order, call: HandlerCall) -> Outcome:
    """A handler of two remembered steps, of which one must not be repeated, and of what can fail after them.

    For every other order the steps run at once.
    """
    if order.number % 2:
        await asyncio.gather(
            call.step("pick", posted, "/pick", repeatable=True), call.step("pay", posted, "/pay")
        )
    else:
        await call.step("pick", posted, "/pick", repeatable=True)
        await call.step("pay", posted, "/pay")
    (await call.client.get("/ready")).raise_for_status()
    return outcome_of(order, call)


TRANSFER: Final = "transfer"


async def transfer(order: Order, call: HandlerCall) -> Outcome:
    """A handler that sends what must not be sent twice, and has a lookup."""
    await posted("/transfer", call)
    return outcome_of(order, call)


async def find_transfer(order: Order, call: HandlerCall) -> Outcome | None:
    """Ask the bank's replica."""
    answer = await call.client.get(f"/effects/{call.key}-{order.life}")
    answer.raise_for_status()
    return None if answer.json()["effect"] is None else outcome_of(order, call)


COPY: Final = "copy"
PAGES: Final = 5
_HEARTBEAT_SECONDS: Final = 3.0


async def copy_pages(order: Order, call: HandlerCall) -> Outcome:
    """A handler of five pages, which reports each and begins with the first that nobody has reported."""
    for page in range(call.progress or 0, PAGES):
        await posted(f"/pages/{page}", call)
        call.heartbeat(page + 1)
    (await call.client.get("/ready")).raise_for_status()
    return outcome_of(order, call)


async def posted(path: str, call: HandlerCall) -> int:
    """Post, and return what the dependency answers."""
    answer = await call.client.post(path)
    if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
        raise Throttled(retry_after=float(answer.headers["Retry-After"]))
    if answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR and call.attempt % 2:
        raise GeneratorExit  # A handler may let out anything; SystemExit would end a task's event loop.
    answer.raise_for_status()
    return int(answer.json()["seen"])


DEBIT: Final = "debit"
BALANCE: Final = "balance"
"""The row that this handler changes, and its partition."""


async def debit(order: Order, call: HandlerCall) -> Outcome:
    """A handler that counts a row up which others change: as it read it, or where it has that number still.

    Its value is the number that it found.
    """
    await posted("/debit", call)
    found = await tables.read_version(order.table, BALANCE, BALANCE)
    assert found is not None, "it is there from the beginning"
    number = int(found.row["number"])
    condition: dict[str, Any] = {"etag": found.etag} if order.number % 2 else {"only_if": {"number": number}}
    counted = TableWrite(
        table=order.table,
        partition_key=BALANCE,
        row_key=BALANCE,
        values={"number": number + 1},
        mode="update",
        **condition,
    )
    success = outcome_of(order, call, BALANCE)
    return Outcome(number, [*success.writes, counted], success.events)


def outcome_of(order: Order, call: HandlerCall, partition: str = "") -> Outcome:
    """Return the success of a handler: a row, and an event."""
    row = TableWrite(
        table=order.table,
        partition_key=partition or f"order-{order.number}",
        row_key=call.key,
        values={"life": order.life},
    )
    return Outcome(order.number, [row], [Event.to_queue("reservations", "reserved", order.life)])


class OwnedByWorkers(LoopOwned[Any]):
    """What the app has one of for each event loop, which is one for each process; who dies takes it along."""

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__(make)
        self.by_worker: dict[str, Any] = {}

    @override
    def get(self) -> Any:
        return self.by_worker.setdefault(_name_of_acting(), self._make())

    @override
    def known(self) -> Any:
        return self.by_worker.get(_name_of_acting())

    @override
    def take(self) -> Any:
        return self.by_worker.pop(_name_of_acting(), None)


def _name_of_acting() -> str:
    worker = acting.get()
    return "" if worker is None else worker.name


@dataclass
class Refusing:
    """A table that can be read, and refuses every write with a status and a code."""

    table: Any
    status: int
    code: str

    def __getattr__(self, name: str) -> Any:
        if name in {"get_entity", "query_entities"}:
            return getattr(self.table, name)
        in_transaction = name == "submit_transaction" and self.status == httpx.codes.NOT_FOUND
        kind = TableTransactionError if in_transaction else HttpResponseError
        error = kind(message=f"{self.code}: the service says so")
        error.status_code = self.status
        error.error_code = self.code  # type: ignore[attr-defined] # set by the client, undeclared
        raise error


@dataclass
class App:
    """The app, in one world.

    Attributes:
        full_until: In seconds; until then storage refuses writes.
        tables: Its storage account.
        queues: What it sent to queues.
        targets: Its dependencies.
        hub: Its task hub.
    """

    world: World
    tables: TablesInMemory = field(default_factory=TablesInMemory)
    queues: Queues = field(init=False)
    targets: dict[str, Target] = field(init=False)
    hub: Hub = field(init=False)
    full_until: float = 0.0

    def __post_init__(self) -> None:
        self.queues = Queues(self.world)
        keyed = {"payments": "Idempotency-Key", "mail": "Idempotency-Key", "stock": "Idempotency-Key"}
        headers = {**keyed, "ledger": "", "depot": "", BANK: "", "hooks": "webhook-id"}
        headers |= {TENANTS: "Idempotency-Key"} if self.world.chances.keyed else {}
        headers |= {REPORTS: "Idempotency-Key"} if self.world.chances.polled else {}
        balance = {"PartitionKey": BALANCE, "RowKey": BALANCE, "number": 0}
        self.tables.get_table_client(WRITES).create_entity(balance)
        headers |= {MODEL: "Idempotency-Key", SPARE: ""} if self.world.chances.falling else {}
        self.targets = {
            name: Target(
                self.world,
                name,
                header,
                is_polled=name == REPORTS,
                shows_within=BANK_SHOWS_WITHIN * (name == BANK),
            )
            for name, header in headers.items()
        }
        self.hub = Hub(
            world=self.world,
            turns=Turns(_ORCHESTRATORS),
            entities=ENTITIES,
            activities=_ACTIVITIES,
        )

    @contextmanager
    def in_place(self, *defects: Any) -> Iterator[None]:
        """Put the app into its world, on the running loop.

        Args:
            defects: Patches of the app that break it, to see whether that is seen.
        """
        harden_runtime()
        for kept in (intake.intake, intake.http_admission):
            kept.cache_clear()  # Each has a probe among the operations of the world before.
        rng = self.world.rng
        network = Network(self.world, self.targets)
        writers = Writers(self.world)
        with ExitStack() as stack:
            for each in (
                patch.object(tables, "_run_on_table", self._run),
                patch.object(tables, "run_in_pool", self._run_in_pool),
                patch.object(tables, "client_of", self._client_of),
                patch.object(storage_clients, "table_service", lambda: self.tables),
                patch("durable_retry.features.outbox.sending.send_message", self.queues.send_message),
                # A large operation is one that attempts read from the hub.
                patch.object(operations, "CONTENT_BYTES", 0 if self.world.chances.large else 4096),
                patch.object(attempt, "_MOST_READ", 0),
                patch.object(attempt, "written_operation", self._read_input),
                # Longer than the context here takes timers; nobody looks at a stop for as long.
                patch.object(bulk_orchestration, "RESUMABLE_FOR", timedelta(days=1)),
                patch.object(operation_notes, "WRITER", writers),
                patch.object(operation_notes, "run_in_pool", writers.run_in_pool),
                patch.object(counts, "_last_count", OwnedByWorkers(counts._LastCount)),
                patch.object(facts, "_receivers", {}),
                downstream.sending_over(lambda _: network),
                patch.object(clock, "monotonic_seconds", lambda: self.world.seconds),
                patch.object(lane_store, "lane_lock", _lock_of_worker),
                patch.object(uuid, "uuid4", lambda: uuid.UUID(int=rng.getrandbits(128), version=4)),
                patch.dict(registry._handlers, _HANDLERS),
                patch.dict("os.environ", {"AzureWebJobsStorage": "UseDevelopmentStorage=true"}),
                clock.reading(self.world.local_now),
                using(CONFIG),
                _quiet(),
                *defects,
            ):
                stack.enter_context(each)
            operation_notes.record_facts()
            self.world.on_birth.append(self._introduce)
            # A worker takes the places along in which it held submissions.
            self.world.on_death.append(lambda _worker: intake.http_admission.cache_clear())
            yield

    def _read_input(self, given: dict[str, Any]) -> Any:
        self.world.read[given["input_id"]] = given["operation"]
        return given["operation"]

    def _introduce(self, worker: Worker) -> None:
        """Give a worker its durable client."""
        clients: Any = task_hub._clients.get()
        clients[worker.name] = Client(self.hub)

    async def _run[T](self, table: str, action: Callable[[Any], T]) -> T:
        """Stand in for `tables._run_on_table`: writes may be refused, for a while or for good."""
        return await self._run_in_pool(partial(tables.with_table, table, action))

    async def _run_in_pool[T](self, action: Callable[[], T]) -> T:
        """Stand in for the pool of storage calls: each request is a place to die, and may fail either way."""
        await self.world.point()
        chances = self.world.chances
        fails = self.world.happens(chances.storage_fails)
        if self.world.happens(chances.slow):
            seconds = self.world.rng.uniform(0.1, 2 * _READ_TIMEOUT_SECONDS)
            fails = seconds > _READ_TIMEOUT_SECONDS
            await asyncio.sleep(min(seconds, _READ_TIMEOUT_SECONDS))
            await self.world.point()  # Its worker may have died meanwhile.
        if fails and self.world.happens(0.5):
            raise ServiceResponseError("the storage is away")
        if self.world.happens(chances.full):
            self.full_until = self.world.seconds + self.world.rng.uniform(1, 60)
            self.world.note("storage is full")
        done = action()
        await self.world.point()
        if fails:
            raise ServiceResponseError("the storage's answer was lost")
        return done

    def _client_of(self, table: str) -> Any:
        client = self.tables.get_table_client(table)
        if self.world.seconds < self.full_until:
            return Refusing(client, 503, "ServerBusy")
        refusal = REFUSING.get(table)
        return client if refusal is None else Refusing(client, *refusal)


def _lock_of_worker(*_key: str) -> Any:
    worker = acting.get()
    assert worker is not None, "only workers write"
    return worker.lock


@contextmanager
def _quiet() -> Iterator[None]:
    """The app's warnings are about troubles that are made here by the thousand."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _without_hub(activity: Callable[[dict[str, Any]], Awaitable[Any]]) -> Activity:
    return lambda given, _hub: activity(given)


_HANDLERS: Final = {
    name: registry.Handler(name=name, dependency=dependency, function=function)
    for name, dependency, function in (
        ("reserve", "stock", reserve),
        ("fulfil", "depot", fulfil),
        (DEBIT, "stock", debit),
    )
} | {
    COPY: registry.Handler(
        name=COPY, dependency="stock", function=copy_pages, heartbeat_seconds=_HEARTBEAT_SECONDS
    ),
    TRANSFER: registry.Handler(
        name=TRANSFER,
        dependency=BANK,
        function=transfer,
        of_features={"lookup": {"function": find_transfer, "settle_seconds": 20}},
    ),
}
CONFIG: Final = parse_config(DEPENDENCIES, {})
# A world that loads what plugs in would not be the same as one that finds it loaded.
plugins()
# So would one that imports the modules of handlers first: they keep its `uuid4`.
imported("durable_retry.features.handlers.attempt:run_operation")

_ORCHESTRATORS: Final = OPERATIONS | AROUND_OPERATIONS | {REGULAR: regular}
_ACTIVITIES: Final[dict[str, Activity]] = {
    names.ATTEMPT: operation_steps.attempt,
    names.COMMIT: _without_hub(operation_steps.commit),
    names.DEAD_LETTER: _without_hub(operation_steps.dead_letter),
    LOOK_AT_LANE: order_steps.look_at_lane,
    LEAVE_DEPENDENCY: fallback_steps.leave_dependency,
    LOOK_UP: lookup_steps.look_up,
    POLL: polling_steps.poll,
    freeze_names.KEEP_FROZEN: freeze_steps.keep_frozen,
    freeze_names.COUNT_FROZEN: freeze_steps.count_frozen,
    freeze_names.WAKE_FROZEN: freeze_steps.wake_frozen,
    outbox_names.OUTBOX_PENDING: _without_hub(outbox_steps.outbox_pending),
    outbox_names.PUBLISH: outbox_steps.publish,
    standstill_names.PASS_QUEUE: _without_hub(queue_check_steps.pass_queue),
    outbox_names.OUTBOX_GIVE_UP: _without_hub(outbox_steps.outbox_give_up),
    workflow_names.SUBMIT: workflow_steps.submit,
    workflow_names.BATCH_STEP: workflow_steps.batch_step,
    workflow_names.BEGIN_RESTART: _without_hub(workflow_steps.begin_restart),
    workflow_names.END_RESTART: _without_hub(workflow_steps.end_restart),
    call_names.START_CALL: call_steps.start_call,
    call_names.LOOK_AT_CALL: call_steps.look_at_call,
    workflow_names.BATCH_CLOSE: _without_hub(workflow_steps.batch_close),
    bulk_names.BULK_PAGE: bulk_page,
    bulk_names.BULK_BATCH: bulk_batch,
    bulk_names.BULK_ENDS: bulk_ends,
    WAKE_WAITING: circuit_controls.wake_waiting,
}

"""One row or instance that nobody can read makes no list fail: it is shown as what is known of it."""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

import pytest
from azure.data.tables import UpdateMode
from durabletask.client import OrchestrationStatus

from durable_retry import routing
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.validation import InvalidInputError
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.features.handlers import registry
from durable_retry.features.order.store import lane_id
from durable_retry.features.outbox.sending import sweep
from durable_retry.features.retention.histories import remove_record
from durable_retry.features.workflows.rules.shapes import Saga, SagaStep
from durable_retry.hub.instance_lists import note_created
from durable_retry.hub.orchestrations import listed_names
from durable_retry.operations.actions import submit
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.dead_letters.record import of_operation
from durable_retry.runtime import sharing
from durable_retry.settings.configuration import using
from durable_retry_console.activity import find
from durable_retry_console.activity.store import ActivityWriter
from durable_retry_console.alerts.watch import check_alerts
from durable_retry_console.bulk.shapes import BulkAction, BulkInput, BulkProgress
from durable_retry_console.index.reconcile import keep_gone
from durable_retry_console.index.store import OperationEntry, OperationList
from durable_retry_console.overview import summary as overview
from tests.integration.triggers.conftest import DEPENDENCIES, App
from tests.replay.test_stored import common
from tests.support.builders import NOON, an_entry, an_operation
from tests.support.damaged import HUB, DamagedHub, an_instance, damaged_hub
from tests.support.every_row import account, write_every_row
from tests.support.operation_index import write_entries
from tests.support.tables import TablesInMemory

OPERATION_ID: Final = "op-open"
SAGA_ID, ACTION_ID = "saga-7", f"bulk-{'7' * 32}"

LISTS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "operations": ("list_operations", {}),
    "operations of words": ("list_operations", {"q": "key"}),
    "operations of a correlation id": ("list_operations", {"correlation_id": "order-42"}),
    "operations that failed": ("list_operations", {"status": "dead_lettered"}),
    "operations in numbers": ("summarize_operations", {"window_seconds": "120"}),
    "overview": ("get_overview", {"window_seconds": "120"}),
    "search": ("search_everything", {"q": "o"}),
    "dead letters": ("get_dead_letters", {}),
    "dead letters of words": ("get_dead_letters", {"q": "o"}),
    "dead letters by reason and category": (
        "get_dead_letters",
        {"reason": "RetriesExhausted", "category": "transient"},
    ),
    "groups": ("get_dead_letter_groups", {}),
    "dead letters in numbers": ("get_dead_letter_summary", {}),
    "dead letters that match": ("count_dead_letters_that_match", {}),
    "order lanes": ("list_order_lanes", {}),
    "pending events": ("list_outbox", {}),
    "sent events": ("list_outbox", {"status": "sent"}),
    "failed events": ("list_outbox", {"status": "failed"}),
    "batches": ("list_all_batches", {}),
    "sagas": ("list_all_sagas", {}),
    "bulk actions": ("list_actions_on_many", {}),
    "items of an action": ("list_items_of_action", {}),
    "circuits": ("list_circuits", {}),
    "metrics": ("get_metrics", {"from": "2026-11-21T12:00:00Z", "to": "2026-11-21T12:01:00Z"}),
    "alerts": ("list_alerts", {}),
    "activity": ("get_activity", {}),
    "dependencies": ("list_dependencies", {}),
    "handlers": ("list_handlers", {}),
}
DIAGNOSIS_ID: Final = "diagnosis-1"

ONES: Final[dict[str, dict[str, str]]] = {
    "get_operation": {"operation_id": OPERATION_ID},
    "get_event": {"event_id": "op-events.3"},
    "get_batch": {"batch_id": "batch-1"},
    "get_saga": {"saga_id": SAGA_ID},
    "get_action_on_many": {"action_id": ACTION_ID},
    "get_circuit": {"dependency": "payments"},
    "get_order_lane": {"order_key": "order-7"},
    "get_dead_letter_group": {"group": of_operation(an_entry("op-open"), NOON).group},
    "get_diagnosis": {"diagnosis_id": DIAGNOSIS_ID},
}
"""Documents of one thing, and where they are."""

PARAMETERS: Final = {name: value for place in ONES.values() for name, value in place.items()}

DAMAGES: Final = ("{", "[" * 3_000 + "]" * 3_000, "7", '{"status": "?"}', None, 7, b"\x00")
"""Values that no property of a row has; None removes it."""

TEXTS: Final = ("the worker died", "{", "[1]", '{"status": "?", "attempts": 7}', "[" * 3_000 + "]" * 3_000)
"""Payloads of instances that nobody of ours wrote."""


@pytest.fixture(autouse=True)
def nothing_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that are shared for a moment would hide what is damaged next."""

    async def make_at_once(_key: Any, make: Any) -> Any:
        return await make()

    monkeypatch.setattr(sharing, "shared", make_at_once)
    monkeypatch.setattr(registry, "_handlers", {})  # Other tests of this process may have some.
    monkeypatch.setattr(overview._known, "values", WeakKeyDictionary())
    monkeypatch.setattr(find, "WRITER", ActivityWriter())


ENTRY: Final = OperationEntry(
    operation_id=OPERATION_ID,
    created_at=NOON,
    key="key-1",
    dependency="payments",
    handler=None,
    source="http",
    correlation_id="order-42",
)


@pytest.fixture
async def rows() -> AsyncIterator[TablesInMemory]:
    with account() as held:
        await write_every_row()
        await write_entries("worker-2", [(OperationList.ALL, ENTRY), (OperationList.FAILED, ENTRY)])
        for kind, instance_id in zip(listed_names(), (ACTION_ID, SAGA_ID), strict=True):
            await note_created(kind, instance_id, to_rfc3339(NOON))
        yield held


@pytest.fixture
def hub() -> Iterator[DamagedHub]:
    with damaged_hub() as damaged:
        for state in whole_instances():
            damaged.put(state)
        yield damaged


@pytest.fixture
def app(functions: dict[str, Any], hub: DamagedHub, rows: TablesInMemory) -> Iterator[App]:
    del hub, rows
    with using(parse_config(DEPENDENCIES, {})):
        yield App(functions, parameters=PARAMETERS, hub=HUB)


def whole_instances() -> list[Any]:
    """Return an operation that has not begun, and a saga and a bulk action that run."""
    operation = an_operation(
        operation_id=OPERATION_ID, key="key-1", correlation_id="order-42", created_at=NOON
    )
    saga = Saga(saga_id=SAGA_ID, steps=(SagaStep(name="one", operation=operation),), created_at=NOON)
    given = BulkInput(
        action_id=ACTION_ID,
        action=BulkAction.REPLAY,
        filter=DeadLetterFilter().to_json(),
        rate_per_second=5.0,
        matched=1,
        created_at=NOON,
    )
    return [
        an_instance(
            OPERATION_ID,
            runtime_status=OrchestrationStatus.PENDING,
            serialized_input=json.dumps({"operation": operation.to_json()}),
        ),
        an_instance(SAGA_ID, serialized_input=json.dumps({"saga": saga.to_json()})),
        an_instance(
            ACTION_ID,
            serialized_input=json.dumps(given.to_json()),
            serialized_custom_status=json.dumps(BulkProgress().to_json()),
        ),
        an_instance(
            DIAGNOSIS_ID,
            serialized_custom_status=json.dumps({"reached": {"start": to_rfc3339(NOON)}}),
        ),
    ]


async def answered(app: App, name: str, **params: str) -> Any:
    """Call a function, which must answer with a document."""
    answer = await app._answer(name, **params)
    assert answer.status_code == 200, answer.get_body()
    return json.loads(answer.get_body())


OTHERS: Final = {
    *("get_health", "get_openapi", "get_dashboard", "get_dashboard_file"),
    *("get_dead_letter", "list_histories"),
    *("list_stuck", "get_hold"),
}
"""What else can be read: nothing that is stored, or of the task hub, or what the tests of actions read."""


def test_every_route_that_reads_is_among_those_that_are_tested() -> None:
    reads = {route.function for route in routing.table() if route.method == "GET"}
    assert reads - OTHERS == {name for name, _ in LISTS.values()} | ONES.keys()


AMOUNTS: Final = [
    pytest.param(1, id="one damage"),
    pytest.param(len(DAMAGES), id="all", marks=pytest.mark.long),
]
"""How many damages each member of a row gets: one of them in turn, or each."""


def damaged_in_turn(rows: TablesInMemory, amount: int) -> Iterator[None]:
    """Damage each member of each row of each table, and make the row whole before the next."""
    turn = 0
    places = [(table, row) for table in list(rows.tables) for row in rows.rows(table)]
    for table, row in places:
        for member in sorted(row.keys() - {"PartitionKey", "RowKey"}):
            for _ in range(amount):
                put(rows, table, row | {member: DAMAGES[turn % len(DAMAGES)]})
                yield
                turn += 1
        put(rows, table, row)


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("job", [check_alerts, sweep])
async def test_a_damaged_row_makes_no_check_fail(
    app: App, rows: TablesInMemory, job: Any, amount: int
) -> None:
    """What runs every minute would fail every minute, and alert and send nothing."""
    for _ in damaged_in_turn(rows, amount):
        await job(app.hub, NOON + timedelta(hours=1))


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("name", LISTS)
@pytest.mark.shows("P26")
async def test_a_damaged_row_makes_no_list_fail(
    app: App, rows: TablesInMemory, name: str, amount: int
) -> None:
    function, params = LISTS[name]
    whole = await answered(app, function, **params)
    for _ in damaged_in_turn(rows, amount):
        await answered(app, function, **params)
    assert await answered(app, function, **params) == whole


def put(rows: TablesInMemory, table: str, row: dict[str, Any]) -> None:
    """Replace a row; None leaves a member out."""
    left = {name: value for name, value in row.items() if value is not None}
    rows.get_table_client(table).upsert_entity(left, mode=UpdateMode.REPLACE)


STATES: Final = (
    OrchestrationStatus.RUNNING,
    OrchestrationStatus.PENDING,
    OrchestrationStatus.COMPLETED,
    OrchestrationStatus.FAILED,
    OrchestrationStatus.TERMINATED,
)


def damaged_instances(instance: Any) -> Iterator[Any]:
    """Give an instance with each of its payloads damaged, in every state."""
    for state in STATES:
        for payload in ("serialized_input", "serialized_custom_status", "serialized_output"):
            for text in TEXTS:
                yield replace(instance, runtime_status=state, **{payload: text})


@pytest.mark.parametrize("name", [*LISTS, *ONES])
@pytest.mark.shows("P26")
async def test_a_damaged_instance_makes_no_list_fail(app: App, hub: DamagedHub, name: str) -> None:
    function, params = LISTS.get(name, (name, {}))
    for instance in whole_instances():
        for damaged in damaged_instances(instance):
            hub.put(damaged)
            await answered(app, function, **params)
        hub.put(instance)


@pytest.mark.parametrize("name", ["order lanes", "the order lane of a key", "get_order_lane"])
async def test_a_damaged_lane_makes_no_list_fail(app: App, hub: DamagedHub, name: str) -> None:
    named = {"the order lane of a key": ("list_order_lanes", ONES["get_order_lane"])}
    function, params = (LISTS | named).get(name, (name, {}))
    lane = lane_id(ONES["get_order_lane"]["order_key"])
    for text in TEXTS:
        hub.entities = {f"{lane.entity}@{lane.key}": text}
        shown = await answered(app, function, **params)
        assert all(item["front"] is None for item in shown.get("items", [shown]))


@pytest.mark.parametrize("name", ["circuits", "overview", "get_circuit"])
async def test_a_damaged_entity_makes_no_list_fail(app: App, hub: DamagedHub, name: str) -> None:
    function, params = LISTS.get(name, (name, {}))
    for entity in ("circuit_breaker", "call_limiter"):
        for text in TEXTS:
            hub.entities = {f"{entity}@payments": text}
            await answered(app, function, **params)


IDS: Final = ("event_id", "id", "batch_id", "saga_id", "action_id", "operation_id")


def ids_of(items: list[dict[str, Any]]) -> list[str]:
    """Return the ids of the items of a list."""
    return [next(str(item[name]) for name in IDS if name in item) for item in items]


@pytest.mark.parametrize(
    ("name", "table", "member"),
    [
        ("dead letters", "DeadLetters", "document_0"),
        ("dead letters of words", "DeadLetters", "document_0"),
        ("pending events", "Commits", "event_0"),
        ("sent events", "CommitIndex", "document_0"),
        ("failed events", "CommitIndex", "document_0"),
        ("batches", "Batches", "created_at"),
    ],
)
async def test_a_row_that_cannot_be_read_is_shown_with_its_id(
    app: App, rows: TablesInMemory, name: str, table: str, member: str
) -> None:
    function, params = LISTS[name]
    whole = (await answered(app, function, **params))["items"]
    for row in list(rows.rows(table)):
        if member in row:
            put(rows, table, row | {member: "{"})
    items = (await answered(app, function, **params))["items"]
    assert ids_of(items) == ids_of(whole)
    marked = [item for item in items if "unreadable" in item]
    assert marked
    assert all(item["unreadable"] for item in marked)
    assert not any("unreadable" in item for item in whole)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("operations", OPERATION_ID),
        ("sagas", SAGA_ID),
        ("bulk actions", ACTION_ID),
        ("search", OPERATION_ID),
    ],
)
async def test_an_instance_that_cannot_be_read_is_shown_with_its_id(
    app: App, hub: DamagedHub, name: str, place: str
) -> None:
    function, params = LISTS[name]
    whole = (await answered(app, function, **params))["items"]
    assert place in ids_of(whole)
    hub.put(replace(hub.instances[place], serialized_custom_status="the worker died"))
    items = (await answered(app, function, **params))["items"]
    assert ids_of(items) == ids_of(whole)
    (item,) = (item for item in items if ids_of([item]) == [place])
    assert "the worker died" in item["unreadable"]


async def test_a_failed_operation_says_why_its_orchestration_failed(app: App, hub: DamagedHub) -> None:
    why = "Invocation of function 'operation' failed with an exception."
    failed = OrchestrationStatus.FAILED
    shown = json.dumps({"status": "running"})
    hub.put(
        replace(
            hub.instances[OPERATION_ID],
            runtime_status=failed,
            serialized_output=why,
            serialized_custom_status=shown,
        )
    )
    document = await answered(app, "get_operation")
    assert document["status"] == "dead_lettered"
    assert why in document["dead_letter"]["detail"]


@pytest.mark.parametrize("action", ["archive_dead_letter", "replay_one_dead_letter", "note_dead_letter"])
async def test_nothing_is_done_to_a_dead_letter_that_cannot_be_read(
    app: App, rows: TablesInMemory, action: str
) -> None:
    (row, *_) = (row for row in rows.rows("DeadLetters") if row["status"] == "open")
    put(rows, "DeadLetters", row | {"document_0": "{"})
    app.parameters = {"dead_letter_id": row["PartitionKey"]}
    app.bodies = {"note_dead_letter": {"text": "why"}}
    answer = await app._answer(action)
    assert answer.status_code == 409
    assert "cannot be read" in json.loads(answer.get_body())["detail"]
    assert (
        rows.get_table_client("DeadLetters").get_entity(row["PartitionKey"], row["RowKey"])["document_0"]
        == "{"
    )


RECORD: Final = f"idempotency_record@{OPERATION_ID}"
DAMAGED_RECORDS: Final = ('{"state": 7}', '{"status": "completed", "document": 7}', *TEXTS)


@pytest.mark.parametrize("text", DAMAGED_RECORDS)
async def test_a_damaged_record_leaves_what_the_instance_shows(app: App, hub: DamagedHub, text: str) -> None:
    hub.entities[RECORD] = text
    failed = OrchestrationStatus.FAILED
    hub.put(replace(hub.instances[OPERATION_ID], runtime_status=failed, serialized_output="it died"))
    assert (await answered(app, "get_operation"))["key"] == "key-1"


async def test_an_operation_of_which_only_a_damaged_record_is_left_is_shown_as_that(
    app: App, hub: DamagedHub
) -> None:
    hub.entities[RECORD] = DAMAGED_RECORDS[0]
    hub.instances.clear()
    document = await answered(app, "get_operation")
    assert (document["operation_id"], "Record" in document["unreadable"]) == (OPERATION_ID, True)


async def test_a_key_whose_record_is_damaged_starts_nothing_and_says_so(app: App, hub: DamagedHub) -> None:
    del app
    hub.entities[RECORD] = DAMAGED_RECORDS[0]
    hub.instances.clear()
    with pytest.raises(InvalidInputError, match=r"^/key: its record cannot be read: "):
        await submit(HUB, an_operation(operation_id=OPERATION_ID, keeps_record=True))


async def test_a_damaged_record_holds_up_no_upkeep(app: App, hub: DamagedHub) -> None:
    del app
    hub.entities[RECORD] = DAMAGED_RECORDS[0]
    assert not await keep_gone(HUB, ENTRY)
    assert await remove_record(HUB, OPERATION_ID, None, NOON)


WHOLE: Final = Path(__file__).with_name("answers.json")
"""What is answered about the same rows and instances when all of them can be read."""


@pytest.mark.parametrize("name", [*LISTS, *ONES, "get_dead_letter"])
async def test_what_is_whole_is_answered_as_it_was(app: App, name: str) -> None:
    """Clients and the dashboard have read these documents: members may be added, and none may change."""
    function, params = LISTS.get(name, (name, {}))
    if name == "get_dead_letter":
        letters = (await answered(app, "get_dead_letters"))["items"]
        app.parameters = PARAMETERS | {"dead_letter_id": letters[0]["id"]}
    before = json.loads(WHOLE.read_text())[name]
    assert common(before, await answered(app, function, **params)) == before

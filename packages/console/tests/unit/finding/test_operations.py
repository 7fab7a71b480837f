"""The search over an index in memory: its order, what it leaves out, and what one page reads."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import batched, chain
from random import Random
from typing import Any

import pytest

from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import OperationState, Priority
from durable_retry.features.in_process.names import CALL_SOURCE
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.operations.keys import EXPLICIT_SCOPE, operation_id_for
from durable_retry.rules.operations.status import ListedOperation
from durable_retry.runtime import clock
from durable_retry.settings.configuration import using
from durable_retry.storage import clients as storage_clients
from durable_retry.storage import tables
from durable_retry_console.finding import operations as operation_search
from durable_retry_console.finding.operations import MAX_READ, find_operations
from durable_retry_console.finding.question import BadCursorError, Question
from durable_retry_console.index.store import OperationEntry, OperationList
from durable_retry_console.states import last_error
from tests.support.builders import NOON
from tests.support.operation_index import write_entries
from tests.support.tables import TablesInMemory

ANY = Question()


@dataclass
class Hub:
    """Operations as the task hub has them, and their index.

    Attributes:
        operations: Status documents.
        held: Entries that are not in the index yet.
        asked: Ids of the documents that were asked for.
        account: Where the index is.
    """

    operations: dict[str, dict[str, Any]] = field(default_factory=dict)
    held: list[tuple[OperationList, OperationEntry]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    account: TablesInMemory = field(default_factory=TablesInMemory)

    def add(self, operation_id: str, age: timedelta = timedelta(), **more: Any) -> str:
        document: dict[str, Any] = {
            "operation_id": operation_id,
            "key": f"key of {operation_id}",
            "dependency": "payments",
            "correlation_id": None,
            "source": "http",
            "status": "succeeded",
            "attempts": [],
            "dead_letter": None,
            "created_at": to_rfc3339(NOON - age),
        }
        document |= more
        self.operations[operation_id] = document
        self.note(document)
        return operation_id

    def note(self, document: dict[str, Any]) -> None:
        names = ("operation_id", "key", "dependency", "source", "correlation_id")
        more = ("handler", "order_key", "priority", "limit_key", "debounce_key")
        shown: dict[str, Any] = {name: document.get(name) for name in (*names, *more)}
        created_at = datetime.fromisoformat(document["created_at"])
        entry = OperationEntry(**shown, created_at=created_at)
        self.held.append((OperationList.ALL, entry))
        error = last_error(document)
        if error or document["status"] != "succeeded":
            self.held.append(
                (
                    OperationList.FAILED,
                    replace(entry, error=error, status=OperationState(document["status"]), noted_us=1),
                )
            )

    async def write(self) -> None:
        held, self.held = self.held, []
        # As several processes would, a few at a time.
        for number, few in enumerate(batched(held, 701, strict=False)):
            await write_entries(f"w{number}-{len(self.operations)}", few)

    async def find(self, _hub: TaskHub, operation_id: str) -> dict[str, Any] | None:
        self.asked.append(operation_id)
        return self.operations.get(operation_id)

    def newest_first(self) -> list[str]:
        ordered = sorted(self.operations.values(), key=lambda one: (one["created_at"], one["operation_id"]))
        return [one["operation_id"] for one in reversed(ordered)]


@pytest.fixture(autouse=True)
def _renamed() -> Iterator[None]:
    with using(parse_config('[dependencies.pay]\nwas = ["payments"]', {})):
        yield


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub()
    monkeypatch.setattr(storage_clients, "table_service", lambda: hub.account)
    monkeypatch.setattr(operation_search, "find_status", hub.find)
    monkeypatch.setattr(operation_search, "write_noted", hub.write)
    monkeypatch.setattr(clock, "now", lambda: NOON)
    return hub


type Found = tuple[list[dict[str, Any]], str | None]


async def page(wanted: Question, limit: int = 50, cursor: str | None = None) -> Found:
    return await find_operations(TaskHub(""), wanted, limit=limit, cursor=cursor)


def ids(found: Found) -> list[str]:
    return [one["operation_id"] for one in found[0]]


async def pages(wanted: Question, limit: int = 50) -> list[list[str]]:
    found, cursor = [], None
    while True:
        one = await page(wanted, limit, cursor)
        assert len(one[0]) <= limit
        found.append(ids(one))
        cursor = one[1]
        if cursor is None:
            return found


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (ANY, ["op-2", "op-1"]),
        (Question(key="key of op-1"), ["op-1"]),
        (Question(correlation_id="order-42"), ["op-1"]),
        (Question(order_key="lane-7"), ["op-2"]),
        (Question(debounce_key="stock-3"), ["op-1"]),
        (Question(priority=Priority.LOW), ["op-2"]),
        (Question(priority=Priority.NORMAL), ["op-1"]),
        (Question(words="TIMEOUT"), ["op-2"]),
        (Question(words="op-1"), ["op-1"]),
        (Question(status="waiting_retry"), ["op-2"]),
        (Question(status="dead_lettered"), []),
        (Question(dependency="nowhere"), []),
    ],
)
async def test_while_the_task_hub_is_away_the_index_answers(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, wanted: Question, expected: list[str]
) -> None:
    failed = {"category": "transient", "status_code": None, "error": "Timeout"}
    hub.add("op-1", timedelta(seconds=2), correlation_id="order-42", debounce_key="stock-3")
    more = {"order_key": "lane-7", "priority": "low"}
    hub.add("op-2", timedelta(seconds=1), status="waiting_retry", attempts=[failed], **more)

    async def is_away(*_: object) -> None:
        raise TaskHubUnavailableError("the task hub answered UNAVAILABLE")

    monkeypatch.setattr(operation_search, "find_status", is_away)
    assert await everything(wanted, 1) == expected
    for shown in (await page(wanted))[0]:
        reason = ListedOperation.read(shown).unreadable or ""
        assert reason.startswith("the task hub answered UNAVAILABLE")


async def test_a_list_by_correlation_id_does_not_go_on_while_the_task_hub_is_away(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        hub.add(f"op-{number}", timedelta(seconds=number), correlation_id="order-42")
    first = await page(Question(correlation_id="order-42"), 1)

    async def is_away(*_: object) -> None:
        raise TaskHubUnavailableError("the task hub answered UNAVAILABLE")

    monkeypatch.setattr(operation_search, "find_status", is_away)
    with pytest.raises(TaskHubUnavailableError):
        await page(Question(correlation_id="order-42"), 1, first[1])


async def everything(wanted: Question, limit: int = 50) -> list[str]:
    return [each for listed in await pages(wanted, limit) for each in listed]


@pytest.mark.parametrize("limit", [1, 7, 200])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 4))])
async def test_pages_go_back_in_time_without_a_gap_or_a_repetition(hub: Hub, seed: int, limit: int) -> None:
    random = Random(seed)  # noqa: S311 - places, no secrets
    for burst in range(3):
        begun = timedelta(seconds=random.uniform(0, 10.0 ** (2 * burst + 2)))
        for number in range(120 if limit == 1 else 600):
            age = begun + timedelta(milliseconds=random.randrange(1, 500))
            hub.add(f"op-{burst}-{number}", age)
    assert await everything(ANY, limit) == hub.newest_first()


async def test_more_of_one_instant_than_a_row_holds_are_all_found(hub: Hub) -> None:
    for number in range(1_000):
        hub.add(f"op-{number}", timedelta(seconds=9))
    assert await everything(ANY, 200) == hub.newest_first()


async def test_the_first_page_of_many_reads_few(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20_000):
        hub.add(f"op-{number}", timedelta(milliseconds=50 * number))
    await hub.write()
    rows = rows_read(monkeypatch)
    assert ids(await page(ANY)) == [f"op-{number}" for number in range(50)]
    assert len(hub.asked) == 50
    assert sum(rows) <= 20


async def test_a_rare_match_is_found_by_following_the_cursor(hub: Hub) -> None:
    for number in range(2 * MAX_READ):
        hub.add(f"op-{number}", timedelta(milliseconds=number))
    hub.add("op-rare", timedelta(hours=9), source="queue")
    found = await pages(Question(source="queue"))
    assert [*chain(*found)] == ["op-rare"]
    assert found[0] == []
    assert len(found) <= 4
    assert hub.asked == ["op-rare"]


async def test_a_page_reads_a_bounded_number_of_rows_though_each_has_one_entry(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5_000):
        hub.add(f"op-{number}", timedelta(minutes=number))
    await hub.write()
    rows = rows_read(monkeypatch)
    first = await page(Question(source="queue"))
    assert (first[0], first[1] is None) == ([], False)
    assert sum(rows) <= 5_000


def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows that each query of the index returns from now on."""
    counts: list[int] = []
    query = tables.rows_after

    async def counted(*given: Any, **options: Any) -> list[tables.Row]:
        rows = await query(*given, **options)
        counts.append(len(rows))
        return rows

    monkeypatch.setattr(tables, "rows_after", counted)
    return counts


async def test_a_state_that_the_index_does_not_show_is_read_and_a_page_reads_a_bounded_number(
    hub: Hub,
) -> None:
    for number in range(1_000):
        state = "running" if number % 7 == 0 else "succeeded"
        hub.add(f"op-{number}", timedelta(seconds=number), status=state)
    wanted = Question(status=OperationState.RUNNING)
    first = await page(wanted, limit=200)
    assert 0 < len(first[0]) < 200
    assert first[1] is not None
    assert len(hub.asked) < 800
    assert await everything(wanted) == [f"op-{number}" for number in range(0, 1_000, 7)]


@pytest.mark.parametrize("status", ["waiting_retry", "waiting_circuit", "dead_lettered", "cancelled"])
async def test_the_few_that_failed_are_found_among_many_without_reading_these(hub: Hub, status: str) -> None:
    for number in range(3_000):
        hub.add(f"op-{number}", timedelta(seconds=number))
    hub.add("op-rare", timedelta(hours=9), status=status)
    assert await pages(Question(status=OperationState(status))) == [["op-rare"]]
    assert hub.asked == ["op-rare"]


@pytest.mark.parametrize("status", ["running", "pending"])
async def test_what_has_ended_is_not_read_for_a_list_of_what_runs(hub: Hub, status: str) -> None:
    for number in range(1_000):
        hub.add(f"op-{number}", timedelta(seconds=number), status="dead_lettered")
    hub.add("op-rare", timedelta(hours=9), status=status)
    assert await pages(Question(status=OperationState(status))) == [["op-rare"]]
    assert hub.asked == ["op-rare"]


async def test_the_few_dead_are_found_among_many_that_wait_and_one_that_was_cancelled_in_an_attempt_too(
    hub: Hub,
) -> None:
    for number in range(1_000):
        hub.add(f"op-{number}", timedelta(seconds=number), status="waiting_retry")
    hub.add("op-dead", timedelta(hours=9), status="dead_lettered")
    hub.add("op-over", timedelta(hours=9), status="cancelled")
    late = replace(hub.held[-1][1], status=OperationState.WAITING_RETRY, noted_us=2)
    hub.held.append((OperationList.FAILED, late))
    for status, found in (("dead_lettered", "op-dead"), ("cancelled", "op-over")):
        assert await pages(Question(status=OperationState(status))) == [[found]]
    assert hub.asked == ["op-dead", "op-over"]


async def test_a_success_whose_writes_were_refused_is_found_among_the_dead_whatever_the_clocks_say(
    hub: Hub,
) -> None:
    hub.add("op-refused", status="dead_lettered")
    kind, dead = hub.held[-1]
    hub.held.append((kind, replace(dead, status=OperationState.SUCCEEDED, noted_us=dead.noted_us + 1)))
    assert await pages(Question(status=OperationState.DEAD_LETTERED)) == [["op-refused"]]


async def test_one_that_failed_and_recovered_is_not_read_for_a_list_of_those_that_wait(hub: Hub) -> None:
    hub.add("op-1", status="waiting_retry")
    entry = hub.held[-1][1]
    hub.held.append((OperationList.FAILED, replace(entry, status=OperationState.SUCCEEDED, noted_us=2)))
    assert await everything(Question(status=OperationState.WAITING_RETRY)) == []
    assert hub.asked == []


async def test_a_replayed_operation_is_shown_once_where_it_is_now(hub: Hub) -> None:
    hub.add("op-1", timedelta(hours=2), status="dead_lettered")
    hub.add("op-2", timedelta(hours=1))
    hub.add("op-1", timedelta(minutes=1))
    assert await everything(ANY) == ["op-1", "op-2"]


async def test_an_operation_that_is_gone_is_left_out(hub: Hub) -> None:
    del hub.operations[hub.add("op-1")]
    assert await everything(ANY) == []


@pytest.mark.parametrize("name", ["correlation_id", "order_key", "limit_key", "debounce_key"])
async def test_what_shares_a_name_is_read_at_once_however_old_it_is(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for number in range(1_000):
        hub.add(f"op-{number}", timedelta(seconds=number), **{name: f"c-{number % 10}"})
    for age in (1, 2, 3):
        hub.add(f"op-x{age}", timedelta(days=age), **{name: "order-42"})
    await hub.write()
    rows = rows_read(monkeypatch)
    wanted = Question(**{name: "order-42"})  # type: ignore[arg-type] # one of the texts
    assert await pages(wanted, 2) == [["op-x1", "op-x2"], ["op-x3"]]
    assert await everything(replace(wanted, created_before=NOON - timedelta(days=2))) == ["op-x3"]
    assert rows == []


async def test_a_key_is_read_at_once(hub: Hub) -> None:
    operation_id = hub.add(operation_id_for(EXPLICIT_SCOPE, "order-42"), key="order-42")
    hub.add("op-other", key="order-43")
    assert await pages(Question(key="order-42")) == [[operation_id]]
    assert await pages(Question(key="order-42", status=OperationState.RUNNING)) == [[]]
    assert await pages(Question(key="order-42", created_before=NOON)) == [[]]


async def test_operations_of_one_key_in_several_scopes_are_paged_too(hub: Hub) -> None:
    scopes = (EXPLICIT_SCOPE, "fields:", "source:queue/operations", f"source:{CALL_SOURCE}")
    for age, scope in enumerate(scopes):
        hub.add(operation_id_for(scope, "k"), timedelta(seconds=age), key="k")
    found = await pages(Question(key="k"), limit=2)
    assert [len(each) for each in found] == [2, 2]
    assert [*chain(*found)] == hub.newest_first()


async def test_an_id_is_read_at_once(hub: Hub) -> None:
    assert await pages(Question(words=hub.add("op-there"))) == [["op-there"]]


@pytest.mark.parametrize("words", ["order-42", "ORDER-42", "42 reset", "connection reset"])
async def test_words_stand_in_a_key_the_correlation_id_or_the_last_error(hub: Hub, words: str) -> None:
    error = [{"error": "Connection reset for order-42"}]
    hub.add("op-1", timedelta(seconds=1), attempts=error)
    hub.add("op-2", timedelta(seconds=2), key="order-42/reset/connection")
    hub.add("op-3", timedelta(seconds=3), correlation_id="order-42:connection-reset")
    hub.add("op-4", timedelta(seconds=4))
    hub.add("op-5", timedelta(seconds=5), order_key="order-42 of connection/reset")
    hub.add("op-6", timedelta(seconds=6), debounce_key="connection reset order-42")
    assert await everything(Question(words=words), 2) == ["op-1", "op-2", "op-3", "op-5", "op-6"]


@pytest.mark.parametrize("limit", [1, 2, 50])
async def test_the_operation_of_exactly_this_key_is_on_the_first_page_and_on_no_other(
    hub: Hub, limit: int
) -> None:
    for number in range(1_000):
        hub.add(f"op-{number}", timedelta(seconds=number))
    related = [hub.add(f"op-x{age}", timedelta(seconds=age), correlation_id="order-42-b") for age in (1, 2)]
    old = hub.add(operation_id_for(EXPLICIT_SCOPE, "order-42"), timedelta(hours=9), key="order-42")
    found = await pages(Question(words="order-42"), limit)
    assert old in found[0]
    assert sorted(chain(*found)) == sorted([*related, old])


async def test_filters_narrow_each_other(hub: Hub) -> None:
    hub.add("op-1", dependency="stock", source="queue", handler="ship", correlation_id="c")
    hub.add("op-2", timedelta(seconds=1), dependency="stock", source="http")
    more = {"order_key": "c", "priority": "high", "limit_key": "customer-17", "debounce_key": "d"}
    hub.add("op-3", timedelta(seconds=2), status="dead_lettered", **more)
    for wanted, expected in (
        (Question(dependency="stock"), ["op-1", "op-2"]),
        (Question(dependency="stock", source="queue"), ["op-1"]),
        (Question(dependency="pay"), ["op-3"]),
        (Question(handler="ship"), ["op-1"]),
        (Question(correlation_id="c", source="http"), []),
        (Question(correlation_id="c", order_key="c"), []),
        (Question(order_key="c"), ["op-3"]),
        (Question(order_key="c", debounce_key="d", priority=Priority.HIGH), ["op-3"]),
        (Question(order_key="c", priority=Priority.NORMAL), []),
        (Question(limit_key="customer-17"), ["op-3"]),
        (Question(limit_key="customer-1"), []),
        (Question(words="customer-17"), ["op-3"]),
        (Question(priority=Priority.NORMAL), ["op-1", "op-2"]),
        (Question(priority=Priority.HIGH), ["op-3"]),
        (Question(status=OperationState.DEAD_LETTERED), ["op-3"]),
        (Question(created_after=NOON - timedelta(seconds=1)), ["op-1", "op-2"]),
        (Question(created_before=NOON), ["op-2", "op-3"]),
    ):
        assert await everything(wanted) == expected


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "bm90IGpzb24=", "WzEsIDJd", "WyJpbmRleCIsIDFd", "WyJpbmRleCIsIFtudWxsLCAiIiwgWzFdXV0="],
)
async def test_a_cursor_from_elsewhere_is_refused(hub: Hub, cursor: str) -> None:
    for wanted in (ANY, Question(correlation_id="order-42")):
        with pytest.raises(BadCursorError):
            await page(wanted, cursor=cursor)
    assert hub.asked == []

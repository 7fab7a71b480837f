"""The search over a task hub that is a list: its order, its windows, and what one page reads."""

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain
from random import Random
from typing import Any
from zlib import crc32

import pytest
from durabletask.client import OrchestrationStatus

from durable_retry import clock
from durable_retry.engine.base.json_forms import to_rfc3339
from durable_retry.engine.base.names import OperationState
from durable_retry.engine.operations.operation import explicit_scope, operation_id_for
from durable_retry.services import operation_search
from durable_retry.services.operation_search import (
    MAX_READ,
    BadCursorError,
    OperationFilter,
    OperationPage,
    find_operations,
)
from durable_retry.stores.operations import OperationPreview
from tests.support.builders import NOON

ANY = OperationFilter()


@dataclass
class Hub:
    """Operations in an order of no meaning, as Azure Storage lists them.

    Attributes:
        operations: Status documents.
        read: How many previews were read.
        asked: Ids of the documents that were asked for.
        is_whole: Whether previews have everything.
    """

    operations: dict[str, dict[str, Any]] = field(default_factory=dict)
    read: int = 0
    asked: list[str] = field(default_factory=list)
    is_whole: bool = True

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
        self.operations[operation_id] = {**document, **more}
        return operation_id

    async def scan(
        self,
        _hub: str,
        *,
        runtime_statuses: Collection[OrchestrationStatus],
        created_after: datetime | None,
        created_before: datetime | None,
    ) -> AsyncIterator[OperationPreview]:
        assert isinstance(runtime_statuses, Collection)
        for one in sorted(self.operations.values(), key=lambda one: crc32(one["operation_id"].encode())):
            created_at = datetime.fromisoformat(one["created_at"])
            # Azure Storage takes both bounds as inclusive.
            if (created_after and created_at < created_after) or (
                created_before and created_at > created_before
            ):
                continue
            self.read += 1
            yield self.preview(one, created_at)

    def preview(self, one: dict[str, Any], created_at: datetime) -> OperationPreview:
        known = one if self.is_whole else {}
        errors = [attempt["error"] for attempt in one["attempts"]]
        return OperationPreview(
            operation_id=one["operation_id"],
            created_at=created_at,
            status=OperationState(one["status"]),
            is_whole=self.is_whole,
            dependency=known.get("dependency"),
            key=known.get("key"),
            correlation_id=known.get("correlation_id"),
            source=known.get("source"),
            handler=known.get("handler"),
            attempt_count=0,
            next_attempt_at=None,
            last_error=errors[-1] if errors else "",
        )

    async def find(self, _hub: str, operation_id: str) -> dict[str, Any] | None:
        self.asked.append(operation_id)
        return self.operations.get(operation_id)

    def newest_first(self) -> list[str]:
        ordered = sorted(self.operations.values(), key=lambda one: (one["created_at"], one["operation_id"]))
        return [one["operation_id"] for one in reversed(ordered)]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub()
    monkeypatch.setattr(operation_search, "scan_operations", hub.scan)
    monkeypatch.setattr(operation_search, "find_status", hub.find)
    monkeypatch.setattr(clock, "now", lambda: NOON)
    return hub


async def page(wanted: OperationFilter, limit: int = 50, cursor: str | None = None) -> OperationPage:
    return await find_operations("", wanted, tenant="", limit=limit, cursor=cursor)


def ids(found: OperationPage) -> list[str]:
    return [one["operation_id"] for one in found.documents]


async def pages(wanted: OperationFilter, limit: int = 50) -> list[list[str]]:
    found, cursor = [], None
    while True:
        one = await page(wanted, limit, cursor)
        assert len(one.documents) <= limit
        found.append(ids(one))
        cursor = one.cursor
        if cursor is None:
            return found


async def everything(wanted: OperationFilter, limit: int = 50) -> list[str]:
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


async def test_more_of_one_instant_than_a_window_holds_are_all_found(hub: Hub) -> None:
    for number in range(1_000):
        hub.add(f"op-{number}", timedelta(seconds=9))
    assert await everything(ANY, 200) == hub.newest_first()


async def test_the_first_page_of_many_reads_few(hub: Hub) -> None:
    for number in range(20_000):
        hub.add(f"op-{number}", timedelta(milliseconds=50 * number))
    assert ids(await page(ANY)) == [f"op-{number}" for number in range(50)]
    assert hub.read < 4_000


async def test_a_rare_match_is_found_by_following_the_cursor(hub: Hub) -> None:
    for number in range(2 * MAX_READ):
        hub.add(f"op-{number}", timedelta(seconds=number))
    hub.add("op-rare", timedelta(seconds=2 * MAX_READ), correlation_id="order-42")
    found = await pages(OperationFilter(correlation_id="order-42"))
    assert found[-1] == ["op-rare"]
    assert found[0] == []
    assert len(found) <= 5
    assert hub.asked == ["op-rare"]


async def test_an_operation_without_a_preview_is_read_and_a_page_reads_a_bounded_number(hub: Hub) -> None:
    hub.is_whole = False
    for number in range(1_000):
        hub.add(f"op-{number}", timedelta(seconds=number), source="queue" if number % 7 == 0 else "http")
    wanted = OperationFilter(source="queue")
    first = await page(wanted, limit=200)
    assert 0 < len(first.documents) < 200
    assert first.cursor is not None
    assert len(hub.asked) < 800
    assert await everything(wanted) == [f"op-{number}" for number in range(0, 1_000, 7)]


async def test_a_key_is_read_at_once(hub: Hub) -> None:
    operation_id = hub.add(operation_id_for(explicit_scope(""), "order-42"), key="order-42")
    hub.add("op-other", key="order-43")
    assert await pages(OperationFilter(key="order-42")) == [[operation_id]]
    assert await pages(OperationFilter(key="order-42", status=OperationState.RUNNING)) == [[]]
    assert await pages(OperationFilter(key="order-42", created_before=NOON)) == [[]]
    assert hub.read == 0


async def test_operations_of_one_key_in_several_scopes_are_paged_too(hub: Hub) -> None:
    scopes = (explicit_scope(""), "fields:", "source:queue/operations")
    for age, scope in enumerate(scopes):
        hub.add(operation_id_for(scope, "k"), timedelta(seconds=age), key="k")
    found = await pages(OperationFilter(key="k"), limit=2)
    assert [len(each) for each in found] == [2, 1]
    assert [*chain(*found)] == hub.newest_first()


async def test_an_id_is_read_at_once(hub: Hub) -> None:
    assert await pages(OperationFilter(words=hub.add("op-there"))) == [["op-there"]]
    assert hub.read == 0


@pytest.mark.parametrize("words", ["order-42", "ORDER-42", "42 reset", "connection reset"])
async def test_words_stand_in_the_key_the_correlation_id_or_the_last_error(hub: Hub, words: str) -> None:
    error = [{"error": "Connection reset for order-42"}]
    hub.add("op-1", timedelta(seconds=1), attempts=error)
    hub.add("op-2", timedelta(seconds=2), key="order-42/reset/connection")
    hub.add("op-3", timedelta(seconds=3), correlation_id="order-42:connection-reset")
    hub.add("op-4", timedelta(seconds=4))
    assert await everything(OperationFilter(words=words), 2) == ["op-1", "op-2", "op-3"]


@pytest.mark.parametrize("limit", [1, 2, 50])
async def test_the_operation_of_exactly_this_key_is_on_the_first_page_and_on_no_other(
    hub: Hub, limit: int
) -> None:
    for number in range(1_000):
        hub.add(f"op-{number}", timedelta(seconds=number))
    related = [hub.add(f"op-x{age}", timedelta(seconds=age), correlation_id="order-42") for age in (1, 2)]
    old = hub.add(operation_id_for(explicit_scope(""), "order-42"), timedelta(hours=9), key="order-42")
    found = await pages(OperationFilter(words="order-42"), limit)
    assert old in found[0]
    assert sorted(chain(*found)) == sorted([*related, old])


async def test_a_tenant_finds_its_own_key(hub: Hub) -> None:
    hub.add(operation_id_for(explicit_scope("acme"), "k"), key="k")
    found = await find_operations("", OperationFilter(key="k"), tenant="acme", limit=5, cursor=None)
    assert len(found.documents) == 1


async def test_filters_narrow_each_other(hub: Hub) -> None:
    hub.add("op-1", dependency="stock", source="queue", handler="ship", correlation_id="c")
    hub.add("op-2", timedelta(seconds=1), dependency="stock", source="http")
    hub.add("op-3", timedelta(seconds=2), status="dead_lettered")
    for wanted, expected in (
        (OperationFilter(dependency="stock"), ["op-1", "op-2"]),
        (OperationFilter(dependency="stock", source="queue"), ["op-1"]),
        (OperationFilter(handler="ship"), ["op-1"]),
        (OperationFilter(correlation_id="c", source="http"), []),
        (OperationFilter(status=OperationState.DEAD_LETTERED), ["op-3"]),
        (OperationFilter(created_after=NOON - timedelta(seconds=1)), ["op-1", "op-2"]),
        (OperationFilter(created_before=NOON), ["op-2", "op-3"]),
    ):
        assert await everything(wanted) == expected


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "bm90IGpzb24=", "WzEsIDJd", "W251bGwsICIiLCAtMSwgW11d", "W251bGwsICIiLCBudWxsLCBbMV1d"],
)
async def test_a_cursor_from_elsewhere_is_refused(hub: Hub, cursor: str) -> None:
    with pytest.raises(BadCursorError):
        await page(ANY, cursor=cursor)
    assert hub.read == 0

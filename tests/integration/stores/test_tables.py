"""Rows, transactions, versions and ranges, on real tables and on the fake that the simulation uses."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import AsyncMock

import grpc
import pytest
from azure.core.exceptions import ServiceResponseError
from azure.core.paging import PageIterator

from durable_retry.base.errors import ContendedError, StorageRefusedError
from durable_retry.storage import contents, tables
from tests.support.narrowing import existing

pytestmark = pytest.mark.usefixtures("any_tables")


def row(key: str, **values: Any) -> dict[str, Any]:
    return {"PartitionKey": "p", "RowKey": key, **values}


async def test_a_missing_table_is_made_by_its_first_row() -> None:
    assert await tables.insert_if_absent("MadeByInsert", row("a"))
    await tables.merge("MadeByMerge", row("a", x=1))
    assert await tables.transact("MadeByTransaction", [("create", row("a"))])


async def test_reading_a_missing_table_or_row_gives_nothing() -> None:
    assert await tables.read("NeverMade", "p", "a") is None
    await tables.insert_if_absent("Read", row("a"))
    assert await tables.read("Read", "p", "b") is None


@pytest.mark.parametrize("key", ["a/b", "a\\b", "a#b", "a?b", "a\tb", "a\x85b", "x" * 513])
async def test_reading_a_row_by_a_key_that_no_row_can_have_gives_nothing(key: str) -> None:
    assert await tables.read("Read", key, "a") is None
    assert await tables.read("Read", "p", key) is None


async def test_of_twenty_inserts_of_one_row_exactly_one_wins() -> None:
    won = await asyncio.gather(*(tables.insert_if_absent("Race", row("a", n=n)) for n in range(20)))
    assert won.count(True) == 1


async def test_merging_keeps_what_is_not_named() -> None:
    await tables.merge("Merge", row("a", x=1, y=2))
    await tables.merge("Merge", row("a", y=3))
    kept = existing(await tables.read("Merge", "p", "a"))
    assert (kept["x"], kept["y"]) == (1, 3)


async def test_a_transaction_is_made_wholly_or_not_at_all() -> None:
    await tables.insert_if_absent("Together", row("taken"))
    assert not await tables.transact("Together", [("create", row("new")), ("create", row("taken"))])
    assert await tables.read("Together", "p", "new") is None


async def test_a_change_that_can_never_be_made_is_refused_and_says_why() -> None:
    elsewhere = {"PartitionKey": "q", "RowKey": "b"}
    with pytest.raises((StorageRefusedError, ValueError)):
        await tables.transact("Refused", [("create", row("a")), ("create", elsewhere)])
    with pytest.raises(StorageRefusedError, match="ResourceNotFound"):
        await tables.transact("Refused", [("create", row("c")), ("delete", row("not there"))])


async def test_long_texts_come_back_whole() -> None:
    text = "\u00e4\U0001f600" * 30_000
    await tables.merge("Long", row("a", **contents.packed("document", text)))
    assert contents.unpacked("document", existing(await tables.read("Long", "p", "a"))) == text


async def version_of(table: str, key: str) -> tables.Versioned:
    return existing(await tables.read_version(table, "p", key))


async def test_a_version_is_changed_once() -> None:
    await tables.insert_if_absent("Versions", row("a", x=1, y=1))
    seen = await version_of("Versions", "a")
    assert await tables.merge_version("Versions", row("a", x=2), seen.etag)
    assert not await tables.merge_version("Versions", row("a", x=3), seen.etag)
    assert {name: (await version_of("Versions", "a")).row[name] for name in "xy"} == {"x": 2, "y": 1}


async def test_a_changed_row_is_not_removed_by_its_old_version() -> None:
    await tables.insert_if_absent("Removals", row("a"))
    seen = await version_of("Removals", "a")
    await tables.merge("Removals", row("a", x=1))
    assert not await tables.delete_version("Removals", "p", "a", seen.etag)
    assert await tables.delete_version("Removals", "p", "a", (await version_of("Removals", "a")).etag)
    assert await tables.read_version("Removals", "p", "a") is None


async def test_a_row_that_is_gone_cannot_be_changed_and_needs_no_removal() -> None:
    await tables.insert_if_absent("Gone", row("a"))
    seen = await version_of("Gone", "a")
    await tables.delete("Gone", "p", "a")
    await tables.delete("Gone", "p", "a")
    assert not await tables.merge_version("Gone", row("a", x=2), seen.etag)
    assert await tables.delete_version("Gone", "p", "a", seen.etag)


async def test_a_range_is_read_page_by_page_in_order_and_ends() -> None:
    keys = [f"k{number:03d}" for number in range(7)] + ["it's", "zzz"]
    for key in keys:
        await tables.insert_if_absent("Ranges", row(key))
    first = await tables.rows_between("Ranges", "p", after="k", before="l", limit=3)
    second = await tables.rows_between("Ranges", "p", after="k", before="l", limit=4, cursor=first.cursor)
    assert [found["RowKey"] for found in [*first.rows, *second.rows]] == keys[:7]
    assert (first.cursor, second.cursor) == ("k002", None)
    assert len((await tables.rows_between("Ranges", "p")).rows) == 9
    assert [r["RowKey"] for r in (await tables.rows_between("Ranges", "p", cursor="it's", limit=1)).rows] == [
        "k000"
    ]


async def test_a_property_must_have_one_of_the_values_that_are_asked_for() -> None:
    for number, word in enumerate(("a", "b", "it's", "a")):
        await tables.insert_if_absent("Words", row(f"{number}", word=word, kind=f"{number % 2}"))
    found = await tables.rows_between("Words", "p", where={"word": ("a", "it's"), "kind": ["0"]})
    assert [each["RowKey"] for each in found.rows] == ["0", "2"]


async def test_more_rows_than_the_service_gives_at_once_are_all_read() -> None:
    for begin in range(0, 1_100, 100):
        changes: list[tables.Change] = [("create", row(f"{n:05d}")) for n in range(begin, begin + 100)]
        assert await tables.transact("Many", changes)
    assert len((await tables.rows_between("Many", "p")).rows) == 1_100
    assert len((await tables.rows_between("Many", "p", limit=1_050)).rows) == 1_050


def count_of(found: tables.Row) -> int:
    return int(found["count"])


def with_count(count: int) -> tables.Row:
    return {"count": count}


async def counted(table: str, key: str) -> int:
    def rule(count: int | None) -> int:
        return (count or 0) + 1

    return await tables.change_row(table, row(key), rule, read=count_of, write=with_count)


async def test_changes_at_once_are_made_one_after_the_other() -> None:
    assert sorted(await asyncio.gather(*(counted("Counts", "a") for _ in range(4)))) == [1, 2, 3, 4]


async def test_a_rule_that_changes_nothing_writes_nothing() -> None:
    await counted("Unchanged", "a")
    seen = await version_of("Unchanged", "a")
    assert await tables.change_row("Unchanged", row("a"), lambda _: 1, read=count_of, write=with_count) == 1
    assert await version_of("Unchanged", "a") == seen


async def test_a_row_that_others_keep_changing_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    await counted("Contended", "a")
    monkeypatch.setattr(tables, "replace_version", AsyncMock(return_value=False))
    with pytest.raises(ContendedError, match="Contended"):
        await counted("Contended", "a")


async def test_a_change_whose_answer_is_lost_meets_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    insert = tables.insert_if_absent

    async def losing(table: str, made: tables.Row) -> bool:
        await insert(table, made)
        raise ServiceResponseError("the answer is lost")

    monkeypatch.setattr(tables, "insert_if_absent", losing)
    seen: list[int | None] = []

    def rule(count: int | None) -> int:
        seen.append(count)
        return 1

    assert await tables.change_row("Lost", row("a"), rule, read=count_of, write=with_count) == 1
    assert seen == [None, 1]


@contextmanager
def cycles() -> Iterator[list[Any]]:
    """Yield a list that has, when the block has ended, what only the garbage collector frees."""
    found: list[Any] = []
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def test_what_storage_answered_is_freed_without_the_garbage_collector() -> None:
    """A page may have a megabyte, and the collector comes after so many objects."""
    assert await tables.insert_if_absent("Freed", row("a"))
    with cycles() as found:
        assert not await tables.insert_if_absent("Freed", row("a"))
        assert await tables.read("Freed", "p", "b") is None
        assert (await tables.rows_between("Freed", "p", limit=1)).rows
        assert await tables.rows_after("Freed", "o", limit=1)
        assert await tables.read_partition("Freed", "p")
        assert await tables.tables_between("F", "G")
    # Streams of an earlier test's channel end on a thread of gRPC.
    own = (each for each in found if not isinstance(each, grpc.RpcError))
    assert [each for each in own if isinstance(each, PageIterator | BaseException)] == []

import asyncio
from typing import Any

import pytest

from durable_retry.engine.base.errors import StorageRefusedError
from durable_retry.stores.storage import contents, tables

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


async def test_of_twenty_inserts_of_one_row_exactly_one_wins() -> None:
    won = await asyncio.gather(*(tables.insert_if_absent("Race", row("a", n=n)) for n in range(20)))
    assert won.count(True) == 1


async def test_merging_keeps_what_is_not_named() -> None:
    await tables.merge("Merge", row("a", x=1, y=2))
    await tables.merge("Merge", row("a", y=3))
    kept = await tables.read("Merge", "p", "a")
    assert kept is not None
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
    kept = await tables.read("Long", "p", "a")
    assert kept is not None
    assert contents.unpacked("document", kept) == text

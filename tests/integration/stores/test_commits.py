from typing import Any

import pytest

from stores import tables
from stores.commits import commit_success
from stores.outbox_index import INDEX_TABLE, PENDING_PARTITION
from stores.outbox_place import OUTBOX_TABLE
from tests.operation_stage import START

pytestmark = pytest.mark.usefixtures("storage")

EVENT = {"type": "order.placed", "queue": "order-events", "data": {"order": 1}}


def a_write(row_key: str, mode: str = "replace", **values: Any) -> dict[str, Any]:
    return {
        "table": "Orders",
        "partition_key": "customer-1",
        "row_key": row_key,
        "values": values,
        "mode": mode,
    }


async def test_result_writes_and_events_stand_side_by_side() -> None:
    shown = await commit_success("op-1", {"value": 1}, [a_write("o-1", amount=5)], [EVENT], START)
    assert shown == [{"event_id": "op-1.1", "type": "order.placed", "state": "pending"}]
    order = await tables.read("Orders", "customer-1", "o-1")
    outbox = await tables.read("Orders", "customer-1", "outbox-op-1.1")
    commit = await tables.read("Orders", "customer-1", "commit-op-1")
    assert order is not None
    assert outbox is not None
    assert commit is not None
    assert order["amount"] == 5
    assert outbox["state"] == "pending"


async def test_pending_events_are_found_through_a_small_index() -> None:
    await commit_success("op-2", {"value": 1}, [], [EVENT], START)
    noted = await tables.read(INDEX_TABLE, PENDING_PARTITION, "op-2")
    assert noted is not None
    assert (noted["table"], noted["partition_key"]) == (OUTBOX_TABLE, "op-2")


async def test_a_repeated_commit_changes_nothing_and_answers_the_same() -> None:
    first = await commit_success("op-3", {"value": 1}, [a_write("o-3", amount=5)], [EVENT], START)
    await tables.merge("Orders", {"PartitionKey": "customer-1", "RowKey": "o-3", "amount": 6})
    again = await commit_success("op-3", {"value": 1}, [a_write("o-3", amount=5)], [EVENT], START)
    kept = await tables.read("Orders", "customer-1", "o-3")
    assert again == first
    assert kept is not None
    assert kept["amount"] == 6


async def test_a_row_that_must_be_new_and_is_not_refuses_all_of_it() -> None:
    await tables.merge("Orders", {"PartitionKey": "customer-1", "RowKey": "o-4"})
    with pytest.raises(tables.StorageRefusedError, match="EntityAlreadyExists"):
        await commit_success("op-4", {"value": 1}, [a_write("o-4", "insert")], [EVENT], START)
    assert await tables.read("Orders", "customer-1", "outbox-op-4.1") is None


async def test_rows_can_be_merged_and_deleted() -> None:
    await tables.merge("Orders", {"PartitionKey": "customer-1", "RowKey": "o-5", "kept": "yes"})
    await tables.merge("Orders", {"PartitionKey": "customer-1", "RowKey": "o-6"})
    writes = [a_write("o-5", "merge", amount=1), a_write("o-6", "delete")]
    await commit_success("op-5", {"value": 1}, writes, [], START)
    merged = await tables.read("Orders", "customer-1", "o-5")
    assert merged is not None
    assert (merged["kept"], merged["amount"]) == ("yes", 1)
    assert await tables.read("Orders", "customer-1", "o-6") is None

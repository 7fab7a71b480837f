import asyncio
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest

from durable_retry.attempt import commits
from durable_retry.attempt.commits import INDEX_TABLE, TABLE, ConflictError, commit_success
from durable_retry.base.errors import ContendedError, StorageRefusedError
from durable_retry.features.outbox.event_store import events_of
from durable_retry.features.outbox.index_store import read_note
from durable_retry.features.retention.removal import COMMITS
from durable_retry.features.retention.walks import remove_entries
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.operations.keys import OvertakenError
from durable_retry.storage import tables
from durable_retry.storage.lists import SHARDS
from durable_retry.upkeep.removal import Past
from tests.support.builders import NOON, a_success
from tests.support.narrowing import existing

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
    await commit_success("op-1.1", a_success([a_write("o-1", amount=5)], [EVENT]), NOON)
    order = await tables.read("Orders", "customer-1", "o-1")
    outbox = await tables.read("Orders", "customer-1", "outbox-op-1.1.1")
    commit = await tables.read("Orders", "customer-1", "commit-op-1.1")
    assert order is not None
    assert outbox is not None
    assert commit is not None
    assert order["amount"] == 5
    assert outbox["state"] == "pending"


async def test_pending_events_are_found_through_a_small_index() -> None:
    await commit_success("op-2.1", a_success(events=[EVENT]), NOON)
    noted = existing(await read_note("op-2.1"))
    assert (noted.location.table, noted.location.partition_key) == (TABLE, "op-2.1")


@pytest.mark.shows("W2")
async def test_a_repeated_commit_changes_nothing() -> None:
    await commit_success("op-3.1", a_success([a_write("o-3", amount=5)], [EVENT]), NOON)
    await tables.merge("Orders", {"PartitionKey": "customer-1", "RowKey": "o-3", "amount": 6})
    await commit_success("op-3.1", a_success([a_write("o-3", amount=5)], [EVENT]), NOON)
    assert existing(await tables.read("Orders", "customer-1", "o-3"))["amount"] == 6


async def test_a_row_that_must_be_new_and_is_not_refuses_all_of_it() -> None:
    await tables.merge("Orders", {"PartitionKey": "customer-1", "RowKey": "o-4"})
    with pytest.raises(StorageRefusedError, match="EntityAlreadyExists"):
        await commit_success("op-4.1", a_success([a_write("o-4", "insert")], [EVENT]), NOON)
    assert await tables.read("Orders", "customer-1", "outbox-op-4.1.1") is None


async def test_events_that_no_feature_sends_are_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commits, "plugins", tuple)
    with pytest.raises(ValueError, match="no feature that sends events"):
        await commit_success("op-14.1", a_success([a_write("o-14")], [EVENT]), NOON)
    assert await tables.read("Orders", "customer-1", "o-14") is None


async def test_a_later_run_of_the_key_commits_its_own_writes_and_events() -> None:
    await commit_success("op-7.1", a_success([a_write("o-7", amount=5)], [EVENT]), NOON)
    await commit_success("op-7.2", a_success([a_write("o-7", amount=6)], [EVENT]), NOON)
    assert existing(await tables.read("Orders", "customer-1", "o-7"))["amount"] == 6
    assert [event.event_id for event in await events_of("op-7.1")] == ["op-7.1.1"]
    assert [event.event_id for event in await events_of("op-7.2")] == ["op-7.2.1"]


async def amount_of(row_key: str) -> Any:
    return existing(await tables.read("Orders", "customer-1", row_key))["amount"]


@pytest.mark.shows("A5")
async def test_a_run_that_is_over_cannot_commit_behind_a_later_one() -> None:
    """It took the commit before, and was held up for longer than the later run took."""
    await commit_success("op-10.3", a_success([a_write("o-10", amount=3)]), NOON)
    for outbox_id in ("op-10.2", "op-10.1"):
        with pytest.raises(OvertakenError, match="run 3 of this key"):
            await commit_success(outbox_id, a_success([a_write("o-10", amount=2)], [EVENT]), NOON)
        assert await tables.read("Orders", "customer-1", f"outbox-{outbox_id}.1") is None
    assert await amount_of("o-10") == 3
    await commit_success("op-10.4", a_success([a_write("o-10", amount=4)]), NOON)
    await commit_success("op-10.3", a_success([a_write("o-10", amount=3)]), NOON)  # repeated
    assert await amount_of("o-10") == 4


async def test_runs_that_commit_at_the_same_time_end_with_the_latest() -> None:
    async def committed(run: int) -> None:
        with suppress(OvertakenError):
            write = a_write("o-11", amount=run)
            await commit_success(f"op-11.{run}", a_success([write], result={"value": run}), NOON)

    await asyncio.gather(*(committed(run) for run in range(2, 10)))
    assert await amount_of("o-11") == 9


async def removed_before(instant: datetime) -> None:
    for shard in range(SHARDS):
        await remove_entries(COMMITS, Past(hub=TaskHub(""), now=NOON, before=instant, shard=shard))


async def test_the_fence_of_a_later_run_outlives_the_commit_of_an_earlier_one() -> None:
    late = NOON + timedelta(days=9)
    await commit_success("op-12.2", a_success([a_write("o-12", amount=2)]), NOON)
    await commit_success("op-12.3", a_success([a_write("o-12", amount=3)]), late)
    await removed_before(NOON + timedelta(days=1))
    with pytest.raises(OvertakenError, match="run 3 of this key"):
        await commit_success("op-12.2", a_success([a_write("o-12", amount=2)]), NOON)
    await removed_before(late + timedelta(days=1))
    assert await tables.read("Orders", "customer-1", "fence-op-12") is None


async def test_a_fence_costs_no_request_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    async def counted(table: str, action: Any) -> Any:
        made.append(table)
        return await run(table, action)

    run = tables._run_on_table
    monkeypatch.setattr(tables, "_run_on_table", counted)
    await commit_success("op-13.2", a_success([a_write("o-13", amount=2)]), NOON)
    assert made == [INDEX_TABLE, "Orders"]


async def test_a_commit_without_events_is_removed_after_its_time() -> None:
    await commit_success("op-8.1", a_success([a_write("o-8", amount=5)]), NOON)
    await commit_success("op-9.1", a_success([a_write("o-9", amount=5)]), NOON + timedelta(days=9))
    await removed_before(NOON + timedelta(days=1))
    rows = [await tables.read("Orders", "customer-1", f"commit-op-{number}.1") for number in (8, 9)]
    assert [row is None for row in rows] == [True, False]
    assert await tables.read("Orders", "customer-1", "o-8") is not None


async def test_rows_can_be_merged_and_deleted() -> None:
    await tables.merge("Orders", {"PartitionKey": "customer-1", "RowKey": "o-5", "kept": "yes"})
    await tables.merge("Orders", {"PartitionKey": "customer-1", "RowKey": "o-6"})
    writes = [a_write("o-5", "merge", amount=1), a_write("o-6", "delete")]
    await commit_success("op-5.1", a_success(writes), NOON)
    merged = existing(await tables.read("Orders", "customer-1", "o-5"))
    assert (merged["kept"], merged["amount"]) == ("yes", 1)
    assert await tables.read("Orders", "customer-1", "o-6") is None


# What the client library does with an answer in XML.
@pytest.mark.filterwarnings("ignore:Testing an element's truth value:DeprecationWarning")
@pytest.mark.parametrize("table", ["Tables", "no", "a-b"])
async def test_whatever_storage_refuses_for_good_is_said_and_not_tried_for_ever(table: str) -> None:
    """The service reads `Tables` as its own list of tables, and says so to every request."""
    with pytest.raises(StorageRefusedError, match="resource name"):
        await commit_success("op-40.1", a_success([a_write("o-40") | {"table": table}]), NOON)


@pytest.mark.parametrize("number", [2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, -(2**63)])
async def test_a_whole_number_is_kept_with_all_its_digits(number: int) -> None:
    await commit_success(f"op-41{number}.1", a_success([a_write("o-41", number=number)]), NOON)
    kept = existing(await tables.read("Orders", "customer-1", "o-41"))
    assert getattr(kept["number"], "value", kept["number"]) == number


def an_update(row_key: str, *, etag: str | None = None, only_if: Any = None, **values: Any) -> dict[str, Any]:
    conditions = {"etag": etag, "only_if": only_if}
    write = a_write(row_key, "update", **values)
    return write | {name: condition for name, condition in conditions.items() if condition}


async def stored(row_key: str, **values: Any) -> tables.Versioned:
    keys = {"PartitionKey": "customer-1", "RowKey": row_key}
    await tables.merge("Orders", keys | values)
    return existing(await tables.read_version("Orders", *keys.values()))


async def test_an_update_is_made_where_its_row_is_as_it_wants_it() -> None:
    version = await stored("u-1", status="Pending", amount=(2**40, "Edm.Int64"), kept="yes")
    wanted = {"status": "Pending", "amount": 2**40, "paid_at": None}
    write = an_update("u-1", etag=version.etag, only_if=wanted, status="Paid")
    await commit_success("op-50.1", a_success([write], [EVENT]), NOON)
    row = existing(await tables.read("Orders", "customer-1", "u-1"))
    assert (row["status"], row["kept"]) == ("Paid", "yes")


@pytest.mark.parametrize(
    ("conditions", "detail"),
    [
        ({"only_if": {"status": "Pending"}}, "status is 'Paid', not 'Pending'"),
        ({"only_if": {"is_new": 1}}, "is_new is True, not 1"),
        ({"only_if": {"amount": 7}}, "amount is None, not 7"),
        ({"etag": 'W/"old"'}, "it was changed since it was read"),
    ],
)
async def test_a_row_that_is_not_as_an_update_wants_it_leaves_everything_as_it_was(
    conditions: dict[str, Any], detail: str
) -> None:
    await stored("u-2", status="Paid", is_new=True)
    writes = [an_update("u-2", **conditions, status="Sent"), a_write("u-3", amount=1)]
    with pytest.raises(ConflictError) as conflicted:
        await commit_success("op-51.1", a_success(writes, [EVENT]), NOON)
    assert (conflicted.value.conflict.row_key, conflicted.value.conflict.detail) == ("u-2", detail)
    rows = [await tables.read("Orders", "customer-1", key) for key in ("u-3", "outbox-op-51.1.1")]
    assert rows == [None, None]


async def test_a_row_that_is_missing_is_a_conflict() -> None:
    with pytest.raises(ConflictError, match="row 'u-4' of Orders: there is no such row"):
        await commit_success("op-52.1", a_success([an_update("u-4", status="Paid")]), NOON)


async def test_a_repeated_commit_does_not_take_its_own_update_for_a_conflict() -> None:
    await stored("u-5", status="Pending")
    for _ in range(2):
        write = an_update("u-5", only_if={"status": "Pending"}, status="Paid")
        await commit_success("op-53.1", a_success([write]), NOON)


def changing(monkeypatch: pytest.MonkeyPatch, times: int, **values: Any) -> None:
    """Let another process change the row `u-6` between the reading and the transaction."""
    transact, left = tables.transact, [times]

    async def raced(table: str, changes: Any) -> bool:
        if left[0]:
            left[0] -= 1
            await stored("u-6", seen=left[0], **values)
        return await transact(table, changes)

    monkeypatch.setattr(tables, "transact", raced)


async def test_a_change_of_another_property_while_it_commits_is_no_conflict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await stored("u-6", status="Pending")
    changing(monkeypatch, 3)
    write = an_update("u-6", only_if={"status": "Pending"}, status="Paid")
    await commit_success("op-54.1", a_success([write]), NOON)
    row = existing(await tables.read("Orders", "customer-1", "u-6"))
    assert (row["status"], row["seen"]) == ("Paid", 0)


async def test_a_change_of_what_it_wants_while_it_commits_is_a_conflict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await stored("u-6", status="Pending")
    changing(monkeypatch, 1, status="Cancelled")
    write = an_update("u-6", only_if={"status": "Pending"}, status="Paid")
    with pytest.raises(ConflictError, match="status is 'Cancelled', not 'Pending'"):
        await commit_success("op-55.1", a_success([write]), NOON)


async def test_a_row_that_others_change_without_end_is_given_up_for_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await stored("u-6", status="Pending")
    changing(monkeypatch, 99)
    with pytest.raises(ContendedError, match="Orders customer-1"):
        await commit_success("op-56.1", a_success([an_update("u-6", status="Paid")]), NOON)


async def test_of_operations_that_update_a_row_at_once_exactly_one_commits() -> None:
    await stored("u-7", status="Pending")

    async def paid(number: int) -> bool:
        write = an_update("u-7", only_if={"status": "Pending"}, status=f"Paid by {number}")
        with suppress(ConflictError):
            await commit_success(f"op-57{number}.1", a_success([write]), NOON)
            return True
        return False

    assert sum(await asyncio.gather(*map(paid, range(8)))) == 1

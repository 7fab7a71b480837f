from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest

from durable_retry.attempt import markers as writes
from durable_retry.attempt.markers import insert_marker, write_outcome
from durable_retry.features.retention import walks
from durable_retry.features.retention.removal import MARKERS
from durable_retry.features.retention.rounds import RetentionKind, RetentionPart, kinds, remove_past
from durable_retry.features.retention.walks import MARKERS_KEPT, ROUND_EVERY, remove_in_partitions
from durable_retry.operations.actions import submit
from durable_retry.storage import rounds, tables
from durable_retry.upkeep.removal import Past
from durable_retry.upkeep.rounds import run_maintenance
from tests.support.builders import NOON, a_life, an_operation, failing
from tests.support.hub import TaskHubStage
from tests.support.narrowing import existing

OLD = NOON - MARKERS_KEPT - timedelta(seconds=1)


@pytest.fixture(autouse=True)
def markers_of_its_own(
    request: pytest.FixtureRequest, storage: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    suffix = sha256(request.node.name.encode()).hexdigest()[:16]
    assert storage is not None
    monkeypatch.setattr("durable_retry.attempt.markers.TABLE", f"Markers{suffix}")
    monkeypatch.setattr("durable_retry.storage.rounds.TABLE", f"Upkeep{suffix}")


async def names() -> list[str]:
    return list(await kept())


async def kept() -> dict[str, list[str]]:
    """Return the row keys of all writes, by their owner."""
    found, _ = await rounds.partitions_after(writes.TABLE, "", limit=1_000, only=tables.KEYS)
    return {owner: [row["RowKey"] for row in rows] for owner, rows in found}


def past(hub: TaskHubStage, **more: Any) -> Past:
    return Past(hub=hub.binding, now=NOON, before=NOON - MARKERS_KEPT, **more)


async def removed(hub: TaskHubStage) -> int:
    numbers = []
    for shard in range(kinds()[RetentionKind.MARKERS].shards):
        number, following = await remove_in_partitions(MARKERS, past(hub, shard=shard))
        assert following == ""
        numbers.append(number)
    return sum(numbers)


async def test_markers_go_when_the_operation_has_ended_and_they_are_old(hub: TaskHubStage) -> None:
    hub.answer = failing(0)
    await submit(hub.binding, an_operation(operation_id="op-ended", created_at=NOON, deadline_at=None))
    assert await hub.binding.wait_for_end("op-ended", 20) is not None
    for run, attempt, marked_at in (
        ("op-ended", 1, OLD - timedelta(days=3)),
        ("op-ended", 2, OLD),
        ("op-ended.dl-7", 1, OLD),
        ("op-gone", 1, OLD),
        ("op-young", 1, NOON),
    ):
        assert await insert_marker(a_life(run), attempt, now=marked_at) is None
    await run_maintenance(hub.binding, NOON)
    assert await names() == ["op-young"]


async def test_an_operation_that_goes_on_keeps_its_markers_however_old(hub: TaskHubStage) -> None:
    hub.answer = failing(99)
    await submit(hub.binding, an_operation(operation_id="op-waits", created_at=NOON, deadline_at=None))
    await insert_marker(a_life("op-waits"), 1, now=OLD)
    await insert_marker(a_life("op-waits.dl-7"), 1, now=OLD)
    assert await removed(hub) == 0
    marker = existing(await insert_marker(a_life("op-waits"), 1, now=NOON))
    assert (marker.run, marker.outcome) == (a_life().run, None)


async def test_of_an_operation_that_retries_for_ever_the_old_markers_go_and_the_last_stays(
    hub: TaskHubStage,
) -> None:
    hub.answer = failing(99)
    await submit(hub.binding, an_operation(operation_id="op-endless", created_at=NOON, deadline_at=None))
    for attempt in (1, 2, 3):
        await insert_marker(a_life("op-endless"), attempt, now=OLD)
    assert await removed(hub) == 2
    assert await kept() == {"op-endless": ["0000000003"]}
    marker = existing(await insert_marker(a_life("op-endless"), 3, now=NOON))
    assert (marker.run, marker.outcome) == (a_life().run, None)


async def test_a_young_marker_stays_and_the_old_ones_before_it_go(hub: TaskHubStage) -> None:
    await insert_marker(a_life("op-both"), 1, now=OLD)
    await insert_marker(a_life("op-both"), 2, now=NOON)
    assert await removed(hub) == 1
    assert await kept() == {"op-both": ["0000000002"]}


async def test_an_outcome_that_was_noted_too_late_goes_as_well(hub: TaskHubStage) -> None:
    await write_outcome("op-late", 1, {"status_code": 201})
    assert await removed(hub) == 1
    assert await names() == []


async def test_a_marker_whose_time_cannot_be_read_goes_as_an_old_one_and_keeps_no_other(
    hub: TaskHubStage,
) -> None:
    for owner in ("op-damaged", "op-old"):
        await insert_marker(a_life(owner), 1, now=OLD)
    keys = {"PartitionKey": "op-damaged", "RowKey": "0000000001"}
    await tables.merge(writes.TABLE, keys | {"marked_at": "{"})
    assert await removed(hub) == 2


async def test_each_step_is_bounded_and_goes_on_behind_the_last(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walks, "ROWS_PER_STEP", 3)
    for number in range(2):
        await insert_marker(a_life(f"op-a-young-{number}"), 1, now=NOON)
    for attempt in range(1, 6):  # more than one step looks at
        await insert_marker(a_life("op-b-many"), attempt, now=OLD)
    await insert_marker(a_life("op-b-many-last"), 1, now=OLD)
    steps: list[int] = []
    after = ""
    while not steps or after:
        number, after = await remove_in_partitions(MARKERS, past(hub, after=after))
        steps.append(number)
    assert max(steps) <= 3
    assert await names() == ["op-a-young-0", "op-a-young-1", "op-b-many"]
    monkeypatch.setattr(walks, "ROWS_PER_STEP", 1_000)
    assert await removed(hub) == 2
    assert await names() == ["op-a-young-0", "op-a-young-1"]


async def test_a_round_goes_on_where_it_stopped_and_begins_once_an_hour(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walks, "ROWS_PER_STEP", 2)
    part = RetentionPart(RetentionKind.MARKERS, 0)
    for number in range(3):
        await insert_marker(a_life(f"op-0{number}"), 1, now=OLD)
    assert await remove_past(hub.binding, part, NOON, 0) is True
    await insert_marker(a_life("op-00"), 1, now=OLD)  # behind the round
    assert await remove_past(hub.binding, part, NOON, 60) is False
    assert await names() == ["op-00"]
    assert await remove_past(hub.binding, part, NOON + ROUND_EVERY / 2, 60) is False
    assert await names() == ["op-00"]
    assert await remove_past(hub.binding, part, NOON + ROUND_EVERY, 60) is False
    assert await names() == []


async def test_each_part_removes_what_is_between_its_bounds(hub: TaskHubStage) -> None:
    digits = "234567abcdefghijklmnopqrstuvwxyz"  # Of base32, in the order of row keys.
    runs = [f"op-{digit}{digit}" for digit in digits]
    for run in runs:
        await insert_marker(a_life(run), 1, now=OLD)
    for shard in range(4):
        assert await names() == runs[8 * shard :]
        await remove_past(hub.binding, RetentionPart(RetentionKind.MARKERS, shard), NOON, 60)
    assert await names() == []

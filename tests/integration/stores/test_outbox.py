from datetime import timedelta
from typing import Any

import pytest

from durable_retry.attempt.commits import TABLE as OUTBOX_TABLE
from durable_retry.attempt.commits import CommitLocation as OutboxLocation
from durable_retry.attempt.commits import (
    commit_success,
    own_location,
)
from durable_retry.base.names import EventState
from durable_retry.dead_letters.records import keep_operation
from durable_retry.features.outbox.event_store import (
    events_of,
    find_event,
    list_pending,
    mark_failed,
    mark_sent,
    pending_of,
)
from durable_retry.features.outbox.index_store import list_ended, read_note
from durable_retry.features.outbox.removal import SENT_EVENTS
from durable_retry.features.outbox.rules.outbox import EventFilter
from durable_retry.features.outbox.sending import list_events
from durable_retry.features.retention.walks import remove_entries
from durable_retry.hub.task_hub import TaskHub
from durable_retry.storage import tables
from durable_retry.storage.lists import SHARDS
from durable_retry.upkeep.removal import Past
from tests.support.builders import NOON, a_success, an_entry, an_operation
from tests.support.narrowing import existing

pytestmark = pytest.mark.usefixtures("storage")

EVENT = {"type": "order.placed", "queue": "order-events", "data": {"order": 1}}


def a_write(customer: str) -> dict[str, Any]:
    return {"table": "Kept", "partition_key": customer, "row_key": "order", "values": {}, "mode": "merge"}


async def committed(operation_id: str, count: int, *, days: int = 0, customer: str | None = None) -> None:
    writes = [] if customer is None else [a_write(customer)]
    at = NOON + timedelta(days=days)
    await commit_success(operation_id, a_success(writes, [EVENT] * count), at)


async def sent(operation_id: str, *numbers: int) -> None:
    for number in numbers:
        await mark_sent(existing(await find_event(f"{operation_id}.{number}")), NOON, 1)


async def test_events_are_in_their_order_also_past_the_ninth() -> None:
    await committed("op-order", 12)
    assert [event.event_id for event in await events_of("op-order")] == [
        f"op-order.{number}" for number in range(1, 13)
    ]


async def test_an_event_beside_a_handlers_writes_is_found_by_its_id_alone() -> None:
    await committed("op-beside.7", 1, customer="customer-7")
    kept = existing(await find_event("op-beside.7.1"))
    assert kept.location == OutboxLocation("Kept", "customer-7")
    assert [event.event_id for event in await events_of("op-beside.7")] == ["op-beside.7.1"]
    assert await find_event("op-beside.7.2") is None
    assert await find_event("op-beside") is None


async def test_pending_events_are_listed_page_by_page_and_never_parted_wrongly() -> None:
    for name in ("op-page-a", "op-page-b", "op-page-c"):
        await committed(name, 3)
    seen: list[str] = []
    cursor: str | None = None
    while True:
        items, cursor = await list_pending(2, cursor)
        assert len(items) <= 2
        seen += [item.event_id for item in items]
        if cursor is None:
            break
    wanted = [f"op-page-{letter}.{number}" for letter in "abc" for number in (1, 2, 3)]
    assert [event_id for event_id in seen if event_id.startswith("op-page-")] == wanted


@pytest.mark.parametrize("state", [EventState.PENDING, EventState.SENT])
async def test_events_of_some_operations_and_a_time_are_listed_page_by_page(state: EventState) -> None:
    names = [f"op-some-{state.value}-{number}" for number in range(4)]
    for number, name in enumerate(names):
        await committed(name, 2, days=60 - number)
        if state is EventState.SENT:
            await sent(name, 1, 2)
    wanted = EventFilter(
        operation_ids=frozenset(names),
        created_after=NOON + timedelta(days=58),
        created_before=NOON + timedelta(days=60),
    )
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = await list_events(state, 3, cursor, wanted)
        seen += [event.event_id for event in page.items]
        assert len(page.items) <= 3
        if (cursor := page.next_cursor) is None:
            break
    assert seen == [f"{name}.{number}" for name in names[1:3] for number in (1, 2)]
    assert (await list_events(state, 3, None, EventFilter(dependencies=frozenset({"nobody"})))).items == ()


async def test_a_note_goes_with_the_last_pending_event() -> None:
    await committed("op-note", 2)
    await sent("op-note", 1)
    await pending_of("op-note", NOON)
    assert await read_note("op-note") is not None
    await mark_failed(existing(await find_event("op-note.2")), "nobody there", 1)
    assert await pending_of("op-note", NOON) == (own_location("op-note"), [])
    assert await read_note("op-note") is None


async def test_an_event_that_changed_meanwhile_is_marked_as_what_happened_to_it() -> None:
    await committed("op-race", 1)
    first = existing(await find_event("op-race.1"))
    await mark_sent(first, NOON, 1)
    await mark_failed(first, "a late execution gave up", 1)
    assert [event.state for event in await events_of("op-race")] == [EventState.SENT]


async def test_sent_events_go_after_their_time_and_failed_and_younger_ones_stay() -> None:
    await committed("op-old", 2, days=-30)
    await committed("op-mixed.7", 2, days=-30, customer="customer-8")
    await committed("op-young", 1, days=-1)
    await sent("op-old", 1, 2)
    await sent("op-mixed.7", 1)
    await sent("op-young", 1)
    await mark_failed(existing(await find_event("op-mixed.7.2")), "nobody there", 1)

    for expected in (3, 0):
        removed = [
            await remove_entries(
                SENT_EVENTS, Past(hub=TaskHub(""), now=NOON, before=NOON - timedelta(days=7), shard=shard)
            )
            for shard in range(SHARDS)
        ]
        assert sum(number for number, _ in removed) == expected

    assert await events_of("op-old") == []
    assert await tables.read(OUTBOX_TABLE, "op-old", "commit-op-old") is None
    assert [event.event_id for event in await events_of("op-mixed.7")] == ["op-mixed.7.2"]
    assert await tables.read("Kept", "customer-8", "commit-op-mixed.7") is not None
    assert await tables.read("Kept", "customer-8", "order") is not None
    listed, _ = await list_ended(EventState.SENT, 200, None)
    assert {"op-old", "op-mixed"}.isdisjoint(item.operation_id for item in listed)
    assert "op-young" in {item.operation_id for item in listed}


async def test_the_events_of_a_dead_letter_stand_beside_it_and_are_found_by_their_ids() -> None:
    failed = {"type": "order.failed", "queue": "order-events", "data": {"order": 1}}
    operation = an_operation(operation_id="op-dead", parts={"outbox": {"on_failure": [failed, failed]}})
    outbox_id = f"{operation.run_id}.failed"
    entry = an_entry("op-dead") | {"operation": operation.to_json()}
    dead_letter_id = await keep_operation(entry, NOON)
    assert await keep_operation(entry, NOON) == dead_letter_id
    first, second = await events_of(outbox_id)
    assert (first.event_id, second.event_id) == (f"{outbox_id}.1", f"{outbox_id}.2")
    letter = first.event["data"]["dead_letter"]
    assert (letter["id"], letter["url"]) == (dead_letter_id, f"/api/dead-letters/{dead_letter_id}")
    assert first.event["data"]["order"] == 1
    kept = existing(await find_event(second.event_id))
    assert kept.location == OutboxLocation("DeadLetters", dead_letter_id)
    assert existing(await read_note(outbox_id)).events == 2


async def test_a_dead_letter_without_such_events_has_one_row() -> None:
    operation = an_operation(operation_id="op-dead-2", parts={"outbox": {"on_success": [EVENT]}})
    dead_letter_id = await keep_operation(an_entry("op-dead-2") | {"operation": operation.to_json()}, NOON)
    assert len(await tables.read_partition("DeadLetters", dead_letter_id)) == 1
    assert await read_note(f"{operation.run_id}.failed") is None


async def test_the_dead_letter_of_an_event_is_told_by_no_other_event() -> None:
    operation = an_operation(operation_id="op-dead-3", parts={"outbox": {"on_failure": [EVENT]}})
    entry = an_entry("op-dead-3") | {
        "operation": operation.to_json(),
        "event_id": f"{operation.run_id}.1",
    }
    dead_letter_id = await keep_operation(entry, NOON)
    assert len(await tables.read_partition("DeadLetters", dead_letter_id)) == 1

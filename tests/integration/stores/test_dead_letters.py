import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from durable_retry.base.answers import Page
from durable_retry.base.errors import StorageRefusedError
from durable_retry.base.masking import MASKED
from durable_retry.base.names import DeadLetterReason, Priority
from durable_retry.dead_letters import index as dead_letter_index
from durable_retry.dead_letters import records as dead_letters
from durable_retry.dead_letters.records import (
    change_dead_letter,
    find_dead_letter,
    keep_message,
    keep_operation,
    left_over,
    move_dead_letter,
)
from durable_retry.features.dead_letter_lists import counts
from durable_retry.features.dead_letter_lists import pages as dead_letter_list
from durable_retry.features.dead_letter_lists.counts import (
    FORGOTTEN_SECONDS,
    KEPT_SECONDS,
    MOST_COUNTED,
    open_counts,
    read_summary,
)
from durable_retry.features.dead_letter_lists.pages import count_dead_letters, list_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter, DeadLetterSearch
from durable_retry.features.debounce.rules import Debounce
from durable_retry.rules.config.dependencies_file import Config, parse_config
from durable_retry.rules.dead_letters.document import DeadLetterDocument
from durable_retry.rules.dead_letters.record import (
    KeptDeadLetter,
    Replay,
    Status,
    WrongStatusError,
    archived,
    noted,
    of_message,
    replayed,
    restored,
)
from durable_retry.runtime import clock
from durable_retry.settings.app import AppSettings
from durable_retry.settings.configuration import using
from durable_retry.storage import tables
from durable_retry_console.causes.groups import NoSuchCauseError, find_cause, largest_groups, list_groups
from durable_retry_console.causes.routes import GROUP_CURSOR
from durable_retry_console.keys import MOST_DEAD_LETTERS
from tests.support.builders import NOON, PAYMENTS, an_entry
from tests.support.feature_parts import in_order
from tests.support.narrowing import existing
from tests.support.tables import refuse_large_rows

pytestmark = pytest.mark.usefixtures("own_tables")


BIG = {"method": "POST", "path": "/x", "query": {}, "headers": {}}


def a_replay(record: KeptDeadLetter) -> Replay:
    return Replay(operation_id="op-1", requested_at=NOON, operation=record.operation or {})


async def keep(number: int, **changes: Any) -> KeptDeadLetter:
    """Keep the dead letter of operation `number`, written that many seconds after the start."""
    entry = an_entry(changes.pop("operation_id", f"op-{number}"), **changes)
    record = existing(await find_dead_letter(await keep_operation(entry, NOON + timedelta(seconds=number))))
    return record


async def listed(wanted: DeadLetterFilter, limit: int = 50) -> list[str | None]:
    """Return the operations of all pages, each page as full as it can be."""
    found: list[str | None] = []
    cursor = None
    while True:
        page = await list_dead_letters(wanted, limit=limit, cursor=cursor)
        assert len(page.records) == limit or page.cursor is None
        found += [record.operation_id for record in page.records]
        cursor = page.cursor
        if cursor is None:
            return found


@pytest.fixture(autouse=True)
def _configured() -> Iterator[None]:
    with using(Config({PAYMENTS.name: PAYMENTS})):
        yield


async def test_dead_letters_are_found_and_counted_by_every_name_of_their_dependency() -> None:
    named = (PAYMENTS, replace(PAYMENTS, name="till"), replace(PAYMENTS, name="other"))
    before, after, other = [await keep(number, dependency=each.name) for number, each in enumerate(named)]
    renamed = replace(named[1], was=("old", "payments"))
    with using(Config({"till": renamed, "other": named[2]})):
        for name in ("till", "payments", "old"):
            wanted = DeadLetterFilter(dependency=name, reason="RejectedByDependency")
            assert await listed(wanted, 1) == [after.operation_id, before.operation_id]
            assert await count_dead_letters(wanted) == 2
            for record in (before, after):
                search = DeadLetterSearch(words=record.id)
                page = await list_dead_letters(wanted, limit=5, cursor=None, search=search)
                assert page.records == [record]
        assert await listed(DeadLetterFilter(dependency="other")) == [other.operation_id]
        numbers = (await read_summary(NOON)).by_dependency
    assert {name: each.open for name, each in numbers.items()} == {"till": 2, "other": 1}


async def test_an_operation_is_kept_with_all_that_a_person_needs() -> None:
    document = DeadLetterDocument.of(await keep(1), MASKED).to_json()
    assert document["request"]["path"] == "/charges"
    assert document["first_failed_at"] == "2026-11-21T12:00:00Z"
    assert document["status"] == "open"
    assert document["group"].startswith("g-")


async def test_an_operation_whose_attempt_succeeded_is_kept_all_the_same() -> None:
    detail = "the table refuses its writes"
    kept = await keep(1, error=None, reason="RejectedByHandler", detail=detail)
    shown = DeadLetterDocument.of(kept, MASKED).to_json()
    assert (shown["detail"], shown["attempts"][0]["error"]) == (detail, None)


async def test_keeping_it_again_changes_nothing_but_what_is_missing() -> None:
    first = await keep_operation(an_entry("op-1"), NOON)
    assert await keep_operation(an_entry("op-1"), NOON + timedelta(hours=1)) == first
    assert existing(await find_dead_letter(first)).created_at == NOON
    assert await listed(DeadLetterFilter()) == ["op-1"]
    assert (await read_summary(NOON)).open == 1


async def test_a_crash_between_row_and_lists_is_made_up_by_the_repetition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as crash:
        crash.setattr(dead_letter_index, "list_record", _crash)
        with pytest.raises(ConnectionError):
            await keep_operation(an_entry("op-1"), NOON)
    assert await listed(DeadLetterFilter()) == []
    await keep_operation(an_entry("op-1"), NOON + timedelta(seconds=9))
    assert await listed(DeadLetterFilter()) == ["op-1"]
    assert (await read_summary(NOON)).oldest_at == NOON


async def test_causes_say_whose_their_dead_letters_are() -> None:
    for number, limit_key in enumerate(["initech", "acme", "initech", None]):
        await keep(number, **({} if limit_key is None else {"limit_key": limit_key}))
    (cause,) = (await largest_groups(6)).groups
    assert cause.limit_keys is not None
    assert (cause.count, cause.limit_keys.keys) == (4, 2)
    assert cause.limit_keys.most == {"initech": 2, "acme": 1}
    with using(parse_config("", {})):
        assert (await find_cause(cause.group)).limit_keys == cause.limit_keys


async def test_a_message_is_kept_with_its_raw_text() -> None:
    dead_letter_id = await keep_message(
        of_message(
            "not json ?",
            source="queue",
            message_id="m-1",
            reason=DeadLetterReason.MALFORMED_JSON,
            detail="no",
            now=NOON,
        )
    )
    record = existing(await find_dead_letter(dead_letter_id))
    assert DeadLetterDocument.of(record, MASKED).message == "not json ?"


@pytest.fixture
def rows_of_a_mebibyte(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_large_rows(monkeypatch)


@pytest.mark.usefixtures("rows_of_a_mebibyte")
@pytest.mark.shows("P21")
async def test_what_storage_refuses_is_kept_with_its_beginning() -> None:
    """Without this the write would be repeated for ever."""
    big = {"method": "POST", "path": "/x", "query": {}, "headers": {}, "body": "x" * 600_000}
    record = await keep(1, request=big)
    assert (record.operation_id, record.operation, record.is_cut) == ("op-1", None, True)
    assert (record.message or "").startswith('{"operation_id": "op-1"')
    assert "storage refused the whole" in record.detail
    assert (await keep(1, request=big)).detail == record.detail
    assert await listed(DeadLetterFilter()) == ["op-1"]


@pytest.mark.usefixtures("rows_of_a_mebibyte")
async def test_the_largest_body_of_the_settings_fits_in_any_alphabet() -> None:
    (most,) = (each.most for each in AppSettings.described() if each.name == "MAX_BODY_BYTES")
    body = "\u00e9" * (int(most or 0) // 2)
    big = {"method": "POST", "path": "/x", "query": {}, "headers": {}, "body": body}
    assert not (await keep(1, request=big)).is_cut


@pytest.mark.usefixtures("rows_of_a_mebibyte")
async def test_a_change_that_has_no_room_changes_nothing_and_leaves_no_intent() -> None:
    record = await keep(1, request={**BIG, "body": "x" * 500_000})
    with pytest.raises(StorageRefusedError):
        await move_dead_letter(record.id, lambda kept: replayed(kept, a_replay(kept)))
    assert await find_dead_letter(record.id) == record
    assert await listed(DeadLetterFilter(status=Status.OPEN)) == ["op-1"]
    assert (await left_over(10))[0] == []


@pytest.mark.usefixtures("rows_of_a_mebibyte")
async def test_a_replay_that_fails_is_kept_although_the_one_before_it_has_no_room_for_its_link() -> None:
    """Without this the write would be repeated for ever, and the operation would never end."""
    big = {**BIG, "body": "x" * 500_000}
    parent = await keep(1, request=big)
    later = NOON + timedelta(hours=1)
    child = await keep(2, operation_id="op-1", request=big, replay_of=parent.id, created_at=later)
    assert child.replay_of == parent.id
    assert await find_dead_letter(parent.id) == parent


async def test_a_list_has_the_newest_first_page_by_page() -> None:
    for number in range(7):
        await keep(number)
    assert await listed(DeadLetterFilter(), limit=3) == [f"op-{number}" for number in reversed(range(7))]
    assert await listed(DeadLetterFilter(status=Status.OPEN), limit=7) == await listed(
        DeadLetterFilter(), limit=2
    )


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (DeadLetterFilter(reason="RetriesExhausted"), ["op-3", "op-1"]),
        (DeadLetterFilter(category="transient"), ["op-3", "op-1"]),
        (DeadLetterFilter(dependency="stock/room #2"), ["op-3", "op-2"]),
        (DeadLetterFilter(dependency="stock/room #2", reason="RetriesExhausted"), ["op-3"]),
        (DeadLetterFilter(dependency="payments", category="malformed", status=Status.OPEN), ["op-0"]),
        (DeadLetterFilter(created_after=NOON + timedelta(seconds=2)), ["op-3", "op-2"]),
        (DeadLetterFilter(created_before=NOON + timedelta(seconds=2)), ["op-1", "op-0"]),
        (DeadLetterFilter(reason="PoisonMessage"), []),
        (DeadLetterFilter(status=Status.ARCHIVED), []),
    ],
)
async def test_every_filter_finds_what_it_names(wanted: DeadLetterFilter, expected: list[str]) -> None:
    transient = {"category": "transient", "reason": "RetriesExhausted"}
    await keep(0)
    await keep(1, **transient)
    await keep(2, dependency="stock/room #2")
    await keep(3, dependency="stock/room #2", **transient)
    assert await listed(wanted, limit=1) == expected
    assert await count_dead_letters(wanted) == len(expected)


async def test_counting_reads_a_page_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        await keep(number)
    limits: list[int | None] = []

    async def rows_between(*args: Any, limit: int | None = None, **more: Any) -> tables.Page:
        limits.append(limit)
        return await whole(*args, limit=limit, **more)

    whole = tables.rows_between
    monkeypatch.setattr(tables, "rows_between", rows_between)
    monkeypatch.setattr(dead_letter_list, "_MANY_ROWS", 2)
    assert await count_dead_letters(DeadLetterFilter(status=Status.OPEN)) == 5
    assert await count_dead_letters(DeadLetterFilter(priority=Priority.NORMAL)) == 5
    assert await count_dead_letters(DeadLetterFilter(order_key="lane-7")) == 0
    assert set(limits) == {2}


async def test_a_group_is_a_filter_too() -> None:
    record = await keep(0)
    await keep(1, error="something else")
    await keep(2)
    assert await listed(DeadLetterFilter(group=record.group)) == ["op-2", "op-0"]


async def test_a_list_of_all_statuses_is_in_one_order() -> None:
    records = [await keep(number) for number in range(6)]
    for record in records[::2]:
        await move_dead_letter(record.id, lambda kept: archived(kept, NOON))
    assert await listed(DeadLetterFilter(), limit=2) == [f"op-{number}" for number in reversed(range(6))]
    assert await listed(DeadLetterFilter(status=Status.ARCHIVED), limit=2) == ["op-4", "op-2", "op-0"]
    assert await listed(DeadLetterFilter(status=Status.OPEN), limit=2) == ["op-5", "op-3", "op-1"]


async def test_the_summary_counts_open_ones_and_knows_the_oldest() -> None:
    records = [await keep(number) for number in range(3)]
    await keep(5, dependency="stock", reason="DeadlineExceeded")
    await move_dead_letter(records[0].id, lambda kept: archived(kept, NOON))
    summary = await read_summary(NOON)
    assert (summary.open, summary.oldest_at) == (3, NOON + timedelta(seconds=1))
    assert {name: waiting.open for name, waiting in summary.by_reason.items()} == {
        "DeadlineExceeded": 1,
        "RejectedByDependency": 2,
    }
    assert summary.by_dependency["stock"].oldest_at == NOON + timedelta(seconds=5)


async def test_a_restored_dead_letter_counts_again() -> None:
    record = await keep(0)
    await move_dead_letter(record.id, lambda kept: archived(kept, NOON))
    assert (await read_summary(NOON)).open == 0
    assert await list_groups(10) == Page(items=())
    await move_dead_letter(record.id, restored)
    assert (await read_summary(NOON)).open == 1
    assert [group.count for group in (await list_groups(10)).items] == [1]
    assert await listed(DeadLetterFilter(status=Status.OPEN)) == ["op-0"]


async def test_a_group_shows_count_first_last_and_a_sample() -> None:
    records = [await keep(number) for number in (0, 4, 2)]
    (group,) = (await list_groups(10)).items
    assert (group.count, group.first_seen_at) == (3, NOON)
    assert group.last_seen_at == NOON + timedelta(seconds=4)
    assert group.sample.id == records[1].id


async def test_what_a_change_refuses_is_left_as_it_was() -> None:
    record = await keep(0)
    with pytest.raises(WrongStatusError):
        await move_dead_letter(record.id, restored)
    assert await find_dead_letter(record.id) == record
    assert (await left_over(10))[0] == []


async def test_a_crash_in_the_middle_of_a_move_leaves_an_intent_and_no_wrong_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = await keep(0)
    with monkeypatch.context() as crash:
        crash.setattr(dead_letter_index, "move_to_status", _crash)
        with pytest.raises(ConnectionError):
            await move_dead_letter(record.id, lambda kept: archived(kept, NOON))
    assert await listed(DeadLetterFilter(status=Status.OPEN)) == []
    ((intent,), _) = await left_over(10)
    assert intent.dead_letter_id == record.id
    await dead_letters.settle(existing(await find_dead_letter(record.id)))
    assert await listed(DeadLetterFilter(status=Status.ARCHIVED)) == ["op-0"]
    assert (await read_summary(NOON)).open == 0


async def test_a_change_whose_answer_got_lost_counts_as_made(monkeypatch: pytest.MonkeyPatch) -> None:
    record = await keep(0)
    real = tables.replace_version

    async def answers_wrongly(*given: Any) -> bool:
        await real(*given)
        return False

    monkeypatch.setattr(tables, "replace_version", answers_wrongly)
    moved = await move_dead_letter(record.id, lambda kept: archived(kept, NOON))
    assert moved.status is Status.ARCHIVED
    assert await listed(DeadLetterFilter(status=Status.ARCHIVED)) == ["op-0"]


async def test_notes_are_kept_in_order() -> None:
    record = await keep(0)
    await change_dead_letter(record.id, lambda kept: noted(kept, "first", NOON))
    await change_dead_letter(record.id, lambda kept: noted(kept, "second", NOON))
    changed = existing(await find_dead_letter(record.id))
    assert [note["text"] for note in changed.notes] == ["first", "second"]


async def test_a_dead_letter_of_a_replay_is_linked_both_ways() -> None:
    first = await keep(0)
    replay = Replay(operation_id="op-0", requested_at=NOON, operation=dict(first.operation or {}))
    await move_dead_letter(first.id, lambda kept: replayed(kept, replay))
    again = await keep(1, operation_id="op-0", replay_of=first.id)
    parent = existing(await find_dead_letter(first.id))
    assert again.replay_of == first.id
    assert [one.dead_letter_id for one in parent.replays] == [again.id]


ALL = DeadLetterFilter()


async def named(**names: Any) -> list[str | None]:
    wanted = DeadLetterFilter(status=Status.OPEN, **names)
    return await listed(wanted)


async def found(limit: int = 50, wanted: DeadLetterFilter = ALL, **search: Any) -> list[str | None]:
    page = await list_dead_letters(wanted, limit=limit, cursor=None, search=DeadLetterSearch(**search))
    return [record.operation_id for record in page.records]


async def test_a_dead_letter_is_found_by_its_names_and_its_detail() -> None:
    debounce = Debounce(entity="e", key="stock-3", seconds=1.0, accepted_at=NOON)
    more = {
        "priority": Priority.HIGH,
        "limit_key": "c-17",
        "parts": {"debounce": debounce.to_json(), **in_order("lane-7")},
    }
    await keep(1, key="order-41", correlation_id="basket-7")
    second = await keep(2, key="order-42", correlation_id="basket-7", **more)
    await keep(3, key="k" * 255, correlation_id="basket-70")
    assert await found(key="order-42") == ["op-2"]
    assert await found(key="order-4") == []
    assert await found(key="k" * 255) == ["op-3"]
    assert await found(correlation_id="basket-7") == ["op-2", "op-1"]
    assert await named(order_key="lane-7") == ["op-2"]
    assert await named(debounce_key="stock-3", priority=Priority.HIGH) == ["op-2"]
    assert await named(priority=Priority.NORMAL) == ["op-3", "op-1"]
    assert await named(limit_key="c-17") == await found(words="C-17") == ["op-2"]
    assert await named(order_key="lane-70") == []
    assert await found(1, words="ORDER-4") == ["op-2"]
    assert await found(words="order-4") == ["op-2", "op-1"]
    assert await found(words="op-3") == ["op-3"]
    assert await found(words=second.detail) == ["op-3", "op-2", "op-1"]
    assert await found(words=second.reason.value, key="order-42") == ["op-2"]
    assert await found(words="elsewhere") == []
    assert await found(words=second.id) == ["op-2"]
    later = DeadLetterFilter(created_after=second.created_at + timedelta(seconds=1))
    assert await found(words=second.id, wanted=later) == []


async def test_who_is_open_though_its_replay_has_failed_was_replayed() -> None:
    first = await keep(1, operation_id="op-0")
    again = await keep(1, operation_id="op-0", replay_of=first.id)
    parent = existing(await find_dead_letter(first.id))
    assert (parent.status, parent.replays[0].dead_letter_id) == (Status.REPLAYED, again.id)
    page = await list_dead_letters(DeadLetterFilter(status=Status.OPEN), limit=9, cursor=None)
    assert [record.id for record in page.records] == [again.id]


async def test_many_at_once_are_all_counted() -> None:
    await asyncio.gather(*(keep(number) for number in range(40)))
    assert (await read_summary(NOON)).open == 40
    assert [group.count for group in (await list_groups(10)).items] == [40]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The partitions that are read; two rows are counted at once, and four at most."""
    asked: list[str] = []
    whole = tables.rows_between

    async def rows_between(table: str, partition: str, **more: Any) -> tables.Page:
        asked.append(partition)
        return await whole(table, partition, **more)

    monkeypatch.setattr(tables, "rows_between", rows_between)
    monkeypatch.setattr(counts, "AT_ONCE", 2)
    monkeypatch.setattr(counts, "MOST_COUNTED", 4)
    return asked


async def counted_in_the_background() -> None:
    await existing(counts._last_count.get().counting)


async def test_a_few_are_counted_anew_with_one_request(requests: list[str]) -> None:
    for number in range(2):
        await keep(number)
        assert (await read_summary(NOON)).open == number + 1
    assert len(requests) == 2


async def test_more_are_counted_while_nobody_waits_and_kept_for_half_a_minute(
    requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 1_000.0
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: seconds)
    for number in range(3):
        await keep(number)
    first = await read_summary(NOON)
    assert (first.open, first.complete, first.oldest_at) == (2, False, NOON)
    await counted_in_the_background()
    requests.clear()
    await keep(3)
    assert [counts.open for counts in (await open_counts(), await open_counts())] == [3, 3]
    assert not requests
    seconds += KEPT_SECONDS
    assert (await read_summary(NOON)).open == 3
    await counted_in_the_background()
    assert (await read_summary(NOON)).open == 4
    seconds += FORGOTTEN_SECONDS
    assert (await read_summary(NOON)).open == 2
    await counted_in_the_background()


async def test_what_has_become_few_is_counted_anew(
    requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 1_000.0
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: seconds)
    records = [await keep(number) for number in range(3)]
    await read_summary(NOON)
    await counted_in_the_background()
    for record in records:
        await move_dead_letter(record.id, lambda kept: archived(kept, NOON))
    seconds += KEPT_SECONDS
    await read_summary(NOON)
    await counted_in_the_background()
    requests.clear()
    assert (await read_summary(NOON)).open == 0
    assert len(requests) == 1


async def test_no_more_are_counted_than_is_said_and_the_oldest_is_known_all_the_same(
    requests: list[str],
) -> None:
    for number in range(6):
        await keep(number)
    await read_summary(NOON)
    await counted_in_the_background()
    requests.clear()
    summary = await read_summary(NOON + timedelta(seconds=60))
    assert (summary.open, summary.complete) == (4, False)
    assert (summary.oldest_at, summary.oldest_age_seconds) == (NOON, 60)
    assert summary.by_reason["RejectedByDependency"].oldest_at == NOON + timedelta(seconds=2)
    assert not requests


async def test_a_threshold_of_open_dead_letters_can_be_exceeded_by_what_is_counted() -> None:
    assert MOST_DEAD_LETTERS < MOST_COUNTED


async def test_a_cause_is_known_while_one_of_its_dead_letters_is_there() -> None:
    records = [await keep(number) for number in range(3)]
    other = await keep(9, error="something else")
    with using(parse_config("", {})):
        cause = await find_cause(records[0].group)
    assert (cause.count, cause.first_seen_at, cause.sample.id) == (3, NOON, records[2].id)
    for record in records:
        await move_dead_letter(record.id, lambda kept: archived(kept, NOON))
    with using(parse_config("", {})):
        closed = await find_cause(records[0].group)
    assert (closed.count, closed.sample.id) == (0, records[2].id)
    assert existing(closed.latest).status is Status.ARCHIVED
    assert [group.group for group in (await largest_groups(10)).groups] == [other.group]
    with pytest.raises(NoSuchCauseError):
        await find_cause("g-0000000000000000")


async def test_causes_come_by_their_numbers_then_by_their_age_page_by_page() -> None:
    for number, error in enumerate(("older", "once", "newer", "newer", "older", "often", "often", "often")):
        await keep(number, error=error)
    first = await list_groups(2)
    assert [(group.count, group.first_seen_at) for group in first.items] == [
        (3, NOON + timedelta(seconds=5)),
        (2, NOON),
    ]
    following = await list_groups(2, existing(GROUP_CURSOR.read(existing(first.next_cursor))))
    assert [(group.count, group.first_seen_at) for group in following.items] == [
        (2, NOON + timedelta(seconds=2)),
        (1, NOON + timedelta(seconds=1)),
    ]
    assert following.next_cursor is None


async def test_the_causes_that_are_not_shown_are_counted() -> None:
    for number, error in enumerate(("often", "often", "often", "twice", "twice", "once")):
        await keep(number, error=error)
    largest = await largest_groups(1)
    assert [group.count for group in largest.groups] == [3]
    assert (largest.others.causes, largest.others.open) == (2, 3)


async def _crash(*_: Any) -> None:
    raise ConnectionError("the storage is gone")


async def test_a_search_that_takes_many_reads_asks_no_list_again_that_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(6):
        record = await keep(number)
        if number in {1, 4}:
            await move_dead_letter(record.id, lambda each: archived(each, NOON))
    asked: list[str] = []
    read = tables.rows_between

    async def counted(table: str, status: str, **more: Any) -> Any:
        asked.append(status)
        return await read(table, status, **more)

    monkeypatch.setattr(tables, "rows_between", counted)
    monkeypatch.setattr(dead_letter_list, "_MANY_ROWS", 1)
    everyone = DeadLetterSearch(words="op-")
    page = await list_dead_letters(DeadLetterFilter(), limit=10, cursor=None, search=everyone)
    assert [record.operation_id for record in page.records] == [f"op-{5 - number}" for number in range(6)]
    assert asked.count(Status.REPLAYED) == 1
    assert len(asked) > 6

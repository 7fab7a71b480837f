import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from durable_retry.operations import lone_records
from durable_retry.operations.lone_records import (
    KNOWN_SECONDS,
    KNOWN_TO_ALL_AFTER,
    READ_EVERY_SECONDS,
    let_answer_alone,
    may_answer_alone,
)
from durable_retry.runtime import clock
from durable_retry.storage import clients as storage_clients
from durable_retry.storage import rounds, tables
from tests.support.builders import NOON
from tests.support.narrowing import existing
from tests.support.tables import TablesInMemory

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


class Monotonic:
    """A monotonic clock that is moved by hand."""

    seconds = 0.0


@pytest.fixture(autouse=True)
def monotonic() -> Iterator[Monotonic]:
    own = Monotonic()
    with clock.reading(lambda: NOON, lambda: own.seconds):
        yield own


class Reads:
    """How often the row is read; with `error`, it cannot be."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        self.error: Exception | None = None
        self._read = tables.read
        monkeypatch.setattr(tables, "read", self.read)

    async def read(self, *keys: Any) -> tables.Row | None:
        self.number += 1
        if self.error is not None:
            raise self.error
        return await self._read(*keys)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    account = TablesInMemory()
    monkeypatch.setattr(storage_clients, "table_service", lambda: account)
    return Reads(monkeypatch)


async def looks(now: datetime) -> bool:
    """Whether a submission looks for a record, once the row has been read."""
    may_answer_alone(now)
    await existing(lone_records._known.get().reading)
    return may_answer_alone(now)


def in_another_process() -> None:
    lone_records._known.take()


@pytest.mark.usefixtures("reads")
async def test_a_history_goes_once_every_process_has_read_that_its_record_answers_alone() -> None:
    assert not await looks(NOON)
    assert not await let_answer_alone(NOON + DAY, NOON)
    assert await looks(NOON)
    in_another_process()
    assert not await let_answer_alone(NOON + DAY, NOON + KNOWN_TO_ALL_AFTER - SECOND)
    assert await let_answer_alone(NOON + DAY, NOON + KNOWN_TO_ALL_AFTER)
    in_another_process()
    assert await looks(NOON + DAY)
    assert not await looks(NOON + 2 * DAY)


async def test_a_process_reads_once_in_five_minutes(reads: Reads, monotonic: Monotonic) -> None:
    assert not await looks(NOON)
    own = lone_records._known.take()
    await let_answer_alone(NOON + DAY, NOON)
    lone_records._known.values[asyncio.get_running_loop()] = own
    for seconds, expected in ((READ_EVERY_SECONDS - 1, False), (READ_EVERY_SECONDS, True)):
        monotonic.seconds = seconds
        assert await looks(NOON) is expected
    assert reads.number == 2


async def test_nobody_waits_for_the_row_and_looks_for_a_record_until_it_is_read(reads: Reads) -> None:
    assert [may_answer_alone(NOON) for _ in range(2)] == [True, True]
    assert not await looks(NOON)
    assert reads.number == 1


async def test_what_was_read_counts_for_eight_minutes_where_the_row_cannot_be_read(
    reads: Reads, monotonic: Monotonic
) -> None:
    await looks(NOON)
    reads.error = OSError("away")
    for seconds, expected in ((READ_EVERY_SECONDS, False), (KNOWN_SECONDS - 1, False), (KNOWN_SECONDS, True)):
        monotonic.seconds = seconds
        assert await looks(NOON) is expected
    assert reads.number == 3  # It is not tried again within ten seconds.
    reads.error, monotonic.seconds = None, KNOWN_SECONDS + 10
    assert not await looks(NOON)


async def test_a_row_that_nobody_can_read_is_written_anew(reads: Reads) -> None:
    keys = {"PartitionKey": "records", "RowKey": "alone"}
    await tables.merge(rounds.TABLE, keys | {"until": "soon"})
    assert await looks(NOON)
    assert not await let_answer_alone(NOON + DAY, NOON)
    in_another_process()
    assert await looks(NOON + DAY)
    assert reads.number == 2


@pytest.mark.parametrize(("hours", "at_once"), [(47, True), (48, False)])
@pytest.mark.usefixtures("reads")
async def test_a_later_record_waits_only_where_processes_may_have_stopped_looking(
    hours: int,
    at_once: bool,  # noqa: FBT001 - what is expected
) -> None:
    await let_answer_alone(NOON + DAY, NOON)
    later = NOON + timedelta(hours=hours)
    assert await let_answer_alone(later + DAY, later) is at_once
    in_another_process()
    assert await looks(later + DAY)


async def test_what_is_known_costs_no_request(reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    await let_answer_alone(NOON + DAY, NOON)
    monkeypatch.delattr(tables, "change_row")
    assert await let_answer_alone(NOON + 2 * DAY, NOON + KNOWN_TO_ALL_AFTER)
    assert reads.number == 0

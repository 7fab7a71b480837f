from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from durable_retry.features.retention import histories
from durable_retry.features.retention.histories import remove_record
from durable_retry.hub.instances import Instance
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.operations.keys import KeyCompletion, KeyRecord
from tests.support.builders import NOON, an_operation, instance_of

DAY = timedelta(days=1)


def an_instance(operation_id: str, *, ended_for: timedelta = DAY, **changes: Any) -> Instance:
    """An operation that ended so long ago; `op-waits` has not. Its key answers for an hour."""
    operation = an_operation(
        operation_id=operation_id, ttl_seconds=3_600, created_at=NOON - 10 * DAY, **changes
    )
    return instance_of(operation, None if operation_id == "op-waits" else ended_for)


RUN = an_operation().run


def a_key_record(expired_for: timedelta, run: int = RUN) -> KeyRecord:
    return KeyRecord(run=run, fingerprint="f", expires_at=NOON - expired_for, document={})


class Records:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.record: KeyRecord | None = None
        self.purges = True
        self.done: list[Any] = []
        self.are_looked_for = True
        stand_ins = (self.read_record, self.purge_record, self.expire_record, self.complete_record)
        for stand_in in (*stand_ins, self.let_answer_alone):
            monkeypatch.setattr(histories, stand_in.__name__, stand_in)

    async def read_record(self, _hub: TaskHub, _operation_id: str) -> KeyRecord | None:
        self.done.append("read")
        return self.record

    async def purge_record(self, _hub: TaskHub, _operation_id: str) -> bool:
        self.done.append("purge")
        return self.purges

    async def expire_record(self, _hub: TaskHub, _operation_id: str, at: datetime) -> None:
        self.done.append(at)

    async def complete_record(self, _hub: TaskHub, _operation_id: str, completion: KeyCompletion) -> None:
        self.done.append(("complete", completion.run))

    async def let_answer_alone(self, until: datetime, now: datetime) -> bool:
        self.done.append(("alone", until - now))
        return self.are_looked_for


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> Records:
    return Records(monkeypatch)


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("expired", "purges", "expected"),
    [
        (HOUR, True, ["read", "purge"]),
        (HOUR, False, ["read", "purge", NOON]),
        (timedelta(minutes=59), True, ["read", NOON]),
        (-2 * HOUR, True, ["read", ("alone", 2 * HOUR), NOON + 2 * HOUR]),
        (None, True, ["read"]),
    ],
)
async def test_a_record_without_a_history_is_purged_when_its_time_is_over_and_else_ends_then(
    records: Records, expired: timedelta | None, purges: Any, expected: list[Any]
) -> None:
    records.purges, records.record = bool(purges), None if expired is None else a_key_record(expired)
    assert await remove_record(TaskHub(""), "op-1", None, NOON)
    assert records.done == expected


@pytest.mark.parametrize(
    ("ended_for", "record", "purges", "expected"),
    [
        # Its time is over, as the history says: nobody reads it.
        (2 * HOUR, a_key_record(HOUR), True, ["purge"]),
        (2 * HOUR, a_key_record(HOUR), False, ["purge", "read", "purge", NOON]),
        (2 * HOUR, None, False, ["purge", "read"]),
        (HOUR, None, True, ["read"]),
        # It still has to answer.
        (HOUR / 2, a_key_record(-HOUR / 2), True, ["read", ("alone", HOUR / 2), NOON + HOUR / 2]),
        # Its completion was lost. The record ends by itself: the next round may come after its time.
        (HOUR / 2, None, True, ["read", ("complete", RUN), NOON + HOUR / 2]),
        (HOUR / 2, a_key_record(-HOUR / 2, RUN - 1), True, ["read", ("complete", RUN), NOON + HOUR / 2]),
        # It was, and nobody asks any more: what an earlier run left goes.
        (HOUR, a_key_record(HOUR, RUN - 1), True, ["read", "purge"]),
    ],
)
async def test_a_record_that_lacks_the_end_is_completed_before_the_history_goes(
    records: Records, ended_for: timedelta, record: KeyRecord | None, purges: Any, expected: list[Any]
) -> None:
    records.record, records.purges = record, bool(purges)
    instance = an_instance("op-1", ended_for=ended_for)
    may_go = await remove_record(TaskHub(""), "op-1", instance, NOON)
    assert (records.done, may_go) == (expected, ("complete", RUN) not in expected)


async def test_a_history_stays_until_every_process_looks_for_the_record_that_answers_without_it(
    records: Records,
) -> None:
    records.record, records.are_looked_for = a_key_record(-HOUR / 2), False
    assert not await remove_record(TaskHub(""), "op-1", an_instance("op-1", ended_for=HOUR / 2), NOON)
    assert records.done == ["read", ("alone", HOUR / 2)]
    # What is gone already is not waited for.
    assert await remove_record(TaskHub(""), "op-1", None, NOON)
    assert records.done[2:] == ["read", ("alone", HOUR / 2), NOON + HOUR / 2]


SHORT = an_operation(operation_id="op-1", ttl_seconds=3_600, created_at=NOON - HOUR * 3)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, []), ({"replay_of": "dl-1"}, ["purge"]), ({"keeps_record": True}, ["purge"])],
)
async def test_nobody_looks_for_the_record_of_a_run_that_completed_none(
    records: Records, changes: dict[str, Any], expected: list[str]
) -> None:
    given = {"operation": replace(SHORT, **changes).to_json()}
    instance = replace(an_instance("op-1", ended_for=2 * HOUR), input=given)
    assert await remove_record(TaskHub(""), "op-1", instance, NOON)
    assert records.done == expected


async def test_a_record_is_looked_for_where_the_input_cannot_be_read(records: Records) -> None:
    instance = replace(an_instance("op-1", ended_for=2 * DAY), input={"operation": {}})
    assert await remove_record(TaskHub(""), "op-1", instance, NOON)
    assert records.done == ["purge"]


@pytest.mark.parametrize("instance", [an_instance("op-waits"), an_instance("op-1", key_is_generated=True)])
async def test_a_key_without_a_record_costs_no_look_at_one(records: Records, instance: Instance) -> None:
    assert await remove_record(TaskHub(""), instance.instance_id, instance, NOON)
    assert records.done == []

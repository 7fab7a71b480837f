import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest
from durabletask.client import OrchestrationStatus

from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.base.validation import InvalidInputError
from durable_retry.features.order import start as lane_start
from durable_retry.hub.instances import Instance
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations import actions as operations
from durable_retry.operations.actions import (
    KeyReused,
    Replayed,
    Started,
    SubmitResult,
    caller_naming,
    submit,
)
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.facts import StartUnanswered
from durable_retry.rules.operations.keys import KeyRecord
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.retry.slots import NeedsSlot
from durable_retry.runtime import clock
from tests.support.builders import an_operation
from tests.support.feature_parts import in_order

AZURE = TaskHub(json.dumps({"rpcBaseUrl": "127.0.0.1:1"}))
ATOMIC = TaskHub(json.dumps({"rpcBaseUrl": "127.0.0.1:1", "startsAreAtomic": True}))
AT = datetime(2026, 11, 21, tzinfo=UTC)


class AzureStorage:
    """Answers racing starts with success; the first row stays, the message of any other start is dropped."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.reads = 0
        self.needed_slots: list[NeedsSlot | None] = []

    async def start_operation(
        self, operation: OperationInput, start_id: str, needed_slot: NeedsSlot | None = None
    ) -> bool:
        self.needed_slots.append(needed_slot)
        is_there = operation.operation_id in self.rows
        await asyncio.sleep(0)  # the others look, too, before anyone writes
        given = {"operation": operation.to_json(), "start_id": start_id}
        self.rows.setdefault(operation.operation_id, given)
        return not is_there

    async def read_instance(self, operation_id: str) -> Instance | None:
        self.reads += 1
        given = self.rows.get(operation_id)
        running = OrchestrationStatus.RUNNING
        return None if given is None else Instance(operation_id, running, AT, AT, given, None, None)


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> AzureStorage:
    storage = AzureStorage()

    monkeypatch.setattr(operations, "may_answer_alone", lambda _now: False)
    monkeypatch.setattr(TaskHub, "start_operation", storage.start_operation)
    monkeypatch.setattr(TaskHub, "read_instance", storage.read_instance)
    return storage


def recorded(monkeypatch: pytest.MonkeyPatch, record: KeyRecord) -> None:
    async def read(_hub: TaskHub, _operation_id: str) -> KeyRecord:
        return record

    monkeypatch.setattr(operations, "may_answer_alone", lambda _now: True)
    monkeypatch.setattr(operations, "read_record", read)


def a_key_record(**more: Any) -> KeyRecord:
    operation = an_operation()
    given: dict[str, Any] = {"fingerprint": "f1", "expires_at": operation.created_at + timedelta(days=1)}
    return KeyRecord(run=operation.run, document={"a": 1}, **(given | more))


async def test_what_needs_a_slot_begins_with_it(
    storage: AzureStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = NeedsSlot({"max_concurrency": 4})
    known = {"payments": Dependency(name="payments")}
    monkeypatch.setattr(operations, "find_dependency", known.get)
    monkeypatch.setattr(operations, "slot_needed_by", lambda *_: needed)
    for more in ({}, {"needs_slot": True}, {"needs_slot": True, "dependency": "removed"}):
        await submit(ATOMIC, an_operation(key_is_generated=True, **more))
    assert storage.needed_slots == [None, needed, None]


async def test_a_record_is_alive_or_not_at_the_instant_of_the_submission(
    storage: AzureStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = an_operation()
    expires_at = operation.created_at + timedelta(seconds=1)
    recorded(monkeypatch, a_key_record(expires_at=expires_at))
    with clock.reading(lambda: expires_at):
        assert await submit(AZURE, operation) == Replayed({"a": 1}, finished=True)
        assert await submit(AZURE, replace(operation, created_at=expires_at)) == Started()
    assert storage.reads == 2


async def test_a_record_is_read_where_it_may_answer_without_its_history_only(
    storage: AzureStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(monkeypatch, a_key_record())
    monkeypatch.setattr(operations, "may_answer_alone", lambda _now: False)
    assert await submit(AZURE, an_operation()) == Started()
    storage.rows.clear()
    assert await submit(AZURE, an_operation(keeps_record=True)) == Replayed({"a": 1}, finished=True)


async def test_what_has_ended_takes_no_other_place_in_its_order(
    storage: AzureStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordered = an_operation(parts=in_order("customer-1"))
    storage.rows["op-test"] = {"operation": ordered.to_json()}
    monkeypatch.setattr(lane_start, "take_number", AsyncMock(side_effect=AssertionError))
    assert isinstance(await submit(AZURE, ordered), Replayed)


@pytest.mark.parametrize(
    ("fingerprint", "answer"),
    [("f1", Replayed({"a": 1}, finished=True)), ("", Replayed({"a": 1}, finished=True)), ("f2", KeyReused())],
)
@pytest.mark.usefixtures("storage")
async def test_a_record_answers_for_the_request_that_it_stands_for_as_far_as_that_is_known(
    monkeypatch: pytest.MonkeyPatch, fingerprint: str, answer: SubmitResult
) -> None:
    recorded(monkeypatch, a_key_record(fingerprint=fingerprint))
    assert await submit(AZURE, an_operation()) == answer


@pytest.mark.usefixtures("storage")
async def test_an_instance_answers_before_a_record_also_one_that_nobody_can_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await submit(AZURE, an_operation())

    async def read_damaged(_hub: TaskHub, _operation_id: str) -> KeyRecord:
        return KeyRecord.from_json({"run": "one"})

    recorded(monkeypatch, a_key_record())
    answers = [await submit(AZURE, an_operation())]
    monkeypatch.setattr(operations, "read_record", read_damaged)
    answers.append(await submit(AZURE, an_operation()))
    for answer in answers:
        assert isinstance(answer, Replayed)
        assert (answer.document["status"], answer.finished) == ("running", False)
    with pytest.raises(InvalidInputError, match="its record cannot be read"):
        await submit(AZURE, an_operation(operation_id="op-other"))


async def race(
    *fingerprints: str, hub: TaskHub = AZURE, key_is_generated: bool = False
) -> list[type[SubmitResult]]:
    operations = [an_operation(fingerprint=each, key_is_generated=key_is_generated) for each in fingerprints]
    results = await asyncio.gather(*(submit(hub, each) for each in operations))
    return [type(each) for each in results]


@pytest.mark.usefixtures("storage")
@pytest.mark.shows("C3")
async def test_of_two_different_operations_the_one_that_is_dropped_is_refused() -> None:
    assert await race("one", "another") == [Started, KeyReused]


@pytest.mark.usefixtures("storage")
async def test_of_two_equal_operations_one_is_started_and_one_is_a_replay() -> None:
    assert await race("one", "one") == [Started, Replayed]


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize("key_is_generated", [True, None])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"request": {"path": "/a", "json": 5}}, {"request": {"path": "/a", "json": 6}}),
        ({"request": {"path": "/a"}}, {"request": {"path": "/a"}, "dependency": "others"}),
        ({"handler": "ship", "input": 5, "request": None}, {"handler": "ship", "input": 6, "request": None}),
        ({"handler": "ship", "input": 5, "request": None}, {"handler": "bill", "input": 5, "request": None}),
    ],
)
async def test_who_sends_a_key_again_is_answered_by_all_of_the_content_where_nothing_else_counts(
    first: dict[str, Any], second: dict[str, Any], *, key_is_generated: bool | None
) -> None:
    made, other = (an_operation(fingerprint=None, **content) for content in (first, second))
    assert await submit(ATOMIC, replace(made, key_is_generated=key_is_generated)) == Started()
    assert isinstance(await submit(ATOMIC, made), Replayed)
    assert await submit(ATOMIC, other) == KeyReused()


async def test_a_start_that_can_be_trusted_is_not_read_back(storage: AzureStorage) -> None:
    await race("one", hub=ATOMIC)
    storage.rows.clear()
    await race("one", hub=AZURE, key_is_generated=True)
    assert storage.reads == 0


@pytest.mark.parametrize("noted", [1, 0])
async def test_an_operation_whose_start_was_not_answered_is_noted_by_the_key_of_its_caller(
    storage: AzureStorage, monkeypatch: pytest.MonkeyPatch, noted: int
) -> None:
    """It may run. Who submits it again is told that it does, which is noted by nobody."""

    async def answers_nothing(operation: OperationInput, start_id: str, *_: Any) -> bool:
        await storage.start_operation(operation, start_id)
        raise TaskHubUnavailableError("the answer was lost")

    facts: list[StartUnanswered] = []
    monkeypatch.setattr(TaskHub, "start_operation", staticmethod(answers_nothing))
    monkeypatch.setattr("durable_retry.telemetry.facts._receivers", {StartUnanswered: [facts.append]})
    operation = an_operation(key_is_generated=not noted)
    with pytest.raises(TaskHubUnavailableError):
        await submit(AZURE, operation)
    assert [fact.operation.operation_id for fact in facts] == noted * [operation.operation_id]


def test_a_caller_that_gives_no_key_gets_a_new_one_each_time() -> None:
    first, second = (caller_naming() for _ in range(2))
    assert first.is_new
    assert first.own.scope == "key:"
    assert first.own != second.own

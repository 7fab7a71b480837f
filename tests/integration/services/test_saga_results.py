from typing import Any
from unittest.mock import AsyncMock

import pytest
from azure.core.exceptions import AzureError

from durable_retry.attempt.results import store_apart
from durable_retry.base.answers import CAUSES
from durable_retry.base.names import OperationState
from durable_retry.features.workflows import batches as workflows
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.actions import Replayed
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.storage import contents, tables
from tests.support.builders import NOON, an_operation
from tests.support.narrowing import existing

pytestmark = pytest.mark.usefixtures("storage")

ANSWER = {"status_code": 200, "headers": {}, "json": {"id": "r-1", "note": "x" * 6_000}}


@pytest.fixture
async def operation(monkeypatch: pytest.MonkeyPatch) -> OperationInput:
    """An operation of a saga that has succeeded, with an answer above `RESULT_INLINE_BYTES`."""
    operation = an_operation()
    result = await store_apart(operation, 1, ANSWER, most_chars=4096, now=NOON)
    assert "json" not in result
    document: dict[str, Any] = {
        "operation_id": operation.operation_id,
        "status": OperationState.SUCCEEDED.value,
        "dead_letter": None,
        "attempt_count": 1,
        "attempts": [],
        "result": result,
    }

    async def submit(_hub: str, _operation: OperationInput) -> Replayed:
        return Replayed(document, finished=True)

    monkeypatch.setattr(workflows, "submit", submit)
    return operation


async def values_of(operation: OperationInput) -> Any:
    completion = await workflows.start_item(TaskHub("hub"), operation, NOON, ["/json/id", "/json/nothing"])
    return existing(completion).values


async def test_values_are_taken_from_a_result_that_is_stored_apart(operation: OperationInput) -> None:
    assert await values_of(operation) == {"/json/id": "r-1"}


async def test_a_store_that_does_not_answer_is_no_missing_result(
    operation: OperationInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise AzureError("away")

    with monkeypatch.context() as outage:
        outage.setattr(tables, "find", away)
        with pytest.raises(AzureError):
            await values_of(operation)
    assert await values_of(operation) == {"/json/id": "r-1"}


async def test_a_result_that_cannot_be_read_is_no_missing_result(
    operation: OperationInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def damaged(*_: object) -> tables.Row:
        return contents.packed("result", '{"json": ')

    monkeypatch.setattr(tables, "find", damaged)
    with pytest.raises(CAUSES):
        await values_of(operation)


async def test_a_result_that_was_removed_has_no_values(
    operation: OperationInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "find", AsyncMock(return_value=None))
    assert await values_of(operation) is None

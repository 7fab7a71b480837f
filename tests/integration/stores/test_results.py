from contextlib import nullcontext
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any
from unittest.mock import AsyncMock

import pytest
from azure.core.exceptions import AzureError, HttpResponseError

from durable_retry.attempt import attempt, results
from durable_retry.attempt.results import remove_results, store_apart, with_stored
from durable_retry.base.errors import StorageRefusedError
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.storage import clients as storage_clients
from durable_retry.storage import tables
from tests.support.builders import NOON, an_operation

pytestmark = pytest.mark.usefixtures("storage")

DAY = timedelta(days=1)
LARGE: dict[str, Any] = {"status_code": 200, "headers": {"a": "b"}, "json": {"text": "é" * 60_000}}


@pytest.fixture(autouse=True)
def table_of_its_own(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        results, "TABLE_PREFIX", f"Results{sha256(request.node.name.encode()).hexdigest()[:16]}"
    )


async def stored(result: dict[str, Any], *, at: datetime = NOON, ttl: timedelta = timedelta()) -> Any:
    operation = an_operation(ttl_seconds=ttl.total_seconds())
    return await store_apart(operation, 1, result, most_chars=4096, now=at)


async def test_a_large_result_is_named_in_its_place_and_found_there() -> None:
    kept = await stored(LARGE)
    assert kept.keys() == {"status_code", "headers", "stored"}
    assert len(str(kept)) < 200
    assert await with_stored(kept) == LARGE
    assert await stored(LARGE) == kept


async def test_the_value_of_a_handler_is_stored_without_its_writes_and_events() -> None:
    given = {"value": "x" * 5_000, "writes": [1], "events": [2]}
    kept = await stored(given)
    assert (kept["writes"], kept["events"]) == ([1], [2])
    assert await with_stored({"stored": kept["stored"]}) == {"value": "x" * 5_000}


async def test_two_executions_of_one_attempt_keep_their_own_results() -> None:
    other = LARGE | {"json": {"text": "y" * 60_000}}
    first, second = await stored(LARGE), await stored(other)
    assert await with_stored(first) == LARGE
    assert await with_stored(second) == other


@pytest.mark.parametrize("result", [{"status_code": 204, "headers": {}, "body": ""}, None])
async def test_a_small_result_stays_as_it_is(result: Any) -> None:
    assert result is None or await stored(result) == result
    assert await with_stored(result) == result


@pytest.mark.parametrize(("kept_for", "ttl"), [(5 * DAY, DAY), (DAY, 4.5 * DAY)])
async def test_a_result_is_removed_when_its_record_and_its_history_are_over(
    kept_for: timedelta, ttl: timedelta
) -> None:
    kept = await stored(LARGE, ttl=ttl)
    assert len(await days()) == 1
    assert await remove_results(NOON + 7 * DAY, kept_for) == 0
    assert await with_stored(kept) == LARGE
    assert await remove_results(NOON + 8 * DAY, kept_for) == 1
    assert await with_stored(kept) == {"status_code": 200, "headers": {"a": "b"}, "expired": True}
    assert not await days()
    assert await remove_results(NOON + 8 * DAY, kept_for) == 0


async def test_a_longer_retention_keeps_results_of_before_too_and_a_shorter_one_does_not() -> None:
    kept = await stored(LARGE)
    await remove_results(NOON + 20 * DAY, 30 * DAY)
    assert await with_stored(kept) == LARGE
    await remove_results(NOON + 20 * DAY, DAY)
    assert "expired" in await with_stored(kept)


async def test_a_day_that_passes_takes_all_of_its_results_and_no_others() -> None:
    kept = [await stored(LARGE, at=NOON + number * DAY) for number in (0, 0, 1)]
    assert len(await days()) == 2
    assert await remove_results(NOON + 4 * DAY, DAY) == 1
    assert [("expired" in await with_stored(each)) for each in kept] == [True, True, False]
    assert len(await days()) == 1


@pytest.mark.parametrize("partition", ["2026-11-24t1' or 1", "Orders", "2026-11-24", ""])
async def test_what_names_no_row_of_results_is_unreadable(partition: str) -> None:
    assert "unreadable" in await with_stored({"stored": [partition, "op-test.1.0123"]})


async def days() -> list[str]:
    return await tables.tables_between(f"{results.TABLE_PREFIX}0", f"{results.TABLE_PREFIX}:")


@pytest.mark.parametrize("error", [AzureError("away"), StorageRefusedError("EntityTooLarge")])
@pytest.mark.shows("P20")
async def test_a_result_that_cannot_be_stored_stays_in_the_history(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(attempt, "store_apart", AsyncMock(side_effect=error))
    outcome = AttemptOutcome(number=1, started_at=NOON, duration_ms=1.0, result=LARGE)
    assert await attempt.with_result_apart(an_operation(), outcome) == outcome


@pytest.mark.parametrize(("status", "raises"), [(409, False), (503, True)])
async def test_a_day_that_is_being_dropped_already_is_no_error(
    monkeypatch: pytest.MonkeyPatch, status: int, raises: Any
) -> None:
    class Service:
        def delete_table(self, _table: str) -> None:
            error = HttpResponseError("TableBeingDeleted")
            error.status_code = status
            raise error

    monkeypatch.setattr(storage_clients, "table_service", Service)
    with pytest.raises(HttpResponseError) if raises else nullcontext():
        await tables.drop_table("OperationResults20261124")

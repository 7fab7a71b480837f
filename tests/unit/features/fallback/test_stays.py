from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from azure.core.exceptions import ServiceRequestError

from durable_retry.attempt.http_request import Plan, start_clock
from durable_retry.base.names import Category
from durable_retry.features.fallback.rules import Route, Terms
from durable_retry.features.fallback.stays import Stay, attempt_in_stay
from durable_retry.rules.operations.keys import OvertakenError
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.runtime import clock
from durable_retry.storage import clients as storage_clients
from durable_retry.storage import tables
from tests.support.builders import NOON, PAYMENTS, a_life, after, an_operation
from tests.support.tables import TablesInMemory

STAY = Stay(a_life(), 0)
HOME = Route(to="spare")
AWAY = replace(
    HOME,
    stay=1,
    of="payments",
    home=Terms(policy=an_operation().policy, timeouts=an_operation().timeouts, parts={}),
)


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> TablesInMemory:
    account = TablesInMemory()
    monkeypatch.setattr(storage_clients, "table_service", lambda: account)
    return account


async def test_whoever_has_left_begins_nothing() -> None:
    assert await STAY.leave()
    assert not await STAY.begin("a")
    assert await STAY.was_left()


async def test_whoever_has_begun_does_not_leave() -> None:
    assert await STAY.begin("a")
    assert not await STAY.leave()
    assert not await STAY.was_left()


async def test_to_leave_twice_is_to_leave_once() -> None:
    assert [await STAY.leave(), await STAY.leave()] == [True, True]


async def test_what_has_surely_done_nothing_may_be_left_and_begun_again() -> None:
    await STAY.begin("a")
    await STAY.end("a")
    assert await STAY.begin("b")
    await STAY.end("b")
    assert await STAY.leave()


async def test_where_two_executions_have_begun_the_end_of_one_says_nothing() -> None:
    assert [await STAY.begin("a"), await STAY.begin("b")] == [True, True]
    await STAY.end("a")
    await STAY.end("b")
    assert not await STAY.leave()


async def test_each_stay_has_a_row_of_its_own() -> None:
    await STAY.leave()
    assert await Stay(a_life(), 1).begin("a")
    assert not await Stay(a_life(), 2).was_left()


async def test_an_earlier_life_leaves_no_trace_and_a_later_one_ends_this() -> None:
    later = Stay(a_life(accepted_in=100_000), 0)
    await STAY.leave()
    assert not await later.was_left()
    assert await later.begin("b")
    for late in (STAY.begin("a"), STAY.leave(), STAY.was_left()):
        with pytest.raises(OvertakenError):
            await late


async def test_an_earlier_life_keeps_nobody() -> None:
    await STAY.begin("a")
    assert await Stay(a_life(accepted_in=100_000), 0).leave()


async def test_an_insert_whose_answer_was_lost_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    insert = tables.insert_if_absent

    async def losing(table: str, row: tables.Row) -> bool:
        await insert(table, row)
        raise ServiceRequestError("lost")

    monkeypatch.setattr(tables, "insert_if_absent", losing)
    assert await STAY.begin("a")
    await STAY.end("a")
    monkeypatch.undo()


def planned(operation: OperationInput) -> Plan:
    return Plan(operation, 1, PAYMENTS, start_clock(operation))


def attempting(**changes: Any) -> Callable[[Plan], Awaitable[AttemptOutcome]]:
    async def make(plan: Plan) -> AttemptOutcome:
        return plan.outcome(**changes)

    return make


async def attempted(
    route: Route = HOME, *, acted_before: bool | None = None, **changes: Any
) -> AttemptOutcome:
    operation = an_operation(
        deadline_in=None,
        parts={"fallback": route.to_json()},
        acted_before=acted_before,
        dependency="payments" if route.of is None else "spare",
    )
    return await attempt_in_stay(attempting(**changes), planned(operation))


@pytest.mark.parametrize(
    ("changes", "may_leave"),
    [
        ({}, False),
        ({"category": Category.TRANSIENT, "status_code": 503}, False),
        ({"category": Category.TRANSIENT, "may_answer_until": after(9), "counted": False}, False),
        ({"category": Category.THROTTLED, "status_code": 429}, True),
        ({"category": Category.UNAUTHORIZED, "status_code": 401, "counted": False}, True),
        ({"category": Category.TRANSIENT, "did_nothing": True}, True),
        ({"category": Category.TRANSIENT, "counted": False}, True),
    ],
)
async def test_an_attempt_keeps_the_operation_unless_it_has_surely_done_nothing(
    changes: dict[str, Any], *, may_leave: bool
) -> None:
    outcome = await attempted(**changes)
    assert outcome.dependency is None
    assert await Stay.of(an_operation(parts={"fallback": HOME.to_json()})).leave() is may_leave


async def test_an_attempt_at_a_fallback_says_so() -> None:
    assert (await attempted(AWAY)).dependency == "spare"
    assert (await attempted(AWAY, acted_before=True)).dependency == "spare"


async def test_one_that_comes_too_late_sends_nothing() -> None:
    await STAY.leave()
    outcome = await attempted(category=Category.MALFORMED)
    assert (outcome.error, outcome.counted) == ("the operation has left payments", False)


async def test_what_cannot_leave_any_more_notes_nothing(account: TablesInMemory) -> None:
    await attempted(acted_before=True)
    assert account.rows("AttemptMarkers") == []


async def test_what_a_later_life_has_overtaken_sends_nothing() -> None:
    await Stay(a_life(accepted_in=100_000), 0).begin("b")
    outcome = await attempted()
    assert (outcome.category, outcome.is_stopped) == (Category.AMBIGUOUS, True)


async def test_without_its_row_an_attempt_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(*_: Any, **__: Any) -> Any:
        raise ServiceRequestError("down")

    monkeypatch.setattr(tables, "insert_if_absent", failing)
    monkeypatch.setattr(tables, "read_version", failing)
    outcome = await attempted()
    assert outcome.error == "that it begins was not noted: ServiceRequestError"
    assert (outcome.counted, outcome.category) == (False, Category.TRANSIENT)


async def test_where_its_end_cannot_be_noted_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Stay, "end", AsyncMock(side_effect=ServiceRequestError("down")))
        outcome = await attempted(category=Category.THROTTLED, status_code=429)
    assert outcome.category is Category.THROTTLED
    assert not await STAY.leave()


async def test_the_time_of_the_row_may_be_all_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Stay.begin

    async def slow(stay: Stay, execution: str) -> bool:
        monkeypatch.setattr(clock, "now", lambda: after(31))
        return await begin(stay, execution)

    monkeypatch.setattr(clock, "now", lambda: NOON)
    monkeypatch.setattr(Stay, "begin", slow)
    operation = an_operation(deadline_in=30, parts={"fallback": HOME.to_json()})
    outcome = await attempt_in_stay(attempting(), planned(operation))
    assert outcome.category is Category.DEADLINE_EXCEEDED
    assert await STAY.leave()

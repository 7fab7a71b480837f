import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import httpx
import pytest
from azure.core.exceptions import ServiceRequestError
from pydantic import BaseModel, ValidationError

import durable_retry
from durable_retry.attempt.admission import health_shown_by
from durable_retry.attempt.attempt import make_attempt
from durable_retry.attempt.http_client import sending_over
from durable_retry.base.names import Category
from durable_retry.features.handlers import functions, registry
from durable_retry.features.handlers.functions import Interruption
from durable_retry.features.handlers.handler import MAX_VALUE_BYTES
from durable_retry.features.outbox.rules.event import Event
from durable_retry.handlers import (
    Call,
    Conflict,
    Outcome,
    Rejected,
    TableWrite,
    Throttled,
    Transient,
)
from durable_retry.rules.circuit.calls import CallHealth
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.retry.decide import MAX_OWN_FAILURES
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.rules.retry.policy import Timeouts
from durable_retry.runtime.concurrency import LoopOwned
from durable_retry.settings.configuration import using
from durable_retry.storage import tables
from tests.support.builders import an_operation
from tests.support.narrowing import existing
from tests.support.tables import TablesInMemory
from tests.support.target import Target

pytestmark = pytest.mark.usefixtures("no_handlers", "tables_in_memory")

SHORT = httpx.Timeout(5, read=0.1)
"""For an answer; a request that was not sent would have no effect."""


class ShipOrder(BaseModel):
    order: int


EARLIER, LATER = (an_operation().run + apart for apart in (-600_000, 600_000))
"""The numbers of runs of other lives."""


async def run(
    function: Callable[..., Any], *, options: Mapping[str, Any] | None = None, **changes: Any
) -> AttemptOutcome:
    registry._handlers.clear()
    durable_retry.operation("ship-order", dependency="safe", **(options or {}))(function)
    values: dict[str, Any] = {
        "handler": "ship-order",
        "request": None,
        "input": {"order": 7},
        "dependency": "safe",
        "deadline_at": None,
    }
    return await make_attempt(an_operation(**(values | changes)), 3)


async def test_a_handler_gets_its_input_and_what_it_needs_to_know() -> None:
    async def ship(order: ShipOrder, call: Call) -> dict[str, Any]:
        return {"order": order.order, "key": call.key, "attempt": call.attempt, "id": call.correlation_id}

    outcome = await run(ship, correlation_id="c-1")
    assert outcome.result == {"value": {"order": 7, "key": "key-1", "attempt": 3, "id": "c-1"}}


async def test_the_client_is_bound_to_the_dependency(target: Target, key: str) -> None:
    async def ship(_order: ShipOrder, call: Call) -> int:
        answer = await call.client.get("/echo", headers={"Idempotency-Key": key})
        return answer.status_code

    assert (await run(ship)).result == {"value": 200}
    assert target.received(key)["tries"][0]["headers"]["x-api-key"] == "sesame-open-0815"


async def test_each_request_carries_the_key_and_what_an_attempt_says_of_itself(
    target: Target, key: str
) -> None:
    async def ship(_order: ShipOrder, call: Call) -> None:
        async with call.client as client:  # closing it closes no connection of the others
            await client.post("/echo")
            await client.post("/echo", headers={"Idempotency-Key": f"{key}-own"})

    assert (await run(ship, key=key, correlation_id="c-1")).category is None
    (sent,) = target.received(key)["tries"]
    assert (sent["headers"]["x-attempt"], sent["headers"]["x-correlation-id"]) == ("3", "c-1")
    assert 0 < float(sent["headers"]["x-seconds-left"]) <= 10
    assert target.received(f"{key}-own")["count"] == 1


async def test_a_dependency_without_the_header_gets_no_key(target: Target, key: str) -> None:
    async def ship(_order: ShipOrder, call: Call) -> int:
        return (await call.client.post(f"/echo?case={key}")).status_code

    assert (await run(ship, key=key, dependency="unsafe")).result == {"value": 200}
    assert target.received(key)["count"] == 0


async def test_what_a_request_of_the_client_failed_by_is_classified_as_for_a_request() -> None:
    async def ship(_order: ShipOrder, call: Call) -> None:
        await call.client.post("/nobody-listens")

    async def speak(_order: ShipOrder, call: Call) -> None:
        await call.client.get("/echo", headers={"X": "a\nb"})

    assert (await run(ship, dependency="nowhere")).category is Category.TRANSIENT
    registry._handlers.clear()
    assert (await run(speak)).category is Category.MALFORMED


@pytest.mark.parametrize(
    ("dependency", "category"), [("safe", Category.TRANSIENT), ("unsafe", Category.AMBIGUOUS)]
)
@pytest.mark.parametrize("how", ["cut off", "lost", "500"])
async def test_a_request_that_may_have_taken_effect_is_repeated_where_it_is_deduplicated_only(
    dependency: str, category: Category, how: str, key: str
) -> None:
    async def ship(_order: ShipOrder, call: Call) -> None:
        if how == "cut off":
            await call.client.post("/hang/999", params={"seconds": 5, "case": key})
        elif how == "lost":
            await call.client.post("/hang/999", params={"seconds": 5, "case": key}, timeout=0.2)
        else:
            (await call.client.post("/status/500", params={"case": key})).raise_for_status()

    limits = Timeouts(connect_seconds=0.5, attempt_seconds=0.5 if how == "cut off" else 5)
    assert (await run(ship, key=key, dependency=dependency, timeouts=limits)).category is category


@pytest.mark.parametrize(
    "raised",
    [
        Transient("away"),
        Rejected("no"),
        ValueError("what"),
        KeyError("id"),
        ValidationError.from_exception_data("Receipt", []),
    ],
)
async def test_what_may_have_taken_effect_stays_unknown_whatever_the_handler_raises(
    raised: Exception,
) -> None:
    async def ship(_order: ShipOrder, call: Call) -> None:
        try:
            await call.client.post("/hang/999", params={"seconds": 5}, timeout=SHORT)
        except httpx.TimeoutException:
            raise raised from None

    assert (await run(ship, dependency="unsafe")).category is Category.AMBIGUOUS
    assert (await run(ship)).category is not Category.AMBIGUOUS


async def test_a_request_that_is_under_way_when_its_handler_fails_may_have_acted() -> None:
    async def ship(_order: ShipOrder, call: Call) -> None:
        posts.append(asyncio.create_task(call.client.post("/hang/999", params={"seconds": 5})))
        await asyncio.sleep(0)
        raise RuntimeError("something else")

    posts: list[asyncio.Task[Any]] = []
    categories = [(await run(ship, dependency=name)).category for name in ("unsafe", "safe")]
    for post in posts:
        post.cancel()
    assert categories == [Category.AMBIGUOUS, Category.TRANSIENT]


class BrokenBody(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"{"
        raise httpx.ReadError("lost")


async def test_an_answer_of_which_the_body_is_cut_off_may_have_taken_effect() -> None:
    async def ship(_order: ShipOrder, call: Call) -> None:
        try:
            await call.client.post("/echo")
        except httpx.ReadError:
            raise Transient("away") from None

    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=BrokenBody()))
    with sending_over(lambda _: transport):
        assert (await run(ship, dependency="unsafe")).category is Category.AMBIGUOUS


async def test_the_client_calls_nobody_else() -> None:
    async def ship(_order: ShipOrder, call: Call) -> None:
        await call.client.get("http://127.0.0.1:9/elsewhere")

    outcome = await run(ship)
    assert outcome.category is Category.MALFORMED
    assert existing(outcome.error).startswith("EscapedBaseUrlError: http://127.0.0.1:9/elsewhere leads")


@pytest.mark.parametrize(
    ("raised", "category", "seconds"),
    [
        (Transient("not yet", retry_after=3), Category.TRANSIENT, 3),
        (Throttled(retry_after=5), Category.THROTTLED, 5),
        (Rejected("never"), Category.BUSINESS_RULE, None),
        (ValueError("anything else"), Category.TRANSIENT, None),
        (ConnectionError("away"), Category.TRANSIENT, None),
    ],
)
@pytest.mark.shows("A9")
async def test_what_a_handler_raises_says_what_follows(
    raised: Exception, category: Category, seconds: float | None
) -> None:
    async def ship(_order: ShipOrder, _call: Call) -> None:
        raise raised

    outcome = await run(ship)
    hint = outcome.retry_hint
    assert outcome.category is category
    assert (None if hint is None else hint.delay_seconds) == seconds


async def test_a_handler_is_cut_off_when_its_time_is_over() -> None:
    async def ship(_order: ShipOrder, call: Call) -> None:
        await call.client.get("/hang/999", params={"seconds": 5})

    outcome = await run(ship, timeouts=Timeouts(connect_seconds=0.3, attempt_seconds=0.3))
    assert outcome.category is Category.TRANSIENT
    assert outcome.duration_ms < 2_000


async def test_input_that_does_not_fit_any_more_is_not_retried() -> None:
    async def ship(_order: ShipOrder, _call: Call) -> None:
        raise AssertionError("it must not run")

    outcome = await run(ship, input={"order": "x"})
    assert outcome.category is Category.MALFORMED
    assert not outcome.may_have_acted("ship-order")  # it was not called, so a saga has nothing to undo


@pytest.mark.shows("A20")
async def test_a_handler_that_is_gone_costs_no_attempt() -> None:
    outcome = await make_attempt(
        an_operation(handler="gone", request=None, dependency="safe", deadline_at=None), 1
    )
    assert (outcome.category, outcome.counted, outcome.missing) == (Category.TRANSIENT, False, True)


async def test_models_writes_and_events_travel_as_json() -> None:
    write = TableWrite(table="Orders", partition_key="p", row_key="r", values={"n": 1})

    async def ship(order: ShipOrder, _call: Call) -> Outcome:
        return Outcome(order, writes=[write], events=[Event.to_queue("order-events", "shipped")])

    outcome = await run(ship)
    assert outcome.result["value"] == {"order": 7}
    assert outcome.result["writes"] == [write.to_json()]
    assert outcome.result["events"][0]["queue"] == "order-events"


@pytest.mark.parametrize(
    ("dependency", "options", "sends", "is_sent_once"),
    [
        ("unsafe", {}, True, True),
        ("unsafe", {}, False, None),
        ("safe", {}, True, None),
        ("safe", {"repeatable": False}, False, True),
    ],
)
async def test_an_update_after_what_is_sent_once_says_that_the_handler_must_not_run_again(
    dependency: str, options: dict[str, Any], *, sends: bool, is_sent_once: bool | None
) -> None:
    update = TableWrite(table="Orders", partition_key="p", row_key="r", mode="update", etag="W/1")

    async def ship(_order: ShipOrder, call: Call) -> Outcome:
        if sends:
            await call.client.post("/echo")
        return Outcome(1, writes=[update])

    outcome = await run(ship, options=options, dependency=dependency)
    assert outcome.result.get("sent_once") is is_sent_once


async def test_a_handler_sees_why_its_success_was_not_committed() -> None:
    async def ship(_order: ShipOrder, call: Call) -> str:
        return str(call.commit_conflict)

    conflict = Conflict(table="Orders", partition_key="p", row_key="r", detail="there is no such row")
    outcome = await run(ship, conflict=conflict)
    assert outcome.result["value"] == "Conflict: row 'r' of Orders: there is no such row"


@pytest.mark.parametrize(
    ("make", "pointer"),
    [
        (lambda: Outcome(object()), "/value"),
        (lambda: Outcome(json.loads("[" * 49 + "]" * 49)), "/value/0/0"),
        (lambda: Outcome("x" * MAX_VALUE_BYTES), "/value: has 1048578 bytes of JSON"),
        (lambda: Outcome(1, events=[Event.to_queue("No Queue", "shipped")]), "/queue"),
        (lambda: Outcome(1, events=[Event.to_webhook("nobody", "/", "shipped")]), "/events/0/dependency"),
        (lambda: Outcome(1, events=[Event.to_queue("azure-webjobs-x", "shipped")]), "/events/0/queue"),
        (lambda: Outcome(1, [TableWrite(table="no", partition_key="p", row_key="r")]), "/table"),
    ],
)
@pytest.mark.shows("A19")
async def test_what_can_never_be_committed_is_a_mistake_of_the_handler(
    make: Callable[[], Outcome], pointer: str
) -> None:
    async def ship(_order: ShipOrder, _call: Call) -> Outcome:
        return make()

    outcome = await run(ship)
    assert outcome.category is Category.MALFORMED
    assert (outcome.error or "").startswith(f"bug in handler ship-order: InvalidInputError: {pointer}")
    assert health_shown_by(outcome) is CallHealth.SILENT


@pytest.mark.parametrize("bug", [TypeError("x"), AttributeError("x"), NameError("x"), KeyError("x")])
async def test_a_bug_in_a_handler_is_logged_with_its_traceback_and_says_nothing_of_the_dependency(
    bug: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def ship(_order: ShipOrder, _call: Call) -> None:
        raise bug

    outcome = await run(ship)
    assert outcome.category is Category.MALFORMED
    assert (outcome.error or "").startswith(f"bug in handler ship-order: {type(bug).__name__}")
    assert health_shown_by(outcome) is CallHealth.SILENT
    (logged,) = [entry for entry in caplog.records if "has a bug" in entry.getMessage()]
    assert logged.levelname == "ERROR"
    assert logged.getMessage().strip().splitlines()[-1] == f"{type(bug).__name__}: {bug}"


@pytest.mark.parametrize(
    ("status_code", "category"),
    [
        (429, Category.THROTTLED),
        (503, Category.THROTTLED),
        (422, Category.TRANSIENT),
        (404, Category.TRANSIENT),
    ],
)
async def test_an_answer_that_raised_for_its_status_is_classified_by_it(
    status_code: int, category: Category
) -> None:
    async def ship(_order: ShipOrder, _call: Call) -> None:
        request = httpx.Request("GET", "https://payments.example.com/v1")
        answer = httpx.Response(status_code, headers={"Retry-After": "7"}, request=request)
        answer.raise_for_status()

    outcome = await run(ship)
    assert (outcome.category, outcome.status_code) == (category, status_code)
    assert existing(outcome.retry_hint).delay_seconds == 7


class DeathError(Interruption):
    """The process died: nothing of the attempt runs after it."""


@pytest.mark.shows("A16")
async def test_a_handler_that_ends_its_process_each_time_is_not_run_for_ever() -> None:
    async def dies(_order: ShipOrder, _call: Call) -> None:
        runs.append(1)
        raise DeathError

    runs: list[int] = []
    for _ in range(MAX_OWN_FAILURES - 1):
        with pytest.raises(DeathError):
            await run(dies)
    outcome = await run(dies)
    assert len(runs) == MAX_OWN_FAILURES - 1
    assert (outcome.category, outcome.counted) == (Category.AMBIGUOUS, True)
    assert outcome.error is not None
    assert outcome.error.startswith("handler ship-order began this attempt 19 times and never ended it")
    with pytest.raises(DeathError):
        await run(dies, run=LATER)  # a later run of the key begins anew


async def test_an_attempt_that_ends_costs_one_row(tables_in_memory: TablesInMemory) -> None:
    async def ship(_order: ShipOrder, _call: Call) -> int:
        return 1

    await run(ship)
    (row,) = tables_in_memory.rows("AttemptMarkers")
    assert (row["PartitionKey"], row["RowKey"], row["starts"]) == ("op-test", "0000000003", 1)


async def test_a_function_that_is_not_async_runs_beside_the_loop_and_is_cut_off() -> None:
    go_on, began = threading.Event(), threading.Event()

    def ship(_order: ShipOrder, call: Call) -> str:
        began.set()
        go_on.wait(30)
        return call.key

    running = asyncio.create_task(run(ship, timeouts=Timeouts(connect_seconds=1, attempt_seconds=30)))
    await asyncio.to_thread(began.wait, 30)
    go_on.set()
    assert (await running).result == {"value": "key-1"}
    go_on.clear()
    outcome = await run(ship, timeouts=Timeouts(connect_seconds=0.1, attempt_seconds=0.1))
    go_on.set()
    assert (outcome.category, outcome.counted) == (Category.TRANSIENT, True)


async def test_an_attempt_for_which_no_thread_was_free_costs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ship(_order: ShipOrder) -> None:
        raise AssertionError("it must not run")

    monkeypatch.setattr(functions, "_free", LoopOwned(lambda: asyncio.Semaphore(0)))
    for options in ({}, {"repeatable": False}):
        outcome = await run(
            ship, options=options, timeouts=Timeouts(connect_seconds=0.05, attempt_seconds=0.05)
        )
        assert (outcome.category, outcome.counted) == (Category.TRANSIENT, False)


async def test_what_must_not_run_twice_does_not() -> None:
    async def hangs(_order: ShipOrder) -> None:
        runs.append("hangs")
        await asyncio.sleep(30)

    async def dies(_order: ShipOrder) -> None:
        runs.append("dies")
        raise DeathError

    async def ships(_order: ShipOrder) -> int:
        runs.append("ships")
        return len(runs)

    runs: list[str] = []
    once = {"repeatable": False}
    short = Timeouts(connect_seconds=0.1, attempt_seconds=0.1)
    assert (await run(hangs, options=once, timeouts=short, run=EARLIER)).category is Category.AMBIGUOUS
    with pytest.raises(DeathError):
        await run(dies, options=once)
    assert (await run(dies, options=once)).category is Category.AMBIGUOUS
    first, again = [await run(ships, options=once, run=LATER) for _ in range(2)]
    assert first.result == again.result == {"value": 3}
    assert runs == ["hangs", "dies", "ships"]


async def test_a_function_may_say_that_its_requests_may_be_sent_twice() -> None:
    async def ship(_order: ShipOrder, call: Call) -> None:
        await call.client.post("/hang/999", params={"seconds": 5}, timeout=SHORT)

    assert (await run(ship, dependency="unsafe")).category is Category.AMBIGUOUS
    assert (await run(ship, dependency="unsafe", options={"repeatable": True})).category is Category.TRANSIENT


async def test_a_result_that_is_not_what_the_function_returns_is_a_bug() -> None:
    async def ship(order: ShipOrder) -> int:
        return order  # type: ignore[return-value]

    outcome = await run(ship)
    assert (outcome.error or "").startswith("bug in handler ship-order: InvalidInputError: /value")


async def test_storage_that_does_not_answer_holds_no_handler_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any) -> Any:
        raise ServiceRequestError("away")

    async def ship(_order: ShipOrder, _call: Call) -> int:
        return 1

    monkeypatch.setattr(tables, "_run_on_table", away)
    assert (await run(ship)).result == {"value": 1}


async def test_the_body_of_an_answer_is_the_error_that_a_person_sees() -> None:
    async def ship(_order: ShipOrder, call: Call) -> None:
        (await call.client.post("/charges")).raise_for_status()

    transport = httpx.MockTransport(lambda _: httpx.Response(422, text="no such\n  account"))
    with sending_over(lambda _: transport):
        outcome = await run(ship)
    assert (outcome.status_code, outcome.error) == (422, "HTTPStatusError: no such account")


async def test_where_there_is_no_address_the_client_says_so_and_code_runs() -> None:
    async def ship(order: ShipOrder) -> int:
        return order.order

    async def asks(_order: ShipOrder, call: Call) -> None:
        await call.client.get("/echo")

    with using(parse_config("[dependencies.safe]", {})):
        assert (await run(ship)).result == {"value": 7}
        outcome = await run(asks)
    assert (outcome.category, outcome.error) == (
        Category.MALFORMED,
        "EscapedBaseUrlError: safe has no base_url, so it takes no requests",
    )

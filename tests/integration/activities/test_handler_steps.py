import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from azure.core.exceptions import (
    AzureError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
    ServiceResponseTimeoutError,
)
from pydantic import BaseModel

import durable_retry
from durable_retry.attempt.admission import health_shown_by
from durable_retry.attempt.attempt import make_attempt
from durable_retry.base.names import Category, OperationState
from durable_retry.features.handlers import registry
from durable_retry.features.handlers.call import Calls, StepInterrupted
from durable_retry.features.handlers.functions import Interruption
from durable_retry.features.handlers.shown import steps_shown
from durable_retry.handlers import Call, Rejected, Throttled, Transient
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.rules.retry.policy import Timeouts
from durable_retry.storage import tables
from tests.support.builders import an_operation
from tests.support.narrowing import existing
from tests.support.target import Target

pytestmark = pytest.mark.usefixtures("no_handlers", "tables_in_memory")

SHORT = httpx.Timeout(5, read=0.1)
"""For an answer; a request that was not sent would have no effect."""


class Order(BaseModel):
    number: int = 7


class Charge(BaseModel):
    id: str
    order: Order


@dataclass
class Script:
    """What a handler's second step does in each attempt; a step that has run is noted."""

    fails: list[BaseException]
    ran: list[str]

    def next(self, name: str) -> None:
        self.ran.append(name)
        if name == "mail" and self.fails:
            raise self.fails.pop(0)


type Function = Callable[[Any, Call], Awaitable[Any]]


def registered(function: Function) -> None:
    registry._handlers.clear()
    durable_retry.operation("ship", dependency="safe")(function)


LATER = 600_005
"""The number of a run of a later life."""


async def run(function: Function, number: int = 1, **changes: Any) -> AttemptOutcome:
    registered(function)
    values: dict[str, Any] = {
        "handler": "ship",
        "request": None,
        "input": {},
        "dependency": "safe",
        "deadline_at": None,
        "run": 5,
    }
    return await make_attempt(an_operation(**(values | changes)), number)


async def seen(run_number: int = 5, state: OperationState = OperationState.RUNNING) -> list[tuple[Any, ...]]:
    steps, _ = await steps_shown("op-test", run_number, state)
    return [(step.name, step.status, step.attempts, step.result) for step in steps]


def two_steps(script: Script, **options: Any) -> Function:
    async def charge(order: Order, call: Call) -> Charge:
        script.next("charge")
        return Charge(id=f"ch-{call.key}", order=order)

    async def mail(_charge: Charge, _call: Call) -> None:
        script.next("mail")

    async def ship(order: Order, call: Call) -> str:
        paid = await call.step("charge", charge, order)
        assert paid.order.number == order.number
        await call.step("mail", mail, paid, **options)
        return paid.id

    return ship


class DeathError(Interruption):
    """The process died: nothing of the attempt runs after it."""


async def test_a_step_with_a_result_is_not_run_again_when_a_later_one_fails() -> None:
    script = Script([Transient("away")], [])
    failed = await run(two_steps(script))
    assert (failed.category, failed.error) == (Category.TRANSIENT, "Transient: away")
    charged = {"id": "ch-key-1~charge", "order": {"number": 7}}
    assert await seen() == [("charge", "succeeded", 1, charged), ("mail", "failed", 1, None)]
    assert (await run(two_steps(script), 2)).result == {"value": "ch-key-1~charge"}
    assert script.ran == ["charge", "mail", "mail"]
    assert await seen() == [("charge", "succeeded", 1, charged), ("mail", "succeeded", 2, None)]


async def test_a_failure_names_the_step_and_has_the_traceback_without_secrets() -> None:
    failed = await run(two_steps(Script([Transient("away with sesame-open-0815")], [])))
    assert failed.failure is not None
    assert (failed.failure.step, failed.failure.body) == ("mail", None)
    trace = failed.failure.traceback or ""
    assert trace.startswith("Traceback")
    assert 'script.next("mail")' in trace
    assert trace.endswith("Transient: away with ***\n")


async def test_a_step_with_a_result_is_not_run_again_when_the_process_dies_in_a_later_one() -> None:
    script = Script([DeathError()], [])
    with pytest.raises(DeathError):
        await run(two_steps(script))
    assert [step[:3] for step in await seen()] == [("charge", "succeeded", 1), ("mail", "running", 1)]
    assert (await seen(state=OperationState.WAITING_RETRY))[1][1] == "unknown"
    assert (await run(two_steps(script))).category is None
    assert script.ran == ["charge", "mail", "mail"]
    assert [step[:3] for step in await seen()] == [("charge", "succeeded", 1), ("mail", "succeeded", 1)]


async def test_a_step_that_died_is_not_repeated_where_the_dependency_does_not_deduplicate() -> None:
    script = Script([DeathError()], [])
    with pytest.raises(DeathError):
        await run(two_steps(script), dependency="unsafe")
    outcome = await run(two_steps(script), dependency="unsafe")
    assert (outcome.category, outcome.counted) == (Category.AMBIGUOUS, True)
    assert "step mail began" in (outcome.error or "")
    assert script.ran == ["charge", "mail"]
    # A person replays it: a later run with the same steps.
    assert (await run(two_steps(script), dependency="unsafe", run=LATER, steps_run=5)).category is None
    assert script.ran == ["charge", "mail", "mail"]


async def test_a_step_that_may_be_repeated_is_whatever_the_dependency_does() -> None:
    script = Script([DeathError()], [])
    with pytest.raises(DeathError):
        await run(two_steps(script, repeatable=True), dependency="unsafe")
    assert (await run(two_steps(script, repeatable=True), dependency="unsafe")).category is None


async def test_a_later_run_of_the_key_begins_anew() -> None:
    script = Script([], [])
    await run(two_steps(script))
    await run(two_steps(script), run=LATER)
    assert script.ran == ["charge", "mail"] * 2
    await run(two_steps(script), run=2 * LATER, steps_run=LATER)
    assert script.ran == ["charge", "mail"] * 2


async def test_a_run_that_was_overtaken_runs_no_step() -> None:
    script = Script([Transient()], [])
    await run(two_steps(script), run=LATER, steps_run=5)
    outcome = await run(two_steps(script))
    assert outcome.category is Category.AMBIGUOUS
    assert outcome.error == f"run {LATER} of this key has begun; run 5 is over"


async def test_a_step_is_retried_by_its_own_policy() -> None:
    script = Script([Transient(), httpx.ReadTimeout("slow")], [])
    options = {"retry": {"max_attempts": 8, "initial_seconds": 1.5}}
    for attempt in (1, 2):
        step = existing((await run(two_steps(script, **options), attempt)).step)
        assert (step.step, step.attempt) == ("mail", attempt)
        # Changed key by key from the operation's policy, whose strategy is fixed.
        policy = step.policy
        assert (policy.max_attempts, policy.initial_seconds, policy.strategy) == (8, 1.5, "fixed")


async def test_a_failure_outside_of_the_step_is_the_operations() -> None:
    async def flaky(_call: Call) -> None:
        raise Transient("step")

    async def ship(_order: Order, call: Call) -> None:
        try:
            await call.step("flaky", flaky, retry={"max_attempts": 8})
        except Transient as error:
            raise Rejected("caught") from (None if call.attempt == 1 else error)

    assert (await run(ship)).step is None
    assert (await run(ship, 2)).step is not None  # it is what the handler gives as the cause


@pytest.mark.parametrize(
    ("options", "pointer"),
    [
        ({"retry": {"max_attempts": 0}}, "/max_attempts"),
        ({"retry": {"attempts": 3}}, "/attempts"),
        ({"retry": {"strategy": "schedule"}}, "/retry/schedule_seconds"),
    ],
)
async def test_a_policy_that_is_none_is_a_mistake_of_the_handler(
    options: dict[str, Any], pointer: str
) -> None:
    script = Script([], [])
    outcome = await run(two_steps(script, **options))
    assert outcome.category is Category.MALFORMED
    assert pointer in (outcome.error or "")
    assert script.ran == ["charge"]


async def test_each_step_has_a_key_of_its_own(target: Target, key: str) -> None:
    async def send(call: Call) -> int:
        return (await call.client.post("/echo")).status_code

    async def ship(_order: Order, call: Call) -> list[int]:
        return [await call.step("a", send), await call.step("b", send), await send(call)]

    assert (await run(ship, key=key)).result == {"value": [200, 200, 200]}
    assert [target.received(each)["count"] for each in (f"{key}~a", f"{key}~b", key)] == [1, 1, 1]


async def test_steps_may_run_side_by_side() -> None:
    async def one(number: int, _call: Call) -> int:
        await asyncio.sleep(0)
        return number

    async def ship(_order: Order, call: Call) -> list[int]:
        return await asyncio.gather(*(call.step(f"s{n}", one, n) for n in range(5)))

    assert (await run(ship)).result == {"value": [0, 1, 2, 3, 4]}
    assert sorted(step[0] for step in await seen()) == ["s0", "s1", "s2", "s3", "s4"]


async def no_result(_call: Call) -> object:
    return object()


async def too_much(_call: Call) -> str:
    return "x" * 65_536


async def an_answer(_call: Call) -> httpx.Response:
    raise AssertionError("it must not run")


async def nested(call: Call) -> None:
    await call.step("inner", too_much)


async def nothing(_call: Call) -> None:
    return None


@pytest.mark.parametrize(
    ("function", "name", "words"),
    [
        (no_result, "s", "/steps/s: has no JSON form"),
        (too_much, "s", "/steps/s: has 65538 bytes of JSON; at most 65536 are stored"),
        (an_answer, "s", "has no JSON form"),
        (nested, "s", "'inner' is inside of another step"),
        (nothing, "twice", "'twice' is the name of an earlier step"),
        (nothing, "no name", "'no name' is no name"),
    ],
)
@pytest.mark.shows("A19")
async def test_a_step_that_cannot_be_remembered_is_a_mistake_of_the_handler(
    function: Callable[..., Awaitable[Any]], name: str, words: str
) -> None:
    async def ship(_order: Order, call: Call) -> None:
        await call.step("twice", nothing)
        await call.step(name, function)

    outcome = await run(ship)
    assert outcome.category is Category.MALFORMED
    assert words in (outcome.error or "")
    assert health_shown_by(outcome).value == "silent"


async def test_a_handler_has_a_hundred_steps_at_most() -> None:
    async def ship(_order: Order, call: Call) -> None:
        for number in range(101):
            await call.step(f"s{number}", nothing)

    assert "at most 100 steps" in ((await run(ship)).error or "")


@pytest.mark.parametrize(
    ("dependency", "category"), [("safe", Category.TRANSIENT), ("unsafe", Category.AMBIGUOUS)]
)
async def test_a_step_that_was_cut_off_is_repeated_only_where_it_may(
    dependency: str, category: Category
) -> None:
    async def slow(_call: Call) -> None:
        await asyncio.Event().wait()

    async def ship(_order: Order, call: Call) -> None:
        await call.step("slow", slow, retry={"max_attempts": 8})

    limits = Timeouts(connect_seconds=0.3, attempt_seconds=0.3)
    outcome = await run(ship, timeouts=limits, dependency=dependency)
    assert outcome.category is category
    assert (outcome.step is not None) is (category is Category.TRANSIENT)
    assert (await seen())[0][1] == ("failed" if category is Category.TRANSIENT else "running")


async def test_a_handler_cannot_go_on_behind_our_own_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    async def away(*_: Any) -> Any:
        raise ServiceRequestError("away")

    async def ship(_order: Order, call: Call) -> str:
        try:
            await call.step("first", nothing)
        except Exception:  # noqa: BLE001 - what a careless handler does
            ran.append("caught")
        return "done"

    monkeypatch.setattr(tables, "_run_on_table", away)
    with pytest.raises(ServiceRequestError):
        await run(ship)
    assert ran == []


@pytest.mark.parametrize("hanging_seconds", [0.1, 9.0])
async def test_an_attempt_whose_time_our_own_storage_takes_is_no_failure_of_the_dependency(
    monkeypatch: pytest.MonkeyPatch, hanging_seconds: float
) -> None:
    async def hang(*_: Any) -> Any:
        await asyncio.Event().wait()

    async def ship(_order: Order, call: Call) -> None:
        await call.step("first", nothing)

    monkeypatch.setattr("durable_retry.features.handlers.call.HANGING_SECONDS", hanging_seconds)
    monkeypatch.setattr("durable_retry.features.handlers.handler.change_step", hang)
    attempt = run(ship, timeouts=Timeouts(connect_seconds=0.2, attempt_seconds=0.2))
    if hanging_seconds < 0.2:
        with pytest.raises(ServiceResponseTimeoutError, match="storage hung"):
            await attempt
    else:  # a quick write, at whose beginning the time was almost over
        assert (await attempt).counted


async def test_no_step_runs_after_one_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any) -> Any:
        raise ServiceRequestError("away")

    async def ship(_order: Order, call: Call) -> str:
        results = await asyncio.gather(call.step("first", nothing), return_exceptions=True)
        await call.step("second", nothing)
        return str(results)

    monkeypatch.setattr(tables, "_run_on_table", away)
    with pytest.raises(ServiceRequestError):
        await run(ship)


@pytest.mark.parametrize("error", [ServiceResponseError("lost"), HttpResponseError("503 ServerBusy")])
async def test_a_write_whose_answer_was_lost_is_recognized(
    monkeypatch: pytest.MonkeyPatch, error: AzureError
) -> None:
    script = Script([], [])
    made = tables.insert_if_absent
    lost: list[tables.Row] = []

    async def losing(table: str, row: tables.Row) -> bool:
        stored = await made(table, row)
        if table == "HandlerSteps" and not lost:
            lost.append(row)
            raise error
        return stored

    monkeypatch.setattr(tables, "insert_if_absent", losing)
    assert (await run(two_steps(script), dependency="unsafe")).category is None
    assert (script.ran, len(lost)) == (["charge", "mail"], 1)


async def test_a_failure_that_was_not_noted_counts_as_a_process_that_died(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script([Transient("away")], [])
    replaced = tables.replace_version

    async def failing(table: str, row: tables.Row, etag: str) -> bool:
        if '"failed"' in json.dumps(row).replace("\\", ""):
            raise ServiceRequestError("away")
        return await replaced(table, row, etag)

    monkeypatch.setattr(tables, "replace_version", failing)
    assert (await run(two_steps(script))).error == "Transient: away"
    assert "the end of step mail" in caplog.text
    assert (await run(two_steps(script), 2)).category is None
    assert (await seen())[1][:3] == ("mail", "succeeded", 1)


@pytest.mark.parametrize("raised", [Transient("away"), Rejected("no"), ValueError("what")])
@pytest.mark.parametrize(("dependency", "repeatable"), [("unsafe", None), ("unsafe", False), ("safe", False)])
@pytest.mark.parametrize("path", ["/hang/999?seconds=5", "/status/500", "/drop/999"])
async def test_a_step_whose_request_may_have_acted_is_unknown_whatever_it_raises(
    raised: Exception, dependency: str, *, repeatable: bool | None, path: str
) -> None:
    async def send(call: Call) -> None:
        ran.append(1)
        with contextlib.suppress(httpx.HTTPError):
            await call.client.post(path, timeout=SHORT)
        raise raised

    async def ship(_order: Order, call: Call) -> None:
        await call.step("send", send, repeatable=repeatable, retry={"max_attempts": 8})

    ran: list[int] = []
    outcome = await run(ship, dependency=dependency)
    assert (outcome.category, outcome.step) == (Category.AMBIGUOUS, None)
    assert str(raised) in (outcome.error or "")
    assert await seen(state=OperationState.DEAD_LETTERED) == [("send", "unknown", 1, None)]
    assert (await run(ship, 2, dependency=dependency)).category is Category.AMBIGUOUS
    assert ran == [1]


async def test_a_step_that_may_be_repeated_is_after_a_request_that_may_have_acted() -> None:
    async def send(call: Call) -> None:
        with contextlib.suppress(httpx.HTTPError):
            await call.client.post("/hang/999?seconds=5", timeout=SHORT)
        raise Transient("away")

    async def ship(_order: Order, call: Call) -> None:
        await call.step("send", send, repeatable=True)

    assert (await run(ship, dependency="unsafe")).category is Category.TRANSIENT
    assert (await seen())[0][1] == "failed"


async def test_a_handler_that_finds_out_what_its_request_did_goes_on() -> None:
    async def send(call: Call) -> None:
        await call.client.post("/hang/999?seconds=5", timeout=SHORT)

    async def ship(_order: Order, call: Call) -> str:
        with contextlib.suppress(httpx.TimeoutException):
            await call.step("send", send)
        return "it was there"

    assert (await run(ship, dependency="unsafe")).result == {"value": "it was there"}


async def test_a_handler_that_is_over_has_no_running_steps() -> None:
    """`asyncio.gather` leaves the others running when one fails."""

    async def slow(_call: Call) -> str:
        ran.append("begun")
        begun.set()
        await asyncio.sleep(0.05)
        ran.append("ended")
        return "booked"

    async def away(_call: Call) -> None:
        await begun.wait()
        raise Transient("away")

    async def ship(_order: Order, call: Call) -> None:
        await asyncio.gather(call.step("mail", away), call.step("book", slow))

    ran, begun = list[str](), asyncio.Event()
    outcome = await run(ship, dependency="unsafe")
    assert (outcome.category, outcome.error) == (Category.TRANSIENT, "Transient: away")
    assert ran == ["begun", "ended"]
    assert [step[:2] for step in sorted(await seen())] == [("book", "succeeded"), ("mail", "failed")]
    assert (await run(ship, 2, dependency="unsafe")).category is Category.TRANSIENT
    assert ran == ["begun", "ended"]


@pytest.mark.parametrize(
    ("dependency", "category"), [("safe", Category.TRANSIENT), ("unsafe", Category.AMBIGUOUS)]
)
async def test_a_step_that_outlives_its_handler_is_cut_off_with_the_attempt(
    dependency: str, category: Category
) -> None:
    async def endless(_call: Call) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ran.append("cut off")

    async def ship(_order: Order, call: Call) -> None:
        left.append(asyncio.create_task(call.step("endless", endless)))
        await begun.wait()

    ran, begun, left = list[str](), asyncio.Event(), list[asyncio.Task[None]]()
    limits = Timeouts(connect_seconds=0.3, attempt_seconds=0.3)
    assert (await run(ship, timeouts=limits, dependency=dependency)).category is category
    assert (ran, left[0].cancelled()) == (["cut off"], True)


@pytest.mark.parametrize(
    ("raised", "shown"), [(Transient("away"), ("mail", "failed", 1)), (None, ("mail", "succeeded", 1))]
)
async def test_a_step_that_ended_is_stored_so_when_the_time_is_over_meanwhile(
    monkeypatch: pytest.MonkeyPatch, raised: Exception | None, shown: tuple[str, str, int]
) -> None:
    """How it ended is known, so it is no step of which nobody knows whether it took effect."""
    replaced, waiting = tables.replace_version, [asyncio.Event()]

    limit = asyncio.timeout(60)

    async def slow(table: str, row: tables.Row, etag: str) -> bool:
        if waiting:
            limit.reschedule(asyncio.get_running_loop().time())
            await waiting.pop().wait()
        return await replaced(table, row, etag)

    async def mail(_call: Call) -> None:
        if raised is not None:
            raise raised

    async def ship(_order: Order, call: Call) -> None:
        await call.step("mail", mail)

    monkeypatch.setattr(tables, "replace_version", slow)
    monkeypatch.setattr(Calls, "time_limit", lambda _: limit)
    assert (await run(ship, dependency="unsafe")).category is Category.TRANSIENT
    assert [step[:3] for step in await seen()] == [shown]


async def test_of_steps_side_by_side_the_longest_wait_that_is_asked_for_counts() -> None:
    async def throttled(seconds: float, _call: Call) -> None:
        raise Throttled(retry_after=seconds)

    async def ship(_order: Order, call: Call) -> None:
        await asyncio.gather(*(call.step(f"s{seconds}", throttled, seconds) for seconds in (2, 30, 7)))

    assert existing((await run(ship)).retry_hint).delay_seconds == 30


async def test_a_handler_that_is_over_begins_no_step() -> None:
    async def later(call: Call) -> None:
        await over.wait()
        await call.step("late", nothing)

    async def ship(_order: Order, call: Call) -> None:
        left.append(asyncio.create_task(later(call)))

    over, left = asyncio.Event(), list[asyncio.Task[None]]()
    assert (await run(ship)).category is None
    over.set()
    with pytest.raises(StepInterrupted):
        await left[0]
    assert await seen() == []


async def test_no_step_runs_behind_an_attempt_that_is_cancelled() -> None:
    async def endless(_call: Call) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def ship(_order: Order, call: Call) -> None:
        left.append(asyncio.create_task(call.step("endless", endless)))
        await asyncio.Event().wait()

    begun, left = asyncio.Event(), list[asyncio.Task[None]]()
    attempt = asyncio.create_task(run(ship))
    await begun.wait()
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert left[0].cancelled()

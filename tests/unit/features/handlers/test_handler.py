import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, Self

import httpx
import pytest
from pydantic import BaseModel, model_validator

import durable_retry
from durable_retry.attempt.excerpts import ERROR_CHARS
from durable_retry.base.names import Category, DeadLetterReason
from durable_retry.base.validation import InvalidInputError
from durable_retry.features.handlers import registry
from durable_retry.features.outbox.rules.event import Event
from durable_retry.handlers import Call, HandlerFailure, Outcome, Rejected, Throttled, Transient
from durable_retry.rules.retry.decide import MAX_OWN_FAILURES
from durable_retry.settings.configuration import app_settings
from durable_retry.testing import Crash, FakeDependency, FakeStep, HandlerRun, run_handler
from tests.support.narrowing import existing

pytestmark = pytest.mark.usefixtures("no_handlers")

CONFIG = """
[dependencies.shop]
base_url = "https://shop.example.com"
retry = { strategy = "fixed", initial_seconds = 1, max_attempts = 2, jitter = "none" }
timeouts = { attempt_seconds = 5, deadline_seconds = 0 }
idempotency = { header = "" }

[dependencies.guarded]
base_url = "https://guarded.example.com"
auth = { header = "X-Api-Key", value = "sesame-open" }

[dependencies.depot]
base_url = "https://depot.example.com"
classify = { OutOfStock = "business_rule" }
"""


async def run(
    function: Callable[..., Any],
    dependency: FakeDependency | Mapping[str, FakeDependency] | None = None,
    **more: Any,
) -> HandlerRun:
    registry._handlers.clear()
    durable_retry.operation("sell", dependency="shop")(function)
    return await run_handler("sell", {}, dependency, config=CONFIG, **more)


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class ExitingTextError(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


class NoTextError(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value] # noqa: PLE0307 - that is the point


class UnreadableError(httpx.HTTPStatusError):
    """Each attribute that somebody may look at raises."""

    def __init__(self) -> None:
        Exception.__init__(self, "unreadable")

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class LiarError(Exception):
    @property
    def __class__(self) -> Any:
        raise RuntimeError("of no class")

    @__class__.setter
    def __class__(self, _value: Any) -> None: ...


class UnreadableHint(Transient):
    @property
    def retry_after(self) -> Any:
        raise RuntimeError("no hint")

    @retry_after.setter
    def retry_after(self, _value: Any) -> None: ...


class OwnOrigError(Exception):
    @property
    def orig(self) -> Exception:
        return self


class NoModuleError(Exception):
    __module__ = None  # type: ignore[assignment]


def spoilt(hint: Any) -> Transient:
    error = Transient("later")
    error.retry_after = hint
    return error


def half_answer() -> Exception:
    class Odd:
        status_code = 503

        @property
        def headers(self) -> Any:
            raise RuntimeError("no headers")

        text = MuteError()

    error = type("HTTPError", (Exception,), {"__module__": "requests.exceptions", "response": Odd()})
    return error("half an answer")  # type: ignore[no-any-return]


KINDS: dict[str, tuple[Callable[[], BaseException], str]] = {
    "exit": (lambda: SystemExit(1), "SystemExit: 1"),
    "interrupt": (KeyboardInterrupt, "KeyboardInterrupt"),
    "generator exit": (GeneratorExit, "GeneratorExit"),
    "cancelled": (lambda: asyncio.CancelledError("inside"), "CancelledError: inside"),
    "base": (lambda: BaseException("bare"), "BaseException: bare"),
    "base group": (
        lambda: BaseExceptionGroup("g", [SystemExit(2), KeyboardInterrupt()]),
        "2 errors: SystemExit: 2; KeyboardInterrupt",
    ),
    "stop": (lambda: StopIteration(3), "RuntimeError: coroutine raised StopIteration"),
    "async stop": (lambda: StopAsyncIteration(3), "StopAsyncIteration: 3"),
    "mute": (MuteError, "MuteError: (its text cannot be read)"),
    "exiting text": (ExitingTextError, "ExitingTextError: (its text cannot be read)"),
    "text of a number": (NoTextError, "NoTextError: (its text cannot be read)"),
    "half a pair": (lambda: ValueError("a\ud800"), "ValueError: a\\ud800"),
    "unreadable": (UnreadableError, "UnreadableError: unreadable"),
    "liar": (LiarError, "LiarError"),
    "hint": (lambda: UnreadableHint("later"), "UnreadableHint: later"),
    "hint of text": (lambda: spoilt("soon"), "Transient: later"),
    "hint of an object": (lambda: spoilt(object()), "Transient: later"),
    "its own origin": (OwnOrigError, "OwnOrigError"),
    "of no module": (NoModuleError, "NoModuleError"),
    "half an answer": (half_answer, "HTTPError: half an answer"),
}
kinds = pytest.mark.parametrize(("make", "line"), KINDS.values(), ids=KINDS)


def is_exhausted(run: HandlerRun, line: str) -> bool:
    letter = existing(run.dead_letter)
    errors = [attempt.error or "" for attempt in run.attempts]
    assert [error.partition("; unknown kind of error: ")[0] for error in errors] == [line] * 2
    return (letter.category, letter.reason) == (Category.TRANSIENT, DeadLetterReason.RETRIES_EXHAUSTED)


@kinds
@pytest.mark.shows("A10")
async def test_what_an_async_handler_lets_out_is_counted(
    make: Callable[[], BaseException], line: str
) -> None:
    async def sell() -> None:
        raise make()

    assert is_exhausted(await run(sell), line)


@kinds
async def test_what_a_sync_handler_lets_out_is_counted(make: Callable[[], BaseException], line: str) -> None:
    def sell() -> None:
        raise make()

    assert is_exhausted(await run(sell), line)


class OutOfInkError(Exception): ...


UNKNOWN = f"unknown kind of error: {__name__}.OutOfInkError"
CLASSIFY = "`classify` can say what it means"


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: OutOfInkError("blue"), f"OutOfInkError: blue; {UNKNOWN}; {CLASSIFY}"),
        (lambda: TimeoutError("late"), "TimeoutError: late"),
        (lambda: Transient("busy"), "Transient: busy"),
        (
            lambda: ExceptionGroup("g", [OutOfInkError("blue"), ValueError("x")]),
            f"2 errors: OutOfInkError: blue; ValueError: x; {UNKNOWN}, ValueError; {CLASSIFY}",
        ),
        (
            lambda: ExceptionGroup("g", [OutOfInkError("blue"), Rejected("no")]),
            "2 errors: Rejected: no; OutOfInkError: blue",
        ),
    ],
)
async def test_an_attempt_says_that_nobody_knows_its_kind_of_error(
    make: Callable[[], BaseException], line: str
) -> None:
    def sell() -> None:
        raise make()

    assert (await run(sell)).attempts[0].error == line


async def test_what_a_long_error_is_cut_for_is_what_can_be_done() -> None:
    def sell() -> None:
        raise OutOfInkError("blue" * 200)

    error = existing((await run(sell)).attempts[0].error)
    assert len(error) == ERROR_CHARS
    assert error.endswith(f"... (cut); {UNKNOWN}; {CLASSIFY}")


def raising(outer: Exception, inner: Exception) -> Callable[[], None]:
    def sell() -> None:
        raise outer from inner

    return sell


def refused_by_vendor(status: int, headers: dict[str, str]) -> Exception:
    answer = type("Answer", (), {"status_code": status, "headers": headers, "text": "slow down"})()
    error = type("VendorError", (Exception,), {"response": answer})
    return error("no")  # type: ignore[no-any-return]


async def test_where_nobody_knows_an_error_what_it_was_raised_from_decides() -> None:
    inner = refused_by_vendor(429, {"Retry-After": "40"})
    attempt = (await run(raising(OutOfInkError("blue"), inner))).attempts[0]
    assert (attempt.category, attempt.status_code) == (Category.THROTTLED, 429)
    assert attempt.error == "OutOfInkError: blue, by VendorError: slow down"
    assert any("Retry-After" in reason for reason in attempt.delay_reasons)


async def test_what_a_handler_says_itself_stands_above_what_it_was_raised_from() -> None:
    inner = refused_by_vendor(404, {})
    attempts = [
        (await run(raising(outer, inner))).attempts[0] for outer in (Transient("wait"), KeyError("id"))
    ]
    assert [attempt.category for attempt in attempts] == [Category.TRANSIENT, Category.MALFORMED]


async def test_a_wrapper_that_says_what_it_wraps_says_it_once() -> None:
    inner = TimeoutError("late")
    attempt = (await run(raising(OutOfInkError(f"blue: {inner}"), inner))).attempts[0]
    assert (attempt.category, attempt.error) == (Category.TRANSIENT, "OutOfInkError: blue: late")


async def test_a_sync_handler_that_takes_the_async_client_is_told_what_to_write() -> None:
    def sell(call: Call) -> str:
        _ = call.client.post("/sales")
        return "sold, it would seem"

    ended = await run(sell)
    assert ended.dead_letter is not None
    assert ended.dead_letter.reason == DeadLetterReason.REJECTED_BY_HANDLER
    assert "this function is a `def`: write `async def` and `await" in ended.dead_letter.detail


async def alone(step: Awaitable[Any]) -> Any:
    return await step


@kinds
@pytest.mark.parametrize("awaited", [alone, asyncio.gather], ids=["alone", "side by side"])
async def test_what_a_step_lets_out_is_counted(
    make: Callable[[], BaseException], line: str, awaited: Callable[..., Awaitable[Any]]
) -> None:
    async def sell(call: Call) -> None:
        await awaited(call.step("pay", FakeStep(1)))

    ended = await run(sell, steps={"pay": FakeStep(make())})
    assert is_exhausted(ended, line)
    assert [(step["status"], step["attempts"]) for step in ended.steps] == [("failed", 2)]


async def in_a_group(*work: Coroutine[Any, Any, Any]) -> None:
    async with asyncio.TaskGroup() as group:
        for each in work:
            group.create_task(each)


async def in_a_task(*work: Coroutine[Any, Any, Any]) -> None:
    for each in [asyncio.create_task(each) for each in work]:
        await each


@pytest.mark.parametrize("make", [lambda: SystemExit(1), KeyboardInterrupt], ids=["exit", "interrupt"])
@pytest.mark.parametrize("awaited", [in_a_task, in_a_group, asyncio.gather])
async def test_what_a_task_of_a_handler_lets_out_is_counted(
    awaited: Callable[..., Awaitable[Any]], make: Callable[[], BaseException]
) -> None:
    async def exits() -> None:
        await asyncio.sleep(0)
        raise make()

    async def sell() -> None:
        await awaited(asyncio.sleep(0), exits())

    ended = await run(sell)
    assert ended.dead_letter is not None
    assert (ended.dead_letter.reason, ended.attempt_count) == (DeadLetterReason.RETRIES_EXHAUSTED, 2)
    assert type(make()).__name__ in (ended.attempts[0].error or "")


async def test_tasks_of_handlers_are_made_as_their_event_loop_makes_tasks() -> None:
    made: list[str] = []

    def noted(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **options)
        made.append(repr(task))
        return task

    async def sell() -> str:
        task = asyncio.create_task(asyncio.sleep(5), name="slow")
        task.cancel()  # Before it has begun, too.
        await asyncio.gather(task, return_exceptions=True)
        return task.get_name()

    asyncio.get_running_loop().set_task_factory(noted)
    assert (await run(sell)).result == "slow"
    assert any("coro=<sleep" in text for text in made)


async def test_a_step_that_exits_is_an_exception_to_its_handler() -> None:
    async def sell(call: Call) -> str:
        try:
            await call.step("pay", FakeStep(1))
        except Exception as error:  # noqa: BLE001 - what it is is the question
            return str(error)
        return "paid"

    assert (await run(sell, steps={"pay": FakeStep(SystemExit("no"))})).result == "SystemExit: no"


@pytest.mark.parametrize("make", [lambda: SystemExit(1), KeyboardInterrupt, asyncio.CancelledError])
@pytest.mark.shows("A10")
async def test_a_request_that_may_have_acted_is_not_sent_again_whatever_is_let_out(
    make: Callable[[], BaseException],
) -> None:
    async def sell(call: Call) -> None:
        with contextlib.suppress(httpx.ReadTimeout):
            await call.client.post("/sales")
        raise make()

    shop = FakeDependency(httpx.ReadTimeout("no answer"))
    ended = await run(sell, shop)
    assert existing(ended.dead_letter).reason is DeadLetterReason.AMBIGUOUS_OUTCOME
    assert len(shop.requests) == 1


class BrokenOff(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"{"
        raise httpx.ReadError("lost")


def falsely_encoded(status_code: int) -> httpx.Response:
    stream = httpx.ByteStream(b"{}")
    return httpx.Response(status_code, headers={"content-encoding": "gzip"}, stream=stream)


def broken_off(status_code: int) -> httpx.Response:
    return httpx.Response(status_code, stream=BrokenOff())


@pytest.mark.parametrize("unreadable", [falsely_encoded, broken_off])
async def test_a_handler_gets_the_status_of_a_refusal_whose_body_cannot_be_read(
    unreadable: Callable[[int], httpx.Response],
) -> None:
    async def sell(call: Call) -> int:
        answer = await call.client.post("/sales")
        if answer.status_code == 404:
            return answer.status_code
        answer.raise_for_status()
        raise AssertionError("no refusal")

    assert (await run(sell, FakeDependency(unreadable(404)))).result == 404
    refused = await run(sell, FakeDependency(unreadable(422)))
    assert [(attempt.category, attempt.status_code) for attempt in refused.attempts] == [
        (Category.MALFORMED, 422)
    ]


async def test_a_handler_succeeds_although_a_body_that_it_does_not_need_cannot_be_decoded() -> None:
    async def sell(call: Call) -> int:
        answer = await call.client.post("/sales")
        return answer.raise_for_status().status_code

    shop = FakeDependency(falsely_encoded(201))
    assert (await run(sell, shop)).result == 201
    assert len(shop.requests) == 1


@pytest.mark.parametrize(
    ("method", "categories"), [("POST", [Category.AMBIGUOUS]), ("GET", [Category.TRANSIENT] * 2)]
)
async def test_who_needs_a_body_that_cannot_be_decoded_fails_and_sends_nothing_unsafe_twice(
    method: str, categories: list[Category]
) -> None:
    async def sell(call: Call) -> Any:
        return (await call.client.request(method, "/sales")).json()

    ended = await run(sell, FakeDependency(lambda _: falsely_encoded(200)))
    assert [attempt.category for attempt in ended.attempts] == categories
    assert "DecodingError" in (ended.attempts[0].error or "")


async def test_who_reads_a_stream_gets_its_error_and_knows_the_status() -> None:
    async def sell(call: Call) -> int:
        async with call.client.stream("GET", "/sales") as answer:
            with pytest.raises(httpx.DecodingError):
                await answer.aread()
            return answer.status_code

    assert (await run(sell, FakeDependency(falsely_encoded(200)))).result == 200


@pytest.mark.parametrize(("method", "category"), [("POST", Category.AMBIGUOUS), ("GET", Category.TRANSIENT)])
async def test_an_error_of_decoding_in_a_client_of_the_handlers_own_says_that_it_may_have_acted(
    method: str, category: Category
) -> None:
    async def sell() -> None:
        transport = httpx.MockTransport(lambda _: falsely_encoded(200))
        async with httpx.AsyncClient(base_url="https://shop.example.com", transport=transport) as client:
            await client.request(method, "/sales")

    ended = await run(sell, retry={"max_attempts": 1})
    assert [attempt.category for attempt in ended.attempts] == [category]


async def test_a_handler_that_cancels_itself_was_not_cancelled_from_outside() -> None:
    async def sell() -> None:
        existing(asyncio.current_task()).cancel("by itself")
        await asyncio.sleep(0)

    assert is_exhausted(await run(sell), "CancelledError: by itself")


async def test_an_attempt_that_is_cancelled_from_outside_has_no_outcome() -> None:
    async def sell() -> None:
        begun.set()
        await asyncio.Event().wait()

    begun = asyncio.Event()
    attempt = asyncio.create_task(run(sell))
    await begun.wait()
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt


async def test_a_process_that_dies_is_no_failure_of_its_handler_even_in_a_group_of_tasks() -> None:
    async def sell(call: Call) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(call.client.get("/stock"))
        return f"attempt {call.attempt}"

    assert (await run(sell, FakeDependency(Crash(), 200))).result == "attempt 1"


async def test_an_attempt_knows_whether_it_is_the_last() -> None:
    seen: list[tuple[int, int, bool]] = []

    async def sell(call: Call) -> None:
        seen.append((call.attempt, call.max_attempts, call.is_last))
        raise Transient("busy")

    await run(sell)
    assert seen == [(1, 2, False), (2, 2, True)]


async def test_a_step_that_is_not_awaited_is_a_bug() -> None:
    begun: list[Coroutine[Any, Any, Any]] = []

    async def sell(call: Call) -> None:
        begun.append(call.step("pay", FakeStep(1)))

    ended = await run(sell)
    begun[0].close()
    detail = "bug in handler sell: TypeError: step pay was not awaited: write `await call.step('pay', ...)`"
    assert existing(ended.dead_letter).detail == detail


async def test_a_step_with_a_policy_of_its_own_has_attempts_of_its_own() -> None:
    seen: list[tuple[int, int, bool]] = []

    async def pay(call: Call) -> None:
        seen.append((call.attempt, call.max_attempts, call.is_last))
        raise Transient("busy")

    async def sell(call: Call) -> None:
        await call.step("book", FakeStep(1) if call.attempt > 1 else pay)
        await call.step("pay", pay, retry={"max_attempts": 3})

    await run(sell, retry={"jitter": "none"})
    assert seen == [(1, 2, False), (1, 3, False), (2, 3, False), (3, 3, True)]


@pytest.mark.parametrize(("seconds", "is_given_up"), [(0, False), (60, True)])
async def test_an_attempt_knows_when_its_operation_is_given_up(seconds: int, *, is_given_up: bool) -> None:
    async def sell(call: Call) -> bool:
        return call.deadline_at is not None and call.seconds_left > 0

    assert (await run(sell, deadline_seconds=seconds)).result is is_given_up


@pytest.fixture
def app_version(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("APP_VERSION", "1.4.0")
    app_settings.cache_clear()
    yield "1.4.0"
    monkeypatch.undo()
    app_settings.cache_clear()


async def test_each_attempt_carries_the_version_of_the_app(app_version: str) -> None:
    assert [attempt.app_version for attempt in (await run(raising_transient)).attempts] == [app_version] * 2


async def test_without_a_version_an_attempt_carries_nothing_of_it() -> None:
    assert [
        attempt.to_json().keys() & {"app_version"} for attempt in (await run(raising_transient)).attempts
    ] == [set()] * 2


def raising_transient() -> None:
    raise Transient("busy")


class OutOfStock(Exception): ...  # noqa: N818 - the configuration names it


MEMBERS: dict[str, tuple[Callable[[], BaseException], Category, str]] = {
    "refused": (
        lambda: ExceptionGroup("", [Transient("busy"), Rejected("no such order")]),
        Category.BUSINESS_RULE,
        "2 errors: Rejected: no such order; Transient: busy",
    ),
    "deep": (
        lambda: ExceptionGroup(
            "", [Transient("busy"), ExceptionGroup("", [ValueError("x"), Rejected("never")])]
        ),
        Category.BUSINESS_RULE,
        "3 errors: Rejected: never; Transient: busy; ValueError: x",
    ),
    "throttled": (
        lambda: ExceptionGroup("", [Transient(), Throttled()]),
        Category.THROTTLED,
        "2 errors: Throttled; Transient",
    ),
    "bug": (
        lambda: ExceptionGroup("", [Transient("busy"), TypeError("int")]),
        Category.MALFORMED,
        "2 errors: bug in handler sell: TypeError: int; Transient: busy",
    ),
    "exit": (
        lambda: BaseExceptionGroup("", [SystemExit(1), Rejected("no")]),
        Category.BUSINESS_RULE,
        "2 errors: Rejected: no; SystemExit: 1",
    ),
    "alone": (
        lambda: ExceptionGroup("", [Rejected("no")]),
        Category.BUSINESS_RULE,
        "Rejected: no",
    ),
}
members = pytest.mark.parametrize(("make", "category", "line"), MEMBERS.values(), ids=MEMBERS)


@members
@pytest.mark.shows("A11")
async def test_of_a_group_the_most_final_member_decides(
    make: Callable[[], BaseException], category: Category, line: str
) -> None:
    async def sell() -> None:
        raise make()

    (attempt,) = (await run(sell, retry={"max_attempts": 1})).attempts
    assert (attempt.category, attempt.error) == (category, line)


@members
async def test_of_a_group_that_a_step_raises_the_most_final_member_decides(
    make: Callable[[], BaseException], category: Category, line: str
) -> None:
    async def sell(call: Call) -> None:
        await call.step("pay", FakeStep(1))

    ended = await run(sell, steps={"pay": FakeStep(make())}, retry={"max_attempts": 1})
    assert [(attempt.category, attempt.error) for attempt in ended.attempts] == [(category, line)]


async def test_the_longest_wait_of_a_group_counts() -> None:
    async def sell(call: Call) -> str:
        if call.attempt == 1:
            raise ExceptionGroup("", [Transient(retry_after=30), Throttled(retry_after=4), ValueError()])
        return "sold"

    assert (await run(sell)).waits == [30.0]


async def test_what_was_refused_in_a_group_of_tasks_is_refused() -> None:
    async def refused() -> None:
        raise Rejected("no such order")

    async def sell() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(refused())

    ended = await run(sell)
    assert (existing(ended.dead_letter).category, ended.attempt_count) == (Category.BUSINESS_RULE, 1)


async def test_a_member_of_a_group_is_classified_by_the_dependency_of_its_step() -> None:
    async def sell(call: Call) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(call.step("count", FakeStep(OutOfStock()), dependency="depot"))
            group.create_task(asyncio.sleep(0))

    ended = await run(sell, {"shop": FakeDependency(), "depot": FakeDependency()})
    assert [attempt.category for attempt in ended.attempts] == [Category.BUSINESS_RULE]


def lazy() -> Iterator[int]:
    yield int("its body must not run")


RESULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "generator": (lambda: {"pages": [lazy()]}, "/pages/0: is of type generator, which has no value yet"),
    "map": (lambda: map(str, [1]), ": is of type map, which has no value yet"),
    "large": (lambda: [10**5_000], "/0: has more than 300 digits"),
    "key": (lambda: {"a": {1: 2}}, "/a/1: has a key of type int"),
    "bytes": (lambda: b"x", ": is of type bytes"),
    "infinite": (lambda: [float("inf")], "/0: is not a finite number"),
}
results = pytest.mark.parametrize(("make", "words"), RESULTS.values(), ids=RESULTS)


def is_refused_once(ended: HandlerRun, pointer: str, words: str) -> bool:
    (attempt,) = ended.attempts
    return attempt.category is Category.MALFORMED and f"{pointer}{words}" in (attempt.error or "")


@results
@pytest.mark.shows("A13")
async def test_a_result_without_an_exact_form_is_refused_once_with_its_place(
    make: Callable[[], Any], words: str
) -> None:
    async def sell() -> Any:
        return make()

    assert is_refused_once(await run(sell), "/value", words)


@results
async def test_a_step_without_an_exact_form_is_refused_once_with_its_place(
    make: Callable[[], Any], words: str
) -> None:
    async def sell(call: Call) -> None:
        await call.step("pay", FakeStep(1))

    assert is_refused_once(await run(sell, steps={"pay": FakeStep(make())}), "/steps/pay", words)


@results
async def test_a_report_and_an_event_without_an_exact_form_are_refused_once_with_their_place(
    make: Callable[[], Any], words: str
) -> None:
    async def sell(call: Call) -> None:
        call.heartbeat(make())

    async def tell() -> Outcome:
        return Outcome(events=[Event.to_queue("sales", "sold", make())])

    durable_retry.operation("report", dependency="shop", heartbeat_seconds=60)(sell)
    assert is_refused_once(await run_handler("report", {}, config=CONFIG), "/progress", words)
    assert is_refused_once(await run(tell), "/data", words)


async def test_what_an_annotation_says_how_to_read_back_is_exact() -> None:
    async def sell(call: Call) -> dict[int, set[bytes]]:
        result: dict[int, set[bytes]] = await call.step("count", count)
        return result

    async def count() -> dict[int, set[bytes]]:
        return {7: {b"x"}}

    assert (await run(sell)).result == {"7": ["x"]}


class Picky(BaseModel):
    number: int = 0

    @model_validator(mode="after")
    def check(self) -> Self:
        raise KeyError("of the model itself")


async def test_a_model_that_raises_when_it_is_read_refuses_its_input() -> None:
    def sell(order: Picky) -> None: ...

    with pytest.raises(InvalidInputError, match="/input: cannot be read: KeyError"):
        await run(sell)


async def test_a_model_that_raises_when_its_result_is_read_back_refuses_it_once() -> None:
    def sell() -> Picky:
        return Picky.model_construct(number=1)

    assert is_refused_once(await run(sell), "/value", ": cannot be read: KeyError")


@pytest.mark.shows("A12")
async def test_a_handler_that_does_not_end_when_it_is_cancelled_is_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("durable_retry.features.handlers.functions.CANCEL_SECONDS", 0.01)

    async def sell(call: Call) -> None:
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()
        with pytest.raises(TimeoutError, match="over"):
            await call.client.post("/sales")
        late.set()

    released, late = asyncio.Event(), asyncio.Event()
    durable_retry.operation("sell", dependency="shop", timeout=0.05)(sell)
    shop = FakeDependency(200)
    ended = await run_handler("sell", {}, shop, config=CONFIG, retry={"max_attempts": 1})
    assert [attempt.error for attempt in ended.attempts] == [
        "TimeoutError: not ended within 0.05 s (attempt_seconds)"
    ]
    released.set()
    await late.wait()
    assert shop.requests == []


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        (Transient, {"retry_after": "3"}, "Transient: retry_after must be a number of seconds, not str"),
        (Throttled, {"retry_after": True}, "Throttled: retry_after must be a number of seconds, not bool"),
        (Throttled, {"retry_after": []}, "Throttled: retry_after must be a number of seconds, not list"),
        (Transient, {"retry_after": math.nan}, "/retry_after: must be a finite number"),
        (Transient, {"retry_after": math.inf}, "/retry_after: must be a finite number"),
        (Rejected, {"message": 404}, "Rejected: message must be text, not int"),
        (Transient, {"message": ValueError("x")}, "Transient: message must be text, not ValueError"),
        (Rejected, {"retry_after": 3}, "retry_after"),
    ],
)
def test_a_wrong_argument_is_refused_where_it_is_given(
    kind: type[HandlerFailure], given: dict[str, Any], words: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        kind(**given)


def test_a_wait_may_lie_in_the_past() -> None:
    assert Transient(retry_after=-1).retry_after == -1


def echo() -> dict[str, Any]:
    return {"id": 7, "sent": "X-Api-Key: sesame%2Dopen"}


async def run_guarded(function: Callable[..., Any]) -> HandlerRun:
    registry._handlers.clear()
    durable_retry.operation("sell", dependency="guarded")(function)
    return await run_handler("sell", {}, config=CONFIG)


async def test_a_credential_in_the_value_of_a_handler_is_masked() -> None:
    ended = await run_guarded(echo)
    assert (ended.status, ended.result) == ("succeeded", {"id": 7, "sent": "X-Api-Key: ***"})


async def test_a_credential_is_refused_where_its_mask_would_be_used_or_sent() -> None:
    async def in_a_step(call: Call) -> None:
        await call.step("one", echo)

    def in_an_event() -> Outcome:
        return Outcome(events=[Event.to_queue("sales", "sold", {"a": "sesame-open"})])

    def in_progress(call: Call) -> None:
        call.heartbeat({"a": "sesame-open"})

    details = []
    for function in (in_a_step, in_an_event):
        ended = await run_guarded(function)
        assert ended.dead_letter is not None
        details.append((ended.dead_letter.reason, ended.dead_letter.detail))
    registry._handlers.clear()
    durable_retry.operation("sell", dependency="guarded", heartbeat_seconds=5)(in_progress)
    ended = await run_handler("sell", {}, config=CONFIG)
    assert ended.dead_letter is not None
    details.append((ended.dead_letter.reason, ended.dead_letter.detail))
    refused = "holds the credential of guarded, which is never stored or sent on"
    for (reason, detail), place in zip(
        details, ("/steps/one/sent", "/events/0/data/a", "/progress/a"), strict=True
    ):
        assert reason is DeadLetterReason.REJECTED_BY_HANDLER
        assert f"{place}: {refused}" in detail


async def test_the_log_of_a_bug_has_its_traceback_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    def sell() -> None:
        raise TypeError("{'password': 'x1'} and sesame-open")

    await run_guarded(sell)
    (record,) = caplog.records
    assert record.exc_info is None
    assert "TypeError: {'password': '***'} and ***" in record.getMessage()


async def test_a_handlers_refused_credential_is_the_apps_and_costs_no_attempt() -> None:
    async def sell(call: Call) -> int:
        return (await call.client.get("/sales")).raise_for_status().status_code

    ended = await run(sell, FakeDependency(401, 407, 200), retry={"max_attempts": 1})
    assert (ended.result, ended.attempt_count, len(ended.waits)) == (200, 1, 2)
    assert "the credential is refused: status 401" in ended.reasons[0][0]


async def test_a_handler_whose_credential_is_refused_without_end_ends() -> None:
    async def sell(call: Call) -> None:
        (await call.client.get("/sales")).raise_for_status()

    shop = FakeDependency(401)
    ended = await run(sell, shop)
    assert ended.dead_letter is not None
    assert (ended.dead_letter.category, len(shop.requests)) == (Category.UNAUTHORIZED, MAX_OWN_FAILURES)


class PasswordError(Exception):
    """Stands for psycopg's."""


PasswordError.__module__, PasswordError.__name__ = "psycopg.errors", "InvalidPassword"


async def test_a_library_that_says_so_is_believed_also_in_a_group() -> None:
    raised: list[Exception] = [PasswordError("no"), ExceptionGroup("", [ValueError(), PasswordError("no")])]

    async def sell() -> str:
        if raised:
            raise raised.pop()
        return "sold"

    ended = await run(sell, retry={"max_attempts": 1})
    assert (ended.result, ended.attempt_count, len(ended.waits)) == ("sold", 1, 2)

    async def refuse() -> None:
        raise ExceptionGroup("", [PasswordError("no"), Rejected("no such order")])

    ended = await run(refuse)
    assert [attempt.category for attempt in ended.attempts] == [Category.BUSINESS_RULE]


async def test_a_refused_credential_after_a_request_that_may_have_acted_is_ambiguous() -> None:
    async def sell(call: Call) -> None:
        with contextlib.suppress(httpx.ReadTimeout):
            await call.client.post("/sales")
        raise PasswordError("no")

    ended = await run(sell, FakeDependency(httpx.ReadTimeout("no answer")))
    assert existing(ended.dead_letter).reason is DeadLetterReason.AMBIGUOUS_OUTCOME
    assert ended.attempt_count == 1


async def test_a_step_whose_credential_is_refused_keeps_its_attempts_too() -> None:
    async def pay(call: Call) -> int:
        return (await call.client.get("/payments")).raise_for_status().status_code

    async def sell(call: Call) -> int:
        paid: int = await call.step("pay", pay, dependency="depot", retry={"max_attempts": 2})
        return paid

    depot = FakeDependency(401, 401, 503, 401, 200)
    ended = await run(sell, {"shop": FakeDependency(), "depot": depot})
    assert (ended.result, ended.attempt_count, ended.steps[0]["attempts"]) == (200, 2, 2)

"""What a handler is called with in one attempt: a client of its dependency, and its remembered steps.

step ──> begin ──has a result──> that result
           ├──may not run──> the attempt stops (`StepInterrupted`), whatever the handler catches
           └──> the function, with a `Call` and key of its own ──> succeed, or fail
                    └──raises, and a request of its may have acted──> stays begun: its effect is unknown
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final
from uuid import uuid4

import httpx
from azure.core.exceptions import AzureError
from pydantic import TypeAdapter

from durable_retry import clock
from durable_retry.engine.base.names import Category
from durable_retry.engine.base.validation import InvalidInputError, Problem
from durable_retry.engine.operations.request import is_unprotected
from durable_retry.engine.operations.steps import (
    MAX_RESULT_BYTES,
    Execution,
    StepRecord,
    StepStoppedError,
    begin,
    fail,
    succeed,
)
from durable_retry.engine.pace import RateLeft
from durable_retry.engine.retry.classify import classify_failure, classify_status
from durable_retry.engine.retry.history import StepFailure
from durable_retry.engine.retry.policy import RetryPolicy, policy_from, policy_problems
from durable_retry.engine.retry.retry_after import parse_rate_left, parse_retry_after
from durable_retry.errors import ContendedError
from durable_retry.handlers import Call, Step
from durable_retry.services.attempt.http_client import make_client, transport_of
from durable_retry.services.attempt.http_pool import PROGRESS, SendProgress
from durable_retry.services.attempt.http_request import Plan, own_headers
from durable_retry.services.attempt.threads import run_function
from durable_retry.signatures import (
    SignatureError,
    parameters_of,
    read_result,
    result_of,
    stored_result,
    with_call,
)
from durable_retry.stores.dead_letters.records import dead_letter_id_of
from durable_retry.stores.operations.steps import StepRule
from durable_retry.telemetry.spans import fields_of

_log = logging.getLogger(__name__)

MAX_STEPS: Final = 100
"""In one attempt of a handler."""

_CANCEL_SECONDS: Final = 2.0
"""For a step to end that was cancelled; one that does not is left behind."""

_SENT_ONCE: Final = "durable_retry.sent_once"
"""The extension of a request that says whether it must not be sent again."""

type ChangeStep = Callable[[str, StepRule], Awaitable[StepRecord]]
"""`await change(name, rule)`: changes the record of one step, see `stores.operations.steps.change_step`."""


class StepInterrupted(BaseException):
    """The attempt must not go on. Not an `Exception`, so that a handler does not catch it by accident."""


def may_repeat_work(plan: Plan, request: httpx.Request) -> bool:
    """Whether sending a request of an attempt again could do its work twice."""
    sent_once: bool | None = request.extensions.get(_SENT_ONCE)  # None: the handler sent it by itself
    return is_unprotected(request.method, plan.deduplication_header) if sent_once is None else sent_once


@dataclass(frozen=True, slots=True)
class _Running:
    """A step between its begin and its end.

    Attributes:
        begun: As it was stored.
        is_repeatable: Whether it may run again when it is not known whether it ran.
        policy: Its own; None for the operation's.
        ending: What stores its end; None while its function runs.
    """

    begun: StepRecord
    is_repeatable: bool
    policy: RetryPolicy | None
    ending: StepRule | None = None

    @property
    def failure(self) -> StepFailure | None:
        """What decides in place of the operation's policy if it fails; None when nothing does."""
        if self.policy is None:
            return None
        return StepFailure(step=self.begun.name, attempt=self.begun.attempts, policy=self.policy)


@dataclass(slots=True)
class Calls:
    """The calls and steps of one attempt of a handler.

    Attributes:
        plan: The plan of the attempt.
        change: Keeps the steps.
        may_have_acted: Whether a request failed that must not be sent again, and may have taken effect.
        stopped: Why the attempt must end; None while it need not.
        rate_left: What the latest answer says is left of the dependency's rate limit; None when none did.
        errors: What failed steps raised. Of those that run side by side the handler raises one.
    """

    plan: Plan
    change: ChangeStep
    may_have_acted: bool = False
    stopped: Exception | None = None
    rate_left: RateLeft | None = None
    errors: list[Exception] = field(default_factory=list)
    _is_over: bool = False
    _active: dict[asyncio.Event, asyncio.Task[Any] | None] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)
    _running: dict[str, _Running] = field(default_factory=dict)
    _failed: list[tuple[Exception, StepFailure]] = field(default_factory=list)

    def call(self, repeatable: bool | None = None) -> Call:  # noqa: FBT001 - as `operation` has it
        """Return the `Call` that is passed to the handler, which may say whether it may run twice."""
        repeatable = bool(self.plan.deduplication_header) if repeatable is None else repeatable
        transport = self._transport(self.plan.operation.sent_key, is_repeatable=repeatable)
        return self._call_of_step(transport, self.plan.number, self._begin_step)

    def failure_of(self, error: Exception) -> StepFailure | None:
        """Return the step with a policy of its own by which the handler failed; None if it was none."""
        return next((step for failed, step in self._failed if failed in (error, error.__cause__)), None)

    async def finish_steps(self) -> None:
        """Wait for the steps that run although the handler is over, as `asyncio.gather` leaves them.

        They would go on beside the next attempt, and what they do would be lost.
        """
        self._is_over = True
        while self._active:
            await next(iter(self._active)).wait()

    async def end_steps(self) -> None:
        """Cancel the steps that still run, when the attempt has no time to wait for them."""
        self._is_over = True
        tasks = {task for task in self._active.values() if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CANCEL_SECONDS)

    async def cut_off(self) -> StepFailure | None:
        """Note that the attempt's time is over; return the step with a policy of its own that was running.

        Raises:
            StepInterrupted: A step was running that must not run again.
        """
        await self.end_steps()
        for running in self._running.values():
            if running.ending is None and not running.is_repeatable:
                name = running.begun.name
                raise self._stop_steps(StepStoppedError(f"its time was over while step {name} was running"))
            # A step that had ended is stored as it ended: it was cut off while that was being stored.
            await self._note_end(running.begun, running.ending or partial(fail, begun=running.begun))
        return next((running.failure for running in self._running.values() if running.failure), None)

    async def _begin_step(self, step: Step) -> Any:
        if self._is_over:
            raise StepInterrupted
        ended = asyncio.Event()
        self._active[ended] = asyncio.current_task()
        try:
            return await self._run_step(step)
        finally:
            del self._active[ended]
            ended.set()

    async def _run_step(self, step: Step) -> Any:
        self._check_name(step.name)
        adapter, policy = _readable_result(step.function), self._policy_of(step)
        is_repeatable = self._is_repeatable(step)
        execution = self._execution_of_step(step.name, is_repeatable=is_repeatable)
        begun = await self._changed_record(step.name, partial(begin, execution=execution))
        if begun.result is not None:
            return read_result(adapter, begun.result)
        running = self._running[step.name] = _Running(begun, is_repeatable, policy)
        transport = self._transport(self.plan.operation.step_key(step.name), is_repeatable=is_repeatable)
        try:
            own = self._call_of_step(transport, begun.attempts, _refuse_steps)
            python, call_parameter = parameters_of(step.function)
            bound = with_call(python.bind_partial(*step.args, **step.kwargs), call_parameter, own)
            returned = await run_function(step.function, *bound.args, **bound.kwargs)
            result = _result_text(step.name, stored_result(adapter, returned, f"/steps/{step.name}"))
        except Exception as error:
            self.errors.append(error)
            if transport.may_have_acted:
                del self._running[step.name]
                raise
            if running.failure is not None:
                self._failed.append((error, running.failure))
            ending = partial(fail, begun=begun)
            self._running[step.name] = replace(running, ending=ending)
            await self._note_end(begun, ending)
            del self._running[step.name]
            raise
        ending = partial(succeed, begun=begun, result=result)
        self._running[step.name] = replace(running, ending=ending)
        stored = await self._changed_record(step.name, ending)
        del self._running[step.name]
        return read_result(adapter, stored.result or "null")

    def _transport(self, key: str, *, is_repeatable: bool) -> "_CallTransport":
        return _CallTransport(self, key, transport_of(self.plan.dependency), is_repeatable=is_repeatable)

    def _call_of_step(
        self, transport: "_CallTransport", attempt: int, run_step: Callable[[Step], Awaitable[Any]]
    ) -> Call:
        return Call(
            key=transport.key,
            attempt=attempt,
            correlation_id=self.plan.operation.correlation_id,
            client=make_client(self.plan.dependency, transport),
            time_left=lambda: self.plan.limit.seconds_left,
            run_step=run_step,
        )

    def _check_name(self, name: str) -> None:
        if name in self._names:
            raise InvalidInputError([Problem("/step", f"{name!r} is the name of an earlier step")])
        if len(self._names) >= MAX_STEPS:
            raise InvalidInputError([Problem("/step", f"a handler has at most {MAX_STEPS} steps")])
        self._names.add(name)

    def _policy_of(self, step: Step) -> RetryPolicy | None:
        if step.retry is None:
            return None
        policy = policy_from(step.retry.written(), self.plan.operation.policy)
        problems = [Problem(f"/retry/{key}", detail) for key, detail in policy_problems(policy)]
        if problems:
            raise InvalidInputError(problems)
        return policy

    def _is_repeatable(self, step: Step) -> bool:
        return bool(self.plan.deduplication_header) if step.repeatable is None else step.repeatable

    def _execution_of_step(self, name: str, *, is_repeatable: bool) -> Execution:
        operation = self.plan.operation
        return Execution(
            name=name,
            run=operation.run,
            token=uuid4().hex,
            is_repeatable=is_repeatable,
            now=clock.now(),
            dead_letter_id=dead_letter_id_of(operation.to_json()),
        )

    async def _changed_record(self, name: str, rule: StepRule) -> StepRecord:
        if self.stopped is not None:
            raise StepInterrupted
        try:
            return await self.change(name, rule)
        except (StepStoppedError, ContendedError, AzureError) as error:
            raise self._stop_steps(error) from error

    def _stop_steps(self, error: Exception) -> StepInterrupted:
        self.stopped = self.stopped or error
        return StepInterrupted(str(error))

    async def _note_end(self, begun: StepRecord, ending: StepRule) -> None:
        """Store how a step ended, which is known; without it, it counts as one whose process died."""
        try:
            await self.change(begun.name, ending)
        except StepStoppedError as error:
            raise self._stop_steps(error) from error
        except (ContendedError, AzureError) as error:
            _log.warning(
                "the end of step %s of %s was not noted: %s",
                begun.name,
                self.plan.operation.run_id,
                type(error).__name__,
                extra=fields_of(self.plan.operation, {}),
            )


class _CallTransport(httpx.AsyncBaseTransport):
    """Sends the requests of one call over the pooled connections; closing it leaves them open.

    Attributes:
        key: The key that every request carries.
        may_have_acted: See `Calls`; of this call's requests.
    """

    def __init__(
        self, calls: Calls, key: str, inner: httpx.AsyncBaseTransport, *, is_repeatable: bool
    ) -> None:
        self.key = key
        self.may_have_acted = False
        self._calls = calls
        self._is_repeatable = is_repeatable
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request, with what every request carries unless the handler set that header itself."""
        for name, value in own_headers(self._calls.plan, self.key).items():
            request.headers.setdefault(name, value)
        progress = SendProgress()
        request.extensions[PROGRESS] = progress
        # A handler may say of a step that it must not run twice although the dependency deduplicates.
        is_once = not self._is_repeatable and is_unprotected(request.method, "")
        request.extensions[_SENT_ONCE] = is_once
        try:
            answer = await self._inner.handle_async_request(request)
        except BaseException as error:
            if is_once and progress.sent:
                self._note_failure(error)
            raise
        left = parse_rate_left(answer.headers, now=clock.now())
        self._calls.rate_left = left or self._calls.rate_left
        if is_once:
            self._note_status(answer)
            answer.stream = _WatchedStream(answer.stream, self._note_failure)
        return answer

    def _note_failure(self, error: BaseException) -> None:
        names = [cls.__name__ for cls in type(error).__mro__]
        overrides = self._calls.plan.dependency.classify
        self._note(classify_failure(names, unprotected=True, overrides=overrides).category)

    def _note_status(self, answer: httpx.Response) -> None:
        hint = parse_retry_after(answer.headers, status_code=answer.status_code, now=clock.now())
        overrides = self._calls.plan.dependency.classify
        self._note(
            classify_status(answer.status_code, retry_hint=hint, unprotected=True, overrides=overrides)
        )

    def _note(self, category: Category | None) -> None:
        if category is Category.AMBIGUOUS:
            self.may_have_acted = self._calls.may_have_acted = True


class _WatchedStream(httpx.AsyncByteStream):
    """The body of an answer; says so when it cannot be read to its end."""

    def __init__(self, inner: Any, note_failure: Callable[[BaseException], None]) -> None:
        self._inner = inner
        self._note_failure = note_failure

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._inner:
                yield part
        except (Exception, asyncio.CancelledError) as error:  # not when the reader has enough of it
            self._note_failure(error)
            raise

    async def aclose(self) -> None:
        """Close the answer's body."""
        await self._inner.aclose()


async def _refuse_steps(step: Step) -> Any:
    raise InvalidInputError([Problem("/step", f"{step.name!r} is inside of another step")])


def _result_text(name: str, document: Any) -> str:
    """Return a step's result as JSON text.

    Raises:
        InvalidInputError: It is too large.
    """
    text = json.dumps(document)
    size = len(text.encode())
    if size > MAX_RESULT_BYTES:
        detail = f"has {size} bytes; the result of a step takes {MAX_RESULT_BYTES}"
        raise InvalidInputError([Problem(f"/steps/{name}", detail)])
    return text


def _readable_result(function: Callable[..., Any]) -> TypeAdapter[Any]:
    """Return what reads a step's stored result back as what its function is annotated to return.

    Raises:
        InvalidInputError: It returns what cannot be stored.
    """
    try:
        return result_of(function)
    except SignatureError as error:
        raise InvalidInputError([Problem("/step", f"{function!r}: {error}")]) from error

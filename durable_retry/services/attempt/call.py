"""What a handler is called with in one attempt: a client of its dependency, and its remembered steps.

step ──> begin ──has a result──> that result
           ├──may not run──> the attempt stops (`StepInterrupted`), whatever the handler catches
           └──> the function, with a `Call` and key of its own ──> succeed, or fail
"""

import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final, get_type_hints
from uuid import uuid4

import httpx
from azure.core.exceptions import AzureError
from pydantic import PydanticSchemaGenerationError, TypeAdapter

from durable_retry import clock
from durable_retry.engine.base.validation import InvalidInputError, Problem, plain_json
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
from durable_retry.engine.retry.history import StepFailure
from durable_retry.engine.retry.policy import RetryPolicy, policy_from, policy_problems
from durable_retry.engine.retry.retry_after import parse_rate_left
from durable_retry.handlers import Call, Step
from durable_retry.services.attempt.http_client import PROGRESS, SendProgress, make_client, transport_of
from durable_retry.services.attempt.http_request import Plan, own_headers
from durable_retry.stores.dead_letters.records import dead_letter_id_of
from durable_retry.stores.steps import ContendedStepError, StepRule
from durable_retry.telemetry.spans import fields_of

_log = logging.getLogger(__name__)

MAX_STEPS: Final = 100
"""In one attempt of a handler."""

_ADAPTERS_KEPT: Final = 256

type ChangeStep = Callable[[str, StepRule], Awaitable[StepRecord]]
"""`await change(name, rule)`: changes the record of one step, see `stores.steps.change_step`."""


class StepInterrupted(BaseException):
    """The attempt must not go on. Not an `Exception`, so that a handler does not catch it by accident."""


def may_repeat_work(plan: Plan, request: httpx.Request) -> bool:
    """Whether sending a request of an attempt again could do its work twice."""
    return is_unprotected(request.method, plan.deduplication_header)


@dataclass(frozen=True, slots=True)
class _Running:
    """A step between its begin and its end.

    Attributes:
        begun: As it was stored.
        is_repeatable: Whether it may run again when it is not known whether it ran.
        policy: Its own; None for the operation's.
    """

    begun: StepRecord
    is_repeatable: bool
    policy: RetryPolicy | None

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
        plan: Of the attempt.
        change: Keeps the steps.
        may_have_acted: Whether a request that the dependency does not deduplicate was sent and not answered.
        stopped: Why the attempt must end; None while it need not.
        rate_left: What the latest answer says is left of the dependency's rate limit; None when none did.
    """

    plan: Plan
    change: ChangeStep
    may_have_acted: bool = False
    stopped: Exception | None = None
    rate_left: RateLeft | None = None
    _names: set[str] = field(default_factory=set)
    _running: dict[str, _Running] = field(default_factory=dict)
    _failed: list[tuple[Exception, StepFailure]] = field(default_factory=list)

    def call(self) -> Call:
        """Return the `Call` that is passed to the handler."""
        operation = self.plan.operation
        return self._call(operation.sent_key, self.plan.number, self._run)

    def failure_of(self, error: Exception) -> StepFailure | None:
        """Return the step with a policy of its own by which the handler failed; None if it was none."""
        return next((step for failed, step in self._failed if failed in (error, error.__cause__)), None)

    async def cut_off(self) -> StepFailure | None:
        """Note that the attempt's time is over; return the step with a policy of its own that was running.

        Raises:
            StepInterrupted: A step was running that must not run again.
        """
        for running in self._running.values():
            if not running.is_repeatable:
                name = running.begun.name
                raise self._stop(StepStoppedError(f"its time was over while step {name} was running"))
            await self._note_failure(running.begun)
        return next((running.failure for running in self._running.values() if running.failure), None)

    async def _run(self, step: Step) -> Any:
        self._check_name(step.name)
        adapter, policy = _adapter_of(step.function), self._policy_of(step)
        is_repeatable = self._is_repeatable(step)
        execution = self._execution(step.name, is_repeatable=is_repeatable)
        begun = await self._changed(step.name, partial(begin, execution=execution))
        if begun.result is not None:
            return adapter.validate_json(begun.result)
        running = self._running[step.name] = _Running(begun, is_repeatable, policy)
        try:
            own = self._call(self.plan.operation.step_key(step.name), begun.attempts, _refuse_steps)
            result = _result_text(step.name, await step.function(*step.arguments, own))
        except Exception as error:
            del self._running[step.name]
            if running.failure is not None:
                self._failed.append((error, running.failure))
            await self._note_failure(begun)
            raise
        stored = await self._changed(step.name, partial(succeed, begun=begun, result=result))
        del self._running[step.name]
        return adapter.validate_json(stored.result or "null")

    def _call(self, key: str, attempt: int, run_step: Callable[[Step], Awaitable[Any]]) -> Call:
        transport = _CallTransport(self, key, transport_of(self.plan.dependency))
        return Call(
            key=key,
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

    def _execution(self, name: str, *, is_repeatable: bool) -> Execution:
        operation = self.plan.operation
        return Execution(
            name=name,
            run=operation.run,
            token=uuid4().hex,
            is_repeatable=is_repeatable,
            now=clock.now(),
            dead_letter_id=dead_letter_id_of(operation.to_json()),
        )

    async def _changed(self, name: str, rule: StepRule) -> StepRecord:
        if self.stopped is not None:
            raise StepInterrupted
        try:
            return await self.change(name, rule)
        except (StepStoppedError, ContendedStepError, AzureError) as error:
            raise self._stop(error) from error

    def _stop(self, error: Exception) -> StepInterrupted:
        self.stopped = self.stopped or error
        return StepInterrupted(str(error))

    async def _note_failure(self, begun: StepRecord) -> None:
        """Store that a step failed in a known way; without it, it counts as one whose process died."""
        try:
            await self.change(begun.name, partial(fail, begun=begun))
        except (ContendedStepError, AzureError) as error:
            _log.warning(
                "the failure of step %s of %s was not noted: %s",
                begun.name,
                self.plan.operation.run_id,
                type(error).__name__,
                extra=fields_of(self.plan.operation, {}),
            )


class _CallTransport(httpx.AsyncBaseTransport):
    """Sends the requests of one call over the pooled connections; closing it leaves them open."""

    def __init__(self, calls: Calls, key: str, inner: httpx.AsyncBaseTransport) -> None:
        self._calls = calls
        self._key = key
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request, with what every request carries unless the handler set that header itself."""
        for name, value in own_headers(self._calls.plan, self._key).items():
            request.headers.setdefault(name, value)
        progress = SendProgress()
        request.extensions[PROGRESS] = progress
        try:
            answer = await self._inner.handle_async_request(request)
        except BaseException:
            self._calls.may_have_acted |= progress.sent and may_repeat_work(self._calls.plan, request)
            raise
        left = parse_rate_left(answer.headers, now=clock.now())
        self._calls.rate_left = left or self._calls.rate_left
        return answer


async def _refuse_steps(step: Step) -> Any:
    raise InvalidInputError([Problem("/step", f"{step.name!r} is inside of another step")])


def _result_text(name: str, returned: Any) -> str:
    """Return a step's result as JSON text.

    Raises:
        InvalidInputError: It has no JSON form, or too large a one.
    """
    text = json.dumps(plain_json(returned, f"/steps/{name}"))
    size = len(text.encode())
    if size > MAX_RESULT_BYTES:
        detail = f"has {size} bytes; the result of a step takes {MAX_RESULT_BYTES}"
        raise InvalidInputError([Problem(f"/steps/{name}", detail)])
    return text


@lru_cache(_ADAPTERS_KEPT)
def _adapter_of(function: Callable[..., Any]) -> TypeAdapter[Any]:
    """Return what reads a step's stored result back as what its function is annotated to return.

    Raises:
        InvalidInputError: It returns what cannot be stored.
    """
    try:
        returned = get_type_hints(function).get("return", Any)
    except (NameError, TypeError):
        returned = Any  # It has no annotations that can be read: then the result is plain JSON.
    try:
        return TypeAdapter(returned)
    except PydanticSchemaGenerationError as error:
        detail = f"{function!r} returns {returned!r}, which has no JSON form"
        raise InvalidInputError([Problem("/step", detail)]) from error

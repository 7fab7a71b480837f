"""What a handler is called with in one attempt: a client of its dependency, and its remembered steps.

step ──> begin ──has a result──> that result
           ├──may not run──> the attempt stops (`StepInterrupted`), whatever the handler catches
           └──> the function, with a `Call` and key of its own ──> succeed, or fail
                    └──raises, and a request of its may have acted──> stays begun, and never runs again

What a handler sends outside of its steps, and must not send twice, is marked before it goes (`SentMark`).
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final
from uuid import uuid4

from azure.core.exceptions import AzureError, ServiceResponseTimeoutError
from pydantic import TypeAdapter

from durable_retry.attempt.admission import StepBlockedError
from durable_retry.attempt.http_client import make_client
from durable_retry.attempt.http_request import Plan
from durable_retry.base.errors import ContendedError
from durable_retry.base.foreign import look, plain_json
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.features.handlers.call_transport import CallTransport, Seen, UnmarkedError
from durable_retry.features.handlers.excerpts import refuse_credentials
from durable_retry.features.handlers.functions import (
    CANCEL_SECONDS,
    Interruption,
    members_of,
    run_function,
)
from durable_retry.features.handlers.gate import StepGate
from durable_retry.features.handlers.heartbeat import Heartbeat
from durable_retry.features.handlers.records import StepRule
from durable_retry.features.handlers.rules.steps import (
    HEARTBEAT,
    MAX_RESULT_BYTES,
    Execution,
    RememberedStep,
    StepStoppedError,
    begin_heartbeats,
    begin_step,
    complete_step,
    fail_step,
    hold_step,
    report_progress,
)
from durable_retry.features.handlers.signatures import (
    SignatureError,
    parameters_of,
    read_result,
    result_of,
    stored_result,
    with_call,
)
from durable_retry.features.handlers.values import Call, Step
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.dead_letters.record import dead_letter_id_of
from durable_retry.rules.operations.keys import OvertakenError
from durable_retry.rules.retry.history import AttemptOutcome, StepFailure
from durable_retry.rules.retry.policy import RetryPolicy, policy_from, policy_problems
from durable_retry.runtime import clock
from durable_retry.settings.configuration import find_dependency
from durable_retry.telemetry.spans import fields_of

_log = logging.getLogger(__name__)

MAX_STEPS: Final = 100  # in one attempt of a handler

HANGING_SECONDS: Final = 1.0
"""A write to our own storage, which takes some 20 ms, hangs when it has taken so long."""

type ChangeStep = Callable[[str, StepRule], Awaitable[RememberedStep]]
"""`await change(name, rule)`: changes the record of one step, see `records.change_step`."""


class StepInterrupted(Interruption):
    """The attempt must not go on. Not an `Exception`, so that a handler does not catch it by accident."""


@dataclass(frozen=True, slots=True)
class _RunningStep:
    """A step between its begin and its end.

    Attributes:
        policy: Its own; None for the operation's.
        ending: What stores its end; None while its function runs.
    """

    begun: RememberedStep
    plan: Plan
    is_repeatable: bool
    policy: RetryPolicy | None
    ending: StepRule | None = None

    @property
    def failure(self) -> StepFailure | None:
        """What decides in place of the operation's policy if it fails; None when nothing does."""
        if self.policy is None:
            return None
        return StepFailure(step=self.begun.name, attempt=self.begun.attempts, policy=self.policy)


class MissingDependencyError(Exception):
    """A step's dependency is not configured where the attempt runs, which a deploy may change."""

    def __init__(self, step: Step) -> None:
        super().__init__(f"dependency {step.dependency} of step {step.name} is not configured here")


@dataclass(frozen=True, slots=True)
class FailedStep:
    """The step by which a handler failed.

    Attributes:
        plan: With the step's dependency; the handler's own where no step failed.
        name: None where no step failed.
        policy: What decides in place of the operation's policy; None when nothing does.
    """

    plan: Plan
    name: str | None = None
    policy: StepFailure | None = None


@dataclass(slots=True)
class Calls:
    """The calls and steps of one attempt of a handler.

    Attributes:
        mark: Is awaited before the handler sends what must not be sent twice, as `SentMark.write`; None where
            it sends nothing like that, or has a marker for all that it does.
        stopped: Why the attempt must end; None while it need not.
        seen: What its requests show, and those of steps that are not remembered.
        errors: What failed steps raised. Of those that run side by side the handler raises one.
        heartbeat: Its heartbeats; None when it needs none.
        stand_ins: Functions that are called in place of those of steps, by their names; for tests.
    """

    plan: Plan
    change: ChangeStep
    gate: StepGate
    outcome_of: Callable[[Plan, BaseException], AttemptOutcome]
    mark: Callable[[], Awaitable[None]] | None = None
    stopped: Exception | None = None
    seen: Seen = field(default_factory=Seen)
    errors: list[Exception] = field(default_factory=list)
    heartbeat: Heartbeat | None = None
    stand_ins: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    _is_over: bool = False
    _active: dict[asyncio.Event, asyncio.Task[Any] | None] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)
    _running: dict[str, _RunningStep] = field(default_factory=dict)
    _transports: list[CallTransport] = field(default_factory=list)
    _failed: list[tuple[BaseException, FailedStep]] = field(default_factory=list)
    _hanging: AzureError | None = None
    _unawaited: list[str] = field(default_factory=list)

    def call(self, repeatable: bool | None = None) -> Call:  # noqa: FBT001 - as `operation` has it
        """Return the `Call` that is passed to the handler, which may say whether it may run twice."""
        repeatable = bool(self.plan.deduplication_header) if repeatable is None else repeatable
        key, mark = self.plan.operation.sent_key, None if self.mark is None else self._mark_once
        transport = CallTransport(self.plan, key, is_repeatable=repeatable, before_once=mark)
        self.seen = transport.seen
        return self._call_over(self.plan, transport, self.plan.number, self._call_step)

    async def _mark_once(self) -> None:
        assert self.mark is not None  # noqa: S101 - it is called only then
        await self._unless_stopped(self.mark)

    async def begin_heartbeats(self, seconds: float) -> None:
        """Let the attempt last while it reports progress; it begins with what an earlier one reported.

        Raises:
            StepInterrupted: A later run has taken over, or our own storage failed.
        """
        rule = partial(begin_heartbeats, execution=self._execution(HEARTBEAT), attempt=self.plan.number)
        begun = await self._changed_step_record(HEARTBEAT, rule)
        self.heartbeat = Heartbeat(seconds, self._store_progress, json.loads(begun.result or "null"))

    def time_limit(self) -> AbstractAsyncContextManager[asyncio.Timeout]:
        """Return what ends the attempt when its time is over."""
        seconds = self.plan.limit.seconds_left
        return asyncio.timeout(seconds) if self.heartbeat is None else self.heartbeat.kept_alive(seconds)

    def _report_progress(self, progress: Any) -> None:
        refuse_credentials(plain_json(progress, "/progress"), self.plan.dependency, "/progress")
        if self.heartbeat is not None:
            self.heartbeat.report(progress)

    async def _store_progress(self, text: str) -> bool:
        execution, attempt = self._execution(HEARTBEAT), self.plan.number
        try:
            await self.change(
                HEARTBEAT, partial(report_progress, execution=execution, attempt=attempt, text=text)
            )
        except OvertakenError as error:
            self._stop_steps(error)
            if self.heartbeat is not None:
                self.heartbeat.stop()
        except (ContendedError, AzureError) as error:
            self._log_not_noted("a heartbeat", error)
            return False
        return True

    def failed_step(self, error: BaseException) -> FailedStep:
        """Return the step by which the handler failed, when it raised an error that is no group."""
        cause = look(lambda: error.__cause__, None)
        steps = (step for raised, step in self._failed if raised is error or raised is cause)
        return next(steps, FailedStep(self.plan))

    async def finish_steps(self) -> None:
        """Wait for the steps that run although the handler is over, as `asyncio.gather` leaves them.

        They would go on beside the next attempt, and what they do would be lost.
        """
        self._is_over = True
        while self._active:
            await next(iter(self._active)).wait()

    def require_awaited(self) -> None:
        """Check that every step that the handler called has begun.

        Raises:
            TypeError: One was not awaited: it did nothing, and the handler would succeed without it.
        """
        if self._unawaited:
            name = self._unawaited[0]
            raise TypeError(f"step {name} was not awaited: write `await call.step({name!r}, ...)`")

    async def end_steps(self) -> None:
        """Cancel the steps that still run, when the attempt has no time to wait for them."""
        self._is_over = True
        tasks = {task for task in self._active.values() if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_SECONDS)

    async def cut_off(self) -> FailedStep:
        """End the attempt, whose time is over; return the running step, one with a policy of its own first.

        It is no failure of the dependency's while our own storage hangs, which the SDK waits for longer.

        Raises:
            StepInterrupted: A step was running that must not run again.
        """
        await self.end_steps()
        for transport in self._transports:
            transport.is_over = True
        for running in self._running.values():
            if running.ending is None and not running.is_repeatable:
                name = running.begun.name
                raise self._stop_steps(StepStoppedError(f"its time was over while step {name} was running"))
            # A step that was cut off while its end was being stored is stored with that end.
            await self._note_end_of_step(
                running.begun, running.ending or partial(fail_step, begun=running.begun)
            )
        cut = [
            FailedStep(running.plan, running.begun.name, running.failure)
            for running in self._running.values()
        ]
        self.stopped = self.stopped or self._hanging
        own = next((step for step in cut if step.policy is not None), None)
        return own or FailedStep(self.plan, cut[0].name if cut else None)

    def _call_step(self, step: Step) -> Awaitable[Any]:
        self._unawaited.append(step.name)
        return self._begin_step(step)

    async def _begin_step(self, step: Step) -> Any:
        self._unawaited.remove(step.name)
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
        self._check_step_name(step.name)
        plan, adapter = self._plan_of_step(step), _result_adapter_of(step.function)
        policy, is_repeatable = self._policy_of_step(step, plan), _is_repeatable_step(step, plan)
        execution = self._execution(step.name, is_repeatable=is_repeatable)
        begun = await self._changed_step_record(step.name, partial(begin_step, execution=execution))
        if begun.result is not None:
            return read_result(adapter, begun.result)
        running = self._running[step.name] = _RunningStep(begun, plan, is_repeatable, policy)
        key = self.plan.operation.step_key(step.name)
        transport = CallTransport(plan, key, is_repeatable=is_repeatable)
        own = self._call_over(plan, transport, begun.attempts, _refuse_nested_step, policy)
        try:
            function = self.stand_ins.get(step.name, step.function)
            run = partial(_run_step_function, replace(step, function=function), own)
            returned = await self.gate.run(plan, run, self.outcome_of, lambda: self.seen.may_have_acted)
            result = _text_of_step_result(step.name, adapter, returned, plan.dependency)
        except StepBlockedError as error:
            await self._note_end_of_step(begun, partial(hold_step, begun=begun))
            del self._running[step.name]
            raise self._stop_steps(error) from error
        except Exception as error:
            self.errors.append(error)
            if transport.seen.may_have_acted:
                self.seen.add(transport.seen)
                del self._running[step.name]
                raise
            failed = FailedStep(plan, step.name, running.failure)
            self._failed += [(member, failed) for member in (error, *members_of(error))]
            is_refused = self.outcome_of(plan, error).refuses_credential
            ending = partial(hold_step if is_refused else fail_step, begun=begun)
            self._running[step.name] = replace(running, ending=ending)
            await self._note_end_of_step(begun, ending)
            del self._running[step.name]
            raise
        ending = partial(complete_step, begun=begun, result=result)
        self._running[step.name] = replace(running, ending=ending)
        stored = await self._changed_step_record(step.name, ending)
        del self._running[step.name]
        return read_result(adapter, stored.result or "null")

    def _plan_of_step(self, step: Step) -> Plan:
        if step.dependency is None:
            return self.plan
        dependency = find_dependency(step.dependency)
        if dependency is None:
            raise self._stop_steps(MissingDependencyError(step))
        return replace(self.plan, dependency=dependency)

    def _check_step_name(self, name: str) -> None:
        if name in self._names:
            raise InvalidInputError([Problem("/step", f"{name!r} is the name of an earlier step")])
        if len(self._names) >= MAX_STEPS:
            raise InvalidInputError([Problem("/step", f"a handler has at most {MAX_STEPS} steps")])
        self._names.add(name)

    def _policy_of_step(self, step: Step, plan: Plan) -> RetryPolicy | None:
        base = self.plan.operation.policy if step.dependency is None else plan.dependency.retry
        if step.retry is None:
            return None if step.dependency is None else base
        policy = policy_from(step.retry.written(), base)
        problems = [Problem(f"/retry/{key}", detail) for key, detail in policy_problems(policy)]
        if problems:
            raise InvalidInputError(problems)
        return policy

    def _execution(self, name: str, *, is_repeatable: bool = True) -> Execution:
        operation = self.plan.operation
        return Execution(
            name=name,
            run=operation.run,
            token=uuid4().hex,
            is_repeatable=is_repeatable,
            now=clock.now(),
            dead_letter_id=dead_letter_id_of(operation.to_json()),
        )

    async def _changed_step_record(self, name: str, rule: StepRule) -> RememberedStep:
        return await self._unless_stopped(partial(self.change, name, rule))

    async def _unless_stopped[T](self, write: Callable[[], Awaitable[T]]) -> T:
        if self.stopped is not None:
            raise StepInterrupted
        begun_at = clock.monotonic_seconds()
        try:
            return await write()
        except asyncio.CancelledError:
            if clock.monotonic_seconds() - begun_at >= HANGING_SECONDS:
                self._hanging = ServiceResponseTimeoutError("storage hung until the attempt's time was over")
            raise
        except (StepStoppedError, OvertakenError, UnmarkedError, ContendedError, AzureError) as error:
            raise self._stop_steps(error) from error

    def _stop_steps(self, error: Exception) -> StepInterrupted:
        self.stopped = self.stopped or error
        return StepInterrupted(str(error))

    async def _note_end_of_step(self, begun: RememberedStep, ending: StepRule) -> None:
        # Without its end, a step counts as one whose process died.
        try:
            await self.change(begun.name, ending)
        except (StepStoppedError, OvertakenError) as error:
            raise self._stop_steps(error) from error
        except (ContendedError, AzureError) as error:
            self._log_not_noted(f"the end of step {begun.name}", error)

    def _log_not_noted(self, what: str, error: Exception) -> None:
        _log.warning(
            "%s of %s was not noted: %s",
            what,
            self.plan.operation.run_id,
            type(error).__name__,
            extra=fields_of(self.plan.operation, {}),
        )

    def _call_over(
        self,
        plan: Plan,
        transport: CallTransport,
        attempt: int,
        run_step: Callable[[Step], Awaitable[Any]],
        policy: RetryPolicy | None = None,
    ) -> Call:
        self._transports.append(transport)
        # A step without a policy of its own is tried as often as its operation.
        operation, made = plan.operation, plan.number if policy is None else attempt
        most = (policy or operation.policy).max_attempts

        def seconds_left() -> float:
            return plan.limit.seconds_left

        call = Call(
            key=transport.key,
            attempt=attempt,
            max_attempts=most,
            is_last=0 < most <= made,
            deadline_at=operation.deadline_at,
            correlation_id=operation.correlation_id,
            commit_conflict=plan.operation.conflict,
            async_client=make_client(plan.dependency, transport, seconds_left),
            time_left=seconds_left,
            run_step=run_step,
        )
        if self.heartbeat is None:
            return call
        return replace(call, progress=self.heartbeat.progress, report_progress=self._report_progress)


def _is_repeatable_step(step: Step, plan: Plan) -> bool:
    return bool(plan.deduplication_header) if step.repeatable is None else step.repeatable


async def _run_step_function(step: Step, own: Call) -> Any:
    python, call_parameter = parameters_of(step.function)
    bound = with_call(python.bind_partial(*step.args, **step.kwargs), call_parameter, own)
    return await run_function(step.function, *bound.args, **bound.kwargs)


async def _refuse_nested_step(step: Step) -> Any:
    raise InvalidInputError([Problem("/step", f"{step.name!r} is inside of another step")])


def _text_of_step_result(name: str, adapter: TypeAdapter[Any], returned: Any, dependency: Dependency) -> str:
    pointer = f"/steps/{name}"
    document, text = stored_result(adapter, returned, pointer, MAX_RESULT_BYTES)
    refuse_credentials(document, dependency, pointer, text)
    return text


def _result_adapter_of(function: Callable[..., Any]) -> TypeAdapter[Any]:
    """Return what reads a step's stored result back as what its function is annotated to return.

    Raises:
        InvalidInputError: It returns what cannot be stored.
    """
    try:
        return result_of(function)
    except SignatureError as error:
        raise InvalidInputError([Problem("/step", f"{function!r}: {error}")]) from error

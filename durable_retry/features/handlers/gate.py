"""The admission of a step to another dependency than that of its handler.

A blocked step ends the attempt (`StepBlockedError`), which is not counted. The orchestration waits, or asks
that dependency's entities, and makes the attempt again: the handler runs once the step is admitted. A handler
that has sent what must not be sent twice is not run again: its step waits in place.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil
from typing import Any, Final, assert_never

from durable_retry.attempt.admission import StepBlockedError, report_to_circuit
from durable_retry.attempt.http_request import Plan
from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.base.names import ACQUIRE, GIVE_BACK, LEAVE, Category
from durable_retry.circuit.cache import CircuitCache, enter_circuit, pause_of
from durable_retry.hub.entity_ids import limiter_id
from durable_retry.hub.task_hub import TaskHub
from durable_retry.plugins import hook
from durable_retry.rules.circuit.calls import CallEnd
from durable_retry.rules.circuit.retry_budget import BudgetPostponed
from durable_retry.rules.circuit.snapshot import Permitted, Refused
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.retry.admission import AdmissionState, StepAdmission, held_admission
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.rules.retry.loop import Blocked, BlockedStep, NeedsProbe, slot_request
from durable_retry.rules.retry.slots import Leaving, NeedsSlot, Slot, SlotAnswer, SlotPostponed, SlotRequest
from durable_retry.runtime import clock
from durable_retry.runtime.deferred import imported
from durable_retry.settings.configuration import find_dependency

_LEAST_SECONDS: Final = 0.25
"""The least wait of a step that its circuit holds in place, which is read once a second."""
_FIRST_LOOK_SECONDS: Final = 0.05
_LOOK_SECONDS: Final = 0.5
"""The wait before the first look for a limiter's answer, which doubles with each look, and its maximum."""
_LOST: Final = timedelta(seconds=5)
"""A request without an answer is made again after so long: a worker that dies in an entity loses signals."""
_SPARE_SECONDS: Final = 10.0
"""Added to the rest of the attempt for the lease of a step, since clocks differ; leases last whole tens."""


@dataclass(slots=True)
class StepGate:
    """Admits the steps of one attempt to dependencies other than the operation's.

    Attributes:
        hub: Where the circuits are; None admits everything.
        held: What the orchestration has reached for a step that was blocked; None for nothing.
    """

    hub: TaskHub | None
    operation: OperationInput
    number: int
    held: StepAdmission | None = None
    lines: int = 0  # steps that were held in place and have asked a limiter
    _entered: tuple[str, CircuitCache, Permitted] | None = None

    @asynccontextmanager
    async def held_open(self) -> AsyncIterator[None]:
        """Run a handler in the block, once the step is admitted that an earlier execution could not begin.

        So a wait of any length costs the handler one more run. A permit that no step takes is given back.

        Raises:
            StepBlockedError: The step has to wait on.
        """
        dependency = None if self.held is None else find_dependency(self.held.dependency)
        if dependency is not None and self._asks(dependency) and not await self._is_let_past(dependency):
            admission = held_admission(self.held, dependency.name)
            self._entered = dependency.name, *await self._enter(dependency, admission)
        try:
            yield
        finally:
            if self._entered is not None:
                _, circuit, permitted = self._entered
                await circuit.leave(permitted, CallEnd())

    def _asks(self, dependency: Dependency) -> bool:
        """Whether a step needs admission there."""
        is_own = dependency.name == self.operation.dependency
        return self.hub is not None and not is_own and dependency.needs_admission

    async def _is_let_past(self, dependency: Dependency) -> bool:
        """Whether a person lets the step past its circuit; StepBlockedError while a pause holds it up."""
        if self.hub is None or not held_admission(self.held, dependency.name).is_canary:
            return False
        paused = await pause_of(self.hub, dependency, self.operation)
        if paused is not None:
            raise StepBlockedError(BlockedStep(dependency.name, paused))
        return True

    async def run(
        self,
        plan: Plan,
        call: Callable[[], Awaitable[Any]],
        outcome_of: Callable[[Plan, BaseException], AttemptOutcome],
        must_hold: Callable[[], bool],
    ) -> Any:
        """Return what a step's call returns, if the dependency of its plan admits it.

        Args:
            plan: Of the step.
            call: Calls its function.
            outcome_of: Says what an error of it means.
            must_hold: Whether the handler must not run again because of this step: then the step waits here,
                as long as the attempt has time.

        Raises:
            StepBlockedError: It has to wait.
            Exception: What the call raised.
        """
        dependency = plan.dependency
        if not self._asks(dependency) or await self._is_let_past(dependency):
            return await call()
        line = _Line(self, dependency.name)
        try:
            circuit, answer = await self._place(plan, must_hold, line)
            return await self._call_and_report(circuit, answer, plan, call, outcome_of)
        finally:
            await line.leave()

    async def _call_and_report(
        self,
        circuit: CircuitCache,
        answer: Permitted,
        plan: Plan,
        call: Callable[[], Awaitable[Any]],
        outcome_of: Callable[[Plan, BaseException], AttemptOutcome],
    ) -> Any:
        begun_seconds = clock.monotonic_seconds()

        async def report(outcome: AttemptOutcome) -> None:
            # What the handler did before, and the wait for the step's place, are no part of its call.
            lasted_ms = (clock.monotonic_seconds() - begun_seconds) * 1000
            ended = replace(outcome, duration_ms=lasted_ms)
            await report_to_circuit(circuit, answer, plan.dependency.retry, ended)

        try:
            result = await call()
        except Exception as error:
            await report(outcome_of(plan, error))
            raise
        except BaseException:
            timed_out = plan.limit.seconds_left <= 0
            late = plan.outcome(category=Category.TRANSIENT, error="not finished in time", counted=timed_out)
            await report(late)
            raise
        await report(plan.outcome())
        return result

    async def _place(
        self, plan: Plan, must_hold: Callable[[], bool], line: "_Line"
    ) -> tuple[CircuitCache, Permitted]:
        entered = self._entered
        if entered is not None and entered[0] == plan.dependency.name:
            self._entered = None
            return entered[1:]
        admission = held_admission(self.held, plan.dependency.name)
        while True:
            try:
                return await self._enter(plan.dependency, admission)
            except StepBlockedError as error:
                blocked: Blocked | SlotAnswer | None = error.step.blocked
                left_seconds = plan.limit.seconds_left - plan.operation.timeouts.connect_seconds
                if isinstance(blocked, NeedsSlot) and must_hold():
                    admission = admission.at_limiter(blocked.settings, clock.now())
                    blocked = await line.enter(blocked, admission, left_seconds)
                    left_seconds = plan.limit.seconds_left - plan.operation.timeouts.connect_seconds
                next_try = _held_in_place(admission, blocked)
                if not must_hold() or next_try is None or next_try[0] >= left_seconds:
                    raise
            seconds, admission = next_try
            await asyncio.sleep(seconds)

    async def _enter(
        self, dependency: Dependency, admission: AdmissionState
    ) -> tuple[CircuitCache, Permitted]:
        assert self.hub is not None  # noqa: S101 - see `_asks`
        circuit, answer = await enter_circuit(self.hub, dependency, self.operation, self.number, admission)
        if isinstance(answer, Permitted):
            return circuit, answer
        raise StepBlockedError(BlockedStep(dependency.name, answer))


@dataclass(slots=True)
class _Line:
    """The request for a slot of a step that waits here, sent by signals: no orchestration sends it."""

    gate: StepGate
    dependency: str
    _request: SlotRequest | None = None
    _answered_at: datetime | None = None

    async def enter(self, needed: NeedsSlot, admission: AdmissionState, seconds: float) -> SlotAnswer | None:
        """Return the limiter's answer; None where none comes in time. A hub that fails lets the step go."""
        hub = self.gate.hub
        assert hub is not None  # noqa: S101 - see `StepGate._asks`
        now = clock.now()
        until, ask_at, look_seconds = now + timedelta(seconds=seconds), now, _FIRST_LOOK_SECONDS
        request = slot_request(self.gate.operation, self.gate.number, admission, needed, now)
        if self._request is None:
            self.gate.lines += 1
        # Steps that run at once have a slot each; one that asks again keeps its own.
        name = f"{request.lease_id}.{self.gate.lines}" if self._request is None else self._request.lease_id
        lease_seconds = 10.0 * ceil((seconds + _SPARE_SECONDS) / 10)
        latest_seconds = seconds - _LEAST_SECONDS
        request = replace(
            request, lease_id=name, lease_seconds=lease_seconds, latest_seconds=latest_seconds, is_signal=True
        )
        answer, answer_to = None, imported(f"{hook('limits')}:answer_to")
        try:
            if admission.slot is not None:  # The turn of this slot is void, and a slot has only one.
                await self._signal(hub, GIVE_BACK, admission.slot)
            while answer is None and now < until:
                if now >= ask_at:
                    self._request, ask_at = replace(request, asked_at=now), now + _LOST
                    await self._signal(hub, ACQUIRE, self._request)
                await asyncio.sleep(look_seconds)
                look_seconds, now = min(2 * look_seconds, _LOOK_SECONDS), clock.now()
                answer = await answer_to(hub, self.dependency, request, now)
        except TaskHubUnavailableError:
            return Slot(turn_seconds=0.0, fail_open=True)
        self._answered_at = now
        return answer

    async def leave(self) -> None:
        """Give back what it has asked for."""
        if self._request is not None and self.gate.hub is not None:
            lasted = None if self._answered_at is None else (clock.now() - self._answered_at).total_seconds()
            slot = Slot(self._request.lease_id, self._request.asked_at, lasted_seconds=lasted)
            with suppress(TaskHubUnavailableError):
                await self._signal(self.gate.hub, LEAVE, Leaving(self._request.lease_id, is_gone=True))
                await self._signal(self.gate.hub, GIVE_BACK, slot)

    async def _signal(self, hub: TaskHub, operation: str, message: SlotRequest | Leaving | Slot) -> None:
        await hub.signal_entity(limiter_id(self.dependency), operation, message.to_json())


def _held_in_place(
    admission: AdmissionState, blocked: Blocked | SlotAnswer | None
) -> tuple[float, AdmissionState] | None:
    """Return after how many seconds a step that is held in place asks again, and what it has reached.

    None where an orchestration has to ask.
    """
    now = clock.now()
    match blocked:
        case Refused() | BudgetPostponed():
            seconds = max(_LEAST_SECONDS, (blocked.until - now).total_seconds())
            return seconds, admission.after_refusal(blocked, now)
        case SlotPostponed():
            return blocked.seconds, admission.after_refusal(blocked, now)
        case Slot():
            return 0.0, admission.with_slot(blocked, now)
        case NeedsSlot() | NeedsProbe() | None:
            return None
        case _ as never:
            assert_never(never)

"""The state of one execution of the orchestration `operation`, its waits and what it shows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Self

from durabletask import task
from durabletask.entities import EntityInstanceId

from durable_retry.engine.base.json_forms import from_rfc3339
from durable_retry.engine.base.names import (
    CANCEL_EVENT,
    CIRCUIT_EVENT,
    IDEMPOTENCY_RECORD,
    RETRY_NOW_EVENT,
    OperationState,
)
from durable_retry.engine.operations.operation import OperationInput, OperationStatus
from durable_retry.engine.operations.status import moving_parts
from durable_retry.engine.retry.decide import Wait
from durable_retry.engine.retry.history import WaitKind
from durable_retry.engine.retry.loop import Action, Answer, RetryState, after
from durable_retry.telemetry.events import wait_begun, wait_over
from orchestrators.call_until_success import Steps

_RETRY: Final = "retry"
"""The name in metrics of the pause before a retry, which has no `WaitKind`."""

STEPS_PER_HISTORY: Final = 20
"""Attempts and waits after which the orchestration continues as new: every turn replays all of the history
before it, so a history without end would make attempt 1,000 a hundred times as dear as attempt 10."""


@dataclass(slots=True)
class Run:
    """The state of one execution between two turns, rebuilt by every replay.

    Attributes:
        ctx: The durable context; the only source of time and of identifiers.
        operation: What the operation started with.
        holds_claim: Whether an earlier execution of this run claimed the key.
        state: Where the retry loop stands.
        cancel: Completes when someone cancels the operation.
        retry_now: Completes when someone ends a wait.
        circuit_changed: Completes when someone changed the circuit by hand.
        steps: Attempts and waits since the history last began.
    """

    ctx: task.OrchestrationContext
    operation: OperationInput
    holds_claim: bool
    state: RetryState
    cancel: task.CancellableTask[Any]
    retry_now: task.CancellableTask[Any]
    circuit_changed: task.CancellableTask[Any]
    steps: int = 0

    @classmethod
    def resume(cls, ctx: task.OrchestrationContext, input_: Mapping[str, Any]) -> Self:
        """Continue from `carried_on`, or begin with a start's `{"operation": {...}}`."""
        return cls(
            ctx=ctx,
            operation=replace(OperationInput.from_json(input_["operation"]), run=input_.get("run", 1)),
            holds_claim="history" in input_,
            state=RetryState.from_json(input_),
            cancel=ctx.wait_for_external_event(CANCEL_EVENT),
            retry_now=ctx.wait_for_external_event(RETRY_NOW_EVENT),
            circuit_changed=ctx.wait_for_external_event(CIRCUIT_EVENT),
        )

    def carried_on(self) -> dict[str, Any]:
        """Return the input of the execution that continues this one."""
        return {
            "operation": self.operation.to_json(),
            "run": self.operation.run,
            **self.state.to_json(),
        }

    @property
    def now(self) -> datetime:
        """The replay-safe time, aware UTC."""
        return self.ctx.current_utc_datetime.replace(tzinfo=UTC)

    @property
    def cancelled(self) -> bool:
        """Whether someone cancelled the operation."""
        return self.cancel.is_complete

    @property
    def is_long(self) -> bool:
        """Whether it is time to continue as new."""
        return self.steps >= STEPS_PER_HISTORY

    @property
    def record(self) -> EntityInstanceId:
        """The entity that keeps the record of this operation's key."""
        return EntityInstanceId(IDEMPOTENCY_RECORD, self.operation.operation_id)

    def follow(self, answer: Answer) -> Action:
        """Move the retry loop on by an answer, and return what to do now."""
        self.state, action = after(self.operation, self.state, answer, self.now)
        return action

    def status(self, state: OperationState, **more: Any) -> OperationStatus:
        """Return the status of this moment."""
        return OperationStatus(
            operation=self.operation, state=state, history=self.state.history, updated_at=self.now, **more
        )

    def show(self, state: OperationState, *, next_attempt_at: datetime | None = None) -> None:
        """Let status queries see where the operation stands."""
        self.ctx.set_custom_status(moving_parts(self.status(state, next_attempt_at=next_attempt_at)))

    def wait(self, wait: Wait) -> Steps[None]:
        """Wait as decided, unless someone cancels, retries now, or changes the circuit waited for."""
        for_circuit = wait.kind is WaitKind.CIRCUIT
        self.show(
            OperationState.WAITING_CIRCUIT if for_circuit else OperationState.WAITING_RETRY,
            next_attempt_at=wait.until,
        )
        began_at = self.now
        kind = _RETRY if wait.kind is None else wait.kind.value
        if not self.ctx.is_replaying:
            wait_begun(self.operation, kind, wait.until, wait.reasons)
        yield from self._wait(wait.until, began_at, for_circuit=for_circuit)
        if not self.ctx.is_replaying:
            wait_over(self.operation, kind, (self.now - began_at).total_seconds())

    def _wait(self, until: datetime, began_at: datetime, *, for_circuit: bool) -> Steps[None]:
        timer = self.ctx.create_timer(until)
        while True:
            winner = yield task.when_any([timer, self.cancel, self.retry_now, self.circuit_changed])
            if winner is self.retry_now:
                ends = self._is_retried_now()
            elif winner is self.circuit_changed:
                ends = self._has_circuit_changed(began_at) and for_circuit
            else:
                return
            if ends:
                return

    def _is_retried_now(self) -> bool:
        """Whether the request means this wait, and not an earlier one that ended before it arrived."""
        request = self.retry_now.get_result()
        self.retry_now = self.ctx.wait_for_external_event(RETRY_NOW_EVENT)
        return isinstance(request, dict) and request.get("attempt") == self.state.history.next_attempt

    def _has_circuit_changed(self, began_at: datetime) -> bool:
        """Whether the circuit changed since this wait began: earlier changes are part of the wait."""
        change = self.circuit_changed.get_result()
        self.circuit_changed = self.ctx.wait_for_external_event(CIRCUIT_EVENT)
        try:
            return from_rfc3339(change["at"]) >= began_at
        except (KeyError, TypeError, ValueError):
            return False  # Anyone may send an event, and in any form.

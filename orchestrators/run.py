"""One run of the `operation` orchestration: what it knows, what it shows, and what it hands on."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self

from durabletask import task
from durabletask.entities import EntityInstanceId

from engine.gate import Ticket
from engine.instants import from_rfc3339
from engine.operation import History, OperationInput, OperationStatus
from engine.vocabulary import OperationState
from engine.waits import WaitKind
from stores.status_document import moving_parts
from stores.task_hub import CANCEL_EVENT, RECORD, RETRY_NOW_EVENT
from stores.waiting_operations import CIRCUIT_EVENT
from telemetry.happenings import wait_begun, wait_over

type Steps[T] = Generator[task.Task[Any], Any, T]
"""Yields durable tasks, is sent their results, and returns T."""

_RETRY: Final = "retry"
"""The name in metrics of a wait that nothing but the policy asks for."""

STEPS_PER_HISTORY: Final = 20
"""Attempts and waits after which the orchestration continues as new: every turn replays all of the history
before it, so a history without end would make attempt 1,000 a hundred times as dear as attempt 10."""


@dataclass(slots=True)
class Run:
    """The state of one execution between two turns, rebuilt by every replay.

    Attributes:
        ctx: The durable context; the only source of time and of identifiers.
        operation: What the operation started with.
        holds_claim: Whether the key was claimed by an earlier execution of this run.
        history: The attempts so far.
        cancel: Completes when someone cancels.
        hurry: Completes when someone ends the present wait.
        nudge: Completes when someone changed the circuit by hand.
        ticket: What the operation brings to the gate of its dependency.
        steps: Attempts and waits since the history last began.
    """

    ctx: task.OrchestrationContext
    operation: OperationInput
    holds_claim: bool
    history: History
    cancel: task.CancellableTask[Any]
    hurry: task.CancellableTask[Any]
    nudge: task.CancellableTask[Any]
    ticket: Ticket
    steps: int = 0

    @classmethod
    def resume(cls, ctx: task.OrchestrationContext, carried: Mapping[str, Any]) -> Self:
        """Take up what `carried_on` handed over, or what a start gave: `{"operation": {...}}` alone."""
        history = carried.get("history")
        return cls(
            ctx=ctx,
            operation=OperationInput.from_json(carried["operation"]),
            holds_claim=history is not None,
            history=History() if history is None else History.from_json(history),
            cancel=ctx.wait_for_external_event(CANCEL_EVENT),
            hurry=ctx.wait_for_external_event(RETRY_NOW_EVENT),
            nudge=ctx.wait_for_external_event(CIRCUIT_EVENT),
            ticket=Ticket.from_json(carried.get("ticket")),
        )

    def carried_on(self) -> dict[str, Any]:
        """Return the input of the execution that continues this one."""
        return {
            "operation": self.operation.to_json(),
            "history": self.history.to_json(),
            "ticket": self.ticket.to_json(),
        }

    @property
    def now(self) -> datetime:
        """The replay-safe present, aware UTC."""
        return self.ctx.current_utc_datetime.replace(tzinfo=UTC)

    @property
    def cancelled(self) -> bool:
        """Whether someone cancelled."""
        return self.cancel.is_complete

    @property
    def is_long(self) -> bool:
        """Whether it is time to continue as new."""
        return self.steps >= STEPS_PER_HISTORY

    @property
    def record(self) -> EntityInstanceId:
        """The entity that remembers this operation's key."""
        return EntityInstanceId(RECORD, self.operation.operation_id)

    def status(self, state: OperationState, **more: Any) -> OperationStatus:
        """Return the status document's value for this moment."""
        return OperationStatus(
            operation=self.operation, state=state, history=self.history, updated_at=self.now, **more
        )

    def show(self, state: OperationState, *, next_attempt_at: datetime | None = None) -> None:
        """Let status queries see where the operation stands."""
        self.ctx.set_custom_status(moving_parts(self.status(state, next_attempt_at=next_attempt_at)))

    def wait_until(
        self,
        state: OperationState,
        instant: datetime,
        *,
        reasons: tuple[str, ...],
        kind: WaitKind | None = None,
    ) -> Steps[None]:
        """Wait for an instant, unless someone cancels, asks to go on now, or changes the circuit.

        Args:
            state: What status queries see meanwhile.
            instant: The end of the wait.
            reasons: Why then.
            kind: What holds the operation up; None when it is the pause before a retry.
        """
        self.show(state, next_attempt_at=instant)
        began_at = self.now
        named = _RETRY if kind is None else kind.value
        if not self.ctx.is_replaying:
            wait_begun(self.operation, named, instant, reasons)
        yield from self._wait(state, instant, began_at)
        if not self.ctx.is_replaying:
            wait_over(self.operation, named, (self.now - began_at).total_seconds())

    def _wait(self, state: OperationState, instant: datetime, began_at: datetime) -> Steps[None]:
        timer = self.ctx.create_timer(instant)
        while True:
            winner = yield task.when_any([timer, self.cancel, self.hurry, self.nudge])
            if winner is self.hurry:
                ends = self._was_hurried()
            elif winner is self.nudge:
                ends = self._was_nudged(began_at) and state is OperationState.WAITING_CIRCUIT
            else:
                return
            if ends:
                return

    def _was_hurried(self) -> bool:
        """Whether it was meant for this wait, and not for an earlier one that had ended before it arrived."""
        request = self.hurry.get_result()
        self.hurry = self.ctx.wait_for_external_event(RETRY_NOW_EVENT)
        return isinstance(request, dict) and request.get("attempt") == self.history.next_attempt

    def _was_nudged(self, began_at: datetime) -> bool:
        """Whether the circuit changed since this wait began; the wait knew of what happened earlier."""
        told = self.nudge.get_result()
        self.nudge = self.ctx.wait_for_external_event(CIRCUIT_EVENT)
        try:
            return from_rfc3339(told["at"]) >= began_at
        except (KeyError, TypeError, ValueError):
            return False  # Anyone may send an event, and in any form.

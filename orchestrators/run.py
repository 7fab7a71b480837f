"""One execution of an operation's orchestration: its state between two turns, its waits and what it shows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any, Final, Self

from durabletask import task

from durable_retry.base.json_forms import instant_in, optional_to_rfc3339
from durable_retry.base.names import (
    CANCEL_EVENT,
    CIRCUIT_EVENT,
    PAUSE_EVENT,
    RESUME_EVENT,
    RETRY_NOW_EVENT,
    SLOT_EVENT,
    TRY_EVENT,
    OperationState,
)
from durable_retry.base.text import counted
from durable_retry.hub.executor_guard import show_at_end
from durable_retry.hub.turns import (
    ENTITY_CALLS,
    InterruptibleTimer,
    OwnFailureError,
    Signals,
    Turns,
    leave_gates,
    wait_after,
)
from durable_retry.plugins import features
from durable_retry.rules.facts import WaitBegun, WaitEnded
from durable_retry.rules.operations.completion import RECOVERED_ATTEMPTS
from durable_retry.rules.operations.operation import AttemptCall, OperationInput, fingerprint_of
from durable_retry.rules.operations.status import WAITS_FOR, OperationStatus
from durable_retry.rules.operations.waits import Change, Pause
from durable_retry.rules.retry.constraints import is_over
from durable_retry.rules.retry.decide import MAX_OWN_FAILURES, DeadLetter, Decision, Wait, is_owed
from durable_retry.rules.retry.history import AttemptOutcome, Conflict, PastAction, PastWait, WaitKind
from durable_retry.rules.retry.loop import (
    Action,
    BlockedStep,
    LapResult,
    RetryState,
    WorkerFailed,
    after,
    after_conflict,
    lease_id_of,
)
from durable_retry.rules.retry.slots import NeedsSlot
from durable_retry.telemetry.facts import report

_HELD_ELSEWHERE: Final = frozenset({OperationState.WAITING_CIRCUIT, OperationState.WAITING_THROTTLE})
"""States that a circuit ends: that of the operation's dependency, or of a step's."""

LAPS_PER_HISTORY: Final = 6
"""Attempts and waits after which the orchestration continues as new. On Azure Storage every turn replays the
history before it: the last of twenty laps would cost twelve times as much as the first."""

_ASKED_AGAIN: Final = "its answer was lost, so it was asked for again"


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The operation ends as cancelled before it begins."""

    shown: Mapping[str, Any]  # what its document says of it


@dataclass(frozen=True, slots=True)
class Listener:
    """One more event that may end a wait."""

    event: str
    ends_wait: Callable[[Any], bool]  # takes its data
    ends_pause: bool = False  # whether it ends a pause, too


@dataclass(slots=True)
class Run:
    """The state of one execution between two turns, rebuilt by every replay.

    Attributes:
        ctx: The durable context; the only source of time and of identifiers.
        has_begun: Whether it has waited for the start, or an earlier execution has: it does not wait again.
        input_id: The id of the instance's input, from which attempts read a large operation; None when the
            call of an attempt carries the operation.
        signals: The external events, by their names in `base.names`.
        gates: The names of the features that the operation has yet to wait for before it begins.
        listener: One more event that may end a wait; None for none.
        is_changed: Whether the operation, such as its deadline, was changed in this execution.
        waits_for: The dependency that a wait is for: the operation's, or that of a step.
        is_shown: Whether this execution has set a custom status.
        unsettled: The latest attempt's outcome, until a feature has found out what it means; None for none.
        needed_slot: The slot to request in place of an attempt: the limiter has a free one, or no first
            attempt may start without; None for none.
        written: The operation, and the JSON form that was last made of it.
    """

    ctx: task.OrchestrationContext
    operation: OperationInput
    has_begun: bool
    state: RetryState
    signals: Signals
    input_id: str | None = None
    laps: int = 0
    gates: tuple[str, ...] = ()
    listener: Listener | None = None
    is_changed: bool = False
    waits_for: str = ""
    is_shown: bool = False
    unsettled: AttemptOutcome | None = None
    needed_slot: NeedsSlot | BlockedStep | None = None
    written: tuple[OperationInput | None, Mapping[str, Any]] = (None, MappingProxyType({}))

    @classmethod
    def resume(cls, ctx: task.OrchestrationContext, input_: Mapping[str, Any]) -> Self:
        """Continue from `carried_on`, or begin with a start's `{"operation": {...}}`."""
        operation, has_begun = OperationInput.from_json(input_["operation"]), "history" in input_
        return cls(
            ctx=ctx,
            operation=operation,
            has_begun=has_begun,
            state=RetryState.from_json(input_),
            signals=Signals(ctx),
            input_id=input_.get("input_id"),
            gates=tuple(input_.get("gates", () if has_begun else sorted(operation.parts or ()))),
            unsettled=AttemptOutcome.from_json(input_["unsettled"]) if "unsettled" in input_ else None,
            needed_slot=NeedsSlot.from_json(input_["needed_slot"]) if "needed_slot" in input_ else None,
            written=(operation, input_["operation"]),
        )

    def carried_on(self) -> dict[str, Any]:
        return {
            "operation": self.operation_json,
            **({} if self.input_id is None else {"input_id": self.input_id}),
            **({"gates": list(self.gates)} if self.gates else {}),
            **({} if self.unsettled is None else {"unsettled": self.unsettled.to_json()}),
            **(
                {"needed_slot": self.needed_slot.to_json()} if isinstance(self.needed_slot, NeedsSlot) else {}
            ),
            **self.state.to_json(),
        }

    @property
    def goes_on(self) -> bool:
        """Whether it makes one more lap: nobody has cancelled it, and its history is not too long."""
        return self.laps < LAPS_PER_HISTORY and not self.signals.has_come(CANCEL_EVENT)

    @property
    def now(self) -> datetime:
        """The replay-safe time, aware UTC."""
        return self.ctx.current_utc_datetime.replace(tzinfo=UTC)

    @property
    def operation_json(self) -> Mapping[str, Any]:
        """The JSON form of the operation: every attempt carries it, and every turn may replay them all."""
        if self.written[0] is not self.operation:
            self.written = self.operation, self.operation.to_json()
        return self.written[1]

    def attempt_call(self) -> AttemptCall:
        """Return what the activity `attempt` takes for the next attempt."""
        operation, history, step = self.operation, self.state.history, self.state.step
        is_sent = self.input_id is None
        sent = None
        if is_sent:
            bare = operation.without_commit() if operation.parts else operation
            sent = self.operation_json if bare is operation else bare.to_json()
        return AttemptCall(
            operation=sent,
            operation_id=None if is_sent else operation.operation_id,
            input_id=self.input_id,
            attempt=history.next_attempt,
            admission=self.state.admission,
            is_owed=is_owed(operation, history),
            acted_before=self.may_have_acted or None,
            step=step,
            conflict=history.conflict,
            forgiven=history.forgiven,
        )

    @property
    def may_have_acted(self) -> bool:
        """Whether an attempt ended without a clear refusal, in this run or an earlier one."""
        return self.operation.acted_before is True or self.state.may_have_acted

    @property
    def is_recovered(self) -> bool:
        """Whether its success is one after trouble, see `Success`."""
        is_late = self.state.history.attempt_count >= RECOVERED_ATTEMPTS
        return is_late or self.operation.replay_of is not None

    def follow(
        self, result: LapResult, step_at: str | None = None, on_its_way: timedelta = timedelta()
    ) -> Action:
        """Move the retry loop on by a result, of a step at another dependency or not; return what to do."""
        if isinstance(result, AttemptOutcome) and result.run is not None:
            # Another start of the same life won; the instance's input has the run of the start that lost.
            self.operation, self.input_id = self.operation.in_run(result.run), None
        self.state, action = after(
            self.operation, self.state, result, self.now, step_at=step_at, on_its_way=on_its_way
        )
        self.waits_for = step_at or self.operation.dependency
        return action

    def follow_conflict(self, conflict: Conflict) -> Decision:
        """Move the retry loop on by a success that was not committed; return what to do."""
        self.state, decision = after_conflict(self.operation, self.state, conflict, self.now)
        return decision

    def read_answer[Answer](
        self, answer_task: task.Task[Any] | None, read: Callable[[Any], Answer]
    ) -> Answer | WorkerFailed:
        """Read what an activity of an attempt answered, None if that is lost, or that its worker failed."""
        if answer_task is None:
            return WorkerFailed("its answer was lost")
        try:
            return read(answer_task.get_result())
        except task.TaskFailedError as error:
            # The instance may have another input than this execution, so the next call carries the operation.
            self.input_id = None
            return WorkerFailed(f"the worker failed: {error.details.error_type}")

    def go_on_as(self, operation: OperationInput) -> None:
        """Go on as an operation whose dependency has another name, or is another one."""
        fingerprint = fingerprint_of(self.operation_json)
        self.operation, self.input_id = replace(operation, fingerprint=fingerprint), None
        self.state = replace(self.state, admission=self.state.admission.at_another_name())

    def move_to(self, operation: OperationInput) -> None:
        """Go on as an operation at another dependency, in a new history after this lap.

        Should the orchestration fail, its input must name the dependency where the operation may have acted.
        """
        self.leave_gates(for_good=True)
        self.go_on_as(operation)
        self.laps, self.waits_for = LAPS_PER_HISTORY, operation.dependency

    def note_action(self, name: str, data: Any, change: Change | None = None) -> None:
        """Note in the history what somebody did to the operation, by the data of an external event.

        Anyone may send an event, in any form, so `by` and `reason` may be missing.
        """
        members = data if isinstance(data, dict) else {}
        by, reason = (
            text if isinstance(text := members.get(member), str) else None for member in ("by", "reason")
        )
        action = PastAction(action=name, at=self.now, by=by, reason=reason)
        if change is not None:
            action = replace(action, before=change.told(self.operation))
            self._change(change.applied(self.operation, self.now))
            action = replace(action, after=change.told(self.operation))
        self.state = replace(self.state, history=self.state.history.with_action(action))

    def note_lost_answer(self, asked_at: datetime) -> None:
        """Note that an attempt is called again, as a wait for our own side."""
        self.note_wait(WaitKind.OWN_FAILURE, asked_at, self.now, _ASKED_AGAIN)

    def note_wait(self, kind: WaitKind, began_at: datetime, until: datetime, *reasons: str) -> None:
        """Note in the history a wait of the next attempt."""
        attempt = self.state.history.next_attempt
        past = PastWait(
            before_attempt=attempt, kind=kind, began_at=began_at, until=until, delay_reasons=reasons
        )
        self.state = replace(self.state, history=self.state.history.with_wait(past))

    def begin_anew(self) -> None:
        """Give the operation all its attempts and all its time again."""
        self.leave_gates(for_good=True)  # It is refused, and counted, anew.
        self.state = RetryState(self.state.history.forgiven_so_far())
        self._change(self.operation.with_time_from(self.now))

    def move_deadline(self, deadline_at: datetime) -> None:
        self._change(replace(self.operation, deadline_at=deadline_at))

    def leave_gates(self, *, for_good: bool) -> None:
        """Give back what the next attempt holds, a place or a token of the retry budget: it is not made now.

        Args:
            for_good: Whether it is never made, so that the circuit no longer counts it as waiting.
        """
        lease_id = lease_id_of(self.operation, self.state.history.next_attempt)
        for dependency, admission in self.state.admissions(self.operation.dependency):
            held = admission if for_good else replace(admission, waiting=False)
            leave_gates(self.ctx, dependency, lease_id, held)
        self.state = self.state.with_nothing_held()

    def status(self, state: OperationState, **more: Any) -> OperationStatus:
        return OperationStatus(
            operation=self.operation,
            state=state,
            history=self.state.history,
            updated_at=self.now,
            may_have_acted=self.may_have_acted,
            **more,
        )

    def show(self, state: OperationState, *, next_attempt_at: datetime | None = None) -> None:
        """Set the custom status for status queries, from the end of the turn on."""
        is_elsewhere = self.waits_for != self.operation.submitted_to
        is_held = state in _HELD_ELSEWHERE and is_elsewhere
        more = {WAITS_FOR: self.waits_for} if is_held else {}
        status, is_changed = self.status(state, next_attempt_at=next_attempt_at), self.is_changed

        def moving() -> dict[str, Any]:
            parts = status.moving(**more)
            if is_changed:
                operation = status.operation
                parts["deadline_at"] = optional_to_rfc3339(operation.deadline_at)
                parts["priority"] = operation.priority
            return parts

        self.is_shown = True
        show_at_end(self.ctx, moving)

    def show_running(self) -> None:
        """Show that an attempt runs; of the first one no custom status is needed, as the instance runs."""
        is_first = not (self.has_begun or self.is_shown or self.state.history.waits)
        if not (is_first and self.operation.begins_at_once):
            self.show(OperationState.RUNNING)

    def wait_for_start(self, start_at: datetime) -> Turns[None]:
        """Wait until the operation begins, unless someone cancels it or starts it now."""
        if start_at <= self.now:
            return
        self.has_begun, self.state = True, replace(self.state, due_at=start_at)
        yield from self._wait_until(start_at, self.now, OperationState.SCHEDULED)

    def wait_for(self, kind: WaitKind, until: datetime, reasons: tuple[str, ...]) -> Turns[None]:
        """Wait for something else than an attempt, unless someone cancels the operation or lets it go on."""
        yield from self.wait_beside(Wait(until, (until - self.now).total_seconds(), reasons, kind))

    def wait_beside(self, wait: Wait) -> Turns[None]:
        """Wait as `wait_for`, as decided by something else than an attempt of the operation."""
        self.note_wait(wait.kind, self.now, wait.until, *wait.reasons)
        # The next attempt is due at the end of this wait, whenever it was due before.
        self.state = replace(self.state, due_at=None)
        yield from self.wait(wait)

    def wait_out(self, what: str, failures: int, error: str, *, heeds_deadline: bool = False) -> Turns[None]:
        """Wait after our own side failed to do what must be done for the operation, and show it.

        Args:
            what: What is tried, as the subject of a sentence.
            failures: How many in a row, from 1.
            error: Of the last one.
            heeds_deadline: Whether it ends with the deadline, once it failed for half a minute.

        Raises:
            OwnFailureError: It failed too often, its deadline has passed, or somebody cancels the operation
                and it failed more than once.
        """
        failed = f"{what} failed {counted(failures, 'time')} in a row: {error}"
        is_late = (
            heeds_deadline and failures >= ENTITY_CALLS and is_over(self.operation.deadline_at, self.now)
        )
        # The first try may have worked although it failed, so there is a second one before a cancel ends it.
        is_cancelled = failures > 1 and self.signals.has_come(CANCEL_EVENT)
        if is_late or is_cancelled or failures >= MAX_OWN_FAILURES:
            raise OwnFailureError(failed)
        yield from self.wait_for(WaitKind.OWN_FAILURE, self.now + wait_after(failures), (failed,))

    def wait(self, wait: Wait) -> Turns[None]:
        """Wait as decided, unless someone cancels, retries now, or changes what it waits for."""
        began_at = self.now
        if not self.ctx.is_replaying:
            report(WaitBegun(self.operation, wait.kind, wait.until, wait.reasons))
        deadline_at = self.operation.deadline_at
        is_for_slot = wait.kind is WaitKind.LIMIT
        yield from self._wait_until(wait.until, began_at, wait.kind.state, is_for_slot=is_for_slot)
        if wait.stops_deadline and deadline_at is not None:
            # A pause of the operation itself may have moved it for a part of the wait.
            later = deadline_at + (self.now - began_at)
            self.move_deadline(max(self.operation.deadline_at or later, later))
        if not self.ctx.is_replaying:
            due_at = self.state.due_at or wait.until
            late_seconds = (self.now - due_at).total_seconds() if self.now >= due_at else None
            waited_seconds = (self.now - began_at).total_seconds()
            report(WaitEnded(self.operation, wait.kind, waited_seconds, late_seconds))

    def _wait_until(
        self, until: datetime, began_at: datetime, state: OperationState, *, is_for_slot: bool = False
    ) -> Turns[None]:
        # It is not known when the operations in front will have ended.
        shown_until = None if state is OperationState.WAITING_ORDER else until
        self.show(state, next_attempt_at=shown_until)
        timer = InterruptibleTimer(self.signals, until)
        names = [CANCEL_EVENT, RETRY_NOW_EVENT, CIRCUIT_EVENT, PAUSE_EVENT]
        names += [TRY_EVENT] if state is OperationState.WAITING_CIRCUIT else []
        names += [SLOT_EVENT] if is_for_slot else []
        names += [] if self.listener is None else [self.listener.event]
        while (name := (yield from timer.event(*names))) is not None:
            if name == PAUSE_EVENT:
                goes_on = yield from self.hold()
                self.show(state, next_attempt_at=shown_until)
                # It has left its place: nobody tells it of a slot, and its own time may be half an hour away.
                if not goes_on or is_for_slot:
                    return
            elif self._ends_wait(name, state, began_at):
                return
            if timer.is_over:
                return  # The message of the timer is late, or lost.

    def _ends_wait(self, name: str, state: OperationState, began_at: datetime) -> bool:
        if name == CANCEL_EVENT:
            return True
        data = self.signals.take(name)
        if name in {RETRY_NOW_EVENT, TRY_EVENT}:
            return self._is_sent_now(name, data)
        if name == SLOT_EVENT:
            event, own = data if isinstance(data, dict) else {}, self.operation.dependency
            self.needed_slot = self.state.needed_slot(event.get("dependency"), own, event.get("freed"))
            return True
        if self.listener is not None and name == self.listener.event:
            return self.listener.ends_wait(data)
        # An operation whose own attempt was answered `Retry-After` keeps to it.
        is_held = state in _HELD_ELSEWHERE and self.state.history.is_next_blocked
        return name == CIRCUIT_EVENT and is_held and _has_circuit_changed(data, began_at)

    def hold(self) -> Turns[bool]:
        """Wait while the operation is paused; return whether it goes on, so that it was not cancelled."""
        while self.signals.has_come(PAUSE_EVENT) and not self.signals.has_come(CANCEL_EVENT):
            request = self.signals.take(PAUSE_EVENT)
            if not Pause.is_over(request, self.state.history.actions or ()):
                yield from self._hold_for(Pause.of(request), request)
        return not self.signals.has_come(CANCEL_EVENT)

    def _hold_for(self, pause: Pause, request: Any) -> Turns[None]:
        began_at = self.now
        until = None if pause.for_seconds is None else began_at + timedelta(seconds=pause.for_seconds)
        if not (yield from self.stand_still(until, request)):
            self.note_action(RESUME_EVENT, {"by": None})
        if self.state.due_at is not None:
            # What was due meanwhile is not late.
            self.state = replace(self.state, due_at=max(self.state.due_at, self.now))
        if pause.stops_deadline and self.operation.deadline_at is not None:
            self.move_deadline(self.operation.deadline_at + (self.now - began_at))

    def stand_still(self, until: datetime | None, request: Any) -> Turns[bool]:
        """Pause until somebody lets the operation go on, changed or not, or until another event or instant.

        Args:
            until: The latest instant; None for none.
            request: What asks for it, see `Pause` and `Change`.

        Returns:
            Whether somebody let it go on; False at the instant, and when it is cancelled.
        """
        began_at = self.now
        self.note_action(PAUSE_EVENT, request)
        self.leave_gates(for_good=False)
        if not Pause.is_at_once(request):
            self.show(OperationState.PAUSED, next_attempt_at=until)
        timer = InterruptibleTimer(self.signals, until)
        listened = [self.listener.event] if self.listener is not None and self.listener.ends_pause else []
        names = [CANCEL_EVENT, *listened, RESUME_EVENT, PAUSE_EVENT]
        # An event for an earlier pause may come after the end of that.
        while not (Pause.is_at_once(request) or Pause.is_ended_by(request, began_at)):
            if (name := (yield from timer.event(*names))) not in {RESUME_EVENT, PAUSE_EVENT}:
                return False
            request = self.signals.take(name)
        self.note_action(RESUME_EVENT, request, Change.of(request))
        return True

    def _change(self, operation: OperationInput) -> None:
        # The instance's input has the operation as it was accepted.
        self.operation, self.input_id, self.is_changed = operation, None, True

    def _is_sent_now(self, name: str, request: Any) -> bool:
        # The request may be for an earlier wait, which ended before it arrived.
        if not isinstance(request, dict) or request.get("attempt") != self.state.history.next_attempt:
            return False
        self.note_action(name, request)
        if name == TRY_EVENT:
            is_own = self.waits_for == self.operation.dependency
            self.state = self.state.with_canary(None if is_own else self.waits_for)
        return True


def _has_circuit_changed(change: Any, began_at: datetime) -> bool:
    # Earlier changes were known when the wait was decided.
    changed_at = instant_in(change, "at")
    return changed_at is not None and changed_at >= began_at


def feature_module(module: str) -> ModuleType:
    """Return a module of a feature in this folder."""
    return import_module(f".{module}", __package__)


def goes_on_after_hold(run: Run, letter: DeadLetter) -> Turns[bool]:
    """Let a feature hold it in place of its end, where its policy says so; return whether it goes on."""
    if run.operation.policy.on_exhausted != "hold":
        return False
    for feature in features():
        if feature.exhausted and (yield from feature_module(feature.exhausted).hold(run, letter)):
            return True
    return False

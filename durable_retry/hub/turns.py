"""Steps that orchestrations share: activities that must happen, and driving `rules.retry.loop`.

An activity that must happen, and that only our own side can make fail, is called again while it fails, within
a bound. `operation` and `outbox` read the answers of attempts and request probes in the same way.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from durabletask import task
from durabletask.entities import EntityInstanceId

from durable_retry.base.json_forms import instant_in, union_from_json
from durable_retry.base.names import (
    ACQUIRE,
    DEAD_LETTER,
    GIVE_BACK,
    GONE,
    LEAVE,
    NUDGE_EVENT,
    PERMIT,
    SLOT_EVENT,
)
from durable_retry.base.text import cut_text
from durable_retry.hub.entity_ids import circuit_id, limiter_id
from durable_retry.rules.circuit.messages import PermitAnswer
from durable_retry.rules.circuit.snapshot import Permitted
from durable_retry.rules.circuit.transitions import Gone
from durable_retry.rules.retry.admission import AdmissionState
from durable_retry.rules.retry.constraints import Retryable, latest_start
from durable_retry.rules.retry.decide import MAX_OWN_FAILURES
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.rules.retry.loop import (
    Action,
    Blocked,
    BlockedStep,
    LapResult,
    RequestProbe,
    RequestSlot,
    RetryState,
    WorkerFailed,
    after,
)
from durable_retry.rules.retry.slots import Leaving, Slot, SlotAnswer, as_heard, within_deadline
from durable_retry.settings.configuration import function_name

type Turns[T] = Generator[task.Task[Any], Any, T]
"""Yields durable tasks, is sent their results, and returns T."""

_FIRST_WAIT_SECONDS: Final = 2
_LONGEST_WAIT_SECONDS: Final = 300
MOST_ASKED: Final = 3
"""A call is made this often at most; again only after upkeep saw that the answer before was lost."""

EARLY_BY: Final = timedelta(seconds=1)
"""By how much a timer may fire early: Azure Storage cuts the time for which a message is hidden to whole
seconds. A timer that is set later by this cannot fire early."""
# Early timers in a row that are waited out: clocks that disagree must not make a wait endless.
_MAX_EARLY: Final = 3
# 2 s doubled eight times is above the longest wait; more would only grow the number.
_DOUBLINGS: Final = 8

_ERROR_CHARS: Final = 200


class Signals:
    """External events by name: each is awaited from its first use on, and taken one by one.

    The SDK keeps an event until it is awaited, also when the orchestration continues as new. An awaited event
    that has come by then and was not taken is lost.

    Attributes:
        asked_at: When the latest call of `answers` first asked, aware UTC.
    """

    asked_at: datetime

    def __init__(self, ctx: task.OrchestrationContext) -> None:
        self.ctx = ctx
        self._awaited: dict[str, task.CancellableTask[Any]] = {}

    @property
    def now(self) -> datetime:
        """The replay-safe time, aware UTC."""
        return self.ctx.current_utc_datetime.replace(tzinfo=UTC)

    def awaited(self, name: str) -> task.CancellableTask[Any]:
        """Return the task that completes when the next event of a name has come."""
        if name not in self._awaited:
            self._awaited[name] = self.ctx.wait_for_external_event(name)
        return self._awaited[name]

    def has_come(self, name: str) -> bool:
        """Return whether there is an event to take."""
        return self.awaited(name).is_complete

    def take(self, name: str) -> Any:
        """Return the data of the event that has come, which may have any form: anyone may send one."""
        return self._awaited.pop(name).get_result()

    def answer(
        self, ask: Callable[[], task.Task[Any]], *, stopped_by: str | None = None
    ) -> Turns[task.Task[Any] | None]:
        """Make one call, as `answers`."""
        (answered,) = yield from self.answers([ask], stopped_by=stopped_by)
        return answered

    def answers(
        self, asks: Sequence[Callable[[], task.Task[Any]]], *, stopped_by: str | None = None
    ) -> Turns[list[task.Task[Any] | None]]:
        """Make calls side by side, and return for each the task that answered: the first that succeeded.

        Upkeep sends a nudge where it sees that an answer was lost (`features.standstill.stuck`); then that
        call is made again. The first call is still waited for: its answer may be late and not lost. A nudge
        about an earlier call has come late, or twice, and is ignored.

        Args:
            stopped_by: An event that ends the wait, once a call was made again.

        Returns:
            None for a call that was made `MOST_ASKED` times without an answer, or when the wait was ended.
        """
        asked, events = [[ask()] for ask in asks], [NUDGE_EVENT]
        asked_at = self.asked_at = self.now
        while waiting := [tasks for tasks in asked if _answer_of(tasks) is None]:
            pending = (called for tasks in waiting for called in tasks if not called.is_complete)
            yield task.when_any([*pending, *(self.awaited(name) for name in events)])
            if len(events) > 1 and self.has_come(events[-1]):
                break
            if not self.has_come(NUDGE_EVENT) or not is_lost(self.take(NUDGE_EVENT), asked_at):
                continue
            if any(len(tasks) >= MOST_ASKED for tasks in waiting):
                break
            asked_at = self.now
            events = [NUDGE_EVENT, *([] if stopped_by is None else [stopped_by])]
            for ask, tasks in zip(asks, asked, strict=True):
                tasks.extend([ask()] if _answer_of(tasks) is None else [])
        return [_answer_of(tasks) for tasks in asked]


def _answer_of(tasks: Sequence[task.Task[Any]]) -> task.Task[Any] | None:
    """Return the task that answered; one that failed counts once all are complete."""
    succeeded = (called for called in tasks if called.is_complete and not called.is_failed)
    return next(succeeded, tasks[-1] if all(called.is_complete for called in tasks) else None)


def is_lost(nudge: Any, asked_at: datetime) -> bool:
    """Whether a nudge says that the answer to what was asked for at an instant was lost."""
    asked_before = instant_in(nudge, "asked_before")
    return asked_before is not None and asked_before >= asked_at


def wait_after(failures: int) -> timedelta:
    """Return how long to wait after so many failures in a row of our own side, from 1."""
    doubled = _FIRST_WAIT_SECONDS * 2 ** min(failures - 1, _DOUBLINGS)
    return timedelta(seconds=min(doubled, _LONGEST_WAIT_SECONDS))


class InterruptibleTimer:
    """An instant to wait for, and events before it: one timer, however often it is waited for.

    A timer may fire early; then another one follows. Its message may be lost; then upkeep sends a nudge.

    Attributes:
        until: The instant; None waits for events alone.
    """

    def __init__(self, signals: Signals, until: datetime | None) -> None:
        self.until, self._signals, self._early = until, signals, 0
        self._timers = [] if until is None else [signals.ctx.create_timer(until)]

    @property
    def is_over(self) -> bool:
        """Whether the instant has come."""
        return self.until is not None and self._signals.now >= self.until

    def event(self, *names: str) -> Turns[str | None]:
        """Wait, and return the name of the event that has come, which is to be taken; None at the instant."""
        while True:
            # The SDK returns the first that is complete, and its order is part of what a replay repeats.
            awaited = {name: self._signals.awaited(name) for name in (*names, NUDGE_EVENT)}
            winner = yield task.when_any([*self._timers, *awaited.values()])
            if winner in self._timers:
                if self.until is None or self.is_over or self._early == _MAX_EARLY:
                    return None
                # A timer fires at most `EARLY_BY` early. One that seems earlier was set by a machine whose
                # clock is ahead of this one: the wait must not grow by the whole difference.
                fires_at = min(self.until, self._signals.now + EARLY_BY) + EARLY_BY
                self._timers, self._early = [self._signals.ctx.create_timer(fires_at)], self._early + 1
            elif winner is awaited[NUDGE_EVENT]:
                self._signals.take(NUDGE_EVENT)
                if self.is_over:
                    return None
            else:
                return next(name for name in names if awaited[name] is winner)


def pause(signals: Signals, seconds: timedelta, *ends: str) -> Turns[None]:
    """Wait for a time, for one of the events, or for a nudge: what follows may also run early."""
    awaited = [signals.awaited(name) for name in (NUDGE_EVENT, *ends)]
    yield task.when_any([signals.ctx.create_timer(seconds), *awaited])
    if signals.has_come(NUDGE_EVENT):
        signals.take(NUDGE_EVENT)


class OwnFailureError(Exception):
    """Our own side failed so often, or for so long, that it is not tried again; the text says what and why.

    An orchestration that does not catch it fails: upkeep starts it anew, or stores its dead letter
    (`upkeep.failures`).
    """


type OwnWait = Callable[[int, str], Turns[None]]
"""Waits after a failure: takes the number of failures in a row, from 1, and the last one's error.

Raises `OwnFailureError` when there were too many.
"""


def wait_out(
    signals: Signals, what: str, failures: int, error: str, *, ends: Sequence[str] = ()
) -> Turns[None]:
    """Wait after a failure of our own side: the `OwnWait` that shows nothing in a status.

    Args:
        what: What is tried, as the subject of a sentence.
        ends: Events that end the wait.
    """
    if failures >= MAX_OWN_FAILURES:
        raise OwnFailureError(f"{what} failed {failures} times in a row: {error}")
    yield from pause(signals, wait_after(failures), *ends)


def call_until_success(
    signals: Signals,
    activity: str,
    input_: dict[str, Any],
    *,
    wait: OwnWait | None = None,
    is_answer: Callable[[Any], bool] = lambda _: True,
) -> Turns[Any]:
    """Call an activity until it answers.

    For what only our own storage can fail. The wait is a durable timer, so an outage costs a turn every five
    minutes.

    Args:
        activity: One of `base.names` that is idempotent and raises for passing trouble only.
        wait: Waits after a failure, shows it, and gives up at last; None is `wait_out`, which shows nothing.
        is_answer: Whether a result is of this call; results name none. Azure Storage sends the messages of a
            turn before it stores the turn's history. When storing fails, the turn runs again and may make
            another call under the same number: a dead letter in place of an attempt, when the deadline
            passed. Then the attempt's result comes for the dead letter.

    Raises:
        OwnFailureError: It failed too often.
    """
    wait = wait or partial(wait_out, signals, activity)
    failures = 0
    while True:
        answer_task = yield from signals.answer(
            lambda: signals.ctx.call_activity(function_name(activity), input=input_)
        )
        if answer_task is not None and not answer_task.is_failed and is_answer(answer_task.get_result()):
            return answer_task.get_result()
        failures += 1
        yield from wait(failures, _error_of(answer_task))


def _error_of(answer_task: task.Task[Any] | None) -> str:
    if answer_task is None or not answer_task.is_failed:
        return "its answer was lost"
    details = answer_task.get_exception().details
    return cut_text(f"{details.error_type.rpartition('.')[2]}: {details.message}", _ERROR_CHARS)


def keep_dead_letter(signals: Signals, entry: dict[str, Any], wait: OwnWait | None = None) -> Turns[str]:
    """Have a dead letter stored, and return its id; `wait` and errors as `call_until_success`."""
    dead_letter_id: str = yield from call_until_success(
        signals, DEAD_LETTER, entry, wait=wait, is_answer=lambda answer: isinstance(answer, str)
    )
    return dead_letter_id


def answer_of(answered: Any, attempt: int) -> AttemptOutcome | WorkerFailed | Blocked:
    """Read what the activity `attempt` or `publish` returned.

    Args:
        answered: `{"stopped": ...}`, or the JSON form of an `AttemptOutcome`. Anything else is the answer of
            another activity, see `call_until_success`.
        attempt: The number that was called for; a late answer for another one is not taken.
    """
    if not isinstance(answered, Mapping):
        return WorkerFailed("the worker answered for another step")
    if "stopped" in answered:
        blocked: Blocked = union_from_json(Blocked, answered["stopped"])
        return blocked
    outcome = AttemptOutcome.from_json(answered)
    if outcome.number != attempt:
        return WorkerFailed(f"the worker answered for attempt {outcome.number}")
    return outcome


def attempt_answer_of(answered: Any, attempt: int) -> AttemptOutcome | WorkerFailed | Blocked | BlockedStep:
    """Read what the activity `attempt` returned: as `answer_of`, or with what blocks a step of a handler."""
    answer = answer_of(answered, attempt)
    step_at = answered.get("step_at") if isinstance(answered, Mapping) else None
    if step_at is None or isinstance(answer, AttemptOutcome | WorkerFailed):
        return answer
    return BlockedStep(step_at, answer)


def renamed_in(answered: Any) -> str | None:
    """Return the name that the dependency has by now, as an attempt's answer says; None for the same."""
    name = answered.get("renamed_to") if isinstance(answered, Mapping) else None
    return name if isinstance(name, str) else None


ENTITY_CALLS: Final = 5
"""Calls of an entity that may fail before the caller goes on without its answer: half a minute of them. A
worker that dies takes every call of its batch with it, so one failure says little. An entity that always
fails must not take its dependency down."""


def call_entity(
    signals: Signals,
    entity: EntityInstanceId,
    operation: str,
    input_: dict[str, Any],
    is_enough: Callable[[int], bool] = lambda failures: failures >= ENTITY_CALLS,
) -> Turns[Any]:
    """Call an entity until it answers; its operations may run more than once.

    A call without an answer has taken minutes: it counts as `ENTITY_CALLS` failures.

    Args:
        input_: The same for every call.
        is_enough: Takes the number of failures in a row, from 1; whether to give up.

    Raises:
        TaskFailedError: It did not answer.
    """
    failures = 0
    while True:
        answer_task = yield from signals.answer(lambda: signals.ctx.call_entity(entity, operation, input_))
        if answer_task is None:
            failures = max(failures + 1, ENTITY_CALLS)
            if is_enough(failures):
                raise task.TaskFailedError(f"{entity} does not answer", TimeoutError())
        elif not answer_task.is_failed:
            return answer_task.get_result()
        else:
            failures += 1
            if is_enough(failures):
                return answer_task.get_result()  # raises what it failed with
        yield from pause(signals, wait_after(failures))


@dataclass(frozen=True, slots=True)
class Asking:
    """What an attempt needs to call the entities of a dependency.

    Attributes:
        dependency: The one whose circuit or limiter is called.
        waiter: The instance whose wait `SLOT_EVENT` ends; None where that event ends none.
    """

    signals: Signals
    operation: Retryable
    dependency: str
    waiter: str | None = None

    def is_enough(self, failures: int) -> bool:
        """Whether the attempt goes on without the answer: after one more wait it could be too late."""
        deadline_at, timeouts = self.operation.deadline_at, self.operation.timeouts
        if failures >= ENTITY_CALLS or deadline_at is None:
            return failures >= ENTITY_CALLS
        again_at = self.signals.now + wait_after(failures)
        return again_at > (deadline_at if failures == 1 else latest_start(deadline_at, timeouts))


def request_probe(asking: Asking, request: RequestProbe) -> Turns[PermitAnswer]:
    """Ask the circuit's entity for a probe: the only awaited call to it, and only while it is half-open."""
    try:
        entity, message = circuit_id(asking.dependency, request.limit_key), request.message.to_json()
        answer = yield from call_entity(asking.signals, entity, PERMIT, message, asking.is_enough)
    except task.TaskFailedError:
        return Permitted(epoch=0, fail_open=True)
    permit: PermitAnswer = union_from_json(PermitAnswer, answer)
    return permit


def request_slot(asking: Asking, request: RequestSlot) -> Turns[SlotAnswer]:
    """Ask the dependency's limiter for a slot: one awaited call per attempt beyond the workers' shares."""
    try:
        message = replace(request.request, waiter=asking.waiter).to_json()
        entity = limiter_id(asking.dependency)
        answer = yield from call_entity(asking.signals, entity, ACQUIRE, message, asking.is_enough)
    except task.TaskFailedError:
        return Slot(fail_open=True)
    slot: SlotAnswer = union_from_json(SlotAnswer, answer)
    now = asking.signals.now
    return within_deadline(as_heard(slot, asking.signals.asked_at, now), request.request, now)


def followed[Result](
    asking: Asking, follow: Callable[[Result | PermitAnswer | SlotAnswer], Action], answer: Result
) -> Turns[Action]:
    """Move a retry loop on by an answer, and by the entity's that it asks for then; return what to do."""
    action = follow(answer)
    if isinstance(action, RequestProbe):
        action = follow((yield from request_probe(asking, action)))
    elif isinstance(action, RequestSlot):
        action = follow((yield from request_slot(asking, action)))
    return action


def continue_retry_loop(
    asking: Asking, state: RetryState, answer: LapResult, on_its_way: timedelta
) -> Turns[tuple[RetryState, Action]]:
    """Move a retry loop on as `followed`; return its state, too."""

    def follow(result: LapResult) -> Action:
        nonlocal state
        state, action = after(asking.operation, state, result, asking.signals.now, on_its_way=on_its_way)
        return action

    action = yield from followed(asking, follow, answer)
    return state, action


def give_slot_back(
    ctx: task.OrchestrationContext, dependency: str, admission: AdmissionState, answer: object
) -> None:
    """Give an attempt's slot back after any answer, and send an event to the instances that wait for it."""
    is_back = isinstance(answer, AttemptOutcome) and answer.gave_slot_back
    if admission.slot is not None and admission.slot.lease_id is not None and not is_back:
        lasted_seconds = answer.duration_ms / 1_000 if isinstance(answer, AttemptOutcome) else None
        freed = replace(admission.slot, lasted_seconds=lasted_seconds, calls=None).to_json()
        ctx.signal_entity(limiter_id(dependency), GIVE_BACK, freed)
        for waiter in admission.slot.calls or ():
            ctx.send_event(waiter, SLOT_EVENT, data={"dependency": dependency, "freed": freed})


def leave_gates(ctx: task.OrchestrationContext, dependency: str, lease_id: str, held: AdmissionState) -> None:
    """Signal to the limiter and the circuit of a dependency that a waiting attempt will not be made."""
    if held.has_place:
        leaving = Leaving(lease_id, is_gone=True, waiter=ctx.instance_id)
        ctx.signal_entity(limiter_id(dependency), LEAVE, leaving.to_json())
    gone = Gone(was_waiting=held.waiting, was_promised=held.promised_at is not None, permit=held.permit)
    if gone != Gone():
        ctx.signal_entity(circuit_id(dependency, held.circuit_key), GONE, gone.to_json())

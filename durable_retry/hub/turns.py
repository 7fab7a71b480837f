"""Steps that orchestrations share: activities that must happen, and driving `rules.retry.loop`.

An activity of our own side that must happen is called again while it fails, within a bound. `operation` and
`outbox` read answers of attempts and ask for a probe alike.
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
"""So often the same is asked for, each time after upkeep has seen that the answer before was lost."""

EARLY_BY: Final = timedelta(seconds=1)
"""By how much a timer may fire early: Azure Storage cuts the time for which a message is hidden to whole
seconds. A timer that asks for so much more cannot fire early."""
# Early timers in a row that are waited out: clocks that disagree must not make a wait endless.
_MAX_EARLY: Final = 3
# 2 s doubled eight times is above the longest wait; more would only grow the number.
_DOUBLINGS: Final = 8

_ERROR_CHARS: Final = 200


class Signals:
    """External events by name: each is awaited from its first use on, and taken one by one.

    The SDK keeps what comes before it is awaited, also when the orchestration continues as new. What has come
    and was not taken by then is lost.

    Attributes:
        asked_at: When the latest that was asked for was first asked for, aware UTC.
    """

    asked_at: datetime

    def __init__(self, ctx: task.OrchestrationContext) -> None:
        self.ctx = ctx
        self._awaited: dict[str, task.CancellableTask[Any]] = {}

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
        """As `answers`, of one thing."""
        (answered,) = yield from self.answers([ask], stopped_by=stopped_by)
        return answered

    def answers(
        self, asks: Sequence[Callable[[], task.Task[Any]]], *, stopped_by: str | None = None
    ) -> Turns[list[task.Task[Any] | None]]:
        """Ask for some things, and return the task that answered each: the first that did, if it can be.

        Upkeep sends a nudge where it sees that an answer was lost (`features.standstill.stuck`); then that is
        asked for again. What was asked for before is waited for all the same: it may be late and not lost.
        A nudge that speaks of an earlier question has come late, or twice.

        Args:
            stopped_by: An event that ends the wait, once something was asked for again.

        Returns:
            None for what was asked for `MOST_ASKED` times without an answer, or when the wait was ended.
        """
        asked, events = [[ask()] for ask in asks], [NUDGE_EVENT]
        asked_at = self.asked_at = self.ctx.current_utc_datetime.replace(tzinfo=UTC)
        while waiting := [tasks for tasks in asked if _answer_of(tasks) is None]:
            may_come = (each for tasks in waiting for each in tasks if not each.is_complete)
            yield task.when_any([*may_come, *(self.awaited(name) for name in events)])
            if len(events) > 1 and self.has_come(events[-1]):
                break
            if not self.has_come(NUDGE_EVENT) or not is_lost(self.take(NUDGE_EVENT), asked_at):
                continue
            if any(len(tasks) >= MOST_ASKED for tasks in waiting):
                break
            asked_at = self.ctx.current_utc_datetime.replace(tzinfo=UTC)
            events = [NUDGE_EVENT, *([] if stopped_by is None else [stopped_by])]
            for ask, tasks in zip(asks, asked, strict=True):
                tasks.extend([ask()] if _answer_of(tasks) is None else [])
        return [_answer_of(tasks) for tasks in asked]


def _answer_of(tasks: Sequence[task.Task[Any]]) -> task.Task[Any] | None:
    """Return the task that answered; one that failed counts when nothing else can answer any more."""
    answered = (each for each in tasks if each.is_complete and not each.is_failed)
    return next(answered, tasks[-1] if all(each.is_complete for each in tasks) else None)


def is_lost(nudge: Any, asked_at: datetime) -> bool:
    """Whether a nudge says that the answer to what was asked for at an instant was lost."""
    asked_before = instant_in(nudge, "asked_before")
    return asked_before is not None and asked_before >= asked_at


def wait_after(failures: int) -> timedelta:
    """Return how long to wait after so many failures in a row of our own side, from 1."""
    doubled = _FIRST_WAIT_SECONDS * 2 ** min(failures - 1, _DOUBLINGS)
    return timedelta(seconds=min(doubled, _LONGEST_WAIT_SECONDS))


class Alarm:
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
        return self.until is not None and self._now >= self.until

    def event(self, *names: str) -> Turns[str | None]:
        """Wait, and return the name of the event that has come, which is to be taken; None at the instant."""
        while True:
            # The SDK returns the first that is complete, and its order is part of what a replay repeats.
            awaited = {name: self._signals.awaited(name) for name in (*names, NUDGE_EVENT)}
            winner = yield task.when_any([*self._timers, *awaited.values()])
            if winner in self._timers:
                if self.until is None or self.is_over or self._early == _MAX_EARLY:
                    return None
                # No timer fires earlier than `EARLY_BY`. A clock that sees it earlier is behind the one that
                # set the timer, and must not wait for as long as the two differ.
                fires_at = min(self.until, self._now + EARLY_BY) + EARLY_BY
                self._timers, self._early = [self._signals.ctx.create_timer(fires_at)], self._early + 1
            elif winner is awaited[NUDGE_EVENT]:
                self._signals.take(NUDGE_EVENT)
                if self.is_over:
                    return None
            else:
                return next(name for name in names if awaited[name] is winner)

    @property
    def _now(self) -> datetime:
        return self._signals.ctx.current_utc_datetime.replace(tzinfo=UTC)


def pause(signals: Signals, seconds: timedelta, *ends: str) -> Turns[None]:
    """Wait for so long, for one of the events, or for a nudge: what follows bears to come early."""
    awaited = [signals.awaited(name) for name in (NUDGE_EVENT, *ends)]
    yield task.when_any([signals.ctx.create_timer(seconds), *awaited])
    if signals.has_come(NUDGE_EVENT):
        signals.take(NUDGE_EVENT)


class OwnFailureError(Exception):
    """Our own side failed so often, or for so long, that it is not asked again; the text says what and why.

    An orchestration that lets it out fails: upkeep starts it anew, or keeps its dead letter
    (`upkeep.failures`).
    """


type OwnWait = Callable[[int, str], Turns[None]]
"""Waits after so many failures in a row, from 1, of which the last one's error is given.

Raises `OwnFailureError` where that is enough.
"""


def wait_out(
    signals: Signals, what: str, failures: int, error: str, *, ends: Sequence[str] = ()
) -> Turns[None]:
    """Wait after a failure of our own side, as an `OwnWait` for nobody in particular.

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
        wait: Ends the repetition, and shows it; None for `MAX_OWN_FAILURES` that nobody sees.
        is_answer: Whether what came is its answer, which names no activity. Azure Storage sends the messages
            of a turn before it stores the turn's history. When that fails and the turn, run again after the
            deadline, asks for a dead letter in place of an attempt, the attempt's answer comes under the dead
            letter's number.

    Raises:
        OwnFailureError: It failed too often.
    """
    wait = wait or partial(wait_out, signals, activity)
    failures = 0
    while True:
        called = yield from signals.answer(
            lambda: signals.ctx.call_activity(function_name(activity), input=input_)
        )
        if called is not None and not called.is_failed and is_answer(called.get_result()):
            return called.get_result()
        failures += 1
        yield from wait(failures, _error_of(called))


def _error_of(called: task.Task[Any] | None) -> str:
    if called is None or not called.is_failed:
        return "its answer was lost"
    details = called.get_exception().details
    return cut_text(f"{details.error_type.rpartition('.')[2]}: {details.message}", _ERROR_CHARS)


def keep_dead_letter(signals: Signals, entry: dict[str, Any], wait: OwnWait | None = None) -> Turns[str]:
    """Have a dead letter stored, and return its id; `wait` and errors as `call_until_success`."""
    kept: str = yield from call_until_success(
        signals, DEAD_LETTER, entry, wait=wait, is_answer=lambda answer: isinstance(answer, str)
    )
    return kept


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
    """Call an entity again for as long as it fails; its operations bear that.

    One that does not answer at all has taken minutes: that counts as `ENTITY_CALLS` failures.

    Args:
        input_: The same for every call.
        is_enough: Whether so many failures in a row, from 1, are enough.

    Raises:
        TaskFailedError: It did not answer.
    """
    failures = 0
    while True:
        called = yield from signals.answer(lambda: signals.ctx.call_entity(entity, operation, input_))
        if called is None:
            failures = max(failures + 1, ENTITY_CALLS)
            if is_enough(failures):
                raise task.TaskFailedError(f"{entity} does not answer", TimeoutError())
        elif not called.is_failed:
            return called.get_result()
        else:
            failures += 1
            if is_enough(failures):
                return called.get_result()  # raises what it failed with
        yield from pause(signals, wait_after(failures))


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks the entities of a dependency.

    Attributes:
        dependency: The one whose circuit or limiter is asked.
        waiter: The instance whose wait `SLOT_EVENT` ends; None where none does.
    """

    signals: Signals
    operation: Retryable
    dependency: str
    waiter: str | None = None

    def is_enough(self, failures: int) -> bool:
        """Whether the attempt goes on without the answer, also because after a wait it would be too late."""
        if failures >= ENTITY_CALLS:
            return True
        again_at = self.signals.ctx.current_utc_datetime.replace(tzinfo=UTC) + wait_after(failures)
        deadline_at, timeouts = self.operation.deadline_at, self.operation.timeouts
        return deadline_at is not None and again_at > latest_start(deadline_at, timeouts)


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
    now = asking.signals.ctx.current_utc_datetime.replace(tzinfo=UTC)
    return within_deadline(as_heard(slot, asking.signals.asked_at, now), request.request, now)


def followed[Result](
    asking: Asking, follow: Callable[[Result | PermitAnswer | SlotAnswer], Action], answer: Result
) -> Turns[Action]:
    """Move a retry loop on by an answer, and by that of the entity that is to be asked; return what to do."""
    action = follow(answer)
    if isinstance(action, RequestProbe):
        action = follow((yield from request_probe(asking, action)))
    elif isinstance(action, RequestSlot):
        action = follow((yield from request_slot(asking, action)))
    return action


def moved_on(
    asking: Asking, state: RetryState, answer: LapResult, on_its_way: timedelta
) -> Turns[tuple[RetryState, Action]]:
    """Move the retry loop of what asks on, as `followed`; return its state, too."""

    def follow(result: LapResult) -> Action:
        nonlocal state
        now = asking.signals.ctx.current_utc_datetime.replace(tzinfo=UTC)
        state, action = after(asking.operation, state, result, now, on_its_way=on_its_way)
        return action

    action = yield from followed(asking, follow, answer)
    return state, action


def give_slot_back(
    ctx: task.OrchestrationContext, dependency: str, admission: AdmissionState, answer: object
) -> None:
    """Give the slot of an attempt back after its answer, whatever that is, and tell those who wait for it."""
    if admission.slot is not None and admission.slot.lease_id is not None:
        lasted_seconds = answer.duration_ms / 1_000 if isinstance(answer, AttemptOutcome) else None
        slot = replace(admission.slot, lasted_seconds=lasted_seconds, calls=None)
        ctx.signal_entity(limiter_id(dependency), GIVE_BACK, slot.to_json())
        for waiter in admission.slot.calls or ():
            ctx.send_event(waiter, SLOT_EVENT, data={"dependency": dependency})


def leave_gates(ctx: task.OrchestrationContext, dependency: str, lease_id: str, held: AdmissionState) -> None:
    """Tell the limiter and the circuit of a dependency that an attempt which waits will not come."""
    if held.has_place:
        leaving = Leaving(lease_id, is_gone=True, waiter=ctx.instance_id)
        ctx.signal_entity(limiter_id(dependency), LEAVE, leaving.to_json())
    if held.has_been_counted:
        gone = Gone(was_waiting=held.waiting, was_promised=held.promised_at is not None)
        ctx.signal_entity(circuit_id(dependency, held.circuit_key), GONE, gone.to_json())

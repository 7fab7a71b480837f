"""Mistakes that worlds have to show, each as a patch of the app.

    python -m tests.simulation --small --seeds 500 --mistake "younger first"

plays worlds in which the mistake is made, and ends with 0 as soon as one of them shows it.
"""

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final
from unittest.mock import AsyncMock, patch

from azure.core.exceptions import ServiceResponseError

from durable_retry.attempt import http_request as http_attempt
from durable_retry.attempt import markers, results
from durable_retry.attempt.markers import Marker
from durable_retry.base.json_forms import to_ms, to_rfc3339
from durable_retry.base.names import (
    CANCEL_EVENT,
    PAUSE_EVENT,
    Category,
    DeadLetterReason,
    OperationState,
)
from durable_retry.features.circuit_controls import waking
from durable_retry.features.debounce.rules import Debounce, DebounceRequest, Series
from durable_retry.features.debounce.rules import begin as begin_debounced
from durable_retry.features.fallback.stays import Stay
from durable_retry.features.handlers import call as handler_calls
from durable_retry.features.handlers import functions, handler, writes
from durable_retry.features.handlers.call import Calls
from durable_retry.features.handlers.functions import LetOutError
from durable_retry.features.handlers.rules.steps import (
    begin_heartbeats,
    begin_step,
)
from durable_retry.features.in_process import call as calls
from durable_retry.features.in_process.executions import InstanceExecution
from durable_retry.features.key_circuits.circuit import KeyCircuit
from durable_retry.features.limits.rules import fair, limiter
from durable_retry.features.limits.rules.fair import FairShares
from durable_retry.features.limits.rules.leases import Lease
from durable_retry.features.limits.rules.limiter import _Asking
from durable_retry.features.limits.rules.settings import LimitSettings
from durable_retry.features.limits.rules.state import Limiter
from durable_retry.features.lookup.rules import Answer, Inquiry
from durable_retry.features.order import lanes
from durable_retry.features.order.rules.lane import Lane, Place, Tail, Turn, taken
from durable_retry.features.order.rules.members import Order
from durable_retry.features.polling import asking as polling
from durable_retry.features.polling.rules import Poll, is_over
from durable_retry.features.standstill.stuck import StuckLook
from durable_retry.features.workflows import batches
from durable_retry.features.workflows.rules import restart as saga_restart
from durable_retry.features.workflows.rules.shapes import Saga
from durable_retry.hub import entity_ids, executor_guard, turns
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations import actions as operations
from durable_retry.rules.circuit import messages, transitions
from durable_retry.rules.circuit.breaker import Breaker
from durable_retry.rules.circuit.reporters import Reporters
from durable_retry.rules.circuit.snapshot import Permitted, Refused
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.facts import Fact, StartUnanswered
from durable_retry.rules.operations.keys import Life
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.operations.waits import Pause
from durable_retry.rules.retry import classify, loop
from durable_retry.rules.retry.decide import DeadLetter, while_blocked
from durable_retry.rules.retry.history import AttemptOutcome, History
from durable_retry.rules.retry.loop import WorkerFailed
from durable_retry.rules.retry.slots import SlotPostponed
from durable_retry.runtime import clock
from durable_retry.storage import contents, tables
from durable_retry.telemetry.facts import report
from durable_retry_console.bulk import orchestration as bulk_orchestration
from durable_retry_console.index import notes as operation_notes
from durable_retry_console.keys import Recovery, recovery_of
from durable_retry_console.recovery import watch as recovery_watch
from entities import debounce as debounce_entity
from entities import order_lane
from orchestrators import debounce as gates
from orchestrators import operation
from orchestrators import order_lane as lane_turns
from orchestrators.run import Run


@dataclass(frozen=True)
class Mistake:
    """A mistake in the app.

    Attributes:
        name: What goes wrong, in a few words.
        patch: Makes it.
        bound: How many small worlds may pass before one shows it.
        first: The seed with which the worlds begin, for a mistake that few of them show.
        losing: Whether messages are lost in these worlds, for good.
    """

    name: str
    patch: Callable[[], Any]
    bound: int = 500
    first: int = 0
    losing: bool = False


async def _marker_without_token(life: Life, attempt: int, *, now: datetime, **_more: Any) -> Marker | None:
    keys = markers.keys_of_marker(life.owner, attempt)
    row = {**keys, "marked_at": to_rfc3339(now), "run": str(life.run)}
    try:
        is_new = await tables.insert_if_absent(markers.TABLE, row)
    except ServiceResponseError:  # The storage client asks once more.
        is_new = await tables.insert_if_absent(markers.TABLE, row)
    if is_new:
        return None
    known = await tables.read(markers.TABLE, keys["PartitionKey"], keys["RowKey"])
    text = "" if known is None else contents.unpacked("outcome", known)
    return Marker(life.run, life.owner, outcome=json.loads(text) if text else None)


def _reported_but_unanswered(fact: Fact) -> None:
    if not isinstance(fact, StartUnanswered):
        report(fact)


async def _is_over(_calls: Calls) -> None:
    return None


async def _as_it_is(result: Any) -> Any:
    return result


def _is_never(*_given: Any) -> bool:
    return False


def _is_always(*_given: Any) -> bool:
    return True


_outcome_of_raised: Final = handler._outcome_of_raised


def _own_failure(given: Any, calls: Calls, error: Exception, cut_off: Any) -> AttemptOutcome:
    outcome = _outcome_of_raised(given, calls, error, cut_off)
    return replace(outcome, counted=not isinstance(error, LetOutError))


_resume: Final = Run.resume


def _refuses_unknown_fields(ctx: Any, input_: Mapping[str, Any]) -> Run:
    if "from_a_later_version" in input_["operation"]:
        raise TypeError("unexpected keyword argument")
    return _resume(ctx, input_)


ONCE: Final = (
    Mistake(
        "one run number",
        lambda: patch("durable_retry.rules.operations.operation.run_number", lambda *_: 1),
        100,
    ),
    Mistake("unknown field", lambda: patch.object(Run, "resume", _refuses_unknown_fields), 30),
    Mistake(
        "marker without token",
        lambda: patch("durable_retry.attempt.attempt.insert_marker", _marker_without_token),
    ),
    Mistake("start race", lambda: patch.object(TaskHub, "starts_are_atomic", new=True), 100),
    Mistake("another kind", lambda: patch.object(executor_guard, "_is_of_lost_turn", _is_never), 1_500),
    Mistake("early timer", lambda: patch.object(turns, "_MAX_EARLY", 0), 200),
    Mistake("slot lent again", lambda: patch.object(limiter, "was_answered", _is_never), 200),
    Mistake("step left behind", lambda: patch.multiple(Calls, finish_steps=_is_over, end_steps=_is_over)),
    Mistake("step twice", lambda: patch.object(handler_calls, "_is_repeatable_step", _is_always)),
    Mistake("result not read", lambda: patch.object(batches, "whole_result", _as_it_is)),
    # Who subscribed in an earlier world hears of it still: the report is what must be missing.
    Mistake(
        "start not noted",
        lambda: patch.object(operations, "report", _reported_but_unanswered),
        bound=1_500,
    ),
    Mistake("let out", lambda: patch.object(functions, "_as_error", lambda raised: raised), 100),
    Mistake(
        "let out and not counted", lambda: patch.object(handler, "_outcome_of_raised", _own_failure), 100
    ),
    Mistake("refusal retried", lambda: patch.object(tables, "_raise_refusal", lambda *_: None), 300),
)
"""The app had them, and no test saw them."""


_answer: Final = _Asking.answer
_in_order: Final = FairShares.in_order


def _slot_taken_too_soon(asking: _Asking) -> tuple[Limiter, Any]:
    changed, answer = _answer(asking)
    if isinstance(answer, SlotPostponed) and asking.settings.max_concurrency:
        lease = Lease(asking.own.name, asking.request.asked_at, asking.request.lease_seconds)
        return replace(changed, leases=changed.leases.with_lease(lease)), answer
    return changed, answer


def _last_first(shares: FairShares, places: Iterable[fair.Place], now: datetime) -> list[fair.Place]:
    return _in_order(shares, places, now)[::-1]


def _by_age(_shares: FairShares, places: Iterable[fair.Place], now: datetime) -> list[fair.Place]:
    return sorted(places, key=lambda place: place.order(to_ms(now)))


def _begin_once_more(record: Any, execution: Any) -> Any:
    return begin_step(None if record is not None and record.has_succeeded else record, execution)


def _nothing_reported(_record: Any, execution: Any, attempt: int) -> Any:
    return begin_heartbeats(None, execution, attempt)


def _the_same_execution(_context: Any) -> InstanceExecution:
    return InstanceExecution("", datetime.min.replace(tzinfo=UTC), "")


@contextmanager
def _without_cancelled() -> Iterator[None]:
    dead = frozenset({OperationState.DEAD_LETTERED})
    with (
        patch.object(operation_notes, "_ENDED_OTHERWISE", dead),
        patch.object(operation_notes, "_note_end", _is_never),
    ):
        yield


@contextmanager
def _without_replacing() -> Iterator[None]:
    nothing = patch.object(Debounce, "replaced_by", lambda *_: None)
    with nothing, patch.object(debounce_entity, "begin", lambda _, request: begin_debounced(None, request)):
        yield


def _is_another(series: Series, request: DebounceRequest) -> bool:
    return series.operation_id != request.operation_id


def _but_what_was_undone(saga: Saga, first: int) -> Iterator[int]:
    yield from (at for at, step in enumerate(saga.steps) if at >= first or not step.may_have_acted)


@contextmanager
def _without_giving_back() -> Iterator[None]:
    # Who looks at a lane finds a turn that was not given back, so that a lost message leaves nothing behind.
    with (
        patch.object(lane_turns, "end", lambda *_: None),
        patch.object(lanes, "_look_along", _look_at_nobody),
    ):
        yield


async def _look_at_nobody(*_given: Any) -> int:
    return 0


PLAUSIBLE: Final = (
    Mistake("a hint on a 4xx overlooked", lambda: patch.object(classify, "_hinted", lambda known, _: known)),
    Mistake(
        "poll that fails ends the work",
        lambda: patch.object(polling, "is_over", _is_over_when_it_fails),
    ),
    Mistake("accepted is done", lambda: patch.object(Poll, "has_succeeded", _is_always)),
    Mistake("swapped without comparing", lambda: patch.object(writes, "_conflict_of", lambda *_: None)),
    Mistake(
        "a freeze overlooked", lambda: patch.object(messages, "frozen", lambda snapshot, _: snapshot), 100
    ),
    Mistake("conflict with oneself is final", lambda: patch.object(classify, "_CONFLICT", 0)),
    Mistake(
        "undone counts as done",
        lambda: patch.object(saga_restart, "_steps_to_run", _but_what_was_undone),
        2_000,
    ),
    Mistake("slot taken by who waits", lambda: patch.object(_Asking, "answer", _slot_taken_too_soon)),
    # Where a turn is void its operation asks until its deadline, and its world takes minutes.
    Mistake("slot kept", lambda: patch.object(operation, "give_slot_back", lambda *_: None), 10, 7),
    Mistake("younger first", lambda: patch.object(FairShares, "in_order", _last_first)),
    Mistake("keys in the order of age", lambda: patch.object(FairShares, "in_order", _by_age)),
    Mistake("step again", lambda: patch.object(handler_calls, "begin_step", _begin_once_more)),
    Mistake("key of a call repeats", lambda: patch.object(calls, "execution_of", _the_same_execution)),
    Mistake("results dropped with their day", lambda: patch.object(results, "_is_over", _is_always)),
    Mistake("cancelled, never listed", _without_cancelled),
    Mistake(
        "progress forgotten",
        lambda: patch.object(handler_calls, "begin_heartbeats", _nothing_reported),
        1_500,
    ),
    Mistake("start not waited for", lambda: patch.object(Run, "wait_for_start", _begun_at_once)),
    Mistake("pause taken twice", lambda: patch.object(Pause, "is_over", _is_never), 1_500),
    Mistake("pause overlooked", lambda: patch.object(Run, "hold", _goes_on)),
    Mistake("never held", lambda: patch.object(operation, "goes_on_after_hold", _does_not_go_on)),
    Mistake("turn for everybody", lambda: patch.object(order_lane, "taken", _taken_by_all)),
    Mistake("turn kept", _without_giving_back),
    Mistake("lost join overtaken", lambda: patch.object(Tail, "before", lambda *_: None), losing=True),
    Mistake("earlier attempts forgotten", lambda: patch.object(History, "with_attempt", _forgetting), 2_000),
    Mistake(
        "order not blocked",
        lambda: patch.object(Order, "blocks", property(lambda _: False)),
    ),
    Mistake("later wait ended", lambda: patch.object(Run, "_is_sent_now", _is_always)),
    Mistake("replaced one begins", _without_replacing),
    Mistake("first one stays", lambda: patch.object(Series, "is_later_than", _is_another)),
    Mistake("wait for quiet forgotten", lambda: patch.object(gates, "_wait_for_later", _begun_at_once)),
    Mistake("one circuit for all keys", lambda: patch.object(entity_ids, "hash_of_key", lambda _: "all")),
    Mistake("open key goes on", lambda: patch.object(KeyCircuit, "circuit_permit", _permitted)),
    Mistake("refusal of a circuit is final", lambda: patch.object(loop, "while_blocked", _final_if_refused)),
    Mistake("left where an attempt began", lambda: patch.object(Stay, "leave", _says_yes), 10, 740),
    Mistake("key not woken", lambda: patch.object(waking, "_instance_waits", _is_of_exactly)),
    Mistake("never nudged", lambda: patch.object(StuckLook, "move_on", _does_nothing), losing=True),
    Mistake(
        "lost answer counts as an attempt",
        lambda: patch.object(Run, "follow", _counts_what_was_lost),
        losing=True,
    ),
    Mistake(
        "attempt made again without its marker",
        lambda: patch("durable_retry.attempt.attempt.insert_marker", _does_nothing),
        losing=True,
    ),
)
"""Somebody could make them."""


def _is_over_when_it_fails(poll: Poll, last: AttemptOutcome) -> bool:
    return last.category is not None or is_over(poll, last)


def _taken_by_all(lane: Lane, place: Place, *_after: Any) -> tuple[Lane, Turn]:
    return taken(lane, place)[0], Turn(has_turn=True)


_with_attempt: Final = History.with_attempt


def _forgetting(history: History, *given: Any) -> History:
    return _with_attempt(replace(history, may_have_acted=None), *given)


def _begun_at_once(_run: Run, _start_at: datetime) -> Iterator[None]:
    yield from ()


def _final_if_refused(operation_input: Any, blocked: Any, now: datetime) -> Any:
    if isinstance(blocked, Refused):
        return DeadLetter(Category.CIRCUIT_OPEN, DeadLetterReason.RETRIES_EXHAUSTED, blocked.reason)
    return while_blocked(operation_input, blocked, now)


def _permitted(circuit: KeyCircuit, *_given: Any, **_more: Any) -> Permitted:
    return Permitted(0 if circuit.snapshot is None else circuit.snapshot.epoch)


_instance_waits: Final = waking._instance_waits


def _is_of_exactly(instance: Any, dependency: str, since_before: datetime, limit_key: str | None) -> bool:
    shown = json.loads(instance.customStatus.value or "{}")
    is_exactly = shown.get("limit_key") == limit_key
    return is_exactly and _instance_waits(instance, dependency, since_before, limit_key)


_follow: Final = Run.follow


def _counts_what_was_lost(lost: Run, result: Any, step_at: str | None = None, **more: Any) -> Any:
    if isinstance(result, WorkerFailed) and "lost" in result.error:
        number, category = lost.state.history.next_attempt, Category.TRANSIENT
        result = AttemptOutcome(number=number, started_at=lost.now, duration_ms=0.0, category=category)
    return _follow(lost, result, step_at, **more)


def _goes_on(held: Run) -> Generator[None, None, bool]:
    while held.signals.has_come(PAUSE_EVENT):
        held.signals.take(PAUSE_EVENT)
    yield from ()
    return not held.signals.has_come(CANCEL_EVENT)


def _does_not_go_on(*_given: Any) -> Generator[None, None, bool]:
    yield from ()
    return False


def _settles_at_once(inquiry: Inquiry, _answer: Answer) -> datetime:
    return inquiry.ended_at


def _recovery_at_once(dependency: Dependency) -> Recovery | None:
    return None if recovery_of(dependency) is None else Recovery(after_closed_seconds=0)


def _key_of_each_attempt(plan: Any, key: str) -> dict[str, str]:
    return {"Idempotency-Key": f"{key}-{plan.number}"}


async def says_that_it_was_kept(*_given: Any) -> str:
    return "dl-nowhere"


async def _does_nothing(*_given: Any, **_more: Any) -> None:
    return None


async def _says_yes(*_given: Any) -> bool:
    return True


async def _sends_nothing(_hub: TaskHub, _delivery: Any, _event: Any, number: int) -> AttemptOutcome:
    return AttemptOutcome(number=number, started_at=clock.now(), duration_ms=0.0)


def _is_kept(state: Limiter, _lease: Lease) -> Limiter:
    return state


_MORE_SLOTS: Final = property(lambda _settings: -2)
"""None of a limit is shared out, and the limiter has two slots more than it."""


def _run_without_its_replay(given: OperationInput) -> str:
    return given.operation_id


OF_INVARIANTS: Final[Mapping[str, Callable[[], Any]]] = {
    "one_effect_per_key": lambda: patch.object(http_attempt, "own_headers", _key_of_each_attempt),
    "nothing_unsafe_twice": lambda: patch.object(http_attempt, "needs_marker", _is_never),
    "asking_spares_a_second_effect": lambda: patch.object(Inquiry, "settles_at", _settles_at_once),
    "no_early_attempt": lambda: patch.object(http_attempt, "parse_retry_after", lambda *_, **__: None),
    "events_arrive": lambda: patch("durable_retry.features.outbox.sending.deliver", _sends_nothing),
    "failures_are_told": lambda: patch(
        "durable_retry.dead_letters.records._rows_of_features", AsyncMock(return_value=[])
    ),
    "dead_letters_are_kept": lambda: patch(
        "durable_retry.operations.actions.keep_operation", says_that_it_was_kept
    ),
    "stops_are_kept": lambda: patch.object(
        bulk_orchestration._Execution, "is_stopped", property(lambda _run: False)
    ),
    "recoveries_are_due": lambda: patch.object(recovery_watch, "recovery_of", _recovery_at_once),
    "circuits_probe_within_limits": lambda: patch.object(transitions, "probes_free", lambda *_: 1),
    "reports_count_once": lambda: patch.object(Reporters, "has_counted", _is_never),
    # Each failed probe begins a new break; the outage is still the same.
    "alerts_are_true": lambda: patch.object(
        Breaker, "closed_to_calls_since", property(lambda breaker: breaker.opened_at)
    ),
    "slots_are_given_back": lambda: patch.object(Limiter, "without", _is_kept),
    "attempts_are_within_limits": lambda: patch.object(LimitSettings, "shared_concurrency", _MORE_SLOTS),
    "records_agree": lambda: patch.object(OperationInput, "owner", property(_run_without_its_replay)),
    "lists_agree": lambda: patch("durable_retry.dead_letters.index.list_record", _does_nothing),
    "nothing_unexpected": lambda: patch.object(Run, "now", property(lambda _run: clock.now())),
}
"""Mistakes by the invariant that has to see them in a larger, rough world."""

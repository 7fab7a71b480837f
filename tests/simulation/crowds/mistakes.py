"""Mistakes that crowds have to show, by the invariant that has to see each."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final
from unittest.mock import patch

from durable_retry.attempt import http_request
from durable_retry.attempt.http_client import BoundedResponse, send
from durable_retry.base.names import Category, DeadLetterReason, Priority
from durable_retry.circuit import cache
from durable_retry.circuit.cache import CircuitCache
from durable_retry.features.fail_fast import refusing
from durable_retry.features.handlers.call_transport import Seen, SentMark
from durable_retry.features.limits.rules import fair, limiter
from durable_retry.features.limits.rules.settings import ReadLimits
from durable_retry.features.limits.rules.share import Part
from durable_retry.features.limits.rules.state import Limiter
from durable_retry.features.limits.worker import WorkerLimits
from durable_retry.features.standstill.rules import Expected
from durable_retry.features.standstill.stuck import StuckLook
from durable_retry.rules.circuit import messages, retry_budget, transitions
from durable_retry.rules.circuit.breaker import Breaker
from durable_retry.rules.circuit.calls import Counts
from durable_retry.rules.circuit.retry_budget import BudgetAllowed
from durable_retry.rules.circuit.snapshot import Refused, _View
from durable_retry.rules.circuit.trips import trip_reason
from durable_retry.rules.config.dependencies_file import Config
from durable_retry.rules.operations.waits import Pause
from durable_retry.rules.retry import decide, loop
from durable_retry.rules.retry.decide import DeadLetter, record
from durable_retry.rules.retry.history import AttemptOutcome, History
from durable_retry.runtime import clock
from durable_retry_console.bulk.proof import Proof
from durable_retry_console.bulk.shapes import BatchPace
from entities import call_limiter
from orchestrators import operation
from orchestrators.run import Run
from tests.simulation.crowds.crowd import HEAVY, WEIGHT
from tests.simulation.mistakes import OF_INVARIANTS, PLAUSIBLE


def _within_any(_limits: WorkerLimits, permitted: Any, *_given: Any) -> Any:
    return permitted


async def _is_new(*_given: Any, **_more: Any) -> None:
    return None


def _any_budget(*_given: Any, **_more: Any) -> BudgetAllowed:
    return BudgetAllowed()


def _an_hour_later(deadline_at: datetime, _timeouts: Any) -> datetime:
    return deadline_at + timedelta(hours=1)


def _dead_all_the_same(run: Run, _result: Any) -> Any:
    letter = DeadLetter(Category.TRANSIENT, DeadLetterReason.RETRIES_EXHAUSTED, "it was too good")
    return operation._end_as_dead_letter(run, letter)


async def _lost_by_age(look: StuckLook, _name: str, _instance_id: str, expected: Expected) -> datetime | None:
    return expected.since if look.now - expected.since > timedelta(seconds=30) else None


def _least_for_heavy(_limits: ReadLimits, limit_key: str | None) -> float:
    return 1 / WEIGHT if limit_key == HEAVY else 1.0


def _but_for_slow_calls(counts: Counts, *given: Any) -> str | None:
    return trip_reason(replace(counts, slow=0), *given)


def _never_trips(breaker: Breaker, *_given: Any) -> Breaker:
    return breaker


def _without_earlier_names(config: Config) -> None:
    object.__setattr__(config, "earlier_names", {})


def _counting_all(history: History, outcome: AttemptOutcome, *given: Any, **more: Any) -> History:
    return record(history, replace(outcome, counted=True), *given, **more)


async def _whole_or_nothing(*given: Any, **more: Any) -> BoundedResponse:
    answer = await send(*given, **more)
    if answer.is_broken_off:
        raise TimeoutError
    return answer


@contextmanager
def _not_noticing_what_is_sent() -> Iterator[None]:
    with (
        patch.object(Seen, "may_have_acted", property(lambda _: False)),
        patch.object(SentMark, "write", _is_new),
    ):
        yield


_hold_for: Final = Run._hold_for
_broken: Final = _View.broken
_pace_of: Final = BatchPace.of


def _held_for_a_while(run: Run, pause: Pause, request: Any) -> Any:
    return _hold_for(run, pause.model_copy(update={"for_seconds": 25.0}), request)


def _a_minute_after_the_break(view: _View) -> Refused | None:
    refused = _broken(view)
    return refused and replace(refused, base=refused.base + timedelta(minutes=1))


def _at_any_rate(_rate_per_second: float) -> BatchPace:
    return _pace_of(100.0)


def _plausible(name: str) -> Callable[[], Any]:
    """Return one of the mistakes that worlds have to show, too."""
    return next(mistake.patch for mistake in PLAUSIBLE if mistake.name == name)


def _all_is_lost() -> Any:
    """Take for lost what had no answer for half a minute, and nudge it again and again."""
    return patch.object(StuckLook, "lost_since", _lost_by_age)


OF_CROWDS: Final[Mapping[str, Callable[[], Any]]] = {
    "starts_stay_within_the_rate": lambda: patch.object(WorkerLimits, "admit", _within_any),
    "keys_stay_within_their_rate": lambda: patch.object(Limiter, "start_of", lambda _state, _key, now: now),
    "calls_stay_within_the_limit": lambda: patch.object(WorkerLimits, "admit", _within_any),
    "pauses_are_kept": lambda: patch.object(http_request, "parse_retry_after", lambda *_, **__: None),
    "holds_are_kept": lambda: patch.object(messages, "frozen", lambda snapshot, _: snapshot),
    "unsafe_requests_arrive_once": lambda: patch("durable_retry.attempt.attempt.insert_marker", _is_new),
    "what_waits_is_not_lost": _all_is_lost,
    "nothing_waits_when_nobody_does": lambda: patch.object(operation, "give_slot_back", lambda *_: None),
    "a_backlog_moves_at_the_limit": lambda: patch.object(limiter, "LEAST_ASK_SECONDS", 20.0),
    "a_free_slot_is_taken": lambda: patch.object(call_limiter, "look", lambda state, _: (state, ())),
    "urgent_ones_go_first": lambda: patch.dict(fair.WEIGHTS, {Priority.HIGH: 0.25, Priority.LOW: 4.0}),
    "heavy_keys_go_first": lambda: patch.object(ReadLimits, "weight_of", _least_for_heavy),
    "lanes_run_one_at_a_time": _plausible("turn for everybody"),
    "held_ones_are_not_given_up": _plausible("never held"),
    "accepted_ones_end_with_their_work": _plausible("accepted is done"),
    "nobody_is_accepted_while_open": lambda: patch.object(refusing, "refuse_while_open", _is_new),
    "nothing_begins_after_its_deadline": lambda: patch.object(decide, "latest_start", _an_hour_later),
    "retries_stay_within_the_budget": lambda: patch.object(cache, "budget_allows", _any_budget),
    "retries_go_when_paid_for": lambda: patch.object(retry_budget, "ASK_AGAIN_SECONDS", 5.0),
    "neighbours_go_on": _all_is_lost,
    "what_was_answered_is_not_dead": lambda: patch.object(operation, "_commit_success", _dead_all_the_same),
    "everything_ends_well": lambda: patch.object(Pause, "is_ended_by", lambda *_: False),
    "open_circuits_are_left_alone": lambda: patch.object(
        CircuitCache, "is_fresh", lambda copy: copy.snapshot is not None
    ),
    "breaks_end_with_a_probe": lambda: patch.object(_View, "broken", _a_minute_after_the_break),
    "slow_calls_open_the_circuit": lambda: patch.object(transitions, "trip_reason", _but_for_slow_calls),
    "refused_credentials_open_the_circuit": lambda: patch.object(
        transitions, "_tripped_if_sick", _never_trips
    ),
    "refused_credentials_cost_nothing": lambda: patch.object(loop, "record", _counting_all),
    "refusals_count_without_their_body": lambda: patch.object(http_request, "send", _whole_or_nothing),
    "asked_ones_act_once": OF_INVARIANTS["asking_spares_a_second_effect"],
    "words_of_a_refusal_count": lambda: patch.object(http_request, "ruled_answer", lambda *_: None),
    "renamed_ones_go_on": lambda: patch.object(Config, "__post_init__", _without_earlier_names),
    "handlers_send_once": _not_noticing_what_is_sent,
    "paused_ones_call_nobody": lambda: patch.object(Run, "_hold_for", _held_for_a_while),
    "bulk_replays_do_what_they_say": lambda: patch.object(BatchPace, "of", _at_any_rate),
    "bulk_replays_stop_for_failures": lambda: patch.object(Proof, "is_failing", lambda *_: True),
    "nothing_unexpected": lambda: patch.object(Run, "now", property(lambda _run: clock.now())),
}

OF_SHARES: Final[Mapping[str, Callable[[], Any]]] = {
    "calls_stay_within_the_limit": lambda: patch.object(Part, "of", lambda _part, shared: shared),
    "a_backlog_moves_at_the_limit": lambda: patch.object(WorkerLimits, "_take_share", lambda *_: False),
}
"""More of them, where slots are shared out among the workers."""

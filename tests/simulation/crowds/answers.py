"""What holds of a crowd whose dependency answers in a way of its own, late, in part or not at all."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Final

import httpx

from durable_retry.base.names import DeadLetterReason
from durable_retry.rules.circuit.states import CircuitSettings
from tests.simulation.crowds.calls import SEEN_WITHIN, UNDER_WAY, calls_of, end_of, time_of
from tests.simulation.crowds.crowd import OF_HANDLER, SPARE, Trouble
from tests.simulation.crowds.story import CrowdStory
from tests.simulation.targets import REJECTED, Call
from tests.simulation.world import START

type Trip = Callable[[CrowdStory, list[Call]], datetime | None]
"""Returns since when the calls of a circuit should have opened it; None where they should not."""

_WINDOW_PART: Final = 0.85
"""The share of the window within which a slow call that ended is counted there for sure."""


def slow_calls_open_the_circuit(story: CrowdStory) -> Iterator[str]:
    """Once enough calls were slow nobody but a probe calls until the break is over."""
    if story.shape.trouble is Trouble.SLOWED:
        yield from _called_while_open(story, _with_slow_calls)


def refused_credentials_open_the_circuit(story: CrowdStory) -> Iterator[str]:
    """Once the credential was refused often enough nobody but a probe calls until the break is over."""
    if story.shape.trouble is Trouble.REVOKED:
        yield from _called_while_open(story, _with_refusals)


def _called_while_open(story: CrowdStory, trip: Trip) -> Iterator[str]:
    settings, (_, well_at) = _circuit_of(story), story.sick or (START, START)
    by_circuit = defaultdict[str | None, list[Call]](list)
    for call in story.app.targets[story.shape.limited].calls:
        by_circuit[call.operation.limit_key if story.shape.has_key_circuits else None].append(call)
    for limit_key, calls in by_circuit.items():
        tripped_at = trip(story, calls)
        if tripped_at is None:
            continue
        since = tripped_at + SEEN_WITHIN + UNDER_WAY * (not story.shape.is_quick)
        until = min(tripped_at + timedelta(seconds=settings.break_seconds), well_at)
        begun = [call.at for call in calls if since < call.at < until]
        if len(begun) > settings.half_open_calls:
            its = "" if limit_key is None else f" of {limit_key}"
            first, tripped = time_of(begun[0]), time_of(tripped_at)
            yield f"{len(begun)} calls{its} began from {first}, the circuit should be open since {tripped}"


def _with_slow_calls(story: CrowdStory, calls: list[Call]) -> datetime | None:
    settings = _circuit_of(story)
    window = timedelta(seconds=settings.window_seconds)
    ended = sorted((end_of(story, call), call.at) for call in calls)
    slow_at = [end for end, at in ended if (end - at).total_seconds() >= settings.slow_call_seconds]
    for number, now in enumerate(slow_at, start=1):
        slow = sum(now - window * _WINDOW_PART < at for at in slow_at[:number])
        counted = sum(now - window < at <= now for at, _ in ended)
        if slow >= max(settings.minimum_calls, settings.slow_call_ratio * counted):
            return now
    return None


def _with_refusals(story: CrowdStory, calls: list[Call]) -> datetime | None:
    accepted = (
        end_of(story, call) for call in calls if call.status in {httpx.codes.OK, httpx.codes.ACCEPTED}
    )
    _, well_at = story.sick or (START, START)
    last = max((at for at in accepted if at < well_at), default=START)
    refused = sorted(end_of(story, call) for call in calls if call.status == httpx.codes.UNAUTHORIZED)
    in_a_row = [at for at in refused if at > last]
    number = _circuit_of(story).unauthorized_calls
    return in_a_row[number - 1] if len(in_a_row) >= number else None


def _circuit_of(story: CrowdStory) -> CircuitSettings:
    return story.config.dependencies[story.shape.limited].circuit


def refused_credentials_cost_nothing(story: CrowdStory) -> Iterator[str]:
    """A call whose credential is refused costs its operation no attempt."""
    if story.shape.trouble is not Trouble.REVOKED or story.shape.dependency == OF_HANDLER:
        return
    calls = [*calls_of(story, story.crowd), *calls_of(story, story.crowd, SPARE)]
    counted = Counter(
        call.operation.operation_id for call in calls if call.status != httpx.codes.UNAUTHORIZED
    )
    for name in story.crowd.ids:
        attempts = story.documents.get(name, {}).get("attempt_count", 0)
        if attempts > counted[name]:
            yield f"{name} counts {attempts} attempts, the credential of {counted[name]} calls was accepted"


def refusals_count_without_their_body(story: CrowdStory) -> Iterator[str]:
    """Whoever is refused for good by a head without its body is a dead letter, and calls no more."""
    calls = calls_of(story, story.crowd) if story.shape.trouble is Trouble.STALLED else []
    for call in calls:
        operation_id = call.operation.operation_id
        letter = story.documents.get(operation_id, {}).get("dead_letter") or {}
        reasons = {DeadLetterReason.REJECTED_BY_DEPENDENCY}
        if story.shape.dependency == OF_HANDLER and not story.shape.in_steps:
            reasons.add(DeadLetterReason.AMBIGUOUS_OUTCOME)  # It has posted elsewhere before.
        if call.status == REJECTED and letter.get("reason") not in reasons:
            yield f"{operation_id} was refused at {time_of(call.at)}, and is {letter or 'no dead letter'}"
        elif call.status == REJECTED and any(
            other.at > call.at for other in calls if other.operation.operation_id == operation_id
        ):
            yield f"{operation_id} was refused at {time_of(call.at)}, and called again"


def asked_ones_act_once(story: CrowdStory) -> Iterator[str]:
    """Where the dependency is asked what became of a call, no end stays unknown and nothing is done twice."""
    if not story.shape.is_asked:
        return
    calls = story.app.targets[story.shape.limited].calls
    acted = Counter(call.operation.operation_id for call in calls if call.effect)
    yield from (f"{name} took effect {times} times" for name, times in acted.items() if times > 1)
    for name, document in story.documents.items():
        letter = document.get("dead_letter") or {}
        is_unknown = letter.get("reason") == DeadLetterReason.AMBIGUOUS_OUTCOME
        if is_unknown and name in story.crowd.ids and not story.has_deadline(name):
            yield f"{name} was not asked for: {letter['detail']}"


def words_of_a_refusal_count(story: CrowdStory) -> Iterator[str]:
    """Nobody is given up for an answer that a rule on its body calls throttled."""
    for name in story.crowd.ids if story.shape.trouble is Trouble.WORDED else ():
        letter = story.documents.get(name, {}).get("dead_letter") or {}
        if letter.get("reason") == DeadLetterReason.REJECTED_BY_DEPENDENCY:
            yield f"{name} was given up: {letter['detail']}"


def renamed_ones_go_on(story: CrowdStory) -> Iterator[str]:
    """What waits when its dependency is renamed, and what comes under the earlier name, goes on there."""
    renamed_at = story.renamed_at
    if renamed_at is None:
        return
    waves = (story.crowd, story.newcomers) if story.shape.dependency != OF_HANDLER else ()
    late = [call for wave in waves for call in calls_of(story, wave) if call.execution.began_at > renamed_at]
    for name in {call.operation.operation_id for call in late} & story.documents.keys():
        if (dependency := story.documents[name]["dependency"]) != story.shape.renamed:
            yield f"{name} has gone on as one of {dependency}"
    yield from (f"{name} has not gone on" for name in story.unfinished)


def handlers_send_once(story: CrowdStory) -> Iterator[str]:
    """A handler that has sent what is sent once is not run again while a step of it has to wait."""
    calls = story.app.targets[OF_HANDLER].calls if not story.shape.in_steps else []
    sent = Counter(call.operation.operation_id for call in calls if call.effect)
    yield from (f"{name} posted {times} times" for name, times in sent.items() if times > 1)

"""What holds of the calls that dependencies see."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import httpx

from durable_retry.base.json_forms import from_rfc3339
from durable_retry.base.names import PAUSE_EVENT, Category, DeadLetterReason
from durable_retry.features.debounce.rules import debounce_of
from durable_retry.features.holding.rules import BY_POLICY
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.retry.history import KEPT_ACTIONS, WaitKind
from durable_retry.rules.retry.policy import HOLD_SECONDS
from durable_retry.storage import contents
from tests.simulation.app import PAGES
from tests.simulation.story import Story
from tests.simulation.targets import BANK, MODEL, REPORTS, SPARE, Call, operation_in

type RunKey = tuple[str, datetime]

_BREATH: Final = timedelta(milliseconds=5)
"""Durations are stored in tenths of a millisecond."""

_EARLY: Final = timedelta(seconds=1)

_SEEN_WITHIN: Final = timedelta(seconds=2)
"""By then every worker acts on what the circuits say."""

_UNSAFE: Final = frozenset({"ledger", "depot", BANK, SPARE})
"""They do not deduplicate."""

_OF_STEPS: Final = "depot"

_CUT_OFF: Final = "not ended within"

_PROMISED: Final = timedelta(seconds=13)
"""By when an effect shows that is not later than promised."""

_REPEATABLE: Final = ("/pick", "/ready")
"""Ends of paths: of a step that may run again, and of a safe request."""


def one_effect_per_key(story: Story) -> Iterator[str]:
    """A dependency that deduplicates sees one key for one operation, whatever is repeated or replayed."""
    keys = defaultdict(set)
    effects: dict[tuple[str, int], set[str]] = defaultdict(set)
    for target, call in calls_of_targets(story):
        if target not in _UNSAFE:
            keys[call.operation.operation_id].add(call.key)
            effects[_life(story, call.operation)] |= {call.key} if call.effect else set()
    yield from (f"{name} has the keys {sorted(found)}" for name, found in keys.items() if len(found) > 1)
    for end in story.ends:
        if (
            end.succeeded
            and end.operation.dependency not in _UNSAFE
            and not effects[_life(story, end.operation)]
        ):
            yield f"{end.operation.operation_id} succeeded without an effect"


def nothing_unsafe_twice(story: Story) -> Iterator[str]:
    """What may have taken effect at a dependency that does not deduplicate is not sent again by its run."""
    for target in sorted((_UNSAFE - {BANK}) & story.app.targets.keys()):
        for run, calls in _calls_by_run(story, target).items():
            arrived = [call for call in calls if call.arrived and not call.path.endswith(_REPEATABLE)]
            for before, after in pairwise(arrived):
                if before.effect or before.status in {0, 500}:
                    attempts = f"attempt {after.attempt} was sent after attempt {before.attempt} had arrived"
                    yield f"{run[0]}: {attempts}"


def asking_spares_a_second_effect(story: Story) -> Iterator[str]:
    """Where it can be asked, nothing is sent again, also by a replay, once an effect shows within its time.

    Nor does an operation succeed without an effect. An attempt of unknown end whose effect shows later than
    the dependency has promised may have a second one.
    """
    calls: dict[tuple[str, int], list[Call]] = defaultdict(list)
    for call in story.app.targets[BANK].calls:
        if call.arrived:
            calls[_life(story, call.operation)].append(call)
    for (name, _), sent in calls.items():
        for before, after in pairwise(sent):
            if before.shown_at is not None and before.shown_at <= before.at + _PROMISED:
                yield f"{name}: attempt {after.attempt} was sent after attempt {before.attempt} took effect"
    for end in story.ends:
        has_effect = any(call.effect for call in calls[_life(story, end.operation)])
        if end.succeeded and end.operation.dependency == BANK and not has_effect:
            yield f"{end.operation.run_id} succeeded without an effect"


def accepted_work_is_followed(story: Story) -> Iterator[str]:
    """What was accepted with 202 is asked for, not sent again by its run, and succeeds once it is done."""
    reports = story.app.targets.get(REPORTS)
    jobs = {} if reports is None else reports.jobs
    for run, calls in (_calls_by_run(story, REPORTS) if jobs else {}).items():
        taken = (call for call in calls if call.status == httpx.codes.ACCEPTED and call.execution.counts)
        for call in taken:
            if again := [each.attempt for each in calls if each.attempt > call.attempt]:
                yield f"{run[0]}: attempts {again} were sent after attempt {call.attempt} was accepted"
    for end in story.ends:
        if end.succeeded and end.operation.dependency == REPORTS:
            job, result = jobs[end.operation.sent_key], end.document["result"]
            if job.fails or end.ended_at < job.ends_at or result["status_code"] != httpx.codes.OK:
                yield f"{end.operation.run_id} succeeded at {end.ended_at} with {result}, its work is {job}"
        elif "names where to ask" in (end.document["dead_letter"] or {"detail": ""})["detail"]:
            yield f"{end.operation.run_id} was not asked for: {end.document['dead_letter']['detail']}"


def one_place_has_the_effect(story: Story) -> Iterator[str]:
    """An operation has an effect at its dependency or at the fallback, never at both: at who answered."""
    places: dict[tuple[str, int], set[str]] = defaultdict(set)
    for target in sorted({MODEL, SPARE} & story.app.targets.keys()):
        for call in story.app.targets[target].calls:
            places[_life(story, call.operation)] |= {target} if call.effect else set()
    yield from (f"{name} took effect at both" for (name, _), at in places.items() if len(at) > 1)
    for end in story.ends:
        answered_by = (end.document["result"] or {}).get("dependency", end.document["dependency"])
        if end.succeeded and answered_by in {MODEL, SPARE} - places[_life(story, end.operation)]:
            yield f"{end.operation.run_id} succeeded at {answered_by} without an effect there"


def ambiguity_is_real(story: Story) -> Iterator[str]:
    """A run ends as ambiguous only when something was sent, or when an execution was repeated or died."""
    sent: dict[RunKey, list[Call]] = {}
    for target in _UNSAFE & story.app.targets.keys():
        sent |= _calls_by_run(story, target)
    executed = Counter(_execution_keys(story))
    for end in story.ends:
        letter = end.document["dead_letter"]
        if letter is None or letter["reason"] != DeadLetterReason.AMBIGUOUS_OUTCOME:
            continue
        run = _run(end.operation)
        # A failure of a step that storage did not take counts as a process that died in it.
        if "began in an execution" in letter["detail"]:
            continue
        # A replay that asks first and gets no answer sends nothing.
        if "its lookup got no answer" in letter["detail"]:
            continue
        times = max((times for key, times in executed.items() if key[:2] == run), default=0)
        if times <= 1 and not any(call.arrived for call in sent.get(run, [])):
            yield f"{run[0]} is called ambiguous and sent nothing: {letter['detail']}"


def _execution_keys(story: Story) -> Iterator[tuple[str, datetime, int]]:
    for execution in story.app.hub.attempts:
        operation = operation_in(story.world, execution.given)
        if operation is not None:
            yield operation.run_id, operation.created_at, execution.given["attempt"]


def attempts_leave_nothing(story: Story) -> Iterator[str]:
    """An attempt that is over has no call under way: the next one would make it at the same time."""
    for target, call in calls_of_targets(story):
        over = call.execution.ended_at
        if over is not None and over < (call.ended_at or call.at):
            run = call.operation.run_id
            yield f"{run} called {target} at {call.at}, its attempt {call.attempt} ended at {over}"


def attempts_are_counted(story: Story) -> Iterator[str]:
    """The count of attempts is that of attempts which left this side, consecutive and within the policy.

    So whatever a handler lets out is the outcome of its attempt, which is not made again under its number.
    """
    for execution in story.app.hub.attempts:
        if execution.raised is not None and not isinstance(execution.raised, Exception):
            yield f"attempt {execution.given['attempt']} has no outcome: {execution.raised!r}"
    calls = {target: _calls_by_run(story, target) for target in story.app.targets}
    for end in story.ends:
        run, count = end.operation, end.document["attempt_count"]
        places = [MODEL, SPARE] if run.submitted_to == MODEL else [run.dependency]
        seen = [call for place in places for call in calls[place].get(_run(run), [])]
        # One whose credential was refused costs no attempt.
        counted = [call for call in seen if call.execution.counts and call.status != httpx.codes.UNAUTHORIZED]
        numbers = {call.attempt for call in counted}
        answered = {(call.attempt, id(call.execution)) for call in counted}
        if len(answered) > len(numbers) and run.handler is not None:
            yield f"{run.run_id} made an attempt again that had answered: {sorted(numbers)}"
        records = {record["number"]: record["category"] for record in end.document["attempts"]}
        if sorted(records) != list(range(1, count + 1)):
            yield f"{run.run_id} counts {count} attempts and shows {sorted(records)}"
        actions = end.document.get("actions", ())
        # What its policy held has all its attempts again.
        most = run.policy.max_attempts * (1 + sum(each["by"] == BY_POLICY for each in actions))
        if run.policy.max_attempts >= 0 and count > most and len(actions) < KEPT_ACTIONS:
            yield f"{run.run_id} made {count} attempts of {most}"
        unknown = {
            record["number"]
            for record in end.document["attempts"]
            if record["category"] == Category.AMBIGUOUS or "by lookup" in (record["error"] or "")
        }
        # An attempt of a handler may be cut off before its call, or find the results of all its steps.
        cut_off = {
            record["number"]
            for record in end.document["attempts"]
            if run.handler is not None and _CUT_OFF in (record["error"] or "")
        }
        missing = {
            number
            for number in set(records) - {call.attempt for call in seen}
            if number not in unknown | cut_off and run.dependency != _OF_STEPS
        }
        if missing or numbers - set(records):
            yield f"{run.run_id} counts {sorted(records)}, the dependency saw {sorted(numbers)}"


def no_early_attempt(story: Story) -> Iterator[str]:
    """No attempt begins before its retry instant or Retry-After, unless somebody ended that very wait.

    Nor does it wait for anything else before that instant, such as its circuit, which would hide it.
    """
    calls = {target: _calls_by_run(story, target) for target in story.app.targets}
    for end in story.ends:
        seen = calls[end.operation.dependency].get(_run(end.operation), [])
        for record in end.document["attempts"]:
            wait = record["next_delay_seconds"]
            skews = [call.skew for call in seen if call.attempt == record["number"] and call.execution.counts]
            if not skews and story.world.has_skew:
                continue
            started_at = from_rfc3339(record["started_at"]) - (skews[-1] if skews else timedelta(0))
            ended_at = started_at + timedelta(milliseconds=record["duration_ms"])
            following = [call.at for call in seen if call.attempt == record["number"] + 1]
            following += [] if story.world.has_skew else _waits_before(end.document, record["number"] + 1)
            due_at = ended_at + timedelta(seconds=wait or 0) - slack(story)
            is_early = wait and following and min(following) < due_at
            if is_early and not is_hurried(story, end.operation, ended_at, min(following)):
                yield f"{end.operation.run_id}: attempt {record['number'] + 1} came before its time"
        yield from _after_retry_after(story, end.operation, seen)


def _waits_before(document: Mapping[str, Any], attempt: int) -> list[datetime]:
    """Return when the waits began that an attempt met when it was due; its own side may fail at any time."""
    waits = (wait for wait in document.get("waits", ()) if wait["before_attempt"] == attempt)
    return [from_rfc3339(wait["began_at"]) for wait in waits if wait["kind"] != WaitKind.OWN_FAILURE]


def is_hurried(story: Story, operation: OperationInput, since: datetime, until: datetime) -> bool:
    """Whether somebody asked for a retry at once while an operation waited, and not while it did before."""
    hurried = story.people.hurried.get(operation.operation_id, [])
    return any(asked_at <= until and answered_at >= since - slack(story) for asked_at, answered_at in hurried)


def slack(story: Story) -> timedelta:
    """Return by how much an attempt may be early.

    A timer may fire a second early. The orchestrator sees that by its clock and waits again; by a clock
    that is ahead of the one which set the timer it cannot be seen.
    """
    return _BREATH + (_EARLY if story.world.has_skew else timedelta(0))


def _after_retry_after(story: Story, operation: OperationInput, calls: list[Call]) -> Iterator[str]:
    for throttled in (call for call in calls if call.retry_after_seconds and call.execution.counts):
        ended_at = throttled.ended_at
        assert ended_at is not None
        seconds = min(throttled.retry_after_seconds, operation.policy.max_retry_after_seconds)
        until = ended_at + timedelta(seconds=seconds) - slack(story)
        early = [call for call in calls if ended_at < call.at < until and call.attempt > throttled.attempt]
        if any(not is_hurried(story, operation, ended_at, call.at) for call in early):
            yield f"{operation.run_id} did not heed Retry-After of attempt {throttled.attempt}"


def not_now_is_not_never(story: Story) -> Iterator[str]:
    """No refusal is final that asks for a wait, and no conflict after an attempt whose end is unknown."""
    calls = {target: _calls_by_run(story, target) for target in story.app.targets}
    for end in story.ends:
        letter, run = end.document["dead_letter"], end.operation
        if letter is None or letter["reason"] != DeadLetterReason.REJECTED_BY_DEPENDENCY:
            continue
        attempt = end.document["attempts"][-1]
        seen = calls[run.dependency].get(_run(run), [])
        # Where an execution found the outcome at the marker of an earlier one, that one called.
        own = [call for call in seen if call.attempt == attempt["number"]]
        last = next((call for call in reversed(own) if call.status == attempt["status_code"]), None)
        before = [call for call in seen if call.attempt < attempt["number"] and call.execution.counts]
        unknown = any(call.arrived and call.status in {0, 500} for call in before)
        is_conflict = last is not None and last.status == httpx.codes.CONFLICT
        if last is not None and (last.retry_after_seconds or (is_conflict and unknown)):
            yield f"{run.run_id} was given up for {last.status}, which meant later"


def starts_are_kept(story: Story) -> Iterator[str]:
    """No attempt begins before the start that the caller chose, unless somebody asked for it.

    The process that took an operation in says by its clock when it was created. By another clock, the
    person who asked for it at once may have done so before.
    """
    for target, call in calls_of_targets(story):
        start_at, begun = call.operation.start_at, call.operation.created_at - story.world.clock_difference
        if (
            start_at is not None
            and debounce_of(call.operation) is None
            and call.at < start_at - slack(story) - story.world.clock_difference
            and not is_hurried(story, call.operation, begun, call.at)
        ):
            yield f"{call.operation.run_id} called {target} at {call.at}, before its start at {start_at}"


def nothing_while_paused(story: Story) -> Iterator[str]:
    """Once an operation shows that it is paused, no attempt of it begins before somebody resumes it."""
    for operation_id, since, until in story.people.held:
        for target, call in calls_of_targets(story):
            is_its = call.operation.operation_id == operation_id and call.execution.counts
            if is_its and since < call.at < until:
                yield f"{operation_id} called {target} at {call.at}, paused from {since} to {until}"


_PUNCTUAL_SECONDS: Final = 30.0
"""No message and no attempt takes longer where nothing is late."""

_UNTIL_NUDGED: Final = timedelta(minutes=5)
"""What an operation waits for and was lost is made again by then."""


def pauses_are_noted(story: Story) -> Iterator[str]:
    """An operation that went on for long after a pause was accepted shows that it was paused, and once."""
    # The event may come late, and what is under way ends first, such as a call of the limiter and its answer.
    longest = _PUNCTUAL_SECONDS if story.world.is_punctual else story.world.scale.latest_seconds
    least = 3 * timedelta(seconds=longest) + story.world.clock_difference
    for end in story.ends:
        late = least + _UNTIL_NUDGED * story.app.hub.lost_messages[end.operation.operation_id]
        accepted_at = story.people.paused.get(end.operation.operation_id)
        if accepted_at is None or accepted_at < end.operation.created_at + story.world.clock_difference:
            continue
        done = end.document.get("actions", ())
        actions = [each["action"] for each in done]
        times = sum(each["action"] == PAUSE_EVENT and each["by"] != BY_POLICY for each in done)
        if times > 1:
            yield f"{end.operation.run_id} was paused {times} times, and somebody asked for it once"
        is_later = from_rfc3339(end.document["updated_at"]) > accepted_at + late
        if is_later and PAUSE_EVENT not in actions and len(actions) < KEPT_ACTIONS:
            yield f"{end.operation.run_id} was never paused, although that was accepted at {accepted_at}"


def holds_are_kept(story: Story) -> Iterator[str]:
    """What is to be held is given up for want of attempts or time only after it was held long enough."""
    for end in story.ends:
        letter, policy = end.document["dead_letter"], end.operation.policy
        if letter is None or policy.on_exhausted != "hold" or letter["reason"] not in _EXHAUSTED:
            continue
        last = (end.document.get("actions") or [{"by": None}])[-1]
        ends_at = from_rfc3339(end.document["updated_at"]) + story.world.clock_difference + _EARLY
        if last["by"] != BY_POLICY:
            yield f"{end.operation.run_id} was given up, and not held: {letter['reason']}"
        elif ends_at < from_rfc3339(last["at"]) + timedelta(seconds=policy.hold_seconds or HOLD_SECONDS):
            yield f"{end.operation.run_id} was held from {last['at']} for too short a time"


_EXHAUSTED: Final = frozenset({DeadLetterReason.RETRIES_EXHAUSTED, DeadLetterReason.DEADLINE_EXCEEDED})


def steps_run_once(story: Story) -> Iterator[str]:
    """A step whose result is remembered is not run again, neither by a later attempt nor by a replay."""
    calls: dict[tuple[str, int, str], list[Call]] = defaultdict(list)
    for call in story.app.targets[_OF_STEPS].calls:
        run = call.operation.remembered_run
        calls[call.operation.operation_id, run, call.path.rpartition("/")[2]].append(call)
    for row in story.app.tables.rows("HandlerSteps"):
        result = json.loads(contents.unpacked("record", row)).get("result")
        run, _, name = row["RowKey"].partition(".")
        of_step = calls[row["PartitionKey"], int(run), name]
        # The process of an execution that stored a result lived until then, or died in the very moment.
        stored = [call.execution.ended_at for call in of_step if result and call.seen == json.loads(result)]
        if any(ended_at and call.at > ended_at for ended_at in stored for call in of_step):
            yield f"step {name} of {row['PartitionKey']} ran again after it had a result"


def progress_is_kept(story: Story) -> Iterator[str]:
    """An attempt begins with what was reported: never ahead of it, and not behind it where storage worked."""
    runs: dict[tuple[str, int], list[Call]] = defaultdict(list)
    for call in story.app.targets["stock"].calls:
        if "/pages/" in call.path or call.path.endswith("/ready"):
            run = call.operation.remembered_run
            runs[call.operation.operation_id, run].append(call)
    for (operation_id, _), calls in runs.items():
        executions = {id(call.execution): call.execution for call in calls}
        for execution in executions.values():
            own = [call for call in calls if call.execution is execution]
            begins, before = _page(own[0]), [call for call in calls if call.at < own[0].at]
            done = {_page(call) for call in before if call.status == httpx.codes.OK}
            if not done >= set(range(begins)):
                yield f"{operation_id} went on with page {begins}, and {sorted(done)} were done"
            kept = [
                min(_page(call) + 1, PAGES)  # What comes after the last page reports none.
                for call in before
                if call.status == httpx.codes.OK and call.execution.counts and call.attempt < own[0].attempt
            ]
            if _stores_all(story) and begins < max(kept, default=0):
                yield f"{operation_id} went on with page {begins}, an earlier attempt reported {max(kept)}"


def _page(call: Call) -> int:
    return PAGES if call.path.endswith("/ready") else int(call.path.rpartition("/")[2])


def _stores_all(story: Story) -> bool:
    chances = story.world.chances
    return not (chances.storage_fails or chances.full or chances.slow)


def nothing_after_the_deadline(story: Story) -> Iterator[str]:
    """No attempt begins after its operation's deadline, by the clock of the worker that makes it.

    But for the first: nobody could make it before.
    """
    for target, call in calls_of_targets(story):
        deadline = call.operation.deadline_at
        if deadline is None or call.attempt == 1:
            continue
        if call.at > deadline + story.world.clock_difference:
            yield f"{call.operation.run_id} called {target} at {call.at}, its deadline was {deadline}"


def circuits_probe_within_limits(story: Story) -> Iterator[str]:
    """A half-open circuit never lets more probe than its settings say."""
    yield from story.circuits.overfull


def nothing_while_everything_is_held(story: Story) -> Iterator[str]:
    """Once the circuit of a dependency has a freeze no attempt begins there, but for tries, until it ends."""
    for (dependency, _), (since, until) in story.circuits.freezes.items():
        for call in story.app.targets[dependency].calls if dependency in story.app.targets else ():
            begun_at, operation = call.execution.began_at, call.operation
            is_held = since + _SEEN_WITHIN < begun_at and (until is None or call.at < until - _EARLY)
            if is_held and operation.operation_id not in story.people.hurried:
                yield f"{operation.run_id} called {dependency} at {call.at}, held from {since} to {until}"


def reports_count_once(story: Story) -> Iterator[str]:
    """A circuit counts a worker's report once, however often it comes."""
    yield from story.circuits.counted_twice


def _life(story: Story, operation: OperationInput) -> tuple[str, int]:
    return operation.operation_id, story.world.life_at(operation.created_at)


def _run(operation: OperationInput) -> RunKey:
    return operation.run_id, operation.created_at


def calls_of_targets(story: Story) -> Iterator[tuple[str, Call]]:
    for name, target in story.app.targets.items():
        yield from ((name, call) for call in target.calls)


def _calls_by_run(story: Story, target: str) -> dict[RunKey, list[Call]]:
    calls: dict[RunKey, list[Call]] = defaultdict(list)
    for call in story.app.targets[target].calls:
        calls[_run(call.operation)].append(call)
    return calls

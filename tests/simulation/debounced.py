"""What holds of operations with a debounce key."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

from durable_retry.base.names import FORGET
from durable_retry.features.debounce.names import DEBOUNCE, WITHDRAW
from durable_retry.features.debounce.rules import LONGEST_WAIT, Debounce, debounce_of
from durable_retry.rules.operations.operation import OperationInput
from tests.simulation.calls import calls_of_targets, is_hurried, slack
from tests.simulation.story import RunEnd, Story
from tests.simulation.targets import Call


def quiet_is_waited_for(story: Story) -> Iterator[str]:
    """No attempt begins before the operation has waited, or its series for long, unless somebody asked."""
    first = {key: min(_accepted_at(end) for end in ends) for key, ends in _ends_by_key(story).items()}
    for target, call in calls_of_targets(story):
        debounce = debounce_of(call.operation)
        if debounce is None:
            continue
        seconds = timedelta(seconds=debounce.seconds)
        longest = timedelta(seconds=debounce.max_seconds or LONGEST_WAIT * debounce.seconds)
        bound = first[_key(story, call.operation, debounce)] + longest
        due_at = min(debounce.accepted_at + seconds, bound)
        is_early = call.at < due_at - slack(story) - story.world.clock_difference
        since = call.operation.created_at - story.world.clock_difference
        if is_early and not is_hurried(story, call.operation, since, call.at):
            yield f"{call.operation.run_id} called {target} at {call.at}, due at {due_at}"


def replaced_ones_do_not_run(story: Story) -> Iterator[str]:
    """What was replaced makes no call, and was replaced by a later one of its key that ended too."""
    calls = _first_calls(story)
    for key, ends in _ends_by_key(story).items():
        by_id = {end.operation.operation_id: end for end in ends}
        for end in ends:
            replaced_by = end.document.get("replaced_by")
            if replaced_by is None:
                continue
            if (end.operation.run_id, _accepted_at(end)) in calls:
                yield f"{end.operation.run_id} was replaced by {replaced_by}, and ran"
            later = by_id.get(replaced_by)
            if later is None or _accepted_at(later) < _accepted_at(end):
                yield f"{end.operation.run_id} was replaced by {replaced_by}, which is no later one of {key}"


def the_last_one_runs(story: Story) -> Iterator[str]:
    """The last one of a key is not replaced, and none begins once a later one has joined."""
    for key, ends in _ends_by_key(story).items():
        last_at = max(map(_accepted_at, ends))
        last = [end for end in ends if _accepted_at(end) == last_at]
        if all(end.document.get("replaced_by") is not None for end in last):
            yield f"{last[0].operation.run_id} is the last one of {key}, and was replaced"
    yield from story.debounces.begun_though_replaced


def keys_are_forgotten(story: Story) -> Iterator[str]:
    """Nothing is kept of a debounce key once nothing has come for long, unless the message was lost."""
    lost = {entity for entity, operation in story.app.hub.lost if operation in {FORGET, WITHDRAW}}
    yield from (name for name in story.debounced_left if f"@{DEBOUNCE}@{name}" not in lost)


def _ends_by_key(story: Story) -> dict[tuple[str, int], list[RunEnd]]:
    """Return the ends of operations with one debounce key, in one life."""
    found: dict[tuple[str, int], list[RunEnd]] = defaultdict(list)
    for end in story.ends:
        if (debounce := debounce_of(end.operation)) is not None:
            found[_key(story, end.operation, debounce)].append(end)
    return found


def _key(story: Story, operation: OperationInput, debounce: Debounce) -> tuple[str, int]:
    return debounce.entity, story.world.life_at(operation.created_at)


def _accepted_at(end: RunEnd) -> datetime:
    debounce = debounce_of(end.operation)
    assert debounce is not None
    return debounce.accepted_at


def _first_calls(story: Story) -> dict[tuple[str, datetime], Call]:
    """Return the first call of each run, by its name and when it was accepted."""
    found: dict[tuple[str, datetime], Call] = {}
    for _, call in sorted(calls_of_targets(story), key=lambda each: each[1].at):
        if (debounce := debounce_of(call.operation)) is not None:
            found.setdefault((call.operation.run_id, debounce.accepted_at), call)
    return found

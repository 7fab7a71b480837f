"""What holds of the retries of crowds that have a retry budget."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

from durable_retry.base.json_forms import from_rfc3339
from durable_retry.rules.circuit.retry_budget import (
    CREDIT_SECONDS,
    PROMISED_SECONDS,
    Budget,
    account,
    is_kept,
)
from tests.simulation.crowds.calls import UNDER_WAY, end_of, limited_calls, time_of
from tests.simulation.crowds.crowd import MINIMUM_PER_SECOND, Trouble
from tests.simulation.crowds.story import CrowdStory
from tests.simulation.targets import operation_in

_RETRIED_WITHIN: Final = timedelta(seconds=3)
"""From the instant at which a budget has a token for a retry until that begins: workers read it each second,
and who asks again does so within two."""
_PROMISED_WITHIN: Final = timedelta(seconds=PROMISED_SECONDS + CREDIT_SECONDS)
"""From when a first attempt is heard of until the latest instant for which a promise may count on more."""


def retries_stay_within_the_budget(story: CrowdStory) -> Iterator[str]:
    """Retries take what the budget has, and what workers overdraw who do not see each other's yet.

    A promise counts on first attempts to go on, so a burst of them earns twice.
    """
    calls = limited_calls(story, story.shape.limited)
    first = [call.at for call in calls if call.attempt == 1]
    taken_at = _when_taken(story) if story.shape.ratio else {}
    attempts = [(call.at, taken_at.get(id(call.execution), call.at), call.attempt > 1) for call in calls]
    within = _PROMISED_WITHIN + UNDER_WAY * (not story.shape.is_quick)
    for at, level in _budget_levels(story, attempts):
        expected = story.shape.ratio * sum(at - within < each <= at for each in first)
        if level < -(2 * story.shape.workers + 2 + expected):
            yield f"the retry budget was {-level:.1f} overdrawn at {time_of(at)}"
            return


def retries_go_when_paid_for(story: CrowdStory) -> Iterator[str]:
    """No retry waits much longer for its budget than until that has a token for it."""
    if not story.shape.is_quick or story.shape.trouble is not Trouble.NONE:
        return
    calls, wait = limited_calls(story, story.shape.limited), timedelta(seconds=story.shape.retry_seconds)
    first = [call for call in calls if call.attempt == 1]
    ends = [end_of(story, call) + wait for call in first]
    due = [(call.at, call.at, False) for call in first] + [(at, at, True) for at in ends]
    paid = sorted(
        at + timedelta(seconds=max(0.0, -level) / MINIMUM_PER_SECOND)
        for at, level in _budget_levels(story, due)
    )
    for paid_at, began_at in zip(paid, (call.at for call in calls if call.attempt > 1), strict=False):
        if began_at > paid_at + _RETRIED_WITHIN:
            began, paid_for = time_of(began_at), time_of(paid_at)
            yield f"a retry began at {began} for which the budget had a token at {paid_for}"
            return


def _when_taken(story: CrowdStory) -> dict[int, datetime]:
    """Return when the retries that began with a token took it, by the execution's identity.

    It was when their turn was promised, or when their worker died, which leaves the attempt its token.
    """
    taken_at = dict[int, datetime]()
    asked = dict[tuple[str, int], tuple[str | None, datetime]]()
    for execution in story.app.hub.attempts:
        operation = operation_in(story.world, execution.given)
        if operation is None:
            continue
        name, began_at = (operation.operation_id, execution.given["attempt"]), execution.began_at
        promised_at = execution.given.get("admission", {}).get("promised_at")
        if promised_at is not None and is_kept(from_rfc3339(promised_at), began_at):
            before, at = asked.get(name, (None, began_at))
            taken_at[id(execution)] = at
            if promised_at == before:  # It has begun more than once under one promise.
                continue
        asked[name] = (promised_at, execution.ended_at or began_at)
    return taken_at


def _budget_levels(
    story: CrowdStory, attempts: Iterable[tuple[datetime, datetime, bool]]
) -> Iterator[tuple[datetime, float]]:
    """Give the level of the budget at the begin of each retry, if one account has each attempt at once.

    An attempt is given by its begin, when it took its token, and whether it is a retry. What was taken for a
    retry that has not begun is not lost to the most that the budget saves up.
    """
    budget, ahead = Budget(), 0
    changes = list[tuple[datetime, int, int, int]]()
    for begins_at, taken_at, is_retry in attempts if story.shape.ratio else ():
        changes.append((taken_at, 0, int(not is_retry), int(is_retry)))
        changes += [(begins_at, 1, 0, 0)] * is_retry
    for at, is_begin, first, retries in sorted(changes):
        ahead += retries - is_begin
        settings = story.shape.budget
        budget = account(budget, at=at, first_attempts=first, retries=retries, settings=settings)
        if is_begin:
            yield at, budget.tokens + ahead

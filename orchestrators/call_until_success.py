"""Activities of our own side that must happen: called again for as long as they fail."""

from collections.abc import Generator
from datetime import timedelta
from typing import Any, Final

from durabletask import task

type Steps[T] = Generator[task.Task[Any], Any, T]
"""Yields durable tasks, is sent their results, and returns T."""

_FIRST_WAIT_SECONDS: Final = 2
_LONGEST_WAIT_SECONDS: Final = 300
_DOUBLINGS: Final = 8
"""2 s doubled eight times is above the longest wait; more would only grow the number."""


def wait_after(failures: int) -> timedelta:
    """Return how long to wait after so many failures in a row of our own side, from 1."""
    doubled = _FIRST_WAIT_SECONDS * 2 ** min(failures - 1, _DOUBLINGS)
    return timedelta(seconds=min(doubled, _LONGEST_WAIT_SECONDS))


def call_until_success(ctx: task.OrchestrationContext, activity: str, input_: dict[str, Any]) -> Steps[Any]:
    """Call an activity until it answers.

    For what only our own storage can fail: giving up would lose what was accepted, and nothing else can be
    done meanwhile. The wait is a durable timer, so an outage costs a turn every five minutes.

    Args:
        ctx: The durable context.
        activity: Name of an idempotent activity that raises for passing trouble only.
        input_: Its input.
    """
    failures = 0
    while True:
        try:
            return (yield ctx.call_activity(activity, input=input_))
        except task.TaskFailedError:
            failures += 1
            yield ctx.create_timer(wait_after(failures))

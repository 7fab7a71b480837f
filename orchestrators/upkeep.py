"""Orchestrations of upkeep: one removes what is past its time, one goes through the task hub's queues."""

from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import azure.durable_functions as df
from durabletask import task

from durable_retry.base.names import PASS_QUEUE, QUEUE_CHECK, REMOVE_PAST, RETENTION
from durable_retry.hub.turns import Signals, Turns
from durable_retry.settings.configuration import function_name

blueprint = df.Blueprint()

STEPS_PER_EXECUTION: Final = 20
"""So many activities are in one history before it continues as new."""


def retention(ctx: task.OrchestrationContext, part: dict[str, Any]) -> Turns[None]:
    """Repeat the step of one part while it has more to remove."""
    signals = Signals(ctx)
    for _ in range(STEPS_PER_EXECUTION):
        step = yield from signals.answer(lambda: ctx.call_activity(function_name(REMOVE_PAST), input=part))
        if step is None or step.is_failed or step.get_result() is not True:
            return  # Where more is left, the timer starts it again within five minutes.
    ctx.continue_as_new(part)


_SOON: Final = timedelta(seconds=1)


def queue_check(ctx: task.OrchestrationContext, _: object) -> Turns[None]:
    """Go through the queues of turns and of activities as operations do; see `rules.queue_checks`.

    onebox has a queue each for activities of first turns, of timers and of answers, and prefers the latter
    two; Azure Storage has one for all.
    """

    def passed() -> task.Task[Any]:
        called: task.Task[Any] = ctx.call_activity(function_name(PASS_QUEUE), input={})
        return called

    first = passed()
    yield ctx.create_timer(_SOON)
    for called in (passed(), first):
        with suppress(task.TaskFailedError):  # Its worker died, so it had begun.
            yield called
    with suppress(task.TaskFailedError):
        yield passed()


blueprint.orchestration_trigger(context_name="context", orchestration=RETENTION)(retention)
blueprint.orchestration_trigger(context_name="context", orchestration=QUEUE_CHECK)(queue_check)

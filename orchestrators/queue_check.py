"""The orchestration that goes through the task hub's queues."""

from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import azure.durable_functions as df
from durabletask import task

from durable_retry.features.standstill.names import PASS_QUEUE, QUEUE_CHECK
from durable_retry.hub.turns import Turns
from durable_retry.settings.configuration import function_name

blueprint = df.Blueprint()

_SOON: Final = timedelta(seconds=1)


def queue_check(ctx: task.OrchestrationContext, _: object) -> Turns[None]:
    """Go through the queues of turns and of activities as operations do; see `features.standstill.rules`.

    onebox has a queue each for activities of first turns, of timers and of answers, and prefers the latter
    two; Azure Storage has one for all.
    """

    def pass_queue() -> task.Task[Any]:
        called: task.Task[Any] = ctx.call_activity(function_name(PASS_QUEUE), input={})
        return called

    first = pass_queue()
    yield ctx.create_timer(_SOON)
    for called in (pass_queue(), first):
        with suppress(task.TaskFailedError):  # Its worker died, so it had begun.
            yield called
    with suppress(task.TaskFailedError):
        yield pass_queue()


blueprint.orchestration_trigger(context_name="context", orchestration=QUEUE_CHECK)(queue_check)

"""The orchestration of retention: it removes what is past its time."""

from typing import Any, Final

import azure.durable_functions as df
from durabletask import task

from durable_retry.features.retention.names import REMOVE_PAST, RETENTION
from durable_retry.hub.turns import Signals, Turns
from durable_retry.settings.configuration import function_name

blueprint = df.Blueprint()

STEPS_PER_EXECUTION: Final = 20
"""Activities in one history, before the orchestration continues as new."""


def retention(ctx: task.OrchestrationContext, part: dict[str, Any]) -> Turns[None]:
    """Repeat the step of one part while it has more to remove."""
    signals = Signals(ctx)
    for _ in range(STEPS_PER_EXECUTION):
        step = yield from signals.answer(lambda: ctx.call_activity(function_name(REMOVE_PAST), input=part))
        if step is None or step.is_failed or step.get_result() is not True:
            return  # Where more is left, the timer starts it again within five minutes.
    ctx.continue_as_new(part)


blueprint.orchestration_trigger(context_name="context", orchestration=RETENTION)(retention)

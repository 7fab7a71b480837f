"""`call_next`: tells those who wait for a slot of a limit that one is free, for the entity `call_limiter`.

They go on by themselves where the event is lost.
"""

from typing import Any

import azure.durable_functions as df
from durabletask import task

from durable_retry.base.names import SLOT_EVENT
from durable_retry.features.limits.names import CALL_NEXT
from durable_retry.hub.turns import Turns

blueprint = df.Blueprint()


def call_next(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Turns[None]:
    """Tell the instances `waiters` that a slot of `dependency` is free."""
    for waiter in input_["waiters"]:
        ctx.send_event(waiter, SLOT_EVENT, data={"dependency": input_["dependency"]})
    yield from ()


blueprint.orchestration_trigger(context_name="context", orchestration=CALL_NEXT)(call_next)

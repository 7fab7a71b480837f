"""`call_next`: tells one that waits for a slot of a limit that one is free, for the entity `call_limiter`.

It goes on by itself where the event is lost.
"""

from typing import Any

import azure.durable_functions as df
from durabletask import task

from durable_retry.base.names import SLOT_EVENT
from durable_retry.features.limits.names import CALL_NEXT
from durable_retry.hub.turns import Turns

blueprint = df.Blueprint()


def call_next(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Turns[None]:
    """Tell the instance `waiter` that a slot of `dependency` is free."""
    ctx.send_event(input_["waiter"], SLOT_EVENT, data={"dependency": input_["dependency"]})
    yield from ()


blueprint.orchestration_trigger(context_name="context", orchestration=CALL_NEXT)(call_next)

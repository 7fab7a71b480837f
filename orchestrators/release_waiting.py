"""The orchestration that wakes whoever waits for a circuit that was closed by hand, in bounded steps."""

from datetime import timedelta
from typing import Any, Final

import azure.durable_functions as df
from durabletask import task

from engine.circuit import HAND
from orchestrators.effort import insist
from orchestrators.run import Steps
from stores.circuit_entity import circuit_id
from stores.waiting_operations import RELEASE_WAITING, WAKE_WAITING

blueprint = df.Blueprint()

SETTLE: Final = timedelta(seconds=2)
"""By then no worker believes a copy from before: one is believed for a second, and reading it took at most
another. Who is woken earlier could be refused once more, for the whole of the old break."""


def release_waiting(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Steps[dict[str, Any] | None]:
    """Wake the operations that wait for a circuit.

    All may be woken at once: each asks again, and is let go in its turn.

    Args:
        ctx: The durable context.
        input_: `dependency`, and `hand`, what was done by hand. `position` and `woken` say where an earlier
            execution stopped.

    Returns:
        `{"woken": n}`; None when the orchestration continues as new.
    """
    position = input_.get("position")
    if position is None:
        # The same message again, this time with an answer: what follows must come after it.
        yield ctx.call_entity(circuit_id(input_["dependency"]), HAND, input_["hand"])
        yield ctx.create_timer(SETTLE)
    step = {"dependency": input_["dependency"], "position": position}
    done = yield from insist(ctx, WAKE_WAITING, step)
    woken = input_.get("woken", 0) + done["woken"]
    if done["following"] is None:
        return {"woken": woken}
    ctx.continue_as_new(input_ | {"position": done["following"], "woken": woken})
    return None


blueprint.orchestration_trigger(context_name="context", orchestration=RELEASE_WAITING)(release_waiting)

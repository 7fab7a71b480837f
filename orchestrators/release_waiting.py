"""The orchestration that wakes whoever waits for a circuit that was closed by hand, in bounded steps."""

from datetime import UTC, timedelta
from typing import Any, Final

import azure.durable_functions as df
from durabletask import task

from engine.circuit import HAND
from engine.instants import to_rfc3339
from orchestrators.effort import insist
from orchestrators.run import Steps
from stores.circuit_entity import circuit_id
from stores.waiting_operations import RELEASE_WAITING, WAKE_WAITING

blueprint = df.Blueprint()

SETTLE: Final = timedelta(seconds=2)
"""By then no worker believes a copy from before: one is believed for a second, and reading it took at most
another. Who is woken earlier could be refused once more, for the whole of the old break."""


PASSES: Final = 10
"""Some task hubs page by counting, so that who is woken and leaves shifts the others to a page that was seen:
they are looked through until nobody is found, and never for ever."""
BETWEEN_PASSES: Final = timedelta(seconds=1)
"""Whoever was woken shows it by then."""


def release_waiting(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Steps[dict[str, Any] | None]:
    """Wake the operations that wait for a circuit.

    All may be woken at once: each asks again, and is let go in its turn.

    Args:
        ctx: The durable context.
        input_: `dependency`, and `hand`, what was done by hand; `progress` of an earlier execution.

    Returns:
        `{"woken": n}`; None when the orchestration continues as new.
    """
    progress = input_.get("progress")
    if progress is None:
        progress = yield from _begin(ctx, input_)
    step = {name: progress[name] for name in ("changed_at", "position")}
    done = yield from insist(ctx, WAKE_WAITING, step | {"dependency": input_["dependency"]})
    progress = progress | {
        "position": done["following"],
        "woken": progress["woken"] + done["woken"],
        "woken_in_pass": progress["woken_in_pass"] + done["woken"],
    }
    if done["following"] is None:
        if progress["woken_in_pass"] == 0 or progress["passes"] == PASSES:
            return {"woken": progress["woken"]}
        progress |= {"woken_in_pass": 0, "passes": progress["passes"] + 1}
        yield ctx.create_timer(BETWEEN_PASSES)
    ctx.continue_as_new(input_ | {"progress": progress})
    return None


def _begin(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Steps[dict[str, Any]]:
    """Wait until what was done by hand holds for everybody."""
    # The same message again, this time with an answer: what follows must come after it.
    yield ctx.call_entity(circuit_id(input_["dependency"]), HAND, input_["hand"])
    yield ctx.create_timer(SETTLE)
    changed_at = to_rfc3339(ctx.current_utc_datetime.replace(tzinfo=UTC))
    return {"changed_at": changed_at, "position": None, "woken": 0, "woken_in_pass": 0, "passes": 1}


blueprint.orchestration_trigger(context_name="context", orchestration=RELEASE_WAITING)(release_waiting)

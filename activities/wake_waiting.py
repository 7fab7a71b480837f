"""The activity `wake_waiting`: makes some of the operations that wait for a circuit ask it again."""

from typing import Any, Final

import azure.durable_functions as df

from durable_retry.engine.base.json_forms import from_rfc3339
from durable_retry.engine.base.names import WAKE_WAITING
from durable_retry.stores.circuit import waiting_page, wake
from durable_retry.stores.task_hub import bind_hub

blueprint = df.Blueprint()

PAGES_PER_STEP: Final = 5
"""Pages of 200 operations: a step takes seconds, and one that fails repeats little."""


async def wake_waiting(step: dict, hub: str) -> dict:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Wake the waiting operations on the next pages of the task hub; waking one twice is harmless.

    Args:
        step: `dependency`; `changed_at`: since when every worker sees the change; `position`: `following` of
            the step before, None for the first.
        hub: Configuration of the durable client.

    Returns:
        `woken`, the number of operations, and `following`, where the next step begins; None after the last.
    """
    position: str | None = step["position"]
    changed_at = from_rfc3339(step["changed_at"])
    woken = 0
    for _ in range(PAGES_PER_STEP):
        page = await waiting_page(hub, step["dependency"], changed_at, position)
        await wake(hub, step["dependency"], page.waiting, changed_at)
        woken += len(page.waiting)
        position = page.following
        if position is None:
            break
    done: dict[str, Any] = {"woken": woken, "following": position}
    return done


blueprint.activity_trigger(input_name="step", activity=WAKE_WAITING)(bind_hub(blueprint)(wake_waiting))

"""The activity `remove_past`: removes one part of what retention keeps no longer, for 25 s."""

from typing import Any

import azure.durable_functions as df

from durable_retry import clock
from durable_retry.binding import TaskHub, bind_hub
from durable_retry.engine.base.names import REMOVE_PAST
from durable_retry.services.upkeep.rounds import STEP_SECONDS, RetentionKind, RetentionPart
from durable_retry.services.upkeep.rounds import remove_past as remove

blueprint = df.Blueprint()


async def remove_past(part: dict, hub: TaskHub) -> bool:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Remove one part until nothing is left or the time of a step is up. Idempotent.

    Args:
        part: `kind` and `shard`.

    Returns:
        Whether more may be left.
    """
    given: dict[str, Any] = part
    return await remove(
        hub, RetentionPart(RetentionKind(given["kind"]), given["shard"]), clock.now(), STEP_SECONDS
    )


blueprint.activity_trigger(input_name="part", activity=REMOVE_PAST)(bind_hub(blueprint)(remove_past))

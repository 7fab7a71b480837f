"""The activity `dead_letter`: keeps what an operation leaves to a person."""

import azure.durable_functions as df

from stores import clock
from stores.dead_letters import keep_operation
from stores.task_hub import DEAD_LETTER

blueprint = df.Blueprint()


async def dead_letter(entry: dict) -> str:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Keep the dead letter of an operation, once however often this runs.

    Args:
        entry: `operation`, `category`, `reason`, `detail`, `attempts`.

    Returns:
        Its id.
    """
    return await keep_operation(entry, clock.now())


blueprint.activity_trigger(input_name="entry", activity=DEAD_LETTER)(dead_letter)

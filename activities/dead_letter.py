"""The activity `dead_letter`: stores the dead letter of an operation."""

import azure.durable_functions as df

from durable_retry import clock
from durable_retry.engine.base.names import DEAD_LETTER
from durable_retry.stores.dead_letters.records import keep_operation

blueprint = df.Blueprint()


async def dead_letter(entry: dict) -> str:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Store the dead letter of an operation. Idempotent.

    Args:
        entry: `operation`, `category`, `reason`, `detail`, `attempts`.

    Returns:
        Its id.
    """
    return await keep_operation(entry, clock.now())


blueprint.activity_trigger(input_name="entry", activity=DEAD_LETTER)(dead_letter)

"""The activity `diagnose`: looks whether the index of operations is written and read."""

import azure.durable_functions as df

from durable_retry.engine.base.names import DIAGNOSE
from durable_retry.services.diagnosis import trouble_with_index

blueprint = df.Blueprint()


async def diagnose(request: dict) -> str:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Write a row of the index, read it, and remove it.

    Args:
        request: `diagnosis_id`.

    Returns:
        What is wrong; "" when nothing is.
    """
    return await trouble_with_index(request["diagnosis_id"])


blueprint.activity_trigger(input_name="request", activity=DIAGNOSE)(diagnose)

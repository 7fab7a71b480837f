"""The activity `diagnose`: looks whether the index of operations is written and read."""

from typing import Any

from durable_retry.services.health import trouble_with_index


async def diagnose(request: dict[str, Any]) -> str:
    """Write a row of the index, read it, and remove it.

    Args:
        request: `diagnosis_id`.

    Returns:
        What is wrong; "" when nothing is.
    """
    return await trouble_with_index(request["diagnosis_id"])

"""The activity of a diagnosis."""

from typing import Any

from durable_retry.features.diagnosis.parts import trouble_with_tables


async def diagnose(request: dict[str, Any]) -> str:
    """Write a row of a table, read it, and remove it.

    Args:
        request: `diagnosis_id`.

    Returns:
        What is wrong; "" when nothing is.
    """
    return await trouble_with_tables(request["diagnosis_id"])

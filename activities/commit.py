"""The activity `commit`: makes a success with side effects durable in one transaction."""

import azure.durable_functions as df

from engine.trace_context import TraceContext
from stores import clock
from stores.commits import commit_success
from stores.tables import StorageRefusedError
from stores.task_hub import COMMIT

blueprint = df.Blueprint()


async def commit(success: dict) -> dict:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Commit a success, once however often this runs.

    Args:
        success: `operation_id`, `result`, `writes`, `events`, `correlation_id`, `trace`.

    Returns:
        `events` as the status document shows them, and `rejected`: why the writes can never be made, or None.
    """
    try:
        events = await commit_success(
            success["operation_id"],
            success["result"],
            success["writes"],
            success["events"],
            clock.now(),
            correlation_id=success.get("correlation_id"),
            trace=TraceContext.from_json(success.get("trace")),
        )
    except (StorageRefusedError, ValueError, TypeError) as error:
        return {"events": [], "rejected": str(error)[:500]}
    return {"events": events, "rejected": None}


blueprint.activity_trigger(input_name="success", activity=COMMIT)(commit)

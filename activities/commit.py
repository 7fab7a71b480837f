"""The activity `commit`: makes a success with side effects durable in one transaction."""

import azure.durable_functions as df

from durable_retry import clock
from durable_retry.engine.base.json_forms import TraceContext
from durable_retry.engine.base.names import COMMIT
from durable_retry.engine.operations.operation import outbox_id_for
from durable_retry.stores.operation_writes import commit_success
from durable_retry.stores.tables import StorageRefusedError
from durable_retry.stores.task_hub import read_record

blueprint = df.Blueprint()


async def commit(success: dict, hub: str) -> dict:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Commit a success. Idempotent.

    Args:
        success: `operation_id`, `run`, `result`, `writes`, `events`, `correlation_id`, `trace`.
        hub: Configuration of the durable client.

    Returns:
        `events` as the status document shows them, and `rejected`: why the writes can never be made, or None.

    Raises:
        TaskHubUnavailableError: Whether this run still holds its claim is not known.
    """
    operation_id, run = success["operation_id"], success.get("run", 1)
    record = await read_record(hub, operation_id)
    if record is not None and record.run > run:
        return {"events": [], "rejected": f"run {record.run} of this key holds the claim; run {run} lost it"}
    try:
        events = await commit_success(
            outbox_id_for(operation_id, run),
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


blueprint.activity_trigger(input_name="success", activity=COMMIT)(
    blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)(commit)
)

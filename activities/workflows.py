"""The activities of sagas and batches: starting operations, storing or reading how they ended."""

from typing import Any

from durable_retry.features.workflows.batches import advance_batch, end_batch, refuse_item, start_item
from durable_retry.features.workflows.rules.shapes import step_sizes
from durable_retry.features.workflows.sagas import begin_run, end_run
from durable_retry.hub.binding import TaskHub
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.runtime import clock


async def submit(request: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Start the operation of a saga's step, or return how it ended. Idempotent.

    Args:
        request: `operation`, an `OperationInput`; `wanted`: JSON pointers to the parts of its result that are
            needed; `missing`: why it can never start, if it cannot.

    Returns:
        `ending`: the JSON form of a `Completion`, or None while it runs.
    """
    operation, now = OperationInput.from_json(request["operation"]), clock.now()
    if (missing := request.get("missing")) is not None:
        return {"ending": (await refuse_item(operation, missing, now)).to_json()}
    completion = await start_item(hub, operation, now, request.get("wanted", ()))
    return {"ending": None if completion is None else completion.to_json()}


async def batch_step(request: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Store how items ended, and start others. Idempotent.

    Args:
        request: `batch_id`; `ended`: items (`indices`) and how their operation ended (`ending`); `start`: the
            items to start, or to look at again.

    Returns:
        `running`: pairs of index and operation id of those that were started and have not ended. `sizes`:
        those of the request, by which the batch knows to which of its steps this is the answer.
    """
    running = await advance_batch(hub, request["batch_id"], request["ended"], request["start"])
    return {"running": [list(pair) for pair in running], "sizes": step_sizes(request)}


async def batch_close(request: dict[str, Any]) -> None:
    """Mark a batch as ended.

    Args:
        request: `batch_id`.
    """
    await end_batch(request["batch_id"], clock.now())


async def begin_restart(request: dict[str, Any]) -> dict[str, Any]:
    """Return what a run of a restarted saga is to run. Idempotent.

    Args:
        request: `saga_id`; `restart`: the token of the restart that started the run.

    Returns:
        `saga`: None where it runs what it was started with; otherwise the JSON form of the saga as the latest
        restart has it. `restart`: the token of that; None where that has ended.
    """
    return await begin_run(request["saga_id"], request["restart"])


async def end_restart(request: dict[str, Any]) -> None:
    """Keep how a restarted saga ended. Idempotent.

    Args:
        request: `saga_id`; `restart`: the token of its restart; `saga`: its JSON form.
    """
    await end_run(request["saga_id"], request["restart"], request["saga"])

"""The activities of sagas, batches and calls: starting operations, storing or reading how they ended."""

from typing import Any

from durable_retry import clock
from durable_retry.engine.base.json_forms import from_rfc3339
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.runtime.binding import TaskHub
from durable_retry.services.calls import PendingCall, begin_call, look_at
from durable_retry.services.sagas import begin_run, end_run
from durable_retry.services.workflows import advance_batch, end_batch, refuse_item, start_item


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
        `running`: pairs of index and operation id of those that were started and have not ended.
    """
    running = await advance_batch(hub, request["batch_id"], request["ended"], request["start"])
    return {"running": [list(pair) for pair in running]}


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


async def start_call(request: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Start the operation of a call. Idempotent.

    Args:
        request: `document`, the body of an operation; `instance`: whose call it is; `since`: when that
            instance's caller began; `key`: for a document without one.

    Returns:
        `operation_id`; or `problems`: why it can never start, pointer and detail of each; or `is_taken`:
        another call has this key.
    """
    call = PendingCall(request["instance"], from_rfc3339(request["since"]), request["key"])
    return await begin_call(hub, request["document"], call, clock.now())


async def look_at_call(request: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Look how the operation of a call ended.

    Args:
        request: `operation_id`.

    Returns:
        `document`: its status document, None while it runs; or `problems`, when nothing is left of it.
    """
    return await look_at(hub, request["operation_id"])

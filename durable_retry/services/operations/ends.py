"""How an operation ends: the commit of a success, the dead letter of a failure."""

from collections.abc import Mapping
from typing import Any

from durable_retry import clock
from durable_retry.engine.operations.commit import Committed, Success
from durable_retry.engine.operations.naming import outbox_id_for
from durable_retry.errors import StorageRefusedError
from durable_retry.stores.dead_letters.records import keep_operation, keep_unreadable
from durable_retry.stores.operations.key_record import read_record
from durable_retry.stores.operations.writes import commit_success
from durable_retry.stores.task_hub import TaskHub


async def commit_claimed(hub: TaskHub, success: Success) -> Committed:
    """Commit a success, unless its run lost the claim of the key. Idempotent.

    The claim is read first: a run that lost it commits nothing. It may lose it right after; then the fence in
    the transaction keeps its rows from a handler's later ones (`stores.operations.writes`).

    Raises:
        TaskHubUnavailableError: Whether this run still holds its claim is not known.
    """
    run, record = success.run, await read_record(hub, success.operation_id)
    if record is not None and record.run > run:
        return Committed(rejected=f"run {record.run} of this key holds the claim; run {run} lost it")
    try:
        events = await commit_success(
            outbox_id_for(success.operation_id, run),
            success.result,
            success.writes,
            success.events,
            clock.now(),
            correlation_id=success.correlation_id,
            trace=success.trace,
        )
    except (StorageRefusedError, ValueError, TypeError) as error:
        return Committed(rejected=str(error)[:500])
    return Committed(events=tuple(events))


async def keep_failure(entry: Mapping[str, Any]) -> str:
    """Store the dead letter of an operation, and return its id. Idempotent.

    Args:
        entry: `operation`, `category`, `reason`, `detail`, `attempts`; of an operation whose input cannot be
            read `operation_id`, `unreadable` (the input) and `detail`.
    """
    if "unreadable" in entry:
        given, detail = entry["unreadable"], entry["detail"]
        return await keep_unreadable(entry["operation_id"], given, detail, clock.now())
    return await keep_operation(entry, clock.now())

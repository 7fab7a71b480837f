"""How an operation ends: the commit of a success, the dead letter of a failure."""

from collections.abc import Mapping
from typing import Any

from durable_retry import clock
from durable_retry.engine.base.errors import StorageRefusedError
from durable_retry.engine.operations.completion import Committed, Success
from durable_retry.engine.operations.keys import run_id_for
from durable_retry.engine.operations.steps import OvertakenError
from durable_retry.stores.dead_letters.records import keep_operation, keep_unreadable
from durable_retry.stores.operations.markers import take_commit
from durable_retry.stores.operations.writes import commit_success


async def commit(success: Success) -> Committed:
    """Commit a success, unless a later run of the key has overtaken its own. Idempotent.

    It may be overtaken right after it was let through; then the fence in the transaction keeps its rows from
    a handler's later ones (`stores.operations.writes`).

    Raises:
        azure.core.exceptions.AzureError: Storage failed.
        ContendedError: Others kept changing the marker of the commit.
    """
    run_id = run_id_for(success.operation_id, success.life.run)
    try:
        run = await take_commit(success.operation_id, success.life, clock.now())
        run_id = run_id_for(success.operation_id, run)
        events = await commit_success(
            run_id,
            success.result,
            success.writes,
            success.events,
            clock.now(),
            correlation_id=success.correlation_id,
            trace=success.trace,
        )
    except (StorageRefusedError, OvertakenError, ValueError, TypeError) as error:
        return Committed(run_id=run_id, rejected=str(error)[:500])
    return Committed(run_id=run_id, events=tuple(events))


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

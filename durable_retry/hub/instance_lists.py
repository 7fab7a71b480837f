"""Lists of instances by time, in an Azure Table: the task hub cannot list them by when they were created.

    PK <name of the orchestrator>   RK <newest first>-<instance id>

An entry is written before its instance starts, so there may be one too many, never one too few. Once an
instance was purged, `features.retention` removes its entry, and the rows whose partition key is its id.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.base.json_forms import from_newest_first, from_rfc3339, newest_first
from durable_retry.hub.instances import Instance, unseen_instance
from durable_retry.hub.task_hub import TaskHub
from durable_retry.storage import tables

TABLE: Final = "Workflows"


async def note_created(orchestration: str, instance_id: str, created_at: str) -> None:
    """List an instance under an RFC 3339 instant, always the same for it. Idempotent."""
    keys = {
        "PartitionKey": orchestration,
        "RowKey": f"{newest_first(from_rfc3339(created_at))}-{instance_id}",
    }
    await tables.merge(TABLE, keys | {"created_at": created_at})


async def list_created[D](
    hub: TaskHub, orchestration: str, document_of: Callable[[Instance], D], *, limit: int, cursor: str | None
) -> tuple[list[D], str | None]:
    """Return documents, the newest first, and the cursor of the next ones (None at the end).

    `document_of` gets an unreadable instance where the task hub does not answer. A short page may have a
    cursor.
    """
    page = await tables.rows_between(TABLE, orchestration, limit=limit, cursor=cursor)
    instances = await asyncio.gather(*(_listed_instance(hub, row) for row in page.rows))
    return [document_of(instance) for instance in instances if instance is not None], page.cursor


async def _listed_instance(hub: TaskHub, row: tables.Row) -> Instance | None:
    digits, _, instance_id = str(row["RowKey"]).partition("-")
    try:
        return await hub.read_instance(instance_id)
    except TaskHubUnavailableError as error:
        return unseen_instance(instance_id, from_newest_first(digits), str(error))

"""The activities of a bulk action: looking up what is next, doing a few, counting how that ended."""

from typing import Any

from durable_retry.hub.binding import TaskHub
from durable_retry_console.bulk.actions import matching_page
from durable_retry_console.bulk.ends import count_ends
from durable_retry_console.bulk.items import act_on_some
from durable_retry_console.bulk.shapes import BatchInput, BulkAction


async def bulk_page(request: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Look up the dead letters or operations to act on next.

    Args:
        request: `action`, `filter`, `limit` and `cursor`. Pages of operations are of whatever size.

    Returns:
        `ids`, and `cursor`: None at the end.
    """
    more = (request["filter"], request["limit"], request["cursor"])
    ids, following = await matching_page(hub, BulkAction(request["action"]), *more)
    return {"ids": ids, "cursor": following}


async def bulk_batch(request: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Do the action to some: a `BatchInput`, answered with a `BatchResult`. Idempotent."""
    return (await act_on_some(hub, BatchInput.from_json(request))).to_json()


async def bulk_ends(request: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Count how a part of what a bulk action started has ended. Idempotent.

    Args:
        request: `action_id`, `action`, `cursor`, and of a replay that proves itself `resumes`.

    Returns:
        As `count_ends`.
    """
    action, resumes = BulkAction(request["action"]), request.get("resumes")
    return await count_ends(hub, request["action_id"], action, request["cursor"], resumes)

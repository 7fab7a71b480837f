"""The activities of a bulk replay and of other bulk actions: listing what is next, and doing a few."""

from typing import Any

from durable_retry.engine.base.instants import from_rfc3339, optional_to_rfc3339
from durable_retry.engine.dead_letters.filters import DeadLetterFilter
from durable_retry.engine.dead_letters.replay import ReplayBody
from durable_retry.runtime.binding import TaskHub
from durable_retry_console.bulk.actions import do_batch, letters_page, unfinished_page
from durable_retry_console.bulk.ends import count_ends
from durable_retry_console.bulk.replay import replay_some
from durable_retry_console.bulk.shapes import BulkAction, UnfinishedFilter, counts_of


async def replay_page(request: dict[str, Any]) -> dict[str, Any]:
    """Look up the dead letters to replay next.

    Args:
        request: `filter`, `limit` and `cursor`.

    Returns:
        `ids`, and `cursor`: None at the end.
    """
    filter_ = DeadLetterFilter.from_json(request["filter"])
    ids, following = await letters_page(filter_, request["limit"], request["cursor"])
    return {"ids": ids, "cursor": following}


async def replay_batch(request: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Replay some dead letters, unless their circuits are open. Idempotent.

    Args:
        request: `replay_id`, `ids`, `note`, `by`, and `now`, the orchestrator's; `options`, those of
            `ReplayOptions` that were given beside the note.

    Returns:
        `replayed`, `skipped`, `failures` (`id` and `detail` of each), `left` (ids that have to wait for a
        circuit) and `held_until` (until when, by the clock of `now`; None when nothing is left).

    Raises:
        TaskHubUnavailableError: The rest could not be started.
    """
    done = await replay_some(
        hub,
        request["ids"],
        replay_id=request["replay_id"],
        body=ReplayBody.model_validate(request.get("options", {}) | {"note": request["note"]}),
        asked_at=from_rfc3339(request["now"]),
        by=request["by"],
    )
    return {
        **counts_of(done.items),
        "left": list(done.left),
        "held_until": optional_to_rfc3339(done.held_until),
    }


async def bulk_page(request: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Look up the dead letters or operations to act on next.

    Args:
        request: `action`, `filter`, `limit` and `cursor`.

    Returns:
        As `replay_page`.
    """
    if BulkAction(request["action"]).is_of_dead_letters:
        return await replay_page(request)
    filter_ = UnfinishedFilter.from_json(request["filter"])
    ids, following = await unfinished_page(hub, filter_, request["cursor"])
    return {"ids": ids, "cursor": following}


async def bulk_batch(request: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Do the action to some. Idempotent.

    Args:
        request: `replay_id`, `action`, `ids`, `note`, `by` and `now`, the orchestrator's; `options`, those
            of a pause that were given.

    Returns:
        As `replay_batch`; nothing is left.
    """
    action = BulkAction(request["action"])
    batch = {name: request[name] for name in ("ids", "note", "by")} | {"options": request.get("options")}
    done = await do_batch(hub, request["replay_id"], request["now"], action=action, **batch)
    return {**counts_of(done), "left": [], "held_until": None}


async def bulk_ends(request: dict[str, Any], hub: TaskHub) -> dict[str, Any]:
    """Count how a part of what a bulk replay or action started has ended. Idempotent.

    Args:
        request: `replay_id`, `cursor`, and `action` unless it is a replay.

    Returns:
        `succeeded`, `failed_again`, `under_way`, and `cursor`: None at the end.
    """
    action = BulkAction(request.get("action", BulkAction.REPLAY))
    return await count_ends(hub, request["replay_id"], action, request["cursor"])

"""The activities of a bulk replay and of other bulk actions: listing what is next, and doing a few."""

import azure.durable_functions as df

from durable_retry.engine.base.json_forms import optional_from_rfc3339, optional_to_rfc3339
from durable_retry.engine.base.names import BULK_BATCH, BULK_PAGE, REPLAY_BATCH, REPLAY_PAGE
from durable_retry.engine.dead_letters.bulk_replay import BulkAction, UnfinishedFilter, counts_of
from durable_retry.engine.dead_letters.filters import DeadLetterFilter
from durable_retry.services.bulk_actions import do_some, unfinished_page
from durable_retry.services.bulk_replay import replay_some
from durable_retry.stores.bulk_replay import keep_items
from durable_retry.stores.dead_letters.list import list_dead_letters
from durable_retry.stores.task_hub import bind_hub

blueprint = df.Blueprint()


async def replay_page(request: dict) -> dict:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Look up the dead letters to replay next.

    Args:
        request: `filter`, `limit` and `cursor`.

    Returns:
        `ids`, and `cursor`: None at the end.
    """
    wanted = DeadLetterFilter.from_json(request["filter"])
    page = await list_dead_letters(wanted, limit=request["limit"], cursor=request["cursor"])
    return {"ids": [record.id for record in page.records], "cursor": page.cursor}


async def replay_batch(request: dict, hub: str) -> dict:  # type: ignore[type-arg] # as above
    """Replay some dead letters, unless their circuits are open. Idempotent.

    Args:
        request: `replay_id`, `ids`, `note`, and `now`, the orchestrator's, and `by`, which inputs of 0.1.0 do
            not have.
        hub: Configuration of the durable client.

    Returns:
        `replayed`, `skipped`, `failures` (`id` and `detail` of each), `left` (ids that have to wait for a
        circuit) and `held_until` (until when, by the clock of `now`; None when nothing is left).

    Raises:
        TaskHubUnavailableError: The rest could not be started.
    """
    asked_at = optional_from_rfc3339(request.get("now"))
    done = await replay_some(
        hub,
        request["ids"],
        replay_id=request["replay_id"],
        note=request["note"],
        asked_at=asked_at,
        by=request.get("by"),
    )
    return {
        **counts_of(done.items),
        "left": list(done.left),
        "held_until": optional_to_rfc3339(done.held_until),
    }


async def bulk_page(request: dict, hub: str) -> dict:  # type: ignore[type-arg] # as above
    """Look up the dead letters or operations to act on next.

    Args:
        request: `action`, `filter`, `limit` and `cursor`.
        hub: Configuration of the durable client.

    Returns:
        As `replay_page`.
    """
    if BulkAction(request["action"]).is_of_dead_letters:
        return await replay_page(request)
    wanted = UnfinishedFilter.from_json(request["filter"])
    ids, following = await unfinished_page(hub, wanted, request["cursor"])
    return {"ids": ids, "cursor": following}


async def bulk_batch(request: dict, hub: str) -> dict:  # type: ignore[type-arg] # as above
    """Do the action to some. Idempotent, except that what was done before counts as skipped.

    Args:
        request: `replay_id`, `action`, `ids`, `note`, `by` and `now`, the orchestrator's.
        hub: Configuration of the durable client.

    Returns:
        As `replay_batch`; nothing is left.
    """
    action = BulkAction(request["action"])
    done = await do_some(hub, action, request["ids"], note=request["note"], by=request["by"])
    await keep_items(request["replay_id"], request["now"], enumerate(done))
    return {**counts_of(done), "left": [], "held_until": None}


blueprint.activity_trigger(input_name="request", activity=REPLAY_PAGE)(replay_page)
blueprint.activity_trigger(input_name="request", activity=BULK_PAGE)(bind_hub(blueprint)(bulk_page))
blueprint.activity_trigger(input_name="request", activity=BULK_BATCH)(bind_hub(blueprint)(bulk_batch))
blueprint.activity_trigger(input_name="request", activity=REPLAY_BATCH)(bind_hub(blueprint)(replay_batch))

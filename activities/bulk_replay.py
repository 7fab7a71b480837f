"""The activities of a bulk replay: listing the next dead letters, and replaying a few of them."""

import azure.durable_functions as df

from durable_retry.engine.base.json_forms import optional_from_rfc3339, optional_to_rfc3339
from durable_retry.engine.base.names import REPLAY_BATCH, REPLAY_PAGE
from durable_retry.engine.dead_letters.replay import DeadLetterFilter
from durable_retry.services.bulk_replay import replay_some
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
        request: `replay_id`, `ids`, `note`, and `now`, the orchestrator's, which inputs of 0.1.0 do not have.
        hub: Configuration of the durable client.

    Returns:
        `replayed`, `skipped`, `failures` (`id` and `detail` of each), `left` (ids that have to wait for a
        circuit) and `held_until` (until when, by the clock of `now`; None when nothing is left).

    Raises:
        TaskHubUnavailableError: The rest could not be started.
    """
    asked_at = optional_from_rfc3339(request.get("now"))
    done = await replay_some(
        hub, request["ids"], replay_id=request["replay_id"], note=request["note"], asked_at=asked_at
    )
    return {
        "replayed": done.replayed,
        "skipped": done.skipped,
        "failures": list(done.failures),
        "left": list(done.left),
        "held_until": optional_to_rfc3339(done.held_until),
    }


blueprint.activity_trigger(input_name="request", activity=REPLAY_PAGE)(replay_page)
blueprint.activity_trigger(input_name="request", activity=REPLAY_BATCH)(bind_hub(blueprint)(replay_batch))

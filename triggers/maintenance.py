"""Every five minutes: what a crash left of changes to dead letters, and what goes after its time."""

import logging
from datetime import datetime, timedelta
from typing import Final

import azure.functions as func
from azure.core.exceptions import AzureError

from stores import clock
from stores.batch_retention import remove_batches
from stores.dead_letter_intents import Intent, left_over
from stores.outbox_retention import remove_sent_events
from stores.retention import (
    MARKERS_KEPT,
    clean_expired_records,
    purge_histories,
    remove_archived_dead_letters,
    remove_attempt_markers,
)
from stores.task_hub import TaskHubUnavailableError
from stores.upkeep_settings import upkeep_settings
from triggers.replaying import finish_replay
from triggers.retried import RetriedBlueprint, note_retry

blueprint = RetriedBlueprint()

INTENTS_PER_RUN: Final = 200

SETTLED_AFTER: Final = timedelta(minutes=2)
"""A younger intent is that of a change which is under way."""

_log = logging.getLogger(__name__)


@blueprint.retry_upkeep()
@blueprint.timer_trigger(arg_name="timer", schedule="45 */5 * * * *")
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def maintenance(
    timer: func.TimerRequest,  # noqa: ARG001 - the trigger's own
    context: func.Context,
    hub: str,
) -> None:
    """Finish what was left over, then remove what is old; each a bounded step."""
    note_retry(context)
    await upkeep(hub, clock.now())


@blueprint.retry_upkeep()
@blueprint.timer_trigger(arg_name="timer", schedule="0 20 * * * *")
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def record_cleaning(
    timer: func.TimerRequest,  # noqa: ARG001 - the trigger's own
    context: func.Context,
    hub: str,
) -> None:
    """Every hour: remove what expired idempotency records leave in the task hub."""
    note_retry(context)
    removed = await clean_expired_records(hub)
    if removed:
        _log.info("removed %d expired idempotency records", removed)


async def upkeep(hub: str, now: datetime) -> None:
    """Do what `maintenance` does.

    Raises:
        TaskHubUnavailableError: Something is left for the next run.
    """
    settings = upkeep_settings()
    finished = await finish_left_over(hub, now)
    markers = await remove_attempt_markers(hub, now - MARKERS_KEPT)
    removed = purged = batches = sent = 0
    if settings.archived_for is not None:
        removed = await remove_archived_dead_letters(now - settings.archived_for)
    if settings.sent_for is not None:
        sent = await remove_sent_events(now - settings.sent_for)
    if settings.history_for is not None:
        batches = await remove_batches(now - settings.history_for)
        purged = await purge_histories(hub, now - settings.history_for)
    if finished or removed or purged or batches or sent or markers:
        _log.info(
            "finished %d changes; removed %d dead letters, %d sent events, %d batches, %d attempt markers; "
            "purged %d histories",
            *(finished, removed, sent, batches, markers, purged),
        )


async def finish_left_over(hub: str, now: datetime) -> int:
    """Finish changes of dead letters that a crash cut off; return how many.

    Raises:
        TaskHubUnavailableError: A replay could not be started; it is tried again by the next run.
    """
    due = [
        intent for intent in await left_over(INTENTS_PER_RUN) if intent.announced_at <= now - SETTLED_AFTER
    ]
    return sum([await _finished(hub, intent) for intent in due])


async def _finished(hub: str, intent: Intent) -> bool:
    """Finish one change; what is wrong with it alone does not hold up the others."""
    try:
        await finish_replay(hub, intent)
    except (TaskHubUnavailableError, AzureError):
        raise
    except Exception:  # noqa: BLE001 - whatever it is, it must not hold up the others for ever
        _log.exception("a change of %s cannot be finished", intent.dead_letter_id)
        return False
    return True

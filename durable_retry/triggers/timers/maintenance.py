"""Timers: alerts and the outbox sweeper every minute, maintenance every five, record cleaning every hour.

Each run is a bounded step; what is left over is done by the next run.
"""

import logging

import azure.functions as func

from durable_retry import clock
from durable_retry.services.alerts import check_alerts
from durable_retry.services.outbox import sweep
from durable_retry.services.retention import clean_expired_records, run_maintenance
from durable_retry.triggers.events.platform_retries import RetriedBlueprint, note_retry

blueprint = RetriedBlueprint()

_log = logging.getLogger(__name__)


@blueprint.retry_upkeep()
@blueprint.timer_trigger(arg_name="timer", schedule="15 * * * * *")
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def watch(
    timer: func.TimerRequest,  # noqa: ARG001 - the trigger's own
    context: func.Context,
    hub: str,
) -> None:
    """Every minute: compare each health metric with its threshold; send an alert when one was crossed."""
    note_retry(context)
    await check_alerts(hub, clock.now())


@blueprint.retry_upkeep()
@blueprint.timer_trigger(arg_name="timer", schedule="30 * * * * *")
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def outbox_sweeper(
    timer: func.TimerRequest,  # noqa: ARG001 - the trigger's own
    context: func.Context,
    hub: str,
) -> None:
    """Every minute: start the outbox of operations whose events are pending and which a crash cut off."""
    note_retry(context)
    started = await sweep(hub, clock.now())
    if started:
        _log.warning("%s operations had pending events and no running outbox", started)


@blueprint.retry_upkeep()
@blueprint.timer_trigger(arg_name="timer", schedule="45 */5 * * * *")
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def maintenance(
    timer: func.TimerRequest,  # noqa: ARG001 - the trigger's own
    context: func.Context,
    hub: str,
) -> None:
    """Every five minutes: finish changes that a crash cut off, then remove what is past its retention."""
    note_retry(context)
    await run_maintenance(hub, clock.now())


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

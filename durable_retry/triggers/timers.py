"""Timers: alerts, the outbox sweeper, maintenance, record cleaning, and SCHEDULED_OPERATIONS.

Each run of the first four is a bounded step; what is left over is done by the next run.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import azure.functions as func

from durable_retry import clock
from durable_retry.engine.intake import Arrival
from durable_retry.engine.schedules import ScheduledOperation
from durable_retry.services.alerts import check_alerts
from durable_retry.services.maintenance import RetentionKind, look_at, run_maintenance
from durable_retry.services.outbox import sweep
from durable_retry.settings.intake import TIMER
from durable_retry.stores.task_hub import bind_hub
from durable_retry.triggers.events.platform_retries import RetriedBlueprint, accept_batch, note_retry

blueprint = RetriedBlueprint()

NAME_PREFIX: Final = "scheduled_"

_FIRST_YEAR: Final = 1
"""The host writes the year 1 where a timer has not fired yet."""

_log = logging.getLogger(__name__)


@blueprint.upkeep_timer("15 * * * * *")
async def watch(
    timer: func.TimerRequest,  # noqa: ARG001 - the trigger's own
    context: func.Context,
    hub: str,
) -> None:
    """Every minute: compare each health metric with its threshold; send an alert when one was crossed."""
    note_retry(context)
    await check_alerts(hub, clock.now())


@blueprint.upkeep_timer("30 * * * * *")
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


@blueprint.upkeep_timer("45 */5 * * * *")
async def maintenance(
    timer: func.TimerRequest,  # noqa: ARG001 - the trigger's own
    context: func.Context,
    hub: str,
) -> None:
    """Every five minutes: finish changes that a crash cut off, then remove what is past its retention."""
    note_retry(context)
    await run_maintenance(hub, clock.now())


@blueprint.upkeep_timer("0 20 * * * *")
async def record_cleaning(
    timer: func.TimerRequest,  # noqa: ARG001 - the trigger's own
    context: func.Context,
    hub: str,
) -> None:
    """Every hour: begin to remove what expired idempotency records leave in the task hub."""
    note_retry(context)
    await look_at(hub, RetentionKind.RECORDS, clock.now())


def scheduled_operations_blueprint(
    schedules: Sequence[ScheduledOperation], max_retries: int
) -> RetriedBlueprint:
    """Return the blueprint with a timer function for each operation of SCHEDULED_OPERATIONS.

    A run is named by the operation and its due time, so that two fires of one due time are one operation. A
    timer has no redelivery: the platform repeats a failed fire after even pauses, and what was missed while
    nothing ran is caught up at the next start, from the host's own record of the last fire.

    Args:
        schedules: What to start, and when.
        max_retries: By the platform; -1 for ever.
    """
    blueprint = RetriedBlueprint()
    for scheduled in schedules:
        trigger = blueprint.timer_trigger(arg_name="timer", schedule=scheduled.expression, use_monitor=True)
        timed = bind_hub(blueprint)(trigger(_fire(scheduled)))
        named = blueprint.function_name(NAME_PREFIX + scheduled.name)(timed)
        blueprint.retry_evenly(named, max_retries)
    return blueprint


def run_of(scheduled: ScheduledOperation, due: datetime) -> Arrival:
    """Return one run as an arrival."""
    body = json.dumps(dict(scheduled.body)).encode()
    return Arrival(source=TIMER, body=body, native_id=scheduled.key(due), partition=scheduled.name)


def last_fire(status: Mapping[str, Any]) -> datetime | None:
    """Return when the host last fired a timer, as its record says; None when it has none."""
    try:
        last = datetime.fromisoformat(status.get("Last") or "")
    except (ValueError, TypeError):
        return None
    if last.year == _FIRST_YEAR:
        return None
    return last.replace(tzinfo=UTC) if last.tzinfo is None else last.astimezone(UTC)


def _fire(
    scheduled: ScheduledOperation,
) -> Callable[[func.TimerRequest, func.Context, str], Awaitable[None]]:
    async def start_scheduled_operation(timer: func.TimerRequest, context: func.Context, hub: str) -> None:
        # The interface that the SDK exports does not show what its implementation has.
        last = last_fire(getattr(timer, "schedule_status", None) or {})
        dues = scheduled.dues(last, clock.now(), is_late=timer.past_due)
        await accept_batch(hub, [run_of(scheduled, due) for due in dues], context)

    return start_scheduled_operation

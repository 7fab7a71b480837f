"""Timers: the watch, maintenance, record cleaning, and SCHEDULED_OPERATIONS.

Each run of the first three is a bounded step; what is left over is done by the next run. They are few, since
each run costs at least a second of an instance.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import azure.functions as func

from durable_retry import clock
from durable_retry.deferred import deferred
from durable_retry.engine.base.names import QUEUE_SOURCE
from durable_retry.engine.sources import Arrival, ScheduledOperation
from durable_retry.plugins import plugins
from durable_retry.runtime.binding import TaskHub, bind_hub
from durable_retry.runtime.concurrency import run_each
from durable_retry.settings.configuration import registration
from durable_retry.settings.sources import TIMER
from durable_retry.triggers.sources.platform_retries import RetriedBlueprint, accept_batch

blueprint = RetriedBlueprint()

recover = deferred("durable_retry.services.upkeep.failures:recover")
keep_left_poison = deferred("durable_retry.services.queue:keep_left_poison")
run_maintenance = deferred("durable_retry.services.upkeep.rounds:run_maintenance")
clean_records = deferred("durable_retry.services.upkeep.rounds:clean_records")

NAME_PREFIX: Final = "scheduled_"

# The host writes the year 1 where a timer has not fired yet.
_FIRST_YEAR: Final = 1

# A task hub that does not answer at all must not keep the alerts back.
_RECOVER_SECONDS: Final = 60.0


@blueprint.upkeep_timer("15 * * * * *")
async def watch(hub: TaskHub) -> None:
    """Every minute: follow up orchestrations that failed, then do what plugs in has for each minute."""
    try:
        async with asyncio.timeout(_RECOVER_SECONDS):
            await recover(hub, clock.now())
    finally:
        await run_each(partial(step, hub, clock.now()) for plugin in plugins() for step in plugin.each_minute)


@blueprint.upkeep_timer("45 */5 * * * *")
async def maintenance(hub: TaskHub) -> None:
    """Every five minutes: finish what a crash cut off, then remove what is past its retention."""
    queue = [keep_left_poison] if registration().wants(QUEUE_SOURCE) else []
    await run_each([*queue, partial(run_maintenance, hub, clock.now())])


@blueprint.upkeep_timer("0 20 * * * *")
async def record_cleaning(hub: TaskHub) -> None:
    """Every hour: begin to remove what expired idempotency records leave in the task hub."""
    await clean_records(hub, clock.now())


def scheduled_operations_blueprint(
    schedules: Sequence[ScheduledOperation], max_retries: int
) -> RetriedBlueprint:
    """Return the blueprint with a timer function for each operation of SCHEDULED_OPERATIONS.

    A run is named by the operation and its due time, so that two fires of one due time are one operation. A
    timer has no redelivery: the platform repeats a failed fire after even pauses, and what was missed while
    nothing ran is caught up at the next start, from the host's own record of the last fire.

    Args:
        max_retries: By the platform; -1 for ever.
    """
    blueprint = RetriedBlueprint()
    for scheduled in schedules:
        trigger = blueprint.timer_trigger(arg_name="timer", schedule=scheduled.expression, use_monitor=True)
        timed = trigger(bind_hub(blueprint)(_timer_function(scheduled)))
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
        in_utc = last.replace(tzinfo=UTC) if last.tzinfo is None else last.astimezone(UTC)
    except (ValueError, TypeError, OverflowError):
        return None
    return None if last.year == _FIRST_YEAR else in_utc


def _timer_function(
    scheduled: ScheduledOperation,
) -> Callable[[func.TimerRequest, func.Context, TaskHub], Awaitable[None]]:
    async def start_scheduled_operation(
        timer: func.TimerRequest, context: func.Context, hub: TaskHub
    ) -> None:
        # The interface that the SDK exports does not show what its implementation has.
        last = last_fire(getattr(timer, "schedule_status", None) or {})
        dues = scheduled.dues(last, clock.now(), is_late=timer.past_due)
        await accept_batch(hub, [run_of(scheduled, due) for due in dues], context)

    return start_scheduled_operation

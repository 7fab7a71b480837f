"""The timer that cleans records; what else is past its time is removed by the timer `maintenance`."""

from durable_retry.hub.binding import TaskHub
from durable_retry.hub.platform_retries import RetriedBlueprint
from durable_retry.runtime import clock
from durable_retry.runtime.deferred import deferred

blueprint = RetriedBlueprint()

clean_records = deferred("durable_retry.features.retention.rounds:clean_records")


@blueprint.upkeep_timer("0 20 * * * *")
async def record_cleaning(hub: TaskHub) -> None:
    """Every hour: begin to remove what expired idempotency records leave in the task hub."""
    await clean_records(hub, clock.now())

"""Timers: the watch and maintenance.

Each run is a bounded step; what is left over is done by the next run. They are few, since each run costs at
least a second of an instance.
"""

import asyncio
from functools import partial
from typing import Final

from durable_retry.base.names import QUEUE_SOURCE
from durable_retry.hub.binding import TaskHub
from durable_retry.hub.platform_retries import RetriedBlueprint
from durable_retry.plugins import plugins
from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import run_each
from durable_retry.runtime.deferred import deferred
from durable_retry.settings.configuration import registration

blueprint = RetriedBlueprint()

recover = deferred("durable_retry.upkeep.failures:recover")
keep_left_poison = deferred("durable_retry.intake.queue:keep_left_poison")
run_maintenance = deferred("durable_retry.upkeep.rounds:run_maintenance")

# A task hub that does not answer at all must not keep the alerts back.
_RECOVER_SECONDS: Final = 60.0


@blueprint.upkeep_timer("15 * * * * *")
async def watch(hub: TaskHub) -> None:
    """Every minute: follow up orchestrations that failed, then run the steps of plugins for each minute."""
    try:
        async with asyncio.timeout(_RECOVER_SECONDS):
            await recover(hub, clock.now())
    finally:
        await run_each(
            partial(deferred(step), hub, clock.now()) for plugin in plugins() for step in plugin.each_minute
        )


@blueprint.upkeep_timer("45 */5 * * * *")
async def maintenance(hub: TaskHub) -> None:
    """Every five minutes: finish what a crash interrupted, then run the steps of plugins for each round."""
    queue = [keep_left_poison] if registration().wants(QUEUE_SOURCE) else []
    await run_each([*queue, partial(run_maintenance, hub, clock.now())])

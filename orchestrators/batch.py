"""The orchestration of a batch: so many operations at a time, until every item has ended."""

from collections.abc import Iterable
from typing import Any, Final

import azure.durable_functions as df
from durabletask import task

from engine.batch import Progress
from engine.ending import Ending
from orchestrators.effort import insist
from orchestrators.run import Steps
from orchestrators.waiting import Reports
from stores.task_hub import BATCH, BATCH_CLOSE, BATCH_STEP

blueprint = df.Blueprint()

STEPS_PER_HISTORY: Final = 20
"""Steps after which the orchestration continues as new: 1,000 items cost 1,000 times what one costs."""


def batch(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Steps[None]:
    """Run the items of a batch.

    Args:
        ctx: The durable context.
        input_: `batch_id`, and `progress`, the JSON form of a `Progress`.
    """
    batch_id, progress = input_["batch_id"], Progress.from_json(input_["progress"])
    reports = Reports(ctx)
    steps = 0
    endings: list[Ending] = []
    while not progress.is_over:
        endings.extend(reports.arrived())
        # What has been said must be noted before the history is cut: it does not travel on.
        if steps >= STEPS_PER_HISTORY and not endings:
            ctx.continue_as_new({"batch_id": batch_id, "progress": progress.to_json()}, save_events=True)
            return
        steps += 1
        progress = yield from _step(ctx, batch_id, progress, endings)
        endings = reports.arrived()
        if not endings and not progress.startable and progress.running:
            endings = yield from reports.wait()
            if not endings:
                progress = yield from _look(ctx, batch_id, progress)
    yield from insist(ctx, BATCH_CLOSE, {"batch_id": batch_id})


def _step(
    ctx: task.OrchestrationContext, batch_id: str, progress: Progress, endings: Iterable[Ending]
) -> Steps[Progress]:
    """Note what ended, and start as many others."""
    ended = [
        {"indices": list(progress.running[ending.operation_id]), "ending": ending.to_json()}
        for ending in endings
        if ending.operation_id in progress.running
    ]
    left = progress.without(ending.operation_id for ending in endings)
    start = left.startable
    if not ended and not start:
        return left
    request = {"batch_id": batch_id, "ended": ended, "start": start}
    answer = yield from insist(ctx, BATCH_STEP, request)
    return left.with_started(start, dict(answer["running"]))


def _look(ctx: task.OrchestrationContext, batch_id: str, progress: Progress) -> Steps[Progress]:
    """Look at everything that runs: whatever has ended in silence is noted by the look itself."""
    indices = sorted(index for items in progress.running.values() for index in items)
    request = {"batch_id": batch_id, "ended": [], "start": indices}
    answer = yield from insist(ctx, BATCH_STEP, request)
    none_running = progress.without(progress.running)
    return none_running.with_started([], dict(answer["running"]))


blueprint.orchestration_trigger(context_name="context", orchestration=BATCH)(batch)

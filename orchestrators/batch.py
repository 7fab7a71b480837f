"""The orchestration of a batch: a bounded number of operations at a time, until every item has ended."""

from collections.abc import Iterable
from typing import Any, Final

import azure.durable_functions as df
from durabletask import task

from durable_retry.engine.base.names import BATCH, BATCH_CLOSE, BATCH_STEP
from durable_retry.engine.operations.operation import Completion
from durable_retry.engine.workflows import BatchProgress
from orchestrators.call_until_success import Steps, call_until_success
from orchestrators.completions import CompletionReports

blueprint = df.Blueprint()

STEPS_PER_HISTORY: Final = 20
"""Steps after which the orchestration continues as new, so that each item costs the same."""


def batch(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Steps[None]:
    """Run the items of a batch.

    Args:
        ctx: The durable context.
        input_: `batch_id`, and `progress`, the JSON form of a `BatchProgress`.
    """
    batch_id, progress = input_["batch_id"], BatchProgress.from_json(input_["progress"])
    reports = CompletionReports(ctx)
    steps = 0
    endings: list[Completion] = []
    while not progress.is_over:
        endings.extend(reports.arrived())
        # Reports must be stored before the history is cut: they are not carried over.
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
    yield from call_until_success(ctx, BATCH_CLOSE, {"batch_id": batch_id})


def _step(
    ctx: task.OrchestrationContext, batch_id: str, progress: BatchProgress, endings: Iterable[Completion]
) -> Steps[BatchProgress]:
    """Store the ends of items, and start as many others."""
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
    answer = yield from call_until_success(ctx, BATCH_STEP, request)
    return left.with_started(start, dict(answer["running"]))


def _look(ctx: task.OrchestrationContext, batch_id: str, progress: BatchProgress) -> Steps[BatchProgress]:
    """Look at every item that runs: the activity stores those that ended without a report."""
    indices = sorted(index for items in progress.running.values() for index in items)
    request = {"batch_id": batch_id, "ended": [], "start": indices}
    answer = yield from call_until_success(ctx, BATCH_STEP, request)
    none_running = progress.without(progress.running)
    return none_running.with_started([], dict(answer["running"]))


blueprint.orchestration_trigger(context_name="context", orchestration=BATCH)(batch)

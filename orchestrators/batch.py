"""The orchestration of a batch: a bounded number of operations at a time, until every item has ended."""

from collections.abc import Iterable
from typing import Any, Final

import azure.durable_functions as df
from durabletask import task

from durable_retry.features.workflows.names import BATCH, BATCH_CLOSE, BATCH_STEP
from durable_retry.features.workflows.rules.shapes import BatchProgress, step_sizes
from durable_retry.hub.turns import Signals, Turns, call_until_success
from durable_retry.rules.operations.completion import Completion

from .completion_reports import CompletionReports

blueprint = df.Blueprint()

LAPS_PER_HISTORY: Final = 20
"""Rounds of a batch after which the orchestration continues as new, so that each item costs the same."""


def batch(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Turns[None]:
    """Run the items of a batch.

    Args:
        input_: `batch_id`, and `progress`, the JSON form of a `BatchProgress`.
    """
    batch_id, progress = input_["batch_id"], BatchProgress.from_json(input_["progress"])
    reports = CompletionReports(ctx)
    laps = 0
    completions: list[Completion] = []
    while not progress.is_over:
        completions.extend(reports.arrived())
        # Reports must be stored before the history is cut: they are not carried over.
        if laps >= LAPS_PER_HISTORY and not completions:
            ctx.continue_as_new({"batch_id": batch_id, "progress": progress.to_json()}, save_events=True)
            return
        laps += 1
        progress = yield from _store_and_start(reports.signals, batch_id, progress, completions)
        completions = reports.arrived()
        if not completions and not progress.startable and progress.running:
            completions = yield from reports.wait()
            if not completions:
                progress = yield from _look_at_items(reports.signals, batch_id, progress)
    yield from call_until_success(reports.signals, BATCH_CLOSE, {"batch_id": batch_id})


def _store_and_start(
    signals: Signals, batch_id: str, progress: BatchProgress, completions: Iterable[Completion]
) -> Turns[BatchProgress]:
    ends = [
        {"indices": list(progress.running[completion.operation_id]), "ending": completion.to_json()}
        for completion in completions
        if completion.operation_id in progress.running
    ]
    remaining = progress.without(completion.operation_id for completion in completions)
    start = remaining.startable
    if not ends and not start:
        return remaining
    running = yield from _call_step(signals, {"batch_id": batch_id, "ended": ends, "start": start})
    return remaining.with_started(start, running)


def _look_at_items(signals: Signals, batch_id: str, progress: BatchProgress) -> Turns[BatchProgress]:
    # The activity stores the ends of those that ended without a report.
    indices = sorted(index for items in progress.running.values() for index in items)
    running = yield from _call_step(signals, {"batch_id": batch_id, "ended": [], "start": indices})
    return progress.without(progress.running).with_started([], running)


def _call_step(signals: Signals, request: dict[str, Any]) -> Turns[dict[int, str]]:
    """Return the index and operation id of those that run after a step."""

    def is_answer(answer: Any) -> bool:
        # More items may have ended when a lost turn runs again, so that it asks for more than it did before.
        return bool(answer["sizes"] == step_sizes(request))

    answer = yield from call_until_success(signals, BATCH_STEP, request, is_answer=is_answer)
    return dict(answer["running"])


blueprint.orchestration_trigger(context_name="context", orchestration=BATCH)(batch)

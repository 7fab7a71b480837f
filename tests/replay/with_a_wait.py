"""An orchestrator as another version of the code might have it: with a wait before everything else."""

from collections.abc import Callable, Generator
from datetime import timedelta
from typing import Any

from durabletask import task

type Orchestrator = Callable[[task.OrchestrationContext, dict[str, Any]], Generator[Any, Any, Any]]


def with_a_wait(orchestrator: Orchestrator) -> Orchestrator:
    """Return the same orchestrator, but for a wait of a moment in front."""

    def waiting(ctx: task.OrchestrationContext, input_: dict[str, Any]) -> Generator[Any, Any, Any]:
        yield ctx.create_timer(timedelta(milliseconds=10))
        return (yield from orchestrator(ctx, input_))

    return waiting

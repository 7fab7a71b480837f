"""The orchestration of `bench.baseline` as a function app: the same work, on another task hub."""

import os
from collections.abc import Generator
from typing import Any

import azure.durable_functions as df
from durabletask import task

from bench.baseline import MAX_ATTEMPTS, PlainFunctions

functions = PlainFunctions(
    os.environ["FLAKY_TARGET_URL"],
    float(os.environ["DELAY_SECONDS"]),
    factor=float(os.environ.get("DELAY_FACTOR", "1")),
    longest_seconds=float(os.environ.get("LONGEST_DELAY_SECONDS", "0")),
    attempts=int(os.environ.get("MAX_ATTEMPTS", MAX_ATTEMPTS)),
)
app = df.DFApp()


@app.activity_trigger(input_name="request")
def call(request: dict) -> dict:  # type: ignore[type-arg] # the worker refuses parameterised generics
    """Posts to the target once; raises for any status but a success."""
    return functions.call(request)


@app.orchestration_trigger(context_name="context")
def plain(context: task.OrchestrationContext, request: dict[str, Any]) -> Generator[task.Task[Any], Any, Any]:
    """Calls the activity with the SDK's retries."""
    return (yield from functions.plain(context, request))

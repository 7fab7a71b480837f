"""Activities in a row, at once, failing and retried."""

from collections.abc import Generator
from datetime import timedelta
from typing import Any

from durabletask import task

from tests.support.onebox.durable_app import App

type Steps = Generator[task.Task[Any], Any, Any]
Context = task.OrchestrationContext

part = App()


@part.orchestrator
def one_activity(ctx: Context, value: Any) -> Steps:
    return (yield ctx.call_activity("double", input=value))


@part.orchestrator
def chain(ctx: Context, value: Any) -> Steps:
    for _ in range(3):
        value = yield ctx.call_activity("double", input=value)
    return value


@part.orchestrator
def no_steps(_: Context, value: Any) -> Any:
    return value


@part.orchestrator
def failing(ctx: Context, value: Any) -> Steps:
    return (yield ctx.call_activity("fail", input=value))


@part.orchestrator
def flaky(ctx: Context, value: Any) -> Steps:
    first = yield ctx.call_activity("double", input=1)
    second = yield ctx.call_activity("fail_once", input=value)
    return [first, second]


@part.orchestrator
def retried(ctx: Context, value: Any) -> Steps:
    policy = task.RetryPolicy(first_retry_interval=timedelta(milliseconds=20), max_number_of_attempts=3)
    return (yield ctx.call_activity("fail_once", input=value, retry_policy=policy))


@part.orchestrator
def fan_out(ctx: Context, width: int) -> Steps:
    results = yield task.when_all([ctx.call_activity("double", input=n) for n in range(width)])
    return sum(results)


@part.orchestrator
def all_then_fail(ctx: Context, _: Any) -> Steps:
    """Waits for all, although one fails at once; then the failure is raised."""
    done: task.Task[Any] = ctx.call_activity("double", input=1)
    try:
        yield task.when_all([ctx.call_activity("fail", input="one of two"), done])
    except task.TaskFailedError as error:
        return [error.details.message, done.is_complete]
    return "no error"


@part.orchestrator
def first_of(ctx: Context, width: int) -> Steps:
    results: list[task.Task[Any]] = [ctx.call_activity("double", input=n) for n in range(width)]
    winner = yield task.when_any(results)
    return winner in results


@part.orchestrator
def version_of(ctx: Context, _: Any) -> Any:
    return ctx.version

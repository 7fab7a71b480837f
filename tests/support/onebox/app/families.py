"""Sub-orchestrations and their parents."""

from collections.abc import Generator
from datetime import timedelta
from typing import Any

from durabletask import task

from tests.support.onebox.durable_app import App

type Steps = Generator[task.Task[Any], Any, Any]
Context = task.OrchestrationContext

part = App()


@part.orchestrator
def parent(ctx: Context, child: dict[str, Any]) -> Steps:
    return (
        yield ctx.call_sub_orchestrator(child["name"], input=child.get("input"), instance_id=child.get("id"))
    )


@part.orchestrator
def catching_parent(ctx: Context, child: dict[str, Any]) -> Steps:
    try:
        return (yield ctx.call_sub_orchestrator(child["name"], input=child.get("input")))
    except task.TaskFailedError as error:
        return f"caught {error.details.error_type}"


@part.orchestrator
def retrying_parent(ctx: Context, value: Any) -> Steps:
    policy = task.RetryPolicy(first_retry_interval=timedelta(milliseconds=20), max_number_of_attempts=3)
    return (yield ctx.call_sub_orchestrator("flaky", input=value, retry_policy=policy))


@part.orchestrator
def who_is_my_parent(ctx: Context, _: Any) -> Any:
    return ctx.parent_instance_id

"""Timers, external events, and orchestrations that go on as new ones."""

from collections.abc import Generator
from datetime import timedelta
from typing import Any

from durabletask import task

from tests.support.onebox.durable_app import App

type Steps = Generator[task.Task[Any], Any, Any]
Context = task.OrchestrationContext

part = App()


@part.orchestrator
def wait_for_go(ctx: Context, _: Any) -> Steps:
    return (yield ctx.wait_for_external_event("go"))


@part.orchestrator
def two_events(ctx: Context, _: Any) -> Steps:
    first = yield ctx.wait_for_external_event("first")
    second = yield ctx.wait_for_external_event("second")
    return [first, second]


@part.orchestrator
def event_or_timer(ctx: Context, seconds: float) -> Steps:
    event = ctx.wait_for_external_event("go")
    timer = ctx.create_timer(timedelta(seconds=seconds))
    winner = yield task.when_any([event, timer])
    return "event" if winner is event else "timer"


@part.orchestrator
def sleeper(ctx: Context, seconds: float) -> Steps:
    yield ctx.create_timer(timedelta(seconds=seconds))
    return "rested"


@part.orchestrator
def hourly(ctx: Context, hours: int) -> Steps:
    for _ in range(hours):
        yield ctx.create_timer(timedelta(hours=1))
    return ctx.current_utc_datetime.isoformat()


@part.orchestrator
def count_down(ctx: Context, left: int) -> Steps:
    yield ctx.call_activity("double", input=left)
    if left > 0:
        ctx.continue_as_new(left - 1)
        return None
    return "landed"


@part.orchestrator
def collect(ctx: Context, got: list[Any]) -> Steps:
    """Take one event per generation, three in all; those that come together are carried over."""
    got = [*(got or []), (yield ctx.wait_for_external_event("item"))]
    if len(got) < 3:
        ctx.continue_as_new(got, save_events=True)
        return None
    return got


@part.orchestrator
def status_setter(ctx: Context, value: Any) -> Steps:
    ctx.set_custom_status({"at": value})
    return (yield ctx.wait_for_external_event("go"))


@part.orchestrator
def sender(ctx: Context, target: str) -> Any:
    ctx.send_event(target, "go", data="from afar")
    return "sent"

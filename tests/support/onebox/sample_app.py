"""The app that the hub's tests run: activities, and orchestrations and an entity for each feature."""

from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from typing import Any

from durabletask import task
from durabletask.entities import DurableEntity, EntityInstanceId
from durabletask.scheduled.orchestrator import execute_schedule_operation_orchestrator
from durabletask.scheduled.schedule_entity import ENTITY_NAME, Schedule

from tests.support.onebox.durable_app import App

type Turns = Generator[task.Task[Any], Any, Any]
Context = task.OrchestrationContext

part = App()


def make_app() -> App:
    """Return a new app; `fail_once` has not failed yet in it."""
    app = activities()
    app.include(part)
    app.orchestrator(execute_schedule_operation_orchestrator)
    app.entities_by_name[ENTITY_NAME] = Schedule
    return app


def double(value: Any) -> Any:
    return value * 2


def fail(message: Any) -> Any:
    raise ValueError(message)


def activities() -> App:
    """The activities of a new app."""
    part = App()
    part.activity(double)
    part.activity(fail)
    seen: list[Any] = []

    @part.activity
    def fail_once(value: Any) -> Any:
        if value not in seen:
            seen.append(value)
            raise ValueError("first time")
        return value

    return part


# Activities in a row, at once, failing and retried.


@part.orchestrator
def one_activity(ctx: Context, value: Any) -> Turns:
    return (yield ctx.call_activity("double", input=value))


@part.orchestrator
def chain(ctx: Context, value: Any) -> Turns:
    for _ in range(3):
        value = yield ctx.call_activity("double", input=value)
    return value


@part.orchestrator
def no_steps(_: Context, value: Any) -> Any:
    return value


@part.orchestrator
def failing(ctx: Context, value: Any) -> Turns:
    return (yield ctx.call_activity("fail", input=value))


@part.orchestrator
def flaky(ctx: Context, value: Any) -> Turns:
    first = yield ctx.call_activity("double", input=1)
    second = yield ctx.call_activity("fail_once", input=value)
    return [first, second]


@part.orchestrator
def retried(ctx: Context, value: Any) -> Turns:
    policy = task.RetryPolicy(first_retry_interval=timedelta(milliseconds=20), max_number_of_attempts=3)
    return (yield ctx.call_activity("fail_once", input=value, retry_policy=policy))


@part.orchestrator
def fan_out(ctx: Context, width: int) -> Turns:
    results = yield task.when_all([ctx.call_activity("double", input=n) for n in range(width)])
    return sum(results)


@part.orchestrator
def all_then_fail(ctx: Context, _: Any) -> Turns:
    """Waits for all, although one fails at once; then the failure is raised."""
    done: task.Task[Any] = ctx.call_activity("double", input=1)
    try:
        yield task.when_all([ctx.call_activity("fail", input="one of two"), done])
    except task.TaskFailedError as error:
        return [error.details.message, done.is_complete]
    return "no error"


@part.orchestrator
def first_of(ctx: Context, width: int) -> Turns:
    results: list[task.Task[Any]] = [ctx.call_activity("double", input=n) for n in range(width)]
    winner = yield task.when_any(results)
    return winner in results


@part.orchestrator
def version_of(ctx: Context, _: Any) -> Any:
    return ctx.version


# Timers, external events, and orchestrations that continue as new.


@part.orchestrator
def wait_for_go(ctx: Context, _: Any) -> Turns:
    return (yield ctx.wait_for_external_event("go"))


@part.orchestrator
def two_events(ctx: Context, _: Any) -> Turns:
    first = yield ctx.wait_for_external_event("first")
    second = yield ctx.wait_for_external_event("second")
    return [first, second]


@part.orchestrator
def event_or_timer(ctx: Context, seconds: float) -> Turns:
    event = ctx.wait_for_external_event("go")
    timer = ctx.create_timer(timedelta(seconds=seconds))
    winner = yield task.when_any([event, timer])
    return "event" if winner is event else "timer"


@part.orchestrator
def sleeper(ctx: Context, seconds: float) -> Turns:
    yield ctx.create_timer(timedelta(seconds=seconds))
    return "rested"


@part.orchestrator
def hourly(ctx: Context, hours: int) -> Turns:
    for _ in range(hours):
        yield ctx.create_timer(timedelta(hours=1))
    return ctx.current_utc_datetime.isoformat()


@part.orchestrator
def count_down(ctx: Context, left: int) -> Turns:
    yield ctx.call_activity("double", input=left)
    if left > 0:
        ctx.continue_as_new(left - 1)
        return None
    return "landed"


@part.orchestrator
def collect(ctx: Context, got: list[Any]) -> Turns:
    """Take one event per generation, three in all; those that come together are carried over."""
    got = [*(got or []), (yield ctx.wait_for_external_event("item"))]
    if len(got) < 3:
        ctx.continue_as_new(got, save_events=True)
        return None
    return got


@part.orchestrator
def status_setter(ctx: Context, value: Any) -> Turns:
    ctx.set_custom_status({"at": value})
    return (yield ctx.wait_for_external_event("go"))


@part.orchestrator
def sender(ctx: Context, target: str) -> Any:
    ctx.send_event(target, "go", data="from afar")
    return "sent"


# Sub-orchestrations and their parents.


@part.orchestrator
def parent(ctx: Context, child: dict[str, Any]) -> Turns:
    return (
        yield ctx.call_sub_orchestrator(child["name"], input=child.get("input"), instance_id=child.get("id"))
    )


@part.orchestrator
def catching_parent(ctx: Context, child: dict[str, Any]) -> Turns:
    try:
        return (yield ctx.call_sub_orchestrator(child["name"], input=child.get("input")))
    except task.TaskFailedError as error:
        return f"caught {error.details.error_type}"


@part.orchestrator
def retrying_parent(ctx: Context, value: Any) -> Turns:
    policy = task.RetryPolicy(first_retry_interval=timedelta(milliseconds=20), max_number_of_attempts=3)
    return (yield ctx.call_sub_orchestrator("flaky", input=value, retry_policy=policy))


@part.orchestrator
def who_is_my_parent(ctx: Context, _: Any) -> Any:
    return ctx.parent_instance_id


# An entity, and orchestrations that call, signal and lock it.


@part.entity
class Counter(DurableEntity):
    def add(self, amount: int) -> int:
        total = self.get_state(int, 0) + amount
        self.set_state(total)
        return total

    def get(self) -> int:
        return self.get_state(int, 0)

    def remove(self) -> None:
        self.set_state(None)

    def explode(self) -> None:
        self.set_state(-1)
        raise ValueError("entity says no")

    def add_later(self, seconds: float) -> None:
        self.signal_entity(
            self.entity_context.entity_id,
            "add",
            1,
            signal_time=datetime.now(UTC) + timedelta(seconds=seconds),
        )


@part.orchestrator
def call_counter(ctx: Context, amount: int) -> Turns:
    entity_id = EntityInstanceId("counter", "called")
    first = yield ctx.call_entity(entity_id, "add", input=amount)
    second = yield ctx.call_entity(entity_id, "add", input=amount)
    return [first, second]


@part.orchestrator
def signal_then_call(ctx: Context, amount: int) -> Turns:
    """Signals are one-way, and seen in the order in which they were sent."""
    entity_id = EntityInstanceId("counter", "ordered")
    ctx.signal_entity(entity_id, "add", amount)
    ctx.signal_entity(entity_id, "add", amount)
    return (yield ctx.call_entity(entity_id, "get"))


@part.orchestrator
def call_exploding(ctx: Context, _: Any) -> Turns:
    entity_id = EntityInstanceId("counter", "exploding")
    yield ctx.call_entity(entity_id, "add", input=5)
    try:
        yield ctx.call_entity(entity_id, "explode")
    except Exception as error:  # noqa: BLE001 - the case looks at what it is
        return [type(error).__name__, (yield ctx.call_entity(entity_id, "get"))]
    return "no error"


@part.orchestrator
def transfer(ctx: Context, amount: int) -> Turns:
    """Move an amount between two entities under lock, reading before it writes."""
    source, target = EntityInstanceId("counter", "source"), EntityInstanceId("counter", "target")
    with (yield ctx.lock_entities([source, target])):
        balance = yield ctx.call_entity(source, "get")
        yield ctx.call_activity("double", input=1)
        yield ctx.call_entity(source, "add", input=-amount)
        yield ctx.call_entity(target, "add", input=amount)
    return balance


@part.orchestrator
def lock_and_wait(ctx: Context, _: Any) -> Turns:
    with (yield ctx.lock_entities([EntityInstanceId("counter", "held")])):
        ctx.set_custom_status("locked")
        yield ctx.wait_for_external_event("go")
    return "released"

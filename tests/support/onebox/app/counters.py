"""An entity, and orchestrations that call, signal and lock it."""

from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from typing import Any

from durabletask import task
from durabletask.entities import DurableEntity, EntityInstanceId

from tests.support.onebox.durable_app import App

type Steps = Generator[task.Task[Any], Any, Any]
Context = task.OrchestrationContext

part = App()


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
def call_counter(ctx: Context, amount: int) -> Steps:
    entity_id = EntityInstanceId("counter", "called")
    first = yield ctx.call_entity(entity_id, "add", input=amount)
    second = yield ctx.call_entity(entity_id, "add", input=amount)
    return [first, second]


@part.orchestrator
def signal_then_call(ctx: Context, amount: int) -> Steps:
    """Signals are one-way, and seen in the order in which they were sent."""
    entity_id = EntityInstanceId("counter", "ordered")
    ctx.signal_entity(entity_id, "add", amount)
    ctx.signal_entity(entity_id, "add", amount)
    return (yield ctx.call_entity(entity_id, "get"))


@part.orchestrator
def call_exploding(ctx: Context, _: Any) -> Steps:
    entity_id = EntityInstanceId("counter", "exploding")
    yield ctx.call_entity(entity_id, "add", input=5)
    try:
        yield ctx.call_entity(entity_id, "explode")
    except Exception as error:  # noqa: BLE001 - the case looks at what it is
        return [type(error).__name__, (yield ctx.call_entity(entity_id, "get"))]
    return "no error"


@part.orchestrator
def transfer(ctx: Context, amount: int) -> Steps:
    """Move an amount between two entities under lock, reading before it writes."""
    source, target = EntityInstanceId("counter", "source"), EntityInstanceId("counter", "target")
    with (yield ctx.lock_entities([source, target])):
        balance = yield ctx.call_entity(source, "get")
        yield ctx.call_activity("double", input=1)
        yield ctx.call_entity(source, "add", input=-amount)
        yield ctx.call_entity(target, "add", input=amount)
    return balance


@part.orchestrator
def lock_and_wait(ctx: Context, _: Any) -> Steps:
    with (yield ctx.lock_entities([EntityInstanceId("counter", "held")])):
        ctx.set_custom_status("locked")
        yield ctx.wait_for_external_event("go")
    return "released"

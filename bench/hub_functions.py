"""What both task hubs run when they are compared: the same functions, as plain as can be."""

from collections.abc import Generator
from datetime import datetime
from typing import Any

from durabletask import task
from durabletask.entities import DurableEntity, EntityInstanceId

from tests.integration.hub.durable_app import App

type Turns = Generator[task.Task[Any], Any, Any]


def generations(context: task.OrchestrationContext, left: int) -> int:
    """Begins anew so many times: a turn each, and nothing else."""
    if left > 0:
        context.continue_as_new(left - 1)
    return left


def calls(context: task.OrchestrationContext, count: int) -> Turns:
    """Calls an activity so many times, one after the other."""
    for number in range(count):
        yield context.call_activity("same", input=number)


def adds(context: task.OrchestrationContext, count: int) -> Turns:
    """Calls an entity of its own so many times, one after the other."""
    entity = EntityInstanceId("tally", context.instance_id)
    for _ in range(count):
        yield context.call_entity(entity, "add", 1)


def sleeps(context: task.OrchestrationContext, until: str) -> Turns:
    """Waits on a timer."""
    yield context.create_timer(datetime.fromisoformat(until))


def same(value: int) -> int:
    """Returns what it is given."""
    return value


class Tally(DurableEntity):
    """Adds up."""

    def add(self, amount: int) -> int:
        """Adds and returns the sum."""
        total: int = self.get_state(int, 0) + amount
        self.set_state(total)
        return total


def functions() -> App:
    """Returns all of them, by name."""
    app = App()
    for each in (generations, calls, adds, sleeps):
        app.orchestrator(each)
    app.activity(same)
    app.entity(Tally)
    return app

"""Work whose every effect can be counted, and the hub's fault points to cut it at."""

from collections.abc import Generator
from datetime import timedelta
from pathlib import Path
from typing import Any

from durabletask import task
from durabletask.entities import DurableEntity, EntityInstanceId

from onebox.hub import FaultPoint, TaskHub
from onebox.hub.model import HubError, InstanceExistsError, Start
from tests.support.onebox.durable_app import App

MIXED_COUNTER = "@counter@mixed"
SIGNALS_COUNTER = "@counter@signals"
OUTPUT = "[2, 4, 1]"


class Cut:
    """Calls `strike` at the given visit of one point, once."""

    def __init__(self, point: FaultPoint | None, visit: int, strike: Any) -> None:
        self._point = point
        self._left = visit
        self._strike = strike

    def __call__(self, point: FaultPoint) -> None:
        if point is self._point:
            self._left -= 1
            if self._left == 0:
                self._strike()


def counting_app(log: Path) -> App:
    """Orchestrations that use everything; each activity run leaves a line in `log`."""
    app = App()

    @app.activity
    def double(value: int) -> int:
        with log.open("a") as lines:
            lines.write(f"{value}\n")
        return value * 2

    @app.entity
    class Counter(DurableEntity):
        def add(self, amount: int) -> int:
            self.set_state(self.get_state(int, 0) + amount)
            return 1

    @app.orchestrator
    def child(ctx: task.OrchestrationContext, value: int) -> Generator[task.Task[Any], Any, Any]:
        return (yield ctx.call_activity("double", input=value))

    @app.orchestrator
    def mixed(ctx: task.OrchestrationContext, _: Any) -> Generator[task.Task[Any], Any, Any]:
        first = yield ctx.call_activity("double", input=1)
        yield ctx.create_timer(timedelta(milliseconds=50))  # longer than a slow commit: it must be waited for
        counted = yield ctx.call_entity(EntityInstanceId.parse(MIXED_COUNTER), "add", input=1)
        second = yield ctx.call_sub_orchestrator("child", input=2)
        yield ctx.wait_for_external_event("go")
        return [first, second, counted]

    @app.orchestrator
    def rounds(ctx: task.OrchestrationContext, left: int) -> Generator[task.Task[Any], Any, Any]:
        ctx.signal_entity(EntityInstanceId.parse(SIGNALS_COUNTER), "add", 1)
        yield ctx.call_activity("double", input=10)
        if left > 1:
            ctx.continue_as_new(left - 1)

    return app


async def submit(tasks: TaskHub, name: str, instance_id: str, input_: str | None = None) -> None:
    """Start an instance under an id that may be taken by an earlier try."""
    try:
        await tasks.start(Start(instance_id, name, input=input_, replaceable=frozenset()))
    except InstanceExistsError:
        return


async def call_until_success(call: Any) -> None:
    """Call until it is accepted; only what a fault point raised is forgiven."""
    for _ in range(5):
        try:
            await call()
        except HubError:
            raise
        except RuntimeError:
            continue
        return
    raise AssertionError("never accepted")

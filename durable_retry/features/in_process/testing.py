"""An orchestrator of the app's own, run to its end: its operations by their rules, all else by stand-ins."""
# ruff: noqa: A002 - the SDK's contexts take `input`

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from azure.durable_functions.internal.compat.orchestration_context import wrap_orchestrator
from durabletask import task
from durabletask.entities import EntityInstanceId, EntityLock

from durable_retry.base.foreign import plain_json
from durable_retry.base.validation import InvalidInputError
from durable_retry.features.in_process.executions import (
    InstanceExecution,
    begin_execution,
    no_task_error,
    refuse_async,
)
from durable_retry.features.in_process.names import CALL
from durable_retry.features.in_process.start import PendingCall, operation_of_call
from durable_retry.hub.decorated import orchestrator_function, user_function
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.settings.configuration import function_name, registered_handlers
from durable_retry.testing.parts import (
    FakeClock,
    FakeDependency,
    FakeStep,
    HandlerRun,
    Play,
    warn_of_unasked,
    world,
)

type StandIn = Callable[..., Any]


@dataclass(slots=True)
class OrchestratorRun:
    """What became of an orchestration.

    Attributes:
        result: What it returned, as JSON.
        error: What it raised; None when it returned.
        operations: Its calls of `durable_retry.call`, in the order in which they were made.
        called: Name and input of each activity, sub-orchestration and operation of an entity, in order.
        custom_status: The last one.
        continued_with: The input with which it continued as new; None where it did not.
        seconds: From the beginning to the end, by the clock of the run.
    """

    result: Any = None
    error: BaseException | None = None
    operations: list[HandlerRun] = field(default_factory=list)
    called: list[tuple[str, Any]] = field(default_factory=list)
    custom_status: Any = None
    continued_with: Any = None
    seconds: float = 0.0


async def run_orchestrator(
    orchestrator: Any,
    given: Any = None,
    dependencies: Mapping[str, FakeDependency] = MappingProxyType({}),
    *,
    functions: Mapping[str, StandIn] = MappingProxyType({}),
    events: Mapping[str, Any] = MappingProxyType({}),
    steps: Mapping[str, FakeStep] = MappingProxyType({}),
    time: FakeClock | None = None,
    instance_id: str = "test-1",
    config: str | Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> OrchestratorRun:
    """Run an orchestrator to its end; what runs side by side ends in the order of its time.

        payments = FakeDependency(503, {"id": "ch-1"})
        run = await run_orchestrator(checkout, {"amount": 5}, {"payments": payments})
        assert (run.result, run.operations[0].attempt_count) == ({"charge": "ch-1"}, 2)

    Args:
        orchestrator: The function, or what `orchestration_trigger` made of it.
        given: Its input.
        dependencies: Answers the requests of its operations, by name.
        functions: In place of functions that `operation` declares, by name, with their arguments; and of
            activities, sub-orchestrations and operations of entities (`cart.add`), which take the input. An
            activity that is called by its function needs none. A `FakeStep` has scripted results. A retry
            policy of the SDK is not played: what fails has failed.
        events: The data of the external events, by name, that have arrived when it waits.
        steps: In place of the functions of steps, by their names.
        time: The clock; None means one that begins at `NOON`.
        instance_id: The id of the orchestration.
        config: A `dependencies.toml`, its text or its path; None means the defaults.
        settings: App settings that it names; the others are placeholders.

    Raises:
        LookupError: It calls what has no stand-in, or waits for an event that never comes.
    """
    time = time or FakeClock()
    began = time.monotonic_seconds()
    run = OrchestratorRun()

    async def call_operation(input_: dict[str, Any], own_time: FakeClock) -> dict[str, Any]:
        if "problems" in input_:
            return input_
        needed = {handler.dependency for handler in registered_handlers().values()}
        now = own_time.now()
        async with world(own_time, dependencies, needed, config, settings) as fake_of:
            call = PendingCall(instance_id, now, input_["keys"][0])
            try:
                operation = operation_of_call(input_["document"], call, now)
            except InvalidInputError as error:
                return {"problems": [problem.to_json() for problem in error.problems]}
            ended = await Play(operation, own_time, steps, fake_of, functions).to_the_end()
        run.operations.append(ended)
        return {"document": _status_document(operation, ended)}

    context = _Context(
        run, time, instance_id, functions=functions, events=events, call_operation=call_operation
    )
    try:
        run.result = plain_json(await context.play(_orchestrator_of(orchestrator), given))
    except _Missing as missing:
        raise LookupError(str(missing)) from None
    except Exception as error:  # noqa: BLE001 - the orchestrator may raise anything
        run.error = error
    run.seconds = time.monotonic_seconds() - began
    if run.operations:
        warn_of_unasked(dependencies, steps, run.operations)
    return run


def _status_document(operation: OperationInput, ended: HandlerRun) -> dict[str, Any]:
    """Return what `durable_retry.call` reads of a status document."""
    letter = ended.dead_letter and {
        "id": f"dead-letter-of-{operation.operation_id}",
        "category": ended.dead_letter.category,
        "reason": ended.dead_letter.reason,
        "detail": ended.dead_letter.detail,
    }
    result = {"value": ended.result} if operation.handler else ended.result
    return {
        "operation_id": operation.operation_id,
        "key": operation.key,
        "handler": operation.handler,
        "status": ended.status,
        "result": result,
        "dead_letter": letter,
    }


def _orchestrator_of(declared: Any) -> Callable[[Any, Any], Any]:
    code: Callable[[Any, Any], Any] = wrap_orchestrator(orchestrator_function(declared))
    return code


class _Missing(BaseException):
    """The test lacks a stand-in or an event. Not an `Exception`: an orchestrator must not catch it."""


@dataclass(slots=True)
class _Work:
    """What an orchestrator has begun: it runs when the orchestrator waits, and ends by a clock of its own."""

    ends: task.CompletableTask[Any]
    do: Callable[[FakeClock], Awaitable[Any]]
    time: FakeClock
    value: Any = None
    error: Exception | None = None

    async def run(self) -> None:
        try:
            self.value = plain_json(await self.do(self.time))
        except Exception as error:  # noqa: BLE001 - a stand-in may raise anything
            self.error = error

    def end(self) -> None:
        if self.error is None:
            self.ends.complete(self.value)
        else:
            self.ends.fail(str(self.error), self.error)


class _Context(task.OrchestrationContext):
    def __init__(
        self,
        run: OrchestratorRun,
        time: FakeClock,
        instance_id: str,
        *,
        functions: Mapping[str, StandIn],
        events: Mapping[str, Any],
        call_operation: Callable[[dict[str, Any], FakeClock], Awaitable[Any]],
    ) -> None:
        self._run, self._time, self._instance_id = run, time, instance_id
        self._functions, self._events = functions, dict(events)
        self._call_operation = call_operation
        self._begun: list[_Work] = []
        self._under_way: list[_Work] = []
        self._missing: list[str] = []
        self._numbers = 0

    async def play(self, orchestrator: Callable[[Any, Any], Any], input_: Any) -> Any:
        begin_execution(
            self, InstanceExecution("execution-1", self._time.now(), getattr(orchestrator, "__name__", ""))
        )
        turns = orchestrator(self, input_)
        refuse_async(turns)
        if not inspect.isgenerator(turns):
            return turns
        resume: Callable[[], Any] = partial(next, turns)
        while True:
            try:
                awaited = resume()
            except StopIteration as end:
                return end.value
            if not isinstance(awaited, task.Task):
                raise no_task_error(turns)
            while not awaited.is_complete:
                await self._complete_next()
            try:
                resume = partial(turns.send, awaited.get_result())
            except Exception as error:  # noqa: BLE001 - it is the orchestrator's
                resume = partial(turns.throw, error)

    async def _complete_next(self) -> None:
        for work in self._begun:
            await work.run()
        self._under_way = [work for work in self._under_way + self._begun if not work.ends.is_complete]
        self._begun = []
        if not self._under_way:
            raise _Missing(f"the orchestrator waits for what never comes; events to give: {self._missing}")
        first = min(self._under_way, key=lambda work: work.time.now())
        self._time.move(max(0.0, (first.time.now() - self._time.now()).total_seconds()))
        first.end()

    def _begin[T: task.CompletableTask[Any]](self, ends: T, do: Callable[[FakeClock], Awaitable[Any]]) -> T:
        self._begun.append(_Work(ends, do, FakeClock(self._time.now())))
        return ends

    def _call(self, name: str, stand_in: Any, input: Any) -> task.CompletableTask[Any]:
        value = plain_json(input)
        self._run.called.append((name, value))
        if stand_in is None:
            raise _Missing(f"{name!r} has no stand-in: give functions={{{name!r}: ...}}")

        async def do(_time: FakeClock) -> Any:
            result = user_function(stand_in)(value)
            return await result if inspect.isawaitable(result) else result

        return self._begin(task.CompletableTask(), do)

    def call_activity(
        self, activity: Any, *, input: Any = None, **_options: Any
    ) -> task.CompletableTask[Any]:
        name = activity if isinstance(activity, str) else task.get_name(user_function(activity))
        own = None if isinstance(activity, str) else activity
        return self._call(name, self._functions.get(name, own), input)

    def call_sub_orchestrator(
        self, orchestrator: Any, *, input: Any = None, **_options: Any
    ) -> task.CompletableTask[Any]:
        if isinstance(orchestrator, str) and orchestrator == function_name(CALL):
            return self._begin(task.CompletableTask(), lambda time: self._call_operation(input, time))
        name = orchestrator if isinstance(orchestrator, str) else task.get_name(user_function(orchestrator))
        return self._call(name, self._functions.get(name), input)

    def call_entity(
        self, entity: EntityInstanceId, operation: str, input: Any = None, **_options: Any
    ) -> task.CompletableTask[Any]:
        name = f"{entity.entity}.{operation}"
        return self._call(name, self._functions.get(name), input)

    def signal_entity(
        self,
        entity_id: EntityInstanceId,
        operation_name: str,
        input: Any = None,
        *_when: Any,
        **_options: Any,
    ) -> None:
        self._run.called.append((f"{entity_id.entity}.{operation_name}", plain_json(input)))

    def lock_entities(self, _entities: list[EntityInstanceId]) -> task.CompletableTask[EntityLock]:
        lock: task.CompletableTask[EntityLock] = task.CompletableTask()
        lock.complete(EntityLock(self))
        return lock

    def _exit_critical_section(self) -> None:
        pass

    def create_timer(self, fire_at: datetime | timedelta) -> task.TimerTask:
        now = self._time.now()
        due_at = now + fire_at if isinstance(fire_at, timedelta) else fire_at
        seconds = (due_at.replace(tzinfo=UTC) - now).total_seconds()

        async def fire(time: FakeClock) -> None:
            time.move(max(0.0, seconds))

        return self._begin(task.TimerTask(), fire)

    def wait_for_external_event(self, name: str, **_options: Any) -> task.CancellableTask[Any]:
        event: task.CancellableTask[Any] = task.CancellableTask()
        if name not in self._events:
            self._missing.append(name)
            return event
        data = self._events.pop(name)

        async def receive(_time: FakeClock) -> Any:
            return data

        return self._begin(event, receive)

    def continue_as_new(self, new_input: Any, **_options: Any) -> None:
        self._run.continued_with = plain_json(new_input)

    def set_custom_status(self, custom_status: Any) -> None:
        self._run.custom_status = plain_json(custom_status)

    def new_uuid(self) -> str:
        self._numbers += 1
        return str(uuid5(NAMESPACE_OID, f"{self._instance_id}/{self._numbers}"))

    @property
    def instance_id(self) -> str:
        return self._instance_id

    @property
    def parent_instance_id(self) -> None:
        return None

    @property
    def version(self) -> None:
        return None

    @property
    def current_utc_datetime(self) -> datetime:
        return self._time.now().replace(tzinfo=None)

    @property
    def is_replaying(self) -> bool:
        return False

"""The executions of the app's own orchestrators, and clear errors for orchestrators of a wrong kind.

The id, the start and the orchestrator's name of each execution are kept, which the SDK hides from
orchestrators. One that is `async`, or that yields something else than a task, fails with what to write.
"""

import functools
import inspect
from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from weakref import WeakKeyDictionary

from durabletask import task
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.worker import _OrchestrationExecutor, _RuntimeOrchestrationContext


@dataclass(frozen=True, slots=True)
class InstanceExecution:
    """One execution of an instance: it has one for each time that it is started or continues as new.

    Attributes:
        id: Tells it from the others; the same in every replay.
        began_at: The time of its first turn, aware UTC.
        name: That of the orchestrator.
    """

    id: str
    began_at: datetime
    name: str


# The execution of each context.
_executions: WeakKeyDictionary[Any, InstanceExecution] = WeakKeyDictionary()


def guard_orchestrators() -> None:
    """Put the guards in front of those of `hub.executor_guard`; once in a process."""
    process = _OrchestrationExecutor.process_event
    run, complete = _RuntimeOrchestrationContext.run, _RuntimeOrchestrationContext.set_complete

    @functools.wraps(process)
    def process_event(executor: Any, ctx: Any, event: pb.HistoryEvent) -> None:
        if event.HasField("executionStarted"):
            began_at = ctx.current_utc_datetime.replace(tzinfo=UTC)
            started = event.executionStarted
            # Microsoft's in-memory hub gives no id; the first turn's time is part of the history, too.
            execution_id = started.orchestrationInstance.executionId.value or began_at.isoformat()
            _executions[ctx] = InstanceExecution(execution_id, began_at, started.name)
        try:
            process(executor, ctx, event)
        except TypeError as error:
            raise no_task_error(ctx._generator) if str(error) == _NO_TASK else error from None

    @functools.wraps(run)
    def run_generator(ctx: Any, generator: Any) -> None:
        run(ctx, generator)
        # The SDK does not check what is yielded first, and would wait for it for ever.
        if not isinstance(ctx._previous_task, task.Task):
            raise no_task_error(generator)

    @functools.wraps(complete)
    def set_complete(ctx: Any, result: Any, *args: Any, **kwargs: Any) -> None:
        refuse_async(result)
        complete(ctx, result, *args, **kwargs)

    executors: Any = _OrchestrationExecutor
    executors.process_event = process_event
    contexts: Any = _RuntimeOrchestrationContext
    contexts.run, contexts.set_complete = run_generator, set_complete


_NO_TASK: Final = "The orchestrator generator yielded a non-Task object"
"""The SDK's error text."""


def no_task_error(generator: Generator[Any, Any, Any]) -> TypeError:
    """Return the error for an orchestrator that yielded something else than a task, with the line."""
    while inspect.isgenerator(inner := getattr(generator, "gi_yieldfrom", None)):
        generator = inner
    frame = getattr(generator, "gi_frame", None)
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}: " if frame is not None else ""
    return TypeError(
        f"{place}the orchestrator yielded something that is no task: write "
        "`yield from durable_retry.call(...)`, and a plain `yield` for the tasks of its context"
    )


def refuse_async(result: object) -> None:
    """Refuse what an orchestrator returned that is an `async def`, with a `yield` in it or without.

    Raises:
        TypeError: It is one; the message says what to write.
    """
    code = getattr(result, "cr_code", None) or getattr(result, "ag_code", None)
    if code is None:
        return
    if inspect.iscoroutine(result):
        result.close()
    raise TypeError(
        f"{code.co_filename}:{code.co_firstlineno}: the orchestrator is an `async def`: write `def`, "
        "`yield` for `await`, and `yield from durable_retry.call(...)`"
    )


def begin_execution(context: Any, execution: InstanceExecution) -> None:
    """Note the execution that a context is made for."""
    _executions[context] = execution


def execution_of(context: Any) -> InstanceExecution:
    """Return the execution that a context belongs to.

    Raises:
        LookupError: The context is not one of the guarded executor.
    """
    return _executions[getattr(context, "_ctx", context)]

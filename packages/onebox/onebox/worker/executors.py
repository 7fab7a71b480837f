"""Runs orchestrators with the SDK's own executor, which is kept between two turns of an instance.

The SDK replays an orchestration's whole history at each turn, since the host may run the next one anywhere.
Here it is the same process as a rule: the generator waits where it stopped and is given the new events only.
What was kept is used only if the history begins with what it has seen; anything else (a turn that was not
committed, a rewind, a restart) is replayed.

    turn n    past: chunks 0..n-1           new: opening, messages          ─► kept, with what it has seen
    turn n+1  past: chunks 0..n             new: opening, messages
                            └ begins with turn n's new events; the rest of it confirms turn n's actions

Replay has a use of its own: it shows code that is not deterministic, which Azure would fail sooner or later.
So the first turns of each orchestrator are replayed, and of the later ones one in a while.
"""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import durabletask.internal.orchestrator_service_pb2 as pb
from azure.durable_functions.worker import DurableFunctionsWorker
from durabletask import worker as sdk
from durabletask.internal import helpers, tracing

from onebox.hub.events import as_new
from onebox.hub.invoker import TurnRequest

_LOG = logging.getLogger("azure.durable_functions.worker")  # where the SDK writes, too

REPLAYED_FIRST: Final = 50
"""How many turns of an orchestrator that could go on are replayed before any goes on."""

REPLAYED_THEN: Final = 32
"""One in so many of the turns after those is replayed."""

_LIMIT_BYTES: Final = 32 * 1024 * 1024
# A generator with its context, beside its history: what an operation of Durable Retry takes.
_OVERHEAD_BYTES: Final = 15_000


class _Executor(sdk._OrchestrationExecutor):  # noqa: SLF001 - the SDK has no public way to go on
    """The SDK's executor, with the context that it makes for a run."""

    context: Any = None

    def process_event(self, ctx: Any, event: pb.HistoryEvent) -> None:
        self.context = ctx
        super().process_event(ctx, event)

    def close(self) -> None:
        """Part the context from the tasks that refer to it: only the garbage collector would free the two."""
        ctx = self.context
        if ctx is not None:
            ctx._generator = ctx._previous_task = None  # noqa: SLF001 - the SDK has no public way
            events = [*chain.from_iterable(ctx._pending_events.values())]  # noqa: SLF001 - as above
            for waiting in events:
                waiting.set_cancel_handler(None)
            for waiting in (*events, *ctx._pending_tasks.values()):  # noqa: SLF001 - as above
                waiting._parents.clear()  # noqa: SLF001 - as above
            ctx._pending_tasks.clear()  # noqa: SLF001 - as above
            ctx._pending_events.clear()  # noqa: SLF001 - as above

    def go_on(self, tail: Sequence[pb.HistoryEvent], new: Sequence[pb.HistoryEvent]) -> Any:
        """Do what `execute` does after the replay.

        Args:
            tail: Events that confirm the actions of the turn before.
            new: What has come since.

        Returns:
            The SDK's `ExecutionResults`; None when the tail does not fit: replay decides what that means.
        """
        ctx, process = self.context, super().process_event
        try:
            ctx._is_replaying = True  # noqa: SLF001 - as in the SDK's `execute`
            for event in tail:
                process(ctx, event)
        except Exception:  # noqa: BLE001 - whatever it is, the replay raises it where the SDK expects it
            return None
        try:
            ctx._is_replaying = False  # noqa: SLF001 - as above
            for event in new:
                process(ctx, event)
        except Exception as error:  # noqa: BLE001 - an orchestrator may raise anything, which fails it
            ctx.set_failed(error)
        return sdk.ExecutionResults(ctx.get_actions(), ctx._encoded_custom_status)  # noqa: SLF001 - as above


@dataclass(slots=True)
class _CachedExecutor:
    """An orchestration between two turns.

    Attributes:
        execution_id: The id of the execution.
        chunks: How many turns' events it had seen before its last turn.
        seen: The new events of its last turn, framed as in the history.
        trace: The trace context under which it runs.
        size: Bytes of memory, roughly.
    """

    executor: _Executor
    execution_id: str
    chunks: int
    seen: bytes
    trace: pb.TraceContext | None
    size: int

    @property
    def is_waiting(self) -> bool:
        """Whether its generator waits for something; it has none when its answer is a rewritten history."""
        context = self.executor.context
        return context is not None and not context._is_complete  # noqa: SLF001 - the SDK has no public way

    def tail(self, request: TurnRequest) -> bytes | None:
        """Return the events that have been recorded since its last turn; None when the history is another."""
        seen = request.missing + len(request.past)
        if self.execution_id != request.execution_id or seen != self.chunks + 1:
            return None
        last = request.past[-1]
        return last[len(self.seen) :] if last.startswith(self.seen) else None


class Orchestrators:
    """Runs turns of orchestrators.

    Args:
        limit_bytes: Memory for orchestrations between two turns, roughly; those unused for longest give way.
        replayed_first: See `REPLAYED_FIRST`.
        replayed_then: See `REPLAYED_THEN`.
    """

    def __init__(
        self,
        limit_bytes: int = _LIMIT_BYTES,
        replayed_first: int = REPLAYED_FIRST,
        replayed_then: int = REPLAYED_THEN,
    ) -> None:
        self._limit_bytes = limit_bytes
        self._replayed_first = replayed_first
        self._replayed_then = replayed_then
        self._sdk = DurableFunctionsWorker()
        self._kept: OrderedDict[str, _CachedExecutor] = OrderedDict()
        self._bytes = 0
        self._could_go_on: Counter[str] = Counter()
        self.replays = 0

    def turn(
        self, name: str, code: Callable[..., Any], request: TurnRequest
    ) -> pb.OrchestratorResponse | None:
        """Run one turn.

        Args:
            name: Under which the orchestrator is registered.
            code: The app's function.
            request: What has happened.

        Returns:
            The SDK's answer; an error of the orchestrator is in it. None when the turn has to be replayed and
            the request misses the beginning.

        Raises:
            ValueError: Two functions are registered under the name.
        """
        self._sdk._register_orchestrator_once(name, code)  # noqa: SLF001 - as the SDK's own handle does
        try:
            return self._run(name, request)
        except Exception as error:  # noqa: BLE001 - the SDK answers so to whatever it is
            _LOG.exception("'%s' could not be run", request.instance_id)
            failure = helpers.new_failure_details(error)
            failed = helpers.new_complete_orchestration_action(
                -1, pb.ORCHESTRATION_STATUS_FAILED, "", failure
            )
            return pb.OrchestratorResponse(instanceId=request.instance_id, actions=[failed])

    def forget(self, instance_id: str) -> None:
        """Keep nothing of an orchestration whose turn is run by somebody else: it may be the last."""
        if (kept := self._take(instance_id)) is not None:
            kept.executor.close()

    def _run(self, name: str, request: TurnRequest) -> pb.OrchestratorResponse | None:
        kept = self._take(request.instance_id)
        tail = None if kept is None else kept.tail(request)
        result = None
        if kept is not None and tail is not None and self._may_go_on(name):
            result = self._go_on(kept, tail, request)
        if kept is None or result is None:
            if kept is not None:
                kept.executor.close()
            if request.missing:
                return None
            kept, result = self._replay(request)
        if kept.is_waiting:
            self._keep(kept, request)
        else:
            kept.executor.close()
        return pb.OrchestratorResponse(
            instanceId=request.instance_id,
            actions=result.actions,
            customStatus=helpers.get_string_value(result.encoded_custom_status),
        )

    def _may_go_on(self, name: str) -> bool:
        self._could_go_on[name] += 1
        count = self._could_go_on[name]
        return count > self._replayed_first and count % self._replayed_then != 0

    def _go_on(self, kept: _CachedExecutor, tail: bytes, request: TurnRequest) -> Any:
        parsed = pb.OrchestratorRequest.FromString(tail + b"".join(map(as_new, request.new)))
        return _traced(kept.trace, lambda: kept.executor.go_on(parsed.pastEvents, parsed.newEvents))

    def _replay(self, request: TurnRequest) -> tuple[_CachedExecutor, Any]:
        self.replays += 1
        parsed = pb.OrchestratorRequest.FromString(request.serialized())
        executor = _Executor(
            self._sdk._registry,  # noqa: SLF001 - what the SDK's worker gives its executor
            _LOG,
            self._sdk._data_converter,  # noqa: SLF001 - as above
            maximum_timer_interval=self._sdk.maximum_timer_interval,
        )
        trace = _trace_of(parsed)
        past, new = parsed.pastEvents, parsed.newEvents
        result = _traced(trace, lambda: executor.execute(request.instance_id, past, new))
        return _CachedExecutor(executor, request.execution_id, 0, b"", trace, 0), result

    def _take(self, instance_id: str) -> _CachedExecutor | None:
        kept = self._kept.pop(instance_id, None)
        if kept is not None:
            self._bytes -= kept.size
        return kept

    def _keep(self, kept: _CachedExecutor, request: TurnRequest) -> None:
        kept.chunks, kept.seen = request.missing + len(request.past), b"".join(request.new)
        if not request.missing:
            kept.size = _OVERHEAD_BYTES + sum(map(len, request.past))
        kept.size += len(kept.seen)
        self._kept[request.instance_id] = kept
        self._bytes += kept.size
        while self._bytes > self._limit_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.size
            oldest.executor.close()


def _traced(trace: pb.TraceContext | None, run: Callable[[], Any]) -> Any:
    """Run under a trace context; None leaves out what would change nothing."""
    with tracing.suppress_span_emission():
        if trace is None:
            return run()
        with tracing.use_trace_context(trace):
            return run()


def _trace_of(request: pb.OrchestratorRequest) -> pb.TraceContext | None:
    """Return the trace context that an execution was started with."""
    for event in (*request.pastEvents, *request.newEvents):
        if event.HasField("executionStarted"):
            started = event.executionStarted
            return started.parentTraceContext if started.HasField("parentTraceContext") else None
    return None

"""Runs one function once, through the runtime's protobuf-free entry."""

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from azure_functions_runtime.bindings.datumdef import Datum
from azure_functions_runtime.bindings.retrycontext import RpcException
from azure_functions_runtime.native_invocation import invocation_request_native

from onebox.clock import Clock
from onebox.worker.failures import Failure, FunctionFailedError, caught_exceptions, failure_of
from onebox.worker.functions import ACTIVITY_TRIGGER, ENTITY_TRIGGER, ORCHESTRATION_TRIGGER, Function
from onebox.worker.loop import WorkerLoop

_LOG = logging.getLogger("onebox.functions")
# Turns of orchestrators and entities are many and short: they are told at debug level only.
_LEVELS = {
    ORCHESTRATION_TRIGGER: logging.DEBUG,
    ENTITY_TRIGGER: logging.DEBUG,
    ACTIVITY_TRIGGER: logging.DEBUG,
}

Input = tuple[str, Any]  # parameter name, Datum


@dataclass(frozen=True)
class Retry:
    """Which run this is under a runtime retry policy; shown to the function as `context.retry_context`."""

    count: int = 0
    max_count: int = 0
    error: Failure | None = None


@dataclass(frozen=True)
class Result:
    """What a function returned: a Datum or None, and a Datum per output parameter that it set."""

    returned: Any
    outputs: Mapping[str, Any]


@dataclass
class Running:
    """How many invocations go on, so that a stop can wait for them."""

    count: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.idle.set()

    def __enter__(self) -> None:
        self.count += 1
        self.idle.clear()

    def __exit__(self, *_: object) -> None:
        self.count -= 1
        if self.count == 0:
            self.idle.set()


class Runner:
    """Runs functions and tells how each run ended."""

    def __init__(
        self, clock: Clock, function_timeout: timedelta | None, loop: WorkerLoop | None = None
    ) -> None:
        """Make a runner.

        Args:
            clock: Times the runs.
            function_timeout: How long one may take; None for no limit.
            loop: Where asynchronous functions run; None for the caller's own. Synchronous ones run on the
                runtime's threads, and need no detour.
        """
        self._clock = clock
        self._timeout_seconds = None if function_timeout is None else function_timeout.total_seconds()
        self._loop = loop
        self.running = Running()

    async def run(
        self,
        function: Function,
        inputs: Sequence[Input],
        metadata: Mapping[str, Any] | None = None,
        *,
        reason: str = "",
        retry: Retry | None = None,
        invocation_id: str | None = None,
    ) -> Result:
        """Run a function once.

        Args:
            function: Which.
            inputs: A Datum per input parameter, the trigger's among them.
            metadata: The trigger's metadata, a Datum per name.
            reason: Why it runs, for the log: "POST /api/x", "message 3f...".
            retry: None for a trigger without a runtime retry policy.
            invocation_id: Names the run; None makes one up.

        Raises:
            FunctionFailedError: It raised, ran out of time, or its result does not fit its bindings.
            asyncio.CancelledError: The caller gave up; a synchronous function goes on in its thread.
        """
        invocation_id = invocation_id or str(uuid.uuid4())
        started = self._clock.monotonic()
        with self.running:
            try:
                call = self._call(invocation_id, function, inputs, metadata or {}, retry or Retry())
                result = await (self._loop.run(call) if self._loop and function.is_async else call)
            except FunctionFailedError as error:
                _log(function, invocation_id, self._clock.monotonic() - started, reason, error.failure)
                raise
        _log(function, invocation_id, self._clock.monotonic() - started, reason, None)
        return result

    async def _call(
        self,
        invocation_id: str,
        function: Function,
        inputs: Sequence[Input],
        metadata: Mapping[str, Any],
        retry: Retry,
    ) -> Result:
        with caught_exceptions() as caught:
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    ok, returned, outputs, error_text, error_trace = await invocation_request_native(
                        invocation_id,
                        function.function_id,
                        list(inputs),
                        dict(metadata),
                        retry_count=retry.count,
                        max_retry_count=retry.max_count,
                        retry_exception=_rpc_exception(retry.error),
                    )
            except TimeoutError:
                raise FunctionFailedError(_out_of_time(function, self._timeout_seconds)) from None
            except SystemExit as leaving:  # the app may end its worker, but not the host
                raise FunctionFailedError(failure_of(leaving)) from None
        if ok:
            return Result(returned, dict(outputs))
        failure = (
            failure_of(caught[-1].error)
            if caught
            else Failure("Exception", str(error_text), str(error_trace))
        )
        raise FunctionFailedError(failure)


def text_datum(text: str) -> Any:
    """Wrap text the way the host hands it to a worker."""
    return Datum(text, "string")


def json_datum(text: str) -> Any:
    """Wrap JSON text the way the host hands it to a worker."""
    return Datum(text, "json")


def _rpc_exception(failure: Failure | None) -> Any:
    if failure is None:
        return None
    return RpcException("", failure.stack_trace, f"{failure.error_type}: {failure.message}")


def _out_of_time(function: Function, seconds: float | None) -> Failure:
    message = f"{function.name} ran longer than functionTimeout ({seconds:g} s)"
    return Failure("FunctionTimeoutException", message, message)


def _log(
    function: Function, invocation_id: str, seconds: float, reason: str, failure: Failure | None
) -> None:
    level = logging.ERROR if failure else _LEVELS.get(function.trigger.type, logging.INFO)
    if not _LOG.isEnabledFor(level):
        return
    outcome = "Failed" if failure else "Succeeded"
    line = f"{function.name} {outcome} in {seconds * 1000:.0f} ms"
    parts = [line, f"({reason})" if reason else "", f"- {failure.stack_trace}" if failure else ""]
    extra = {"invocation_id": invocation_id, "outcome": outcome}
    _LOG.log(level, " ".join(part for part in parts if part), extra=extra)

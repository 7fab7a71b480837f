"""Runs one function once, through the runtime's protobuf-free entry, on its caller's event loop.

The runtime returns a function's error as text: its native entry swallows the exception and passes it to its
logger together with a stack trace of its own frames. A filter on that logger takes the exception out of the
record and drops the record: the type is known exactly, and the trace is not printed twice.
"""

import asyncio
import logging
import random
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Protocol

from azure_functions_runtime.bindings.datumdef import Datum
from azure_functions_runtime.bindings.retrycontext import RpcException
from azure_functions_runtime.native_invocation import invocation_request_native
from azure_functions_runtime.utils.executor import invocation_id_cv

from onebox.clock import Clock
from onebox.inline import InlinePolicy
from onebox.worker.functions import ACTIVITY_TRIGGER, ENTITY_TRIGGER, ORCHESTRATION_TRIGGER, Function
from onebox.worker.loops import AttemptClock

_RUNTIME_LOGGER = "azure.functions"
_RUNTIME_MESSAGES = {"Native invocation failed", "Native sync invocation failed"}
_MACHINERY = ("azure_functions_runtime.", "azure.durable_functions.", "onebox.", "concurrent.futures.")
_LOG = logging.getLogger("onebox.functions")
# Turns of orchestrators and entities are many and short: they are logged at debug level only.
_LEVELS = {
    ORCHESTRATION_TRIGGER: logging.DEBUG,
    ENTITY_TRIGGER: logging.DEBUG,
    ACTIVITY_TRIGGER: logging.DEBUG,
}

# A run on an event loop's own thread that takes longer holds up everything else there.
_SLOW_SECONDS: Final = 0.1

# Version 4 and the variant of RFC 9562, sections 4 and 5.4.
_UUID_FORM_BITS: Final = 0xF << 76 | 0b11 << 62
_UUID_FORM: Final = 4 << 76 | 0b10 << 62

OUT_OF_TIME: Final = "FunctionTimeoutException"
"""The type of the failure of a function that ran longer than functionTimeout."""

Input = tuple[str, Any]  # parameter name, Datum


@dataclass(frozen=True)
class Failure:
    """What went wrong in a function.

    Attributes:
        error_type: Bare class name, as the Azure worker reports it.
        message: The error's own text.
        stack_trace: The frames of the app's code, then the error; as the app's author wants to read it.
    """

    error_type: str
    message: str
    stack_trace: str


class FunctionFailedError(Exception):
    """A function of the app raised, or its result could not be used."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.error_type}: {failure.message}")
        self.failure = failure


@dataclass(frozen=True)
class Caught:
    """An exception that the runtime swallowed, and the frames that it came through."""

    error: BaseException
    frames: TracebackType | None


_caught: ContextVar[list[Caught] | None] = ContextVar("caught", default=None)


class _TakeException(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if record.msg not in _RUNTIME_MESSAGES:
            return True
        box = _caught.get()
        error = record.exc_info[1] if record.exc_info else None
        if box is not None and error is not None:
            box.append(Caught(error, error.__traceback__))
            # The runtime formats it next, for a text that nobody reads; with frames that costs a millisecond.
            error.__traceback__ = None
        return False


def watch_runtime_logger() -> None:
    """Begin to take exceptions from the runtime's logger, whatever level others set above it."""
    logger = logging.getLogger(_RUNTIME_LOGGER)
    logger.setLevel(logging.WARNING)
    if not any(isinstance(each, _TakeException) for each in logger.filters):
        logger.addFilter(_TakeException())


def failure_of(error: BaseException) -> Failure:
    """Describe an exception of the app's code."""
    trace = "".join(traceback.format_exception(type(error), error, _users_frames(error.__traceback__)))
    return Failure(type(error).__name__, _text_of(error), trace.rstrip())


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - the text is code of the app, too
        return "(its text cannot be read)"


def _users_frames(frame: TracebackType | None) -> TracebackType | None:
    """Skip the leading frames of the machinery; when nothing else is left, keep them all."""
    first = frame
    while frame is not None:
        # By module, not by file: the SDK's wrappers claim to lie in the file of the function that they wrap.
        if not str(frame.tb_frame.f_globals.get("__name__")).startswith(_MACHINERY):
            return frame
        frame = frame.tb_next
    return first


@dataclass(frozen=True)
class Retry:
    """A run's place under a runtime retry policy; shown to the function as `context.retry_context`."""

    count: int = 0
    max_count: int = 0
    error: Failure | None = None


@dataclass(frozen=True)
class Trace:
    """The caller's W3C trace context; shown to the function as `context.trace_context`. "" means none."""

    parent: str = ""
    state: str = ""


@dataclass(frozen=True)
class Result:
    """What a function returned: a Datum or None, and a Datum per output parameter that it set."""

    returned: Any
    outputs: Mapping[str, Any]


class FunctionRunner(Protocol):
    """Runs functions, here or elsewhere."""

    async def run(
        self,
        function: Function,
        inputs: Sequence[Input],
        metadata: Mapping[str, Any] | None = None,
        *,
        reason: str = "",
        retry: Retry | None = None,
        invocation_id: str | None = None,
        trace: Trace | None = None,
    ) -> Result:
        """Run a function once; see `Runner.run`."""
        ...


class Runner:
    """Runs functions and logs how each run ended."""

    def __init__(self, clock: Clock, function_timeout: timedelta | None) -> None:
        """Make a runner.

        Args:
            clock: Times the runs.
            function_timeout: How long one may take; None for no limit.
        """
        self._clock = clock
        self._timeout_seconds = None if function_timeout is None else function_timeout.total_seconds()
        self._limit = None if self._timeout_seconds is None else AttemptClock(self._timeout_seconds)
        self._inline = InlinePolicy(_SLOW_SECONDS)

    async def run(
        self,
        function: Function,
        inputs: Sequence[Input],
        metadata: Mapping[str, Any] | None = None,
        *,
        reason: str = "",
        retry: Retry | None = None,
        invocation_id: str | None = None,
        trace: Trace | None = None,
    ) -> Result:
        """Run a function once.

        Args:
            function: Which.
            inputs: A Datum per input parameter, the trigger's among them.
            metadata: The trigger's metadata, a Datum per name.
            reason: Why it runs, for the log: "POST /api/x", "message 3f...".
            retry: None for a trigger without a runtime retry policy.
            invocation_id: Names the run; None makes one up.
            trace: The caller's; None for a trigger that has no caller.

        Raises:
            FunctionFailedError: It raised, ran out of time, or its result does not fit its bindings.
            asyncio.CancelledError: The caller gave up; a synchronous function goes on in its thread.
        """
        run_id, started = invocation_id or _new_id(), self._clock.monotonic()
        try:
            result = await self._invoke(
                run_id,
                function,
                inputs,
                metadata or {},
                retry=retry or _NO_RETRY,
                trace=trace or _NO_TRACE,
            )
        except FunctionFailedError as error:
            _log(function, run_id, self._clock.monotonic() - started, reason, error.failure)
            raise
        _log(function, run_id, self._clock.monotonic() - started, reason, None)
        return result

    def is_quick(self, function: Function) -> bool:
        """Whether a function may be run by `run_here`: it has not held up its thread lately."""
        return self._inline.allows(function.function_id)

    def note_elsewhere(self, function: Function) -> None:
        """Count a run of a function that is not quick."""
        self._inline.note_elsewhere(function.function_id)

    def run_here[T](self, function: Function, call: Callable[[], T]) -> T:
        """Run a function's code on this thread, without the runtime.

        Raises:
            FunctionFailedError: It raised.
        """
        invocation_id = _new_id()
        started = self._clock.monotonic()
        failure = None
        token = invocation_id_cv.set(invocation_id)
        try:
            return call()
        except BaseException as error:  # noqa: BLE001 - the app may raise anything, but not end the host
            failure = failure_of(error)
            raise FunctionFailedError(failure) from None
        finally:
            invocation_id_cv.reset(token)
            seconds = self._clock.monotonic() - started
            self._inline.note(function.function_id, seconds)
            _log(function, invocation_id, seconds, "", failure)

    async def _invoke(
        self,
        invocation_id: str,
        function: Function,
        inputs: Sequence[Input],
        metadata: Mapping[str, Any],
        *,
        retry: Retry,
        trace: Trace,
    ) -> Result:
        caught: list[Caught] = []  # what the runtime logs within this context (and task)
        token = _caught.set(caught)
        try:
            run = invocation_request_native(
                invocation_id,
                function.function_id,
                list(inputs),
                dict(metadata),
                trace_parent=trace.parent,
                trace_state=trace.state,
                retry_count=retry.count,
                max_retry_count=retry.max_count,
                retry_exception=_rpc_exception(retry.error),
            )
            ok, returned, outputs, error_text, error_trace = await (
                run if self._limit is None else self._limit.run(run)
            )
        except TimeoutError:
            raise FunctionFailedError(_out_of_time(function, self._timeout_seconds)) from None
        except BaseException as escaped:
            # What would end a task or an event loop fails the function alone. An app may leak the
            # cancellation of something that it awaited, or call sys.exit.
            if _is_from_outside(escaped):
                raise
            raise FunctionFailedError(failure_of(escaped)) from None
        finally:
            _caught.reset(token)
            for each in caught:
                each.error.__traceback__ = each.frames
        if ok:
            return Result(returned, dict(outputs))
        failure = (
            failure_of(caught[-1].error)
            if caught
            else Failure("Exception", str(error_text), str(error_trace))
        )
        raise FunctionFailedError(failure)


_NO_RETRY: Final = Retry()
_NO_TRACE: Final = Trace()


def _new_id() -> str:
    """Name an invocation by a UUID of version 4; unlike `uuid4` without asking the kernel."""
    text = f"{random.getrandbits(128) & ~_UUID_FORM_BITS | _UUID_FORM:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def text_datum(text: str) -> Any:
    """Wrap text the way the host passes it to a worker."""
    return Datum(text, "string")


def json_datum(text: str) -> Any:
    """Wrap JSON text the way the host passes it to a worker."""
    return Datum(text, "json")


def _is_from_outside(error: BaseException) -> bool:
    """Whether it is no error of the function: the caller gave up, or the event loop is gone."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return True
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _rpc_exception(failure: Failure | None) -> Any:
    if failure is None:
        return None
    return RpcException("", failure.stack_trace, f"{failure.error_type}: {failure.message}")


def _out_of_time(function: Function, seconds: float | None) -> Failure:
    message = f"{function.name} ran longer than functionTimeout ({seconds:g} s)"
    return Failure(OUT_OF_TIME, message, message)


def _log(
    function: Function, invocation_id: str, seconds: float, reason: str, failure: Failure | None
) -> None:
    level = logging.ERROR if failure else _LEVELS.get(function.trigger.type, logging.INFO)
    if not _LOG.isEnabledFor(level):
        return
    outcome = "Failed" if failure else "Succeeded"
    line = f"{function.name} {outcome} in {seconds * 1000:.0f} ms"
    text = f"{line} ({reason})" if reason else line
    frames = "" if failure is None else failure.stack_trace
    extra = {"invocation_id": invocation_id, "outcome": outcome, "frames": frames}
    # As `Logger.log`, which looks for the line that logs; no line of ours says anything to the app's author.
    _LOG.handle(_LOG.makeRecord(_LOG.name, level, __file__, 0, text, (), None, extra=extra))

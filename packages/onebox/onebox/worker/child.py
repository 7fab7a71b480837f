"""A worker process: loads the app and runs its functions for the host that started it.

`python -m onebox.worker FD CONFIGURATION`, where FD is its end of a socket pair. It ends when the host
asks it to or ends, even while a function runs. It ignores signals that ask to stop: a Ctrl-C reaches all
processes of the terminal, and the host decides what follows.
"""

import asyncio
import ctypes
import json
import logging
import os
import platform
import select
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import durabletask.internal.orchestrator_service_pb2 as pb
import grpc
from azure_functions_runtime import get_threadpool_executor

from onebox import CannotStartError
from onebox.clock import SystemClock
from onebox.hub.invoker import InvocationFailedError, Invoker
from onebox.hub.local_channel import Method, methods, serve_locally
from onebox.logs import set_up_logs
from onebox.worker import wire
from onebox.worker.durable import BindingInputs, DurableInvoker, HistoryNeededError
from onebox.worker.functions import Catalogue, Function
from onebox.worker.link import Handler, Link, RefusedError, WorkerLostError
from onebox.worker.loading import load_app, tune_garbage_collector
from onebox.worker.loops import WorkerLoop
from onebox.worker.runner import OUT_OF_TIME, FunctionFailedError, Runner, text_datum, watch_runtime_logger
from onebox.worker.stalls import bounded_load
from onebox.worker.streams import Channel, HttpStreams, http_streams

_PR_SET_PDEATHSIG: Final = 1  # <linux/prctl.h>
_LEAVE_SECONDS: Final = 1.5  # for what the app runs at exit, and for its threads to end


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a worker process receives at its start.

    Attributes:
        app: The app's folder.
        host: The host's process id.
        timeout_seconds: How long a function may take; None for no limit.
        verbose: Also log each turn.
        load_seconds: How long the app may take to load.
        dump: Descriptor of the file for the stacks of all threads when loading takes longer.
    """

    app: str
    host: int
    timeout_seconds: float | None
    verbose: bool
    load_seconds: float
    dump: int

    def as_text(self) -> str:
        """Return it for the command line."""
        return json.dumps(asdict(self))


class HubOverLink:
    """Stands in for the task hub's servicer: durable clients here call the one in the host's process."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = methods()[name]
        return partial(self._stream if method.is_stream else self._unary, method)

    async def _unary(self, method: Method, request: Any, context: Any) -> Any:
        (answer,) = await self._call(method, request, context)
        return method.answer.FromString(answer)

    async def _stream(self, method: Method, request: Any, context: Any) -> AsyncIterator[Any]:
        for each in await self._call(method, request, context):
            yield method.answer.FromString(each)

    async def _call(self, method: Method, request: Any, context: Any) -> Sequence[bytes]:
        try:
            request_bytes = request.SerializeToString()
            answers: Sequence[bytes] = await self._link.call(wire.CLIENT, (method.name, request_bytes))
        except WorkerLostError:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the host is gone")
        except RefusedError as refused:
            if refused.name != wire.STATUS:
                raise
            code, details = refused.details
            await context.abort(grpc.StatusCode[code], details)
        return answers


class Worker:
    """Answers the host's calls.

    Args:
        catalogue: The app's functions, or the reason why the app could not be loaded.
        runner: Runs them.
        invoker: Runs durable ones for the hub.
        inputs: Gets what durable clients need.
        stop: Called when the host has no more work.
        streams: Answers HTTP requests that stream; None when no function of the app streams.
    """

    def __init__(
        self,
        catalogue: Catalogue | CannotStartError,
        runner: Runner,
        invoker: Invoker,
        inputs: BindingInputs,
        stop: Callable[[], None],
        *,
        streams: HttpStreams | None = None,
    ) -> None:
        self._loaded = catalogue
        self._functions: Mapping[str, Function] = {each.name: each for each in _functions_of(catalogue)}
        self._runner = runner
        self._invoker = invoker
        self._inputs = inputs
        self._stop = stop
        self._streams = streams
        self._clients_served = asyncio.Event()
        self._link: Link | None = None

    async def serve(self, connection: socket.socket) -> None:
        """Answer what comes on a connection, on the running event loop."""
        link = self._link = Link(self._handlers(), patient=wire.MOVABLE)
        await asyncio.get_running_loop().create_connection(lambda: link, sock=connection)

    def _handlers(self) -> Mapping[str, Handler]:
        return {
            wire.FUNCTIONS: self._list,
            wire.SERVE: self._serve_clients,
            wire.RUN: self._run,
            wire.TURN: self._turn,
            wire.BATCH: self._batch,
            wire.ACTIVITY: self._activity,
            wire.STREAM: self._stream,
            wire.STOP: self._end,
            wire.LOOK: self._seen,
        }

    async def _list(self, _: None) -> Any:
        if isinstance(self._loaded, CannotStartError):
            raise RefusedError(wire.CANNOT_START, str(self._loaded))
        return wire.pack_functions(self._loaded), self._streams is not None

    async def _serve_clients(self, value: Any) -> None:
        address, clients = value
        serve_locally(address, HubOverLink(self._link), is_elsewhere=True)  # type: ignore[arg-type] # serve has set it
        self._inputs.serve_clients(text_datum(clients))
        self._clients_served.set()

    async def _run(self, value: Any) -> Any:
        name, inputs, metadata, named = wire.unpack_run(value)
        await self._clients_served.wait()
        function = self._functions[name]
        given = [*inputs, *self._inputs.of(function)]
        try:
            return wire.pack_result(await self._runner.run(function, given, metadata, **named))
        except FunctionFailedError as error:
            # After a timeout the host replaces this process, which cuts off its answer: the host answers.
            timed_out = error.failure.error_type == OUT_OF_TIME
            if self._streams is not None and named["invocation_id"] is not None and not timed_out:
                self._streams.fail(named["invocation_id"], error)
            raise wire.refusal(error) from None

    async def _stream(self, value: Any) -> None:
        """Answer a streamed request; the host invokes its function once the web application has it."""
        invocation_id, what, packed = value
        link, streams = self._link, self._streams
        assert link is not None and streams is not None  # noqa: S101, PT018 - the host checks

        async def receive() -> Any:
            return wire.unpack(await link.call(wire.RECEIVE, invocation_id))

        async def send(message: Any) -> None:
            await link.call(wire.SEND, (invocation_id, wire.pack(message)))

        async def arrived() -> None:
            await link.call(wire.ARRIVED, invocation_id)

        scope = wire.unpack(packed)
        await streams.serve(invocation_id, what, scope, Channel(receive, send, arrived))

    async def _turn(self, value: Any) -> bytes:
        try:
            response = await self._invoker.orchestrator(*wire.unpack_turn(value))
        except HistoryNeededError:
            raise RefusedError(wire.HISTORY_NEEDED) from None
        except InvocationFailedError as error:
            raise wire.refusal(error) from None
        answer: bytes = response.SerializeToString()
        return answer

    async def _batch(self, value: Any) -> bytes:
        name, request = value
        try:
            result = await self._invoker.entity(name, pb.EntityBatchRequest.FromString(request))
        except InvocationFailedError as error:
            raise wire.refusal(error) from None
        answer: bytes = result.SerializeToString()
        return answer

    async def _activity(self, value: Any) -> str | None:
        await self._clients_served.wait()
        try:
            return await self._invoker.activity(*value)
        except InvocationFailedError as error:
            raise wire.refusal(error) from None

    async def _seen(self, _: None) -> None:
        """Answer: that is all that is asked."""

    async def _end(self, _: None) -> None:
        asyncio.get_running_loop().call_later(0.05, self._stop)  # the answer goes out first


def _end_with(host: int) -> None:
    """Request SIGKILL at the host's death, where the kernel can; end now when the host is gone already."""
    if platform.system() == "Linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != host:
        os._exit(1)


def _load(configuration: Configuration) -> Catalogue | CannotStartError:
    with os.fdopen(configuration.dump, "w") as dump, bounded_load(configuration.load_seconds, dump):
        try:
            return load_app(Path(configuration.app))
        except CannotStartError as obstacle:
            return obstacle


def _until_stopped(connection: int, stopped: int) -> None:
    """Wait until the host asks to stop; end at once when it hangs up, even if a function blocks its loop."""
    poller = select.poll()
    poller.register(connection, 0)  # a hang-up is always reported
    poller.register(stopped, select.POLLIN)
    if stopped not in {descriptor for descriptor, _ in poller.poll()}:
        os._exit(1)


def _leave() -> NoReturn:
    """Run exit functions and end, without waiting for threads that functions still block."""
    last_resort = threading.Timer(_LEAVE_SECONDS, os._exit, [0])
    last_resort.daemon = True
    last_resort.start()
    if (executor := get_threadpool_executor()) is not None:
        executor.shutdown(wait=False, cancel_futures=True)
    logging.shutdown()
    raise SystemExit(0)


def serve_host() -> None:
    """Serve the host until it asks to stop."""
    descriptor, configuration = int(sys.argv[1]), Configuration(**json.loads(sys.argv[2]))
    _end_with(configuration.host)
    set_up_logs(verbose=configuration.verbose)
    watch_runtime_logger()
    watched = os.dup(descriptor)  # the event loop closes its own
    stopped, stop = os.pipe()
    loaded = _load(configuration)
    loop = WorkerLoop()
    loop.start()
    loop.watch(Path(configuration.app))
    loop.submit(_serve(loaded, configuration, descriptor, lambda: os.write(stop, b"\0")))
    _until_stopped(watched, stopped)
    loop.stop()
    _leave()


async def _serve(
    loaded: Catalogue | CannotStartError,
    configuration: Configuration,
    descriptor: int,
    stop: Callable[[], Any],
) -> None:
    seconds = configuration.timeout_seconds
    runner = Runner(SystemClock(), None if seconds is None else timedelta(seconds=seconds))
    inputs = BindingInputs()
    invoker = DurableInvoker(_functions_of(loaded), runner, inputs)
    streams = http_streams(_functions_of(loaded))
    tune_garbage_collector()
    await Worker(loaded, runner, invoker, inputs, stop, streams=streams).serve(
        socket.socket(fileno=descriptor)
    )


def _functions_of(loaded: Catalogue | CannotStartError) -> Catalogue:
    return Catalogue(()) if isinstance(loaded, CannotStartError) else loaded

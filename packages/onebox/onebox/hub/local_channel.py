"""The hub's gRPC service without the wire, for durable clients in the hub's own process.

The SDK's clients make their channel through one factory. For the address of a hub that is served here, the
factory returns a channel that calls the servicer directly: messages are passed as objects, nothing is
serialised, and a client on the hub's event loop costs no thread switch. Everything else goes to gRPC: other
addresses, secure channels, and clients that bring interceptors of their own.

What a gRPC client expects holds: errors are `AioRpcError`, a timeout is DEADLINE_EXCEEDED, a message
over the client's limit is RESOURCE_EXHAUSTED, and a hub that is gone is UNAVAILABLE.
"""

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Never

import durabletask.internal.orchestrator_service_pb2 as pb
import grpc
from azure.durable_functions.internal import azurefunctions_grpc_interceptor as sdk_metadata
from durabletask.internal import shared
from google.protobuf import message_factory

_SDK_MODULES: Final = ("durabletask.", "azure.durable_functions.")
_RECEIVE_LIMIT: Final = "grpc.max_receive_message_length"
_SEND_LIMIT: Final = "grpc.max_send_message_length"
_DEFAULT_RECEIVE_BYTES: Final = 4 * 1024 * 1024  # gRPC's own; what is sent is unlimited

type _Options = Sequence[tuple[str, Any]]


def _failure(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


class _Context:
    """What the servicer uses of a call's context."""

    async def abort(self, code: grpc.StatusCode, details: str = "") -> Never:
        """End the call with a status."""
        raise _failure(code, details)


_CONTEXT: Final = _Context()


@dataclass(frozen=True, slots=True)
class LocalService:
    """A hub's servicer, the event loop on which it must be called, and whether the hub is elsewhere."""

    servicer: Any
    loop: asyncio.AbstractEventLoop
    is_elsewhere: bool


_services: dict[str, LocalService] = {}
"""The hubs served in this process, by address."""


class _Calls:
    """Makes the calls of one channel.

    Args:
        address: The address of the hub; looked up at each call, so that a hub that has stopped is
            unavailable.
        options: The client's channel options, of which the limits of a message count.
    """

    def __init__(self, address: str, options: _Options) -> None:
        self._address = address
        limits = dict(options)
        self._receive_bytes = limits.get(_RECEIVE_LIMIT, _DEFAULT_RECEIVE_BYTES)
        self._send_bytes = limits.get(_SEND_LIMIT, -1)

    def service(self) -> LocalService:
        """Return the hub.

        Raises:
            AioRpcError: It has stopped (UNAVAILABLE).
        """
        service = _services.get(self._address)
        if service is None:
            raise _failure(grpc.StatusCode.UNAVAILABLE, f"no task hub is served at {self._address}")
        return service

    async def unary(self, servicer: Any, name: str, request: Any, timeout: float | None) -> Any:  # noqa: ASYNC109 - gRPC's parameter
        """Call a method that returns one message, on the hub's event loop.

        Args:
            servicer: The hub's.
            name: The method.
            request: Its message, which neither side changes.
            timeout: Seconds; None waits without end.
        """
        self._within(request, self._send_bytes, "Sent")
        try:
            if timeout is None:
                answer = await getattr(servicer, name)(request, _CONTEXT)
            else:
                async with asyncio.timeout(timeout):
                    answer = await getattr(servicer, name)(request, _CONTEXT)
        except grpc.aio.AioRpcError:
            raise
        except TimeoutError:
            raise _failure(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        except Exception as error:
            raise _failure(grpc.StatusCode.UNKNOWN, f"Unexpected {type(error)}: {error}") from error
        self._within(answer, self._receive_bytes, "Received")
        return answer

    async def stream(self, servicer: Any, name: str, request: Any) -> list[Any]:
        """Call a method that returns several messages, on the hub's event loop, and collect them."""
        self._within(request, self._send_bytes, "Sent")
        answers = [each async for each in getattr(servicer, name)(request, _CONTEXT)]
        for each in answers:
            self._within(each, self._receive_bytes, "Received")
        return answers

    def _within(self, message: Any, limit_bytes: int, done: str) -> None:
        if limit_bytes >= 0 and (size := message.ByteSize()) > limit_bytes:
            detail = f"{done} message larger than max ({size} vs. {limit_bytes})"
            raise _failure(grpc.StatusCode.RESOURCE_EXHAUSTED, detail)


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the hub's service.

    Attributes:
        request: Class of its request.
        answer: Class of its answer, or of each when there are several.
        is_stream: Whether there may be several.
    """

    name: str
    request: Any
    answer: Any
    is_stream: bool


@functools.cache
def methods() -> Mapping[str, Method]:
    """Return the methods of the hub's service."""
    service = pb.DESCRIPTOR.services_by_name["TaskHubSidecarService"]
    return {
        each.name: Method(
            each.name,
            message_factory.GetMessageClass(each.input_type),
            message_factory.GetMessageClass(each.output_type),
            each.server_streaming,
        )
        for each in service.methods
    }


async def call_serialized(address: str, name: str, request: bytes) -> list[bytes]:
    """Call a method for a client in another process; return the serialised answers.

    Args:
        address: The address of a hub that is served on the running event loop.
        name: The method.
        request: Its message, serialised.

    Raises:
        AioRpcError: As for a gRPC client.
    """
    method, calls = methods()[name], _Calls(address, [(_RECEIVE_LIMIT, -1)])
    servicer, asked = calls.service().servicer, method.request.FromString(request)
    if method.is_stream:
        return [each.SerializeToString() for each in await calls.stream(servicer, name, asked)]
    return [(await calls.unary(servicer, name, asked, None)).SerializeToString()]


class LocalChannel:
    """A `grpc.aio.Channel` as far as the SDK's generated stub uses one."""

    def __init__(self, address: str, options: _Options) -> None:
        self._calls = _Calls(address, options)

    def unary_unary(self, method: str, *_: Any, **__: Any) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Return what calls a method, like "/TaskHubSidecarService/StartInstance"."""
        return functools.partial(self._unary, method.rpartition("/")[2])

    def unary_stream(self, method: str, *_: Any, **__: Any) -> Callable[..., AsyncIterator[Any]]:
        """Return what calls a method that answers with a stream."""
        return functools.partial(self._stream, method.rpartition("/")[2])

    async def _unary(self, name: str, request: Any, timeout: float | None = None, **_: Any) -> Any:  # noqa: ASYNC109 - gRPC's parameter
        service = self._calls.service()
        call = self._calls.unary(service.servicer, name, request, timeout)
        return await _on(service.loop, call)

    async def _stream(self, name: str, request: Any, **_: Any) -> AsyncIterator[Any]:
        service = self._calls.service()
        for each in await _on(service.loop, self._calls.stream(service.servicer, name, request)):
            yield each

    async def close(self, _grace: float | None = None) -> None:
        """Do nothing: there is no connection."""


class LocalBlockingChannel:
    """A `grpc.Channel` as far as the SDK's generated stub uses one, for clients that block.

    In a worker process such a client may block the event loop that serves the link to the hub: it then goes
    over gRPC, whose threads need no loop.

    Args:
        address: The address of the hub.
        options: The client's channel options.
        connect: Makes a channel of gRPC.
    """

    def __init__(self, address: str, options: _Options, connect: Callable[[], grpc.Channel]) -> None:
        self._calls = _Calls(address, options)
        self._connect = connect
        self._remote: grpc.Channel | None = None

    def unary_unary(self, method: str, *given: Any, **named: Any) -> Callable[..., Any]:
        """Return what calls a method and waits for its answer."""

        def call(request: Any, timeout: float | None = None, **_: Any) -> Any:
            if self._must_go_over_grpc():
                return self._channel().unary_unary(method, *given, **named)(request, timeout=timeout)
            service = self._calls.service()
            name = method.rpartition("/")[2]
            return _wait_for(service.loop, self._calls.unary(service.servicer, name, request, timeout))

        return call

    def unary_stream(self, method: str, *given: Any, **named: Any) -> Callable[..., Iterator[Any]]:
        """Return what calls a method that answers with a stream."""

        def call(request: Any, **_: Any) -> Iterator[Any]:
            if self._must_go_over_grpc():
                return iter(self._channel().unary_stream(method, *given, **named)(request))
            service = self._calls.service()
            name = method.rpartition("/")[2]
            return iter(_wait_for(service.loop, self._calls.stream(service.servicer, name, request)))

        return call

    def _must_go_over_grpc(self) -> bool:
        service = self._calls.service()
        return service.is_elsewhere and asyncio._get_running_loop() is service.loop  # noqa: SLF001 - as below

    def _channel(self) -> grpc.Channel:
        if self._remote is None:
            self._remote = self._connect()
        return self._remote

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._remote is not None:
            self._remote.close()


async def _on[T](loop: asyncio.AbstractEventLoop, call: Coroutine[Any, Any, T]) -> T:
    """Run a call on the hub's event loop, at once when this is it."""
    if asyncio.get_running_loop() is loop:
        return await call
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, loop))


def _wait_for[T](loop: asyncio.AbstractEventLoop, call: Coroutine[Any, Any, T]) -> T:
    """Run a call on the hub's event loop and block until it is done.

    Raises:
        AioRpcError: This thread runs that loop: it would wait for itself (FAILED_PRECONDITION).
    """
    if asyncio._get_running_loop() is loop:  # noqa: SLF001 - the public one raises where there is none
        call.close()
        detail = (
            "a blocking durable client ran on the event loop of the task hub: "
            "use the async client, or a worker process (FUNCTIONS_WORKER_PROCESS_COUNT)"
        )
        raise _failure(grpc.StatusCode.FAILED_PRECONDITION, detail)
    return asyncio.run_coroutine_threadsafe(call, loop).result()


def serve_locally(address: str, servicer: Any, *, is_elsewhere: bool = False) -> None:
    """Let this process's clients of a hub call its servicer on the running event loop.

    Args:
        address: `host:port` of the hub's gRPC service.
        servicer: The implementation of that service.
        is_elsewhere: Whether another process has the hub, and serves gRPC at the address.
    """
    _install()
    _services[address] = LocalService(servicer, asyncio.get_running_loop(), is_elsewhere)


def stop_serving(address: str) -> None:
    """Make a hub unavailable to this process's clients; harmless when it was not served."""
    _services.pop(address, None)


@functools.cache
def _install() -> None:
    """Put ourselves before the SDK's channel factories, and make its clients cheap, once in a process."""
    shared.get_async_grpc_channel = _local_or(
        shared.get_async_grpc_channel, lambda address, options, _: LocalChannel(address, options)
    )
    shared.get_grpc_channel = _local_or(shared.get_grpc_channel, LocalBlockingChannel)
    # Each client of a binding asks for its package's version, which reads folders: most of what one costs.
    sdk_metadata.version = functools.cache(sdk_metadata.version)  # type: ignore[attr-defined] # it imports it


def _local_or(
    factory: Callable[..., Any], local: Callable[[str, _Options, Callable[[], Any]], Any]
) -> Callable[..., Any]:
    signature = inspect.signature(factory)

    @functools.wraps(factory)
    def make(*given: Any, **named: Any) -> Any:
        asked = signature.bind(*given, **named).arguments
        address = asked.get("host_address") or ""
        if (
            address not in _services
            or asked.get("secure_channel")
            or not _all_ours(asked.get("interceptors"))
        ):
            return factory(*given, **named)
        options = asked.get("channel_options")
        return local(
            address,
            [] if options is None else options.to_grpc_options(),
            functools.partial(factory, *given, **named),
        )

    return make


def _all_ours(interceptors: Sequence[Any] | None) -> bool:
    """Whether these are the SDK's own, which add metadata and watch a connection: neither matters here."""
    return all(type(each).__module__.startswith(_SDK_MODULES) for each in interceptors or ())

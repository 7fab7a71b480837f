"""A language worker as Azure runs it: its own packages first, then the app's, over gRPC to a host.

usage: azure_worker.py HOST_ADDRESS WORKER_PACKAGES APP_PACKAGES

It is run by an interpreter that has nothing else. Its order of things is the proxy worker's of Python 3.13:
the worker's own grpc, protobuf and uvloop are imported, and uvloop runs the event loop; at the first message
its packages' modules are forgotten, the app's packages come first, and `azure_functions_runtime` is imported
from wherever it is found then.
Source: `workers/proxy_worker` of `Azure/azure-functions-python-worker` (start_worker.py, dispatcher.py,
utils/dependency.py).
"""

import asyncio
import importlib.util
import queue
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final

host, worker_packages, app_packages = sys.argv[1:]
sys.path[:] = [worker_packages, *(path for path in sys.path if "site-packages" not in path)]

import google.protobuf  # type: ignore[import-untyped] # noqa: E402 - the worker's own, not the app's
import grpc  # noqa: E402 - the worker's own, not the app's
import uvloop  # noqa: E402 - likewise


def module_beside(name: str) -> ModuleType:
    """Return a module of this folder, which stays out of the path: the app must not find it."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ANSWERS: Final = {
    "functions_metadata_request": "function_metadata_response",
    "function_load_request": "function_load_response",
    "invocation_request": "invocation_response",
}
STOP: Final = object()
WORKERS_PROTOBUF: Final = google.protobuf.__version__
rpc: Any = module_beside("function_rpc")
messages = rpc.make_messages()
answers: queue.Queue[Any] = queue.Queue()


def forget_modules(folder: str) -> None:
    """Let what was imported from a folder be imported anew, from whatever comes first then."""
    for name, module in list(sys.modules.items()):
        try:
            files = [*(getattr(module, "__path__", None) or ()), getattr(module, "__file__", None) or ""]
        except KeyError:
            continue  # A namespace whose parent was forgotten just now; the worker keeps it too.
        if name not in sys.builtin_module_names and any(file.startswith(folder) for file in files):
            del sys.modules[name]


def prefer_the_app(folder: str) -> Any:
    """Put the app's packages first and its folder last, and return the library that loads and runs it."""
    sys.path[:] = [app_packages, *sys.path, folder]
    forget_modules(worker_packages)
    import azure_functions_runtime  # noqa: PLC0415 - not before the paths are set

    azure_functions_runtime.start_threadpool_executor()
    return azure_functions_runtime


class Worker:
    """Answers the host's messages one by one, each in a task."""

    def __init__(self) -> None:
        self._library: Any = None

    async def answer(self, message: Any) -> None:
        kind = message.WhichOneof("content")
        if kind == "worker_init_request":
            self._library = prefer_the_app(message.worker_init_request.function_app_directory)
            properties = {"protos": messages, "host": host}
            found = await self._library.worker_init_request(
                SimpleNamespace(request=message, properties=properties)
            )
            found.capabilities["library"] = self._library.version.VERSION
            found.capabilities["workers protobuf"] = WORKERS_PROTOBUF
            found.capabilities["event loop"] = type(asyncio.get_running_loop()).__module__
            found.capabilities["modules"] = ",".join(
                f"{name}={sys.modules[name].__version__}" for name in ("grpc", "google.protobuf")
            )
            named = {"worker_init_response": found}
        else:
            handle = getattr(self._library, kind)
            named = {ANSWERS[kind]: await handle(SimpleNamespace(request=message))}
        answers.put(messages.StreamingMessage(request_id=message.request_id, **named))


async def serve() -> None:
    """Serve one stream until the host ends it."""
    loop = asyncio.get_running_loop()
    worker = Worker()
    ended = loop.create_future()
    tasks: set[asyncio.Task[None]] = set()

    def begin(message: Any) -> None:
        task = loop.create_task(worker.answer(message))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def read() -> None:
        channel = grpc.insecure_channel(host, [("grpc.max_receive_message_length", -1)])
        stream = channel.stream_stream(
            rpc.EVENT_STREAM,
            request_serializer=messages.StreamingMessage.SerializeToString,
            response_deserializer=messages.StreamingMessage.FromString,
        )
        answers.put(messages.StreamingMessage(start_stream=messages.StartStream(worker_id="worker")))
        try:
            for message in stream(iter(answers.get, STOP)):
                loop.call_soon_threadsafe(begin, message)
        except grpc.RpcError:
            pass  # The host has ended.
        loop.call_soon_threadsafe(ended.set_result, None)

    threading.Thread(target=read, daemon=True).start()
    await ended
    answers.put(STOP)


asyncio.run(serve(), loop_factory=uvloop.new_event_loop)

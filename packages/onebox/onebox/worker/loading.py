"""Loads the app through `azure_functions_runtime`, the library that the Azure worker itself runs."""

import ctypes
import functools
import gc
import importlib
import json
import os
import platform
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, ClassVar, Final

from azure.functions import _durable_functions
from azure_functions_runtime import handle_event, start_threadpool_executor
from azure_functions_runtime.bindings.meta import load_binding_registry
from azure_functions_runtime.functions import FunctionLoadError
from azure_functions_runtime.loader import index_function_app, process_indexed_function

from onebox import CannotStartError
from onebox.environment import SCRIPT
from onebox.worker.functions import (
    ENTITY_TRIGGER,
    ORCHESTRATION_TRIGGER,
    Binding,
    Catalogue,
    Function,
    RetryOptions,
)
from onebox.worker.stalls import watched_load

# What invocations look functions up in; it is private to the runtime's event module.
_REGISTRY = handle_event._functions  # noqa: SLF001 # there is no public way to it

_COLLECT_FROM_OBJECTS = 20_000  # ten times Python's own; they are a few megabytes

_LARGE_BYTES: Final = 128 * 1024  # where glibc begins, too
_GLIBC_OPTIONS: Final = ((-1, _LARGE_BYTES), (-3, _LARGE_BYTES), (-8, 2))
"""M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_ARENA_MAX of <malloc.h>."""

# Where the SDK's decorators leave the function that they wrap.
_DURABLE_CODE = {ORCHESTRATION_TRIGGER: "orchestrator_function", ENTITY_TRIGGER: "entity_function"}


@dataclass(frozen=True)
class _BindingInfo:
    """Direction and type of one binding; the numbers are those of the protocol's `BindingInfo.Direction`."""

    type: str
    data_type: int | None
    direction: int

    # The protocol gives `in` the value 0 too, but the runtime never compares with it.
    out: ClassVar[int] = 1
    inout: ClassVar[int] = 2
    undefined: ClassVar[int] = 0


@dataclass(frozen=True)
class _RpcRetryOptions:
    """The retry policy of a function."""

    max_retry_count: int
    retry_strategy: str
    delay_interval: timedelta | None = None
    minimum_interval: timedelta | None = None
    maximum_interval: timedelta | None = None


@dataclass(frozen=True)
class _RpcFunctionMetadata:
    """One indexed function."""

    name: str
    function_id: str
    managed_dependency_enabled: bool
    directory: str
    script_file: str
    entry_point: str
    is_proxy: bool
    language: str
    bindings: Mapping[str, _BindingInfo]
    raw_bindings: Sequence[str]
    retry_options: _RpcRetryOptions | None
    properties: Mapping[str, Any]


# The runtime is handed a namespace with the protobuf classes of the Functions host. It only calls them with
# keyword arguments and returns the results, so plain records serve as well and no protobuf is needed.
_PROTOCOL = SimpleNamespace(
    BindingInfo=_BindingInfo,
    RpcRetryOptions=_RpcRetryOptions,
    RpcFunctionMetadata=_RpcFunctionMetadata,
)

_OWN = str(Path(__file__).parents[1])


class AppLoadError(CannotStartError):
    """The app's own code failed while it was loaded; the message is its traceback without our frames."""


def load_app(folder: Path) -> Catalogue:
    """Import and index the app, as the worker does at start; the folder becomes the working directory.

    A process can load one app, once: the runtime keeps its registry in module state.

    Args:
        folder: Where function_app.py lies (or what PYTHON_SCRIPT_FILE_NAME names).

    Raises:
        CannotStartError: There is no such file, or it declares no app.
        AppLoadError: The app's code raised, or a function is declared wrongly.
    """
    script = folder / SCRIPT.get(os.environ)
    if not script.is_file():
        raise CannotStartError(f"no {script.name} in {folder}: is this the folder of a function app?")
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    _keep_large_blocks_apart()
    load_binding_registry()
    start_threadpool_executor()
    with watched_load(folder):
        _import(script)
    _decide_typing()
    return Catalogue(_describe(each) for each in _index(script))


def tune_garbage_collector() -> None:
    """Exclude everything loaded so far from garbage collection, and collect new objects less often.

    Call it once, when the app and the host around it are complete. Imported modules are never garbage; a pass
    over them finds nothing and evicts the running code from the processor's caches.
    """
    gc.collect()
    gc.freeze()
    first, *others = gc.get_threshold()
    gc.set_threshold(max(first, _COLLECT_FROM_OBJECTS), *others)


def _keep_large_blocks_apart() -> None:
    """Have glibc return large blocks to the system when they are freed, and share its heaps among threads.

    By itself it puts them into its heaps once one was freed, and has a heap for nearly every thread: in an
    hour each comes to hold the largest answer of storage that its thread read.
    """
    if platform.libc_ver()[0] == "glibc":
        for option, value in _GLIBC_OPTIONS:
            ctypes.CDLL(None).mallopt(option, value)


def _decide_typing() -> None:
    """Have the library read once whether the app asks for strict typing, which it does for every document."""
    if (is_strict := getattr(_durable_functions, "_is_strict_mode", None)) is not None:
        _durable_functions._is_strict_mode = functools.cache(is_strict)  # noqa: SLF001 - it has no public way


def _import(script: Path) -> None:
    try:
        importlib.import_module(script.stem)
    except (Exception, SystemExit) as mistake:  # noqa: BLE001 # the app may raise anything, and all of it is shown
        shown = str(mistake) if _hides_traceback(mistake) else _users_traceback(mistake, script.parent)
        text = f"the app could not be loaded\n{shown}"
        if isinstance(mistake, ModuleNotFoundError):
            text += f"\nThe app runs with {sys.executable}: install its requirements there, beside onebox."
        raise AppLoadError(text) from None


def _hides_traceback(mistake: BaseException) -> bool:
    """Whether an error says of itself that its message is all that a person needs."""
    return getattr(mistake, "hides_traceback", False) is True


def _users_traceback(mistake: BaseException, folder: Path) -> str:
    """Format an error with the frames from the app's first one on; all of them when none is the app's."""
    frame: TracebackType | None = mistake.__traceback__
    while frame is not None and not _is_users(frame.tb_frame.f_code.co_filename, folder):
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(mistake), mistake, frame)).rstrip()


def _is_users(file: str, folder: Path) -> bool:
    """Whether a file is the app's: not onebox's own, which may lie below the same folder."""
    return file.startswith(str(folder)) and not file.startswith(_OWN)


def _index(script: Path) -> list[_RpcFunctionMetadata]:
    try:
        indexed = index_function_app(str(script))
        functions, _ = process_indexed_function(_PROTOCOL, _REGISTRY, indexed, str(script.parent))
    except (ValueError, TypeError, FunctionLoadError) as mistake:
        raise AppLoadError(f"the app could not be indexed: {mistake}") from None
    found: list[_RpcFunctionMetadata] = functions
    return found


def _describe(metadata: _RpcFunctionMetadata) -> Function:
    bindings = tuple(_bindings(metadata))
    trigger = next((each for each in bindings if each.is_trigger), None)
    if trigger is None:
        raise AppLoadError(f"the app could not be indexed: function {metadata.name} has no trigger")
    registered = _REGISTRY.get_function(metadata.function_id)
    return Function(
        metadata.name,
        metadata.function_id,
        trigger,
        bindings,
        retry=_retry(metadata.retry_options),
        durable_code=getattr(registered.func, _DURABLE_CODE.get(trigger.type, ""), None),
    )


def _bindings(metadata: _RpcFunctionMetadata) -> Iterator[Binding]:
    for text in metadata.raw_bindings:
        table: dict[str, Any] = json.loads(text)
        is_output = str(table.get("direction", "in")).lower() == "out"
        yield Binding(table["name"], table["type"], is_output, table)


def _retry(options: _RpcRetryOptions | None) -> RetryOptions | None:
    if options is None:
        return None
    if options.delay_interval is not None:
        return RetryOptions(options.max_retry_count, fixed_delay=options.delay_interval)
    return RetryOptions(
        options.max_retry_count,
        minimum_delay=options.minimum_interval or RetryOptions.minimum_delay,
        maximum_delay=options.maximum_interval or RetryOptions.maximum_delay,
    )

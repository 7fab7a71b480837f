"""Loads an app through `azure_functions_runtime`, the library that the Azure worker itself runs."""

import importlib
import json
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from azure_functions_runtime import handle_event, start_threadpool_executor
from azure_functions_runtime.bindings.meta import load_binding_registry
from azure_functions_runtime.functions import FunctionLoadError
from azure_functions_runtime.loader import index_function_app, process_indexed_function

from onebox.environment import SCRIPT
from onebox.errors import CannotStartError
from onebox.worker import declarations
from onebox.worker.functions import (
    ENTITY_TRIGGER,
    ORCHESTRATION_TRIGGER,
    Binding,
    Catalogue,
    Function,
    RetryOptions,
)

# What invocations look functions up in; it is private to the runtime's event module.
_REGISTRY = handle_event._functions  # noqa: SLF001 # there is no public way to it

# Where the SDK's decorators leave the function that they wrap.
_DURABLE_CODE = {ORCHESTRATION_TRIGGER: "orchestrator_function", ENTITY_TRIGGER: "entity_function"}


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
    load_binding_registry()
    start_threadpool_executor()
    _import(script)
    return Catalogue(_describe(each) for each in _index(script))


def _import(script: Path) -> None:
    try:
        importlib.import_module(script.stem)
    except Exception as mistake:  # noqa: BLE001 # the app may raise anything, and all of it is shown
        raise AppLoadError(
            f"the app could not be loaded\n{_users_traceback(mistake, script.parent)}"
        ) from None


def _users_traceback(mistake: Exception, folder: Path) -> str:
    """Format an error with the frames from the app's first one on; all of them when none is the app's."""
    frame: TracebackType | None = mistake.__traceback__
    while frame is not None and not frame.tb_frame.f_code.co_filename.startswith(str(folder)):
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(mistake), mistake, frame)).rstrip()


def _index(script: Path) -> list[declarations.RpcFunctionMetadata]:
    try:
        indexed = index_function_app(str(script))
        functions, _ = process_indexed_function(declarations, _REGISTRY, indexed, str(script.parent))
    except (ValueError, TypeError, FunctionLoadError) as mistake:
        raise AppLoadError(f"the app could not be indexed: {mistake}") from None
    found: list[declarations.RpcFunctionMetadata] = functions
    return found


def _describe(metadata: declarations.RpcFunctionMetadata) -> Function:
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
        is_async=registered.is_async,
        durable_code=getattr(registered.func, _DURABLE_CODE.get(trigger.type, ""), None),
    )


def _bindings(metadata: declarations.RpcFunctionMetadata) -> Iterator[Binding]:
    for text in metadata.raw_bindings:
        table: dict[str, Any] = json.loads(text)
        is_output = str(table.get("direction", "in")).lower() == "out"
        yield Binding(table["name"], table["type"], is_output, table)


def _retry(options: declarations.RpcRetryOptions | None) -> RetryOptions | None:
    if options is None:
        return None
    if options.delay_interval is not None:
        return RetryOptions(options.max_retry_count, fixed_delay=options.delay_interval)
    return RetryOptions(
        options.max_retry_count,
        minimum_delay=options.minimum_interval or RetryOptions.minimum_delay,
        maximum_delay=options.maximum_interval or RetryOptions.maximum_delay,
    )

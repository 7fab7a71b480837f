"""The plain functions behind what the SDK's decorators return."""

import inspect
from typing import Any


def user_function(function: Any) -> Any:
    """Return the function that a decorator of the SDK wrapped; any other function as it is."""
    builder = getattr(function, "_function", None)
    return function if builder is None else builder.get_user_function()


def orchestrator_function(declared: Any) -> Any:
    """Return the function of an orchestrator, decorated by `orchestration_trigger` or not."""
    handle = inspect.unwrap(user_function(declared))
    return getattr(handle, "orchestrator_function", handle)

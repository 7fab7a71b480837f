"""The functions in what the SDK's decorators leave of them."""

import inspect
from typing import Any


def user_function(function: Any) -> Any:
    """Return the function in what a decorator of the SDK left; any other as it is."""
    builder = getattr(function, "_function", None)
    return function if builder is None else builder.get_user_function()


def orchestrator_function(declared: Any) -> Any:
    """Return the function of an orchestrator, of itself or of what `orchestration_trigger` made of it."""
    handle = inspect.unwrap(user_function(declared))
    return getattr(handle, "orchestrator_function", handle)

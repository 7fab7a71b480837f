"""The binding `durableClient`: functions that declare it get a `TaskHub` as `hub`."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from azure.durable_functions import Blueprint

from durable_retry.stores.task_hub import TaskHub

__all__ = ["TaskHub", "bind_hub"]


def bind_hub(blueprint: Blueprint) -> Callable[[Callable[..., Awaitable[Any]]], Any]:
    """Return the decorator that binds the durable client, and gives its task hub as the parameter `hub`."""

    def bind(function: Callable[..., Awaitable[Any]]) -> Any:
        @wraps(function)
        async def bound(*args: Any, hub: str, **others: Any) -> Any:
            return await function(*args, hub=TaskHub(hub), **others)

        # The host sends a text, and looks at the annotation to see what it may send.
        bound.__annotations__ = {**function.__annotations__, "hub": str}
        return blueprint.generic_input_binding(
            arg_name="hub", type="durableClient", durableRequiresGrpc=True
        )(bound)

    return bind

"""The binding `durableClient`: functions that declare it, activities among them, get a `TaskHub` as `hub`."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from azure.durable_functions import Blueprint

from durable_retry.hub.task_hub import TaskHub
from durable_retry.runtime.deferred import deferred

__all__ = ["TaskHub", "add_activity", "bind_hub"]


def bind_hub(blueprint: Blueprint) -> Callable[[Callable[..., Awaitable[Any]]], Any]:
    """Return the decorator that binds the durable client, and gives its task hub as the parameter `hub`."""

    def bind(function: Callable[..., Awaitable[Any]]) -> Any:
        @wraps(function)
        async def bound(*args: Any, hub: str, **others: Any) -> Any:
            return await function(*args, hub=TaskHub(hub), **others)

        # The host sends text, and checks by the annotation whether it may.
        bound.__annotations__ = {**function.__annotations__, "hub": str}
        return blueprint.generic_input_binding(
            arg_name="hub", type="durableClient", durableRequiresGrpc=True
        )(bound)

    return bind


def add_activity(blueprint: Blueprint, reference: str, *, with_hub: bool) -> None:
    """Add an activity whose module is imported when it is first called.

    Args:
        reference: Its function, `package.module:name`, whose name is the activity's.
        with_hub: Whether it takes the task hub beside its input.
    """
    run = deferred(reference)

    async def activity(given: dict) -> object:  # type: ignore[type-arg] # the worker refuses parameterised annotations
        return await run(given)

    async def activity_with_hub(given: dict, hub: TaskHub) -> object:  # type: ignore[type-arg] # as above
        return await run(given, hub)

    function: Any = activity_with_hub if with_hub else activity
    function.__name__ = name = reference.rpartition(":")[2]
    bound = bind_hub(blueprint)(function) if with_hub else function
    blueprint.activity_trigger(input_name="given", activity=name)(bound)

"""The Python handlers that this app knows, by name. They are written with `activities.handling`."""

import importlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

type HandlerFunction = Callable[[Any, Any], Awaitable[Any]]
"""`await function(input, call)`; the call is an `activities.handling.Call`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A registered handler.

    Attributes:
        name: What operations put into `handler`.
        dependency: Whose policy, circuit and client it uses.
        input_model: Pydantic model that an operation's `input` must fit.
        function: Makes one attempt.
    """

    name: str
    dependency: str
    input_model: type[BaseModel]
    function: HandlerFunction


class HandlerSetupError(ValueError):
    """A handler that cannot be registered; the message says what to change."""


_handlers: dict[str, Handler] = {}


def register(handler: Handler) -> None:
    """Make a handler known.

    Raises:
        HandlerSetupError: Another function has the name.
    """
    known = _handlers.get(handler.name)
    if known is not None and _place(known.function) != _place(handler.function):
        raise HandlerSetupError(f"handler {handler.name!r} is registered twice; choose another name")
    _handlers[handler.name] = handler


def find_handler(name: str) -> Handler | None:
    """Return a registered handler, or None."""
    return _handlers.get(name)


def registered_handlers() -> tuple[Handler, ...]:
    """Return all handlers, by name."""
    return tuple(_handlers[name] for name in sorted(_handlers))


def load_handlers(modules: Iterable[str]) -> None:
    """Import the modules that register handlers.

    Raises:
        HandlerSetupError: A module is missing or fails; the message names it.
    """
    for module in modules:
        try:
            importlib.import_module(module)
        except HandlerSetupError:
            raise
        except Exception as error:
            raise HandlerSetupError(f"app setting HANDLERS: cannot import {module}: {error}") from error


def _place(function: HandlerFunction) -> tuple[str, str]:
    """Where a function is written: importing a module anew gives another object of the same place."""
    return function.__module__, function.__qualname__

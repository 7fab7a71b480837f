"""The handlers of this process, by name."""

import importlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

type HandlerFunction = Callable[[Any, Any], Awaitable[Any]]
"""`await function(input, call)`, where `call` is a `Call`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A registered handler.

    Attributes:
        name: What operations put into `handler`.
        dependency: The one whose policy, circuit and client it uses.
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


def register_handler(handler: Handler) -> None:
    """Register a handler.

    Raises:
        HandlerSetupError: Another function has the name.
    """
    known = _handlers.get(handler.name)
    if known is not None and _defined_at(known.function) != _defined_at(handler.function):
        raise HandlerSetupError(f"handler {handler.name!r} is registered twice; choose another name")
    _handlers[handler.name] = handler


def find_handler(name: str) -> Handler | None:
    """Return a registered handler, or None."""
    return _handlers.get(name)


def registered_handlers() -> Mapping[str, Handler]:
    """Return all handlers, by name."""
    return MappingProxyType(_handlers)


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


def _defined_at(function: HandlerFunction) -> tuple[str, str]:
    """Return where a function is defined, which stays the same when its module is imported again."""
    return function.__module__, function.__qualname__

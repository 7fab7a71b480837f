"""Python handlers: their registration, what they are called with, and what they raise and return."""

import importlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import httpx
from pydantic import BaseModel

type HandlerFunction = Callable[[Any, Any], Awaitable[Any]]
"""`await function(input, call)`, where `call` is a `Call`."""


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


def _defined_at(function: HandlerFunction) -> tuple[str, str]:
    """Return where a function is defined, which stays the same when its module is imported again."""
    return function.__module__, function.__qualname__


MAX_WRITES: Final = 75
"""Writes of one outcome, at most. A transaction takes 100 changes: the rest is for events and the result."""


class HandlerFailure(Exception):  # noqa: N818 - `classify` of a dependency may name it
    """The base of what a handler raises when it did not succeed."""


class Transient(HandlerFailure):
    """The same call may succeed later.

    Args:
        message: Shown in the attempt; never put a secret here.
        retry_after: Seconds in which not to try again; None leaves it to the policy.
    """

    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Throttled(HandlerFailure):
    """The dependency wants fewer calls: all calls to it pause for `retry_after` seconds."""

    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Rejected(HandlerFailure):
    """The same call will never succeed: the operation becomes a dead letter at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWrite:
    """One change of a table, made in the same transaction as the result.

    Attributes:
        table: Name of an Azure table of the app's storage account.
        partition_key: All writes of one outcome share table and partition: a transaction cannot span them.
        row_key: The row.
        values: Its properties.
        mode: `replace` and `merge` make the row when it is missing; `insert` rejects the operation when it
            exists.
    """

    table: str
    partition_key: str
    row_key: str
    values: Mapping[str, Any] = field(default_factory=dict)
    mode: Literal["replace", "merge", "insert", "delete"] = "replace"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, as the commit takes it."""
        return {
            "table": self.table,
            "partition_key": self.partition_key,
            "row_key": self.row_key,
            "values": dict(self.values),
            "mode": self.mode,
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    """A handler's success with side effects that commit together.

    Attributes:
        value: Any JSON; becomes `result.value`.
        writes: Table writes, all in one table and partition.
        events: Follow-up messages in the form of contract `on_success`.
    """

    value: Any = None
    writes: Iterable[TableWrite] = ()
    events: Iterable[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One attempt, as a handler gets it.

    Attributes:
        key: The idempotency key, the same on every attempt and every replay.
        attempt: Number of this attempt, from 1.
        seconds_left: Until this attempt is cut off.
        correlation_id: The caller's name for the wider piece of work; None when not given.
        client: Bound to the handler's dependency: its base URL, headers, auth, timeouts and pool.
    """

    key: str
    attempt: int
    seconds_left: float
    correlation_id: str | None
    client: httpx.AsyncClient


def operation_handler(
    name: str, *, dependency: str, input_model: type[BaseModel]
) -> Callable[[HandlerFunction], HandlerFunction]:
    """Register an async function as the handler of operations that name it.

    Args:
        name: What operations put into `handler`.
        dependency: Whose policy, circuit and client it uses.
        input_model: Pydantic model that the operation's `input` must fit.

    Raises:
        HandlerSetupError: The name is taken, or it cannot be called as `await function(input, call)`.
    """

    def register(function: HandlerFunction) -> HandlerFunction:
        if not inspect.iscoroutinefunction(function):
            raise HandlerSetupError(f"handler {name!r}: write `async def`, blocking code goes to a thread")
        if not (isinstance(input_model, type) and issubclass(input_model, BaseModel)):
            raise HandlerSetupError(f"handler {name!r}: input_model must be a pydantic model class")
        register_handler(
            Handler(name=name, dependency=dependency, input_model=input_model, function=function)
        )
        return function

    return register

"""Python handlers: how they are registered, what they are given, and how they say what happened."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import httpx
from pydantic import BaseModel

from stores.handler_registry import Handler, HandlerFunction, HandlerSetupError
from stores.handler_registry import register as register_handler

MAX_WRITES: Final = 75
"""An entity-group transaction takes 100 changes; the rest is for outbox rows and the result."""


class HandlerFailure(Exception):  # noqa: N818 - the base of words that handlers raise, not an error by itself
    """What a handler raises to say why it did not succeed."""


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
    """The dependency wants fewer calls; the whole dependency is left alone for `retry_after` seconds."""

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
        """Return the JSON form that travels to the commit."""
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
    """What a handler knows about the attempt that it makes.

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

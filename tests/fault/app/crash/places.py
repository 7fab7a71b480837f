"""The places where an app can be killed: behind every write that it makes outside of its own process.

They are found in the code, so that a new write is a place by itself: whatever `storage.tables` and the
durable client have that does not only read, a message to a queue, and a request to a dependency.
"""

import asyncio
import inspect
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final

from azure.durable_functions import DurableFunctionsClient

from durable_retry.attempt import http_client as downstream
from durable_retry.storage import lists, queues, tables
from durable_retry_console.index import store as operation_index

_READS: Final = ("read", "rows_", "get_", "list_", "wait_", "close", "run_in_pool", "change_row")
"""Beginnings of the names of what only reads, and what carries out reads and writes alike."""

_BESIDE: Final = frozenset({operation_index.TABLE, operation_index.NAMES_TABLE})
"""Tables that are written in the background for many at once, and repaired by upkeep: nobody's places."""

type Place = tuple[str, int]
"""What was written by whom, and the how manieth time by the same subject, from 1."""

subject: ContextVar[str] = ContextVar("subject", default="")
"""On whose behalf the code runs that writes."""

CLIENT: Final = "client"
"""Who writes when no activity does."""

writer: ContextVar[str] = ContextVar("writer", default=CLIENT)
"""Name of the activity that writes."""


@dataclass
class Places:
    """Where each subject passed, and where it is to stand still.

    Attributes:
        holds: The place behind which a subject stands still for ever.
        passed: Places in the order in which each subject passed them.
        held: Subjects that stand.
        names: Subjects by what their inputs contain.
        complete: Is set once every subject of `holds` stands.
    """

    holds: Mapping[str, Place] = field(default_factory=dict)
    passed: dict[str, list[Place]] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    _visits: Counter[tuple[str, str]] = field(default_factory=Counter)

    def hold(self, holds: Mapping[str, Place]) -> None:
        """From now on let subjects stand still, each behind its place."""
        self.holds = holds
        self._visits.clear()

    def subject_of(self, text: str) -> str:
        """Find out on whose behalf an activity runs; "" for nobody's."""
        return next((name for part, name in self.names.items() if part in text), "")

    async def passing(self, what: str) -> None:
        """Note that something was written; stand still if this is the place."""
        who = subject.get()
        what = f"{writer.get()}: {what}"
        self._visits[who, what] += 1
        place = (what, self._visits[who, what])
        self.passed.setdefault(who, []).append(place)
        if self.holds.get(who) != place:
            return
        self.held.add(who)
        if self.held == self.holds.keys():
            self.complete.set()
        await asyncio.Event().wait()

    @contextmanager
    def on_behalf_of(self, who: str, names: Iterable[str] = ()) -> Iterator[None]:
        """Let what runs here, and whatever is about these names later, be that of a subject."""
        self.names.update(dict.fromkeys(names, who))
        token = subject.set(who)
        try:
            yield
        finally:
            subject.reset(token)

    def watch(self) -> None:
        """Put the places into the app, for as long as the process lives."""
        # Rows of one partition are changed together. So the number of writes would depend on ids, and these
        # on the time.
        vars(lists)["crc32"] = lambda _: -1  # the last partition for every id
        for name, function in _writes_of(tables):
            _replace(function, self._recorded(function, name, names_table=True))
        for name, method in _writes_of(DurableFunctionsClient):
            setattr(DurableFunctionsClient, name, self._recorded(method, name))
        for function in (queues.send_message, downstream.send):
            _replace(function, self._recorded(function, function.__name__))

    def _recorded(
        self, write: Callable[..., Any], name: str, *, names_table: bool = False
    ) -> Callable[..., Any]:
        @wraps(write)
        async def written(*given: Any, **more: Any) -> Any:
            result = await write(*given, **more)
            if names_table and given[0] in _BESIDE:
                return result
            await self.passing(f"{name} {given[0]}" if names_table else name)
            return result

        return written


def die() -> None:
    """End this process as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


def _writes_of(owner: Any) -> list[tuple[str, Callable[..., Any]]]:
    return [
        (name, function)
        for name, function in inspect.getmembers(owner, inspect.iscoroutinefunction)
        if not name.startswith(("_", *_READS))
    ]


def _replace(function: Callable[..., Any], by: Callable[..., Any]) -> None:
    """Put a function in place of another, also where that was imported by name."""
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()):
            if value is function:
                setattr(module, name, by)

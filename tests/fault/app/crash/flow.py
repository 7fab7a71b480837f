"""One kind of work that an app does while it is killed, and what must be there in the end, whatever happened.

A flow is done for one subject at a time. Asking twice is asking once, as it is for any caller.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from durable_retry.attempt.commits import TABLE as OUTBOX_TABLE
from durable_retry.features.outbox.event_store import events_of
from durable_retry.features.outbox.rules.outbox import StoredEvent, number_of, operation_id_of
from durable_retry.rules.operations.keys import EXPLICIT_SCOPE, operation_id_for
from durable_retry.storage.tables import rows_after
from tests.fault.app.crash.places import Place
from tests.fault.app.crash.small_app import SmallApp
from tests.support.http import call

QUEUE: Final = "part-kills"


def operation_id(key: str) -> str:
    return operation_id_for(EXPLICIT_SCOPE, key)


def without_run(key: str) -> str:
    """An event's id without the number of its run, which no test can foresee; other keys as they are."""
    operation = operation_id_of(key) if key.startswith("op-") else None
    return key if operation is None else f"{operation}.{number_of(key)}"


async def events_of_operation(operation: str) -> list[StoredEvent]:
    """The events of an operation that ran once."""
    rows = await rows_after(OUTBOX_TABLE, f"{operation}.", limit=1)
    outbox_id = str(rows[0]["PartitionKey"]) if rows else ""
    return await events_of(outbox_id) if outbox_id.startswith(f"{operation}.") else []


@dataclass
class Expected:
    """What is there in the end.

    Attributes:
        operations: How each has ended, by its id.
        events: How each has ended, by its id without the run.
        queued: Such ids of the events that are in the queue.
        letters: Where each dead letter stands, by what failed and why.
        batches: How each item of each batch has ended, by the batch's id.
    """

    operations: dict[str, str] = field(default_factory=dict)
    events: dict[str, str] = field(default_factory=dict)
    queued: set[str] = field(default_factory=set)
    letters: dict[tuple[str, str], str] = field(default_factory=dict)
    batches: dict[str, list[str]] = field(default_factory=dict)

    def add(self, other: "Expected") -> None:
        self.operations |= other.operations
        self.events |= other.events
        self.queued |= other.queued
        self.letters |= other.letters
        self.batches |= other.batches


class Flow:
    """One kind of work.

    Attributes:
        name: Its subjects are called after it, with a number.
    """

    name = ""

    def is_asked_again(self, _place: Place | None) -> bool:
        """Whether whoever asks does so again after a crash.

        Args:
            _place: Behind which the subject stood, as JSON gives it; None when it was killed anywhere.
        """
        return True

    async def prepare(self, app: SmallApp, subject: str) -> None:
        """Bring about what the flow is about."""

    async def ask(self, app: SmallApp, subject: str) -> None:
        """Ask for it."""
        raise NotImplementedError

    def expected(self, subject: str) -> Expected:
        raise NotImplementedError

    def parts(self, subject: str) -> Iterable[str]:
        """What shows that an activity works for the subject."""
        return [operation_id(subject)]


def body(key: str, path: str = "/echo", *, dependency: str = "flaky", **more: Any) -> dict[str, Any]:
    query = {"status": path.partition("=")[2]} if "?" in path else {}
    request = {"method": "POST", "path": path.partition("?")[0], "query": query, "json": {"amount": 5}}
    return {"dependency": dependency, "request": request, "key": key, **more}


async def accepted(function: Any, app: SmallApp, asked: Any, **headers: str) -> Any:
    answer = await call(function, app.binding, asked, headers=headers)
    assert answer.status in {HTTPStatus.OK, HTTPStatus.ACCEPTED}, answer
    return answer.body

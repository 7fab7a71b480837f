"""What an app is asked to do while it is killed, and what must be there in the end, whatever happened.

A flow is done for one subject at a time. Asking twice is asking once, as it is for any caller.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from engine.dead_letter import Status, archived
from engine.dead_letter_edit import ReplayBody
from engine.idempotency import operation_id_for
from engine.naming import explicit_scope
from engine.outbox import EventState
from stores import clock
from stores.dead_letters import find_dead_letter, move_dead_letter
from stores.outbox import events_of
from stores.outbox_sending import resend
from stores.task_hub import outbox_instance, read_operation
from tests.fault.app.small_app import SmallApp
from tests.integration.triggers.http import call
from triggers.batches import submit_batch
from triggers.dead_letter_replays import start_replay_of_many
from triggers.operations import submit_operation
from triggers.replaying import replay_dead_letter
from triggers.sagas import submit_saga

QUEUE: Final = "part-kills"

DEPENDENCIES: Final = """
[defaults.circuit]
enabled = false

[defaults.retry_budget]
ratio = 0

[defaults.retry]
strategy = "fixed"
initial_seconds = 0.05
jitter = "none"
max_attempts = 2

[defaults.timeouts]
connect_seconds = 20
attempt_seconds = 30

[dependencies.flaky]
base_url = "${FLAKY_TARGET_URL}"

# Nobody listens on port 1. The wait is longer than a slow commit: the timer of a retry must be waited for.
[dependencies.absent]
base_url = "http://127.0.0.1:1"
retry = { initial_seconds = 2.0 }
"""

MOST_PER_FLOW: Final = 60


def dependencies() -> str:
    """Each subject of a bulk replay has a dependency of its own, which is what its filter asks for."""
    names = [f"bulk-{number}" for number in range(MOST_PER_FLOW)]
    return DEPENDENCIES + "".join(
        f'\n[dependencies.{name}]\nbase_url = "${{FLAKY_TARGET_URL}}"\n' for name in names
    )


def operation_id(key: str) -> str:
    return operation_id_for(explicit_scope(""), key)


@dataclass
class Expected:
    """What is there in the end.

    Attributes:
        operations: How each has ended, by its id.
        events: How each has ended, by its id.
        queued: Ids of the events that are in the queue.
        letters: Where each dead letter stands, by what failed and why.
    """

    operations: dict[str, str] = field(default_factory=dict)
    events: dict[str, str] = field(default_factory=dict)
    queued: set[str] = field(default_factory=set)
    letters: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, other: "Expected") -> None:
        self.operations |= other.operations
        self.events |= other.events
        self.queued |= other.queued
        self.letters |= other.letters


class Flow:
    """One kind of work.

    Attributes:
        name: Its subjects are called after it, with a number.
        is_asked_again: Whether whoever asks does so again after a crash.
    """

    name = ""
    is_asked_again = True

    async def prepare(self, app: SmallApp, subject: str) -> None:
        """Bring about what the flow is about."""

    async def ask(self, app: SmallApp, subject: str) -> None:
        """Ask for it."""
        raise NotImplementedError

    def expected(self, subject: str) -> Expected:
        raise NotImplementedError

    def parts(self, subject: str) -> Iterable[str]:
        """What tells that an activity works for the subject."""
        return [operation_id(subject)]


def body(key: str, path: str = "/echo", *, dependency: str = "flaky", **more: Any) -> dict[str, Any]:
    query = {"status": path.partition("=")[2]} if "?" in path else {}
    request = {"method": "POST", "path": path.partition("?")[0], "query": query, "json": {"amount": 5}}
    return {"dependency": dependency, "request": request, "key": key, **more}


async def accepted(function: Any, app: SmallApp, asked: Any, **headers: str) -> Any:
    answer = await call(function, app.binding, asked, headers=headers)
    assert answer.status in {HTTPStatus.OK, HTTPStatus.ACCEPTED}, answer
    return answer.body


class Outbox(Flow):
    """A success with three events: the second one's target is down."""

    name = "outbox"

    async def ask(self, app: SmallApp, subject: str) -> None:
        events = [
            {"type": "first", "queue": QUEUE, "data": subject},
            {"type": "second", "dependency": "absent", "path": "/hook", "data": subject},
            {"type": "third", "queue": QUEUE, "data": subject},
        ]
        await accepted(submit_operation, app, body(subject, on_success=events))

    def expected(self, subject: str) -> Expected:
        one = operation_id(subject)
        return Expected(
            operations={one: "succeeded"},
            events={f"{one}.1": "sent", f"{one}.2": "failed", f"{one}.3": "sent"},
            queued={f"{one}.1", f"{one}.3"},
            letters={(f"{one}.2", "OutboxUndeliverable"): "open"},
        )


class Refused(Flow):
    """An operation that becomes a dead letter."""

    name = "refused"

    async def ask(self, app: SmallApp, subject: str) -> None:
        await accepted(submit_operation, app, body(subject, "/status/422"))

    def expected(self, subject: str) -> Expected:
        return Expected(
            operations={operation_id(subject): "dead_lettered"},
            letters={(subject, "RejectedByDependency"): "open"},
        )


class Saga(Flow):
    """Three steps, of which the last fails; undoing the first one fails too."""

    name = "saga"
    _ENDS: Final = {
        "do-a": "succeeded",
        "do-b": "succeeded",
        "do-c": "dead_lettered",
        "undo-b": "succeeded",
        "undo-a": "dead_lettered",
    }

    async def ask(self, app: SmallApp, subject: str) -> None:
        def part(name: str) -> dict[str, Any]:
            fails = self._ENDS[name] == "dead_lettered"
            return body(f"{subject}-{name}", "/status/422" if fails else "/echo")

        steps = [
            {"name": name, "operation": part(f"do-{name}"), "compensation": part(f"undo-{name}")}
            for name in "ab"
        ]
        steps.append({"name": "c", "operation": part("do-c")})
        await accepted(submit_saga, app, {"steps": steps}, **{"Idempotency-Key": subject})

    def parts(self, subject: str) -> Iterable[str]:
        return [operation_id(f"{subject}-{name}") for name in self._ENDS]

    def expected(self, subject: str) -> Expected:
        return Expected(
            operations={operation_id(f"{subject}-{name}"): end for name, end in self._ENDS.items()},
            letters={
                (f"{subject}-do-c", "RejectedByDependency"): "open",
                (f"{subject}-undo-a", "CompensationFailed"): "open",
            },
        )


class Batch(Flow):
    """Four items: one cannot be an operation, one is refused."""

    name = "batch"

    async def ask(self, app: SmallApp, subject: str) -> None:
        items = [
            body(f"{subject}-0"),
            {"dependency": "flaky", "key": f"{subject}-1"},
            body(f"{subject}-2", "/status/422"),
            body(f"{subject}-3"),
        ]
        asked = {"items": items, "max_concurrency": 2}
        told = await accepted(submit_batch, app, asked, **{"Idempotency-Key": subject})
        app.places.names[told["batch_id"]] = subject

    def parts(self, subject: str) -> Iterable[str]:
        return [operation_id(f"{subject}-{number}") for number in range(4)]

    def expected(self, subject: str) -> Expected:
        ends = {0: "succeeded", 2: "dead_lettered", 3: "succeeded"}
        return Expected(
            operations={operation_id(f"{subject}-{number}"): end for number, end in ends.items()},
            letters={
                (f"{self.batch_id(subject)}.1", "ValidationFailed"): "open",
                (f"{subject}-2", "RejectedByDependency"): "open",
            },
        )

    def batch_id(self, subject: str) -> str:
        return "batch-" + operation_id_for("batch:", f"given:{subject}").removeprefix("op-")


class Replayed(Flow):
    """A dead letter that is replayed, and then succeeds."""

    async def prepare(self, app: SmallApp, subject: str) -> None:
        asked = body(subject, "/fail/1?status=422", dependency=self.dependency_of(subject))
        await accepted(submit_operation, app, asked)
        app.letters[subject] = await letter_of_operation(app, subject)

    def dependency_of(self, _subject: str) -> str:
        return "flaky"

    def expected(self, subject: str) -> Expected:
        return Expected(
            operations={operation_id(subject): "succeeded"},
            letters={(subject, "RejectedByDependency"): "replayed"},
        )


class ReplayedAlone(Replayed):
    """It is replayed by hand."""

    name = "alone"

    async def ask(self, app: SmallApp, subject: str) -> None:
        if await is_open(app.letters[subject]):
            await replay_dead_letter(app.binding, app.letters[subject], ReplayBody(), clock.now())


class ReplayedInBulk(Replayed):
    """It is found and replayed by a bulk replay, which nobody has to ask for twice."""

    name = "bulk"
    is_asked_again = False

    async def ask(self, app: SmallApp, subject: str) -> None:
        app.places.names[app.letters[subject]] = subject
        asked = {"filter": {"dependency": self.dependency_of(subject)}, "rate_per_second": 100}
        await accepted(start_replay_of_many, app, asked)

    def dependency_of(self, subject: str) -> str:
        return subject


class Archived(Flow):
    """A dead letter that is put away by hand."""

    name = "archived"

    async def prepare(self, app: SmallApp, subject: str) -> None:
        await accepted(submit_operation, app, body(subject, "/status/422"))
        app.letters[subject] = await letter_of_operation(app, subject)

    async def ask(self, app: SmallApp, subject: str) -> None:
        if await is_open(app.letters[subject]):
            await move_dead_letter(app.letters[subject], lambda record: archived(record, clock.now()))

    def expected(self, subject: str) -> Expected:
        return Expected(
            operations={operation_id(subject): "dead_lettered"},
            letters={(subject, "RejectedByDependency"): "archived"},
        )


class Resent(Flow):
    """An event that could not be delivered, and is sent again by hand."""

    name = "resent"
    letter_status = "open"

    async def prepare(self, app: SmallApp, subject: str) -> None:
        event = {"type": "t", "dependency": "flaky", "path": "/fail/2", "data": subject}
        await accepted(submit_operation, app, body(subject, on_success=[event]))
        await app.hub.tasks.wait_finished(operation_id(subject))
        await app.hub.tasks.wait_finished(outbox_instance(operation_id(subject)))
        (failed,) = await events_of(operation_id(subject))
        found = re.search("dl-[0-9a-f]{32}", failed.detail or "")
        assert found is not None, failed
        app.letters[subject] = found[0]

    async def ask(self, app: SmallApp, subject: str) -> None:
        (event,) = await events_of(operation_id(subject))
        if event.state is EventState.FAILED:
            await resend(app.binding, event.event_id, clock.now())

    def expected(self, subject: str) -> Expected:
        event_id = f"{operation_id(subject)}.1"
        return Expected(
            operations={operation_id(subject): "succeeded"},
            events={event_id: "sent"},
            letters={(event_id, "OutboxUndeliverable"): self.letter_status},
        )


class EventReplayed(Resent):
    """The same, by replaying its dead letter."""

    name = "event"
    letter_status = "replayed"

    async def ask(self, app: SmallApp, subject: str) -> None:
        if await is_open(app.letters[subject]):
            await replay_dead_letter(app.binding, app.letters[subject], ReplayBody(), clock.now())


FLOWS: Final[tuple[Flow, ...]] = (
    Outbox(),
    Refused(),
    Saga(),
    Batch(),
    ReplayedAlone(),
    ReplayedInBulk(),
    Archived(),
    Resent(),
    EventReplayed(),
)


def flow_of(subject: str) -> Flow:
    """The flow that a subject is called after."""
    (flow,) = (flow for flow in FLOWS if flow.name == subject.partition("-")[0])
    return flow


async def letter_of_operation(app: SmallApp, key: str) -> str:
    """Wait for an operation to fail, and return its dead letter's id."""
    await app.hub.tasks.wait_finished(operation_id(key))
    instance = await read_operation(app.binding, operation_id(key))
    assert instance is not None
    assert instance.output is not None
    return str(instance.output["dead_letter"]["id"])


async def is_open(dead_letter_id: str) -> bool:
    record = await find_dead_letter(dead_letter_id)
    return record is not None and record.status is Status.OPEN

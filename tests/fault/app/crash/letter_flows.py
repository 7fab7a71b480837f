"""What is done with dead letters, by hand and in bulk, and with events that could not be delivered."""

import re
from typing import override

from durable_retry.base.names import EventState
from durable_retry.dead_letters.records import find_dead_letter, move_dead_letter
from durable_retry.features.outbox.names import outbox_instance
from durable_retry.features.outbox.rules.outbox import outbox_id_of
from durable_retry.features.outbox.sending import resend
from durable_retry.features.replay.actions import replay_dead_letter
from durable_retry.features.replay.rules import ReplayBody
from durable_retry.intake.routes import submit_operation
from durable_retry.rules.dead_letters.record import Status, archived
from durable_retry.runtime import clock
from durable_retry_console.bulk.routes import start_action_on_many
from tests.fault.app.crash.flow import Expected, Flow, accepted, body, events_of_operation, operation_id
from tests.fault.app.crash.places import Place
from tests.fault.app.crash.small_app import SmallApp


class LetterFlow(Flow):
    """A dead letter of an operation.

    Attributes:
        path: Where the operation posts to.
    """

    path = "/status/422"

    async def prepare(self, app: SmallApp, subject: str) -> None:
        asked = body(subject, self.path, dependency=self.dependency_of(subject))
        await accepted(submit_operation, app, asked)
        app.letters[subject] = await letter_of_operation(app, subject)

    def dependency_of(self, _subject: str) -> str:
        return "flaky"


class FoundByFilter(LetterFlow):
    """A bulk action finds the dead letter by its dependency. Once accepted it is not asked for again."""

    @override
    def is_asked_again(self, place: Place | None) -> bool:
        # Before the orchestration is started the caller has no answer, and asks again.
        return place is not None and place[0] == "client: merge Workflows"

    @override
    def dependency_of(self, subject: str) -> str:
        return subject


class ReplayFlow(LetterFlow):
    """A dead letter that is replayed, and then succeeds."""

    path = "/fail/1?status=422"

    def expected(self, subject: str) -> Expected:
        return Expected(
            operations={operation_id(subject): "succeeded"},
            letters={(subject, "RejectedByDependency"): "replayed"},
        )


class SingleReplay(ReplayFlow):
    name = "alone"

    async def ask(self, app: SmallApp, subject: str) -> None:
        if await is_open(app.letters[subject]):
            await replay_dead_letter(app.binding, app.letters[subject], ReplayBody(), clock.now())


async def act_on_all(app: SmallApp, action: str, subject: str) -> None:
    app.places.names[app.letters[subject]] = subject
    asked = {"action": action, "filter": {"dependency": subject}, "rate_per_second": 100}
    answer = await accepted(start_action_on_many, app, asked)
    app.places.names[answer["action_id"]] = subject


class BulkReplay(FoundByFilter, ReplayFlow):
    """It is found and replayed by a bulk action."""

    name = "bulk"

    async def ask(self, app: SmallApp, subject: str) -> None:
        await act_on_all(app, "replay", subject)


class Archived(LetterFlow):
    name = "archived"

    async def ask(self, app: SmallApp, subject: str) -> None:
        if await is_open(app.letters[subject]):
            await move_dead_letter(app.letters[subject], lambda record: archived(record, clock.now()))

    def expected(self, subject: str) -> Expected:
        return Expected(
            operations={operation_id(subject): "dead_lettered"},
            letters={(subject, "RejectedByDependency"): "archived"},
        )


class BulkArchived(FoundByFilter, Archived):
    name = "tidied"

    @override
    async def ask(self, app: SmallApp, subject: str) -> None:
        await act_on_all(app, "archive", subject)


class Resent(Flow):
    """An event that could not be delivered, and is sent again by hand."""

    name = "resent"
    letter_status = "open"

    async def prepare(self, app: SmallApp, subject: str) -> None:
        event = {"type": "t", "dependency": "flaky", "path": "/fail/2", "data": subject}
        await accepted(submit_operation, app, body(subject, on_success=[event]))
        await app.hub.tasks.wait_finished(operation_id(subject))
        (pending,) = await events_of_operation(operation_id(subject))
        await app.hub.tasks.wait_finished(outbox_instance(outbox_id_of(pending.event_id) or ""))
        (failed,) = await events_of_operation(operation_id(subject))
        found = re.search("dl-[0-9a-f]{32}", failed.detail or "")
        assert found is not None, failed
        app.letters[subject] = found[0]

    async def ask(self, app: SmallApp, subject: str) -> None:
        (event,) = await events_of_operation(operation_id(subject))
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


async def letter_of_operation(app: SmallApp, key: str) -> str:
    """Wait for an operation to fail, and return its dead letter's id."""
    await app.hub.tasks.wait_finished(operation_id(key))
    instance = await app.binding.read_instance(operation_id(key))
    assert instance is not None
    assert instance.output is not None
    return str(instance.output["dead_letter"]["id"])


async def is_open(dead_letter_id: str) -> bool:
    record = await find_dead_letter(dead_letter_id)
    return record is not None and record.status is Status.OPEN

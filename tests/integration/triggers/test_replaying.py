"""Replays of dead letters, cut at every request to storage and to the task hub."""

import asyncio
import json
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import AsyncMock

import azure.functions as func
import pytest

from activities.outbox import outbox_give_up, outbox_pending
from durable_retry.attempt.commits import commit_success
from durable_retry.base.errors import KeyTakenError, TaskHubUnavailableError, WrongOperationStateError
from durable_retry.base.names import Category, DeadLetterReason, EventState
from durable_retry.base.validation import InvalidInputError
from durable_retry.dead_letters.actions import replays_of, start_if_lost
from durable_retry.dead_letters.records import (
    find_dead_letter,
    keep_message,
    keep_operation,
    left_over,
)
from durable_retry.features.dead_letter_lists.counts import open_counts, read_summary
from durable_retry.features.dead_letter_lists.pages import list_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.features.lookup.actions import ask_about
from durable_retry.features.outbox import replay as event_replay
from durable_retry.features.outbox.event_store import events_of, find_event, mark_pending, mark_sent
from durable_retry.features.outbox.rules.outbox import OutboxEvent
from durable_retry.features.outbox.sending import resend
from durable_retry.features.replay import actions as replaying
from durable_retry.features.replay.actions import replay_dead_letter
from durable_retry.features.replay.routes import replay_one_dead_letter
from durable_retry.features.replay.rules import ReplayBody
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.actions import submit
from durable_retry.operations.status import find_status
from durable_retry.rules.dead_letters.record import KeptDeadLetter, Status, of_message
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.runtime import clock
from durable_retry.storage import tables
from durable_retry.upkeep.rounds import finish_left_over
from durable_retry_console.index import store as operation_index
from tests.support.builders import a_success, an_entry, an_operation, failing
from tests.support.cuts import CutError, cut_at_the_start
from tests.support.hub import TaskHubStage
from tests.support.narrowing import existing
from tests.support.tables import refuse_large_rows

pytestmark = pytest.mark.usefixtures("own_tables")

NOTHING = ReplayBody()


async def failed(hub: TaskHubStage, name: str = "one", **changes: Any) -> KeptDeadLetter:
    """Let an operation end as a dead letter; its second attempt, in whatever run, would succeed."""
    hub.answer = failing(1, Category.MALFORMED, 422)
    operation = an_operation(
        operation_id=f"op-{name}", key=f"key-{name}", created_at=clock.now(), deadline_at=None
    )
    await submit(hub.binding, operation)
    await hub.binding.wait_for_end(operation.operation_id, 20)
    hub.answer = failing(0)
    entry = an_entry(operation.operation_id)
    dead_letter_id = await keep_operation(entry | {"operation": operation.to_json()} | changes, clock.now())
    return await found(dead_letter_id)


async def found(dead_letter_id: str) -> KeptDeadLetter:
    return existing(await find_dead_letter(dead_letter_id))


async def ended(hub: TaskHubStage, operation_id: str) -> dict[str, Any]:
    instance = existing(await hub.binding.wait_for_end(operation_id, 20))
    assert instance.output is not None
    return instance.output


def attempts_for(hub: TaskHubStage, operation_id: str) -> int:
    return sum(
        name == "attempt" and given["operation"]["operation_id"] == operation_id
        for name, given in hub.activities
    )


async def ids_of(status: Status) -> list[str]:
    page = await list_dead_letters(DeadLetterFilter(status=status), limit=200, cursor=None)
    return [record.id for record in page.records]


async def replay(hub: TaskHubStage, record: KeptDeadLetter) -> str:
    return (await replay_dead_letter(hub.binding, record.id, NOTHING, clock.now())).operation_id


async def test_a_replay_runs_under_the_same_id_and_key(hub: TaskHubStage) -> None:
    record = await failed(hub)
    assert await replay(hub, record) == record.operation_id
    document = await ended(hub, "op-one")
    assert (document["status"], document["key"]) == ("succeeded", "key-one")
    assert hub.activities[-1][1]["operation"]["replay_of"] == record.id


async def test_an_operation_shows_its_replays_and_who_asked_for_them(hub: TaskHubStage) -> None:
    record = await failed(hub)
    await replay_dead_letter(hub.binding, record.id, ReplayBody(note="again"), clock.now(), by="ada")
    await ended(hub, "op-one")
    document = existing(await find_status(hub.binding, "op-one"))
    assert (document["submitted_by"], document["replay_of"]) == ("ada", record.id)
    (shown,) = await replays_of(document)
    assert (shown.dead_letter_id, shown.reason, shown.status) == (
        record.id,
        "RejectedByDependency",
        "succeeded",
    )
    assert (shown.by, shown.note, shown.failed_again) == ("ada", "again", None)


async def test_a_replay_that_failed_again_is_shown_behind_the_one_of_its_dead_letter(
    hub: TaskHubStage,
) -> None:
    first = await failed(hub)
    hub.answer = failing(9, Category.MALFORMED, 422)
    await replay(hub, first)
    await ended(hub, "op-one")
    hub.answer = failing(0)
    operation = OperationInput.from_json((await found(first.id)).replays[-1].operation)
    second_id = await keep_operation(
        an_entry("op-one") | {"operation": operation.to_json(), "detail": "again"}, clock.now()
    )
    await replay(hub, await found(second_id))
    await ended(hub, "op-one")
    shown = await replays_of(existing(await find_status(hub.binding, "op-one")))
    assert [(each.dead_letter_id, each.status, each.failed_again) for each in shown] == [
        (second_id, "succeeded", None),
        (first.id, "dead_lettered", second_id),
    ]


async def test_a_first_run_has_no_replays(hub: TaskHubStage) -> None:
    await submit(hub.binding, an_operation(operation_id="op-plain", created_at=clock.now()))
    assert await replays_of(existing(await find_status(hub.binding, "op-plain"))) == []


async def test_a_replay_counts_its_deadline_from_now(hub: TaskHubStage) -> None:
    record = await failed(hub)
    await replay(hub, record)
    (started,) = (await found(record.id)).replays
    operation = OperationInput.from_json(started.operation)
    assert operation.deadline_at == started.requested_at + timedelta(
        seconds=operation.timeouts.deadline_seconds
    )


async def test_two_people_at_once_are_one_replay(hub: TaskHubStage) -> None:
    record = await failed(hub)
    results = await asyncio.gather(*(replay(hub, record) for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(result, str) for result in results) == 1
    await ended(hub, "op-one")
    assert attempts_for(hub, "op-one") == 2


async def test_a_task_hub_that_is_gone_leaves_the_dead_letter_open(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await failed(hub)

    async def gone(*_: Any, **__: Any) -> bool:
        raise TaskHubUnavailableError("gone")

    with monkeypatch.context() as outage:
        outage.setattr(TaskHub, "start_operation", gone)
        with pytest.raises(TaskHubUnavailableError):
            await replay(hub, record)
    assert await found(record.id) == record
    assert ((await left_over(10))[0], await ids_of(Status.OPEN)) == ([], [record.id])


async def test_a_key_that_stands_for_another_request_is_left_alone(hub: TaskHubStage) -> None:
    await failed(hub)
    other = an_operation(operation_id="op-one", fingerprint="f2", created_at=clock.now())
    stranger = await found(
        await keep_operation(an_entry("op-one") | {"operation": other.to_json()}, clock.now())
    )
    with pytest.raises(KeyTakenError, match="its key belongs to another request by now"):
        await replay(hub, stranger)
    assert (await found(stranger.id)).status is Status.OPEN


async def test_a_message_is_taken_over_as_its_source_would_have_taken_it(hub: TaskHubStage) -> None:
    hub.answer = failing(0)
    text = '{"dependency": "payments", "request": {"method": "GET", "path": "/x"}}'
    dead_letter_id = await keep_message(
        of_message(
            text,
            source="queue",
            message_id="m-1",
            reason=DeadLetterReason.POISON_MESSAGE,
            detail="given up",
            now=clock.now(),
        )
    )
    operation_id = (await replay_dead_letter(hub.binding, dead_letter_id, NOTHING, clock.now())).operation_id
    assert (await ended(hub, operation_id))["key"] == "m-1"
    assert (await found(dead_letter_id)).status is Status.REPLAYED


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_crash_at_any_request_to_storage_ends_in_one_replay(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch, *, after: bool
) -> None:
    number = 0
    was_cut = True
    while was_cut:
        number += 1
        record = await failed(hub, f"cut-{number}")
        with monkeypatch.context() as crash:
            was_cut = await _replayed_with_cut(hub, record, number, crash, after=after)
        await finish_left_over(hub.binding, clock.now() + timedelta(hours=1))
        if (await found(record.id)).status is Status.OPEN:
            await replay(hub, record)
        await _check_one_replay(hub, record)
    assert number == 10  # a replay makes nine requests
    assert (await read_summary(clock.now())).open == 0
    assert (await open_counts()).of_kind("group") == {}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_crash_around_the_start_ends_in_one_replay(hub: TaskHubStage, *, after: bool) -> None:
    record = await failed(hub)
    with cut_at_the_start(after=after):
        await replay(hub, record)
    await finish_left_over(hub.binding, clock.now() + timedelta(hours=1))
    await _check_one_replay(hub, record)


async def test_a_replay_that_a_crash_interrupted_waits_for_an_app_that_can_start_it(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await failed(hub)
    with cut_at_the_start(after=False):
        await replay(hub, record)
    with monkeypatch.context() as lacking:
        lacking.setattr("durable_retry.dead_letters.actions.hook", lambda _: "")
        await finish_left_over(hub.binding, clock.now() + timedelta(hours=1))
        await start_if_lost(hub.binding, record.id)
    assert ((await found(record.id)).status, attempts_for(hub, "op-one")) == (Status.REPLAYED, 1)
    await finish_left_over(hub.binding, clock.now() + timedelta(hours=1))
    await _check_one_replay(hub, record)


async def test_nobody_is_asked_whether_it_happened_in_an_app_that_replays_nothing(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await failed(hub, category="ambiguous", reason="AmbiguousOutcome")
    monkeypatch.setattr("durable_retry.features.lookup.actions.hook", lambda _: "")
    with pytest.raises(WrongOperationStateError, match="this app lacks the feature replay"):
        await ask_about(hub.binding, record.id, None, clock.now())
    assert (await found(record.id)).status is Status.OPEN


async def test_what_a_crash_left_is_not_started_again_once_it_has_failed_again(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second dead letter may be replayed before anybody looks after the first one."""
    first = await failed(hub)
    hub.answer = failing(9, Category.MALFORMED, 422)
    with monkeypatch.context() as crash:
        crash.setattr(replaying, "finish_change", AsyncMock(side_effect=CutError))
        with pytest.raises(CutError):
            await replay(hub, first)
    await ended(hub, "op-one")
    (started,) = (await found(first.id)).replays
    again = await keep_operation(an_entry("op-one") | {"operation": dict(started.operation)}, clock.now())
    await replay(hub, await found(again))
    await ended(hub, "op-one")
    await finish_left_over(hub.binding, clock.now() + timedelta(hours=1))
    assert (await found(first.id)).status is Status.REPLAYED
    await ended(hub, "op-one")
    assert attempts_for(hub, "op-one") == 3


async def an_undeliverable_event(operation_id: str) -> str:
    """Let an event fail for good, and return its dead letter's id."""
    event = {"type": "t", "dependency": "payments", "path": "/hook", "data": 1}
    await commit_success(operation_id, a_success(events=[event]), clock.now())
    pending = await outbox_pending({"operation_id": operation_id})
    (delivery,) = pending["deliveries"]
    given = {"delivery": delivery, "place": pending["place"], "category": "malformed", "detail": "422"}
    return await outbox_give_up(given)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_crash_around_the_resend_of_an_event_ends_in_one_resend(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch, *, after: bool
) -> None:
    """The operation of an event has succeeded: that it was started says nothing about the event."""
    operation_id = f"op-event-{after}"
    hub.answer = failing(0)
    await submit(hub.binding, an_operation(operation_id=operation_id, created_at=clock.now()))
    await hub.binding.wait_for_end(operation_id, 20)
    record = await found(await an_undeliverable_event(operation_id))
    real = resend

    async def cut(*given: Any) -> None:
        if after:
            await real(*given)
        raise CutError

    with monkeypatch.context() as crash:
        crash.setattr(event_replay, "resend", cut)
        with pytest.raises(CutError):
            await replay(hub, record)
    times: list[str] = []

    async def counted(hub: TaskHub, event_id: str, now: datetime) -> OutboxEvent:
        times.append(event_id)
        return await real(hub, event_id, now)

    monkeypatch.setattr(event_replay, "resend", counted)
    await finish_left_over(hub.binding, clock.now() + timedelta(hours=1))
    assert times == ([] if after else [f"{operation_id}.1"])
    assert (await found(record.id)).status is Status.REPLAYED
    assert [event.state for event in await events_of(operation_id)] == [EventState.PENDING]
    assert (await left_over(10))[0] == []


async def test_an_event_that_a_resend_has_sent_is_not_sent_again_by_the_replay_of_its_dead_letter(
    hub: TaskHubStage,
) -> None:
    operation_id = "op-event-sent"
    hub.answer = failing(0)
    await submit(hub.binding, an_operation(operation_id=operation_id, created_at=clock.now()))
    await hub.binding.wait_for_end(operation_id, 20)
    record = await found(await an_undeliverable_event(operation_id))
    sent = existing(await find_event(f"{operation_id}.1"))
    await mark_pending(f"{operation_id}.1", clock.now())
    await mark_sent(await find_event(f"{operation_id}.1") or sent, clock.now(), 1)
    await replay(hub, record)
    assert (await found(record.id)).status is Status.REPLAYED
    assert [event.state for event in await events_of(operation_id)] == [EventState.SENT]
    assert (await left_over(10))[0] == []


async def _replayed_with_cut(
    hub: TaskHubStage, record: KeptDeadLetter, number: int, crash: pytest.MonkeyPatch, *, after: bool
) -> bool:
    """Replay and die at the `number`-th request to storage; False when there are fewer."""
    real, seen = tables._run_on_table, 0

    async def run(table: str, action: Any) -> Any:
        nonlocal seen
        if table == operation_index.TABLE:
            return await real(table, action)  # written beside it, at any time
        seen += 1
        is_last = seen == number
        if is_last and not after:
            raise CutError
        try:
            return await real(table, action)
        finally:  # Also behind the answer that there is no such row.
            if is_last:
                raise CutError

    crash.setattr(tables, "_run_on_table", run)
    try:
        await replay(hub, record)
    except CutError:
        return True
    return False


async def _check_one_replay(hub: TaskHubStage, record: KeptDeadLetter) -> None:
    assert record.operation_id is not None
    assert (await ended(hub, record.operation_id))["status"] == "succeeded"
    assert attempts_for(hub, record.operation_id) == 2
    now = await found(record.id)
    assert (now.status, len(now.replays)) == (Status.REPLAYED, 1)
    assert record.id not in await ids_of(Status.OPEN)
    assert (await ids_of(Status.REPLAYED)).count(record.id) == 1
    assert (await left_over(10))[0] == []


def sent_by(hub: TaskHubStage) -> list[OperationInput]:
    """The operation of each attempt."""
    return [
        OperationInput.from_json(given["operation"]) for name, given in hub.activities if name == "attempt"
    ]


async def test_an_edited_replay_sends_a_new_key_and_keeps_its_own(hub: TaskHubStage) -> None:
    record = await failed(hub)
    edits = ReplayBody.model_validate({"request": {"json": {"amount": 6}}})
    operation_id = (await replay_dead_letter(hub.binding, record.id, edits, clock.now())).operation_id
    assert (await ended(hub, operation_id))["key"] == "key-one"
    sent = sent_by(hub)
    assert [each.key for each in sent] == ["key-one", "key-one"]
    assert sent[0].sent_key == "key-one"
    assert sent[1].sent_key.startswith("key-one.")


async def test_a_replay_as_it_was_sends_the_same_key(hub: TaskHubStage) -> None:
    record = await failed(hub)
    await ended(hub, await replay(hub, record))
    sent = sent_by(hub)
    assert [each.sent_key for each in sent] == ["key-one", "key-one"]


async def test_a_replay_that_the_record_has_no_room_for_is_answered_409_and_leaves_nothing(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = {"method": "POST", "path": "/x", "query": {}, "headers": {}, "body": "x" * 500_000}
    operation_id = "op-one"
    entry = an_entry(operation_id)
    operation = an_operation(operation_id=operation_id, request=big, created_at=clock.now(), deadline_at=None)
    dead_letter_id = await keep_operation(entry | {"operation": operation.to_json()}, clock.now())
    record = await found(dead_letter_id)
    refuse_large_rows(monkeypatch)
    route: Any = replay_one_dead_letter
    request = func.HttpRequest("POST", "http://localhost/", body=b"")
    answer: func.HttpResponse = await route(request, hub.binding, {"dead_letter_id": dead_letter_id})
    document = json.loads(answer.get_body())
    assert (answer.status_code, answer.mimetype) == (409, "application/problem+json")
    assert "EntityTooLarge" in document["detail"]
    assert await found(dead_letter_id) == record
    assert (await left_over(10))[0] == []
    assert sent_by(hub) == []


async def test_a_message_that_was_cut_is_replayed_only_as_a_whole_one(hub: TaskHubStage) -> None:
    whole = json.dumps({"dependency": "payments", "request": {"method": "GET"}}) + " " * 100_000
    reason = DeadLetterReason.VALIDATION_FAILED
    dead_letter_id = await keep_message(
        of_message(
            whole, source="queue", message_id="m-long", reason=reason, detail="too large", now=clock.now()
        )
    )
    record = await found(dead_letter_id)
    assert (len(record.message or ""), record.message_chars) == (100_000, len(whole))
    with pytest.raises(InvalidInputError, match="the whole message"):
        await replay_dead_letter(hub.binding, dead_letter_id, NOTHING, clock.now())
    edits = ReplayBody(message=whole.strip())
    await ended(hub, (await replay_dead_letter(hub.binding, dead_letter_id, edits, clock.now())).operation_id)

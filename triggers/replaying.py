"""Replaying one dead letter, for a request by hand and for a bulk replay.

    announce ──> status `replayed` ──> start the operation ──> withdraw the intent
                      └── could not be started: status `open` again

A crash in between leaves the intent, and `finish_replay` does what is missing: a dead letter that says
`replayed` was started, or soon will be.
"""

import base64
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from engine.credentials import without_credentials
from engine.dead_letter import DeadLetterRecord, Replay, Status, WrongStatusError, not_replayed, replayed
from engine.dead_letter_edit import ReplayBody, changes_between, edited_operation, is_masked
from engine.deadline import deadline_of
from engine.intake import DATA_PREFIX, Arrival
from engine.operation import OperationInput
from engine.problem import InvalidInputError, Problem
from engine.vocabulary import DeadLetterReason
from stores import clock
from stores.dead_letter_intents import Intent, Purpose, intents_of, withdraw
from stores.dead_letters import NoSuchDeadLetterError, begin_move, find_dead_letter, move_dead_letter, settle
from stores.outbox import NoSuchEventError
from stores.outbox_sending import resend, was_resent
from stores.replay_start import KeyTakenError, is_started, start_replay
from stores.submission import KeyReused, submit
from stores.task_hub import TaskHubUnavailableError
from triggers.intake import intake
from triggers.operations_queue import QUEUE
from triggers.operations_queue import SOURCE as QUEUE_SOURCE
from triggers.resolution import Origin, resolve


class StillRunningError(Exception):
    """The operation is running, so that this dead letter cannot be replayed now."""


_NOT_STARTED: Final = (TaskHubUnavailableError, StillRunningError, KeyTakenError, NoSuchEventError)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A replay about to be started.

    Attributes:
        operation: What will run.
        changes: What was edited.
    """

    operation: OperationInput
    changes: tuple[dict[str, Any], ...]


async def replay_dead_letter(
    hub: str, dead_letter_id: str, edits: ReplayBody, now: datetime, *, replay_id: str | None = None
) -> str:
    """Replay an open dead letter.

    Args:
        hub: Configuration of the durable client.
        dead_letter_id: Which.
        edits: What to change before.
        now: Aware UTC instant.
        replay_id: The bulk replay that this is part of; None for a single one.

    Returns:
        The id of the operation that carries it out.

    Raises:
        NoSuchDeadLetterError: There is none of this id.
        WrongStatusError: It is replayed or archived.
        InvalidInputError: The edited request, or the kept one under today's configuration, is not valid.
        StillRunningError: See there.
        KeyTakenError: Its key stands for another request by now.
        NoSuchEventError: The event was cleaned away.
        TaskHubUnavailableError: It could not be started, and stays open.
    """
    record = await _open(dead_letter_id)
    prepared = prepare(record, edits, now)
    started = Replay(
        operation_id=prepared.operation.operation_id,
        requested_at=now,
        operation=without_credentials(prepared.operation.to_json()),
        note=edits.note,
        changes=prepared.changes,
        replay_id=replay_id,
    )
    _, intent = await begin_move(dead_letter_id, lambda kept: replayed(kept, started), Purpose.REPLAY)
    try:
        await _start(hub, record, prepared.operation)
    except _NOT_STARTED:
        await move_dead_letter(dead_letter_id, not_replayed)
        await withdraw(intent)
        raise
    await withdraw(intent)
    return prepared.operation.operation_id


async def finish_replay(hub: str, intent: Intent) -> None:
    """Do what a crash left of a replay, or of another change.

    Raises:
        TaskHubUnavailableError: It could not be started; the intent stays.
    """
    record = await find_dead_letter(intent.dead_letter_id)
    if record is not None:
        await settle(record)
        if intent.purpose is Purpose.REPLAY and record.status is Status.REPLAYED:
            await _start_left_over(hub, record)
    await withdraw(intent)


async def finish_changes(hub: str, dead_letter_id: str) -> None:
    """Do what a crash left of the changes of one dead letter; nothing when nothing was left.

    Raises:
        TaskHubUnavailableError: Its replay could not be started; the intent stays.
    """
    for intent in await intents_of(dead_letter_id):
        await finish_replay(hub, intent)


async def _start_left_over(hub: str, record: DeadLetterRecord) -> None:
    started = record.replays[-1]
    if await _was_started(hub, record, started):
        return
    try:
        if is_masked(started.operation):
            raise StillRunningError  # noqa: TRY301 - its credentials were never kept: a person starts it again
        await _start(hub, record, OperationInput.from_json(started.operation))
    except (StillRunningError, KeyTakenError, NoSuchEventError):
        await move_dead_letter(record.id, not_replayed)


async def _was_started(hub: str, record: DeadLetterRecord, started: Replay) -> bool:
    """Tell whether a replay got as far as its start, whatever has become of it since."""
    if started.dead_letter_id is not None:
        return True  # It has failed again, and that dead letter may be replayed by now.
    if record.reason is DeadLetterReason.OUTBOX_UNDELIVERABLE:
        return await was_resent(_event_id(record), started.requested_at)
    return await is_started(hub, OperationInput.from_json(started.operation))


def prepare(record: DeadLetterRecord, edits: ReplayBody, now: datetime) -> Prepared:
    """Return the operation that a replay starts, validated like a new one.

    Raises:
        UnknownTargetError: Its dependency or handler is not known.
        InvalidInputError: With everything else that is wrong with it.
    """
    if record.operation is None:
        return _of_message(record, edits)
    if record.reason is DeadLetterReason.OUTBOX_UNDELIVERABLE:
        return _of_event(record, edits)
    return _of_operation(record, edits, now)


def _of_operation(record: DeadLetterRecord, edits: ReplayBody, now: datetime) -> Prepared:
    """Give the operation its key, policy and time limits again, the time counted from now."""
    kept = OperationInput.from_json(record.operation or {})
    origin = Origin(source=kept.source, scope="", key=kept.key)
    resolved = resolve(edited_operation(record, edits), origin, now)
    operation = replace(
        kept,
        request=resolved.request,
        input=resolved.input,
        created_at=now,
        deadline_at=deadline_of(now, kept.timeouts.deadline_seconds),
        replay_of=record.id,
    )
    before, after = (_editable(without_credentials(one.to_json())) for one in (kept, operation))
    return Prepared(operation, changes_between(before, after))


def _of_message(record: DeadLetterRecord, edits: ReplayBody) -> Prepared:
    """Take the message over as its source would have."""
    _refuse(edits.edits - {"message"}, "a message")
    before = record.message or ""
    after = before if edits.message is None else edits.message
    arrival = Arrival(
        source=record.source, body=_body_of(after), place=_place_of(record.source), native_id=record.key
    )
    operation = replace(intake().operation_of(arrival), replay_of=record.id)
    return Prepared(operation, changes_between({"message": before}, {"message": after}))


def _body_of(text: str) -> bytes:
    """Undo what `engine.intake.kept_text` did to bytes that are no text."""
    if not text.startswith(DATA_PREFIX):
        return text.encode("utf-8", "replace")
    try:
        return base64.b64decode(text.removeprefix(DATA_PREFIX), validate=True)
    except ValueError:
        return text.encode()


def _place_of(source: str) -> str:
    """Return within what a message's id is unique, so that its key is the one that its source gives it."""
    return QUEUE if source == QUEUE_SOURCE else intake().settings.places.get(source, "")


def _of_event(record: DeadLetterRecord, edits: ReplayBody) -> Prepared:
    """Send the event again that an operation could not get rid of; the operation itself has succeeded."""
    _refuse(edits.edits, "an event")
    return Prepared(OperationInput.from_json(record.operation or {}), ())


def _refuse(names: frozenset[str], content: str) -> None:
    if names:
        told = f"cannot be edited: this dead letter has {content}"
        raise InvalidInputError(Problem(f"/{name}", told) for name in sorted(names))


def _editable(operation: dict[str, Any]) -> dict[str, Any]:
    return {name: operation[name] for name in ("request", "input") if operation[name] is not None}


async def _start(hub: str, record: DeadLetterRecord, operation: OperationInput) -> None:
    """Start what replays a dead letter; starting it twice is starting it once."""
    if record.reason is DeadLetterReason.OUTBOX_UNDELIVERABLE:
        await resend(hub, _event_id(record), clock.now())
    elif record.operation is None:
        if isinstance(await submit(hub, operation), KeyReused):
            raise KeyTakenError(operation.operation_id)
    elif not await start_replay(hub, operation):
        raise StillRunningError(operation.operation_id)


def _event_id(record: DeadLetterRecord) -> str:
    return str((record.operation or {})["request"]["event"]["id"])


async def _open(dead_letter_id: str) -> DeadLetterRecord:
    record = await find_dead_letter(dead_letter_id)
    if record is None:
        raise NoSuchDeadLetterError(dead_letter_id)
    if record.status is not Status.OPEN:
        raise WrongStatusError(record.status)
    return record

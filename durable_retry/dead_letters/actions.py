"""What people do with dead letters: look, archive, restore, note; finishing what a crash interrupted."""

from collections.abc import Mapping
from typing import Any, Final

from durable_retry.base.answers import read_or
from durable_retry.base.errors import NoSuchDeadLetterError
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.masking import MASKED
from durable_retry.base.names import OperationState
from durable_retry.dead_letters.records import (
    Intent,
    Purpose,
    change_dead_letter,
    find_dead_letter,
    finish_change,
    move_dead_letter,
    settle,
)
from durable_retry.hub.task_hub import TaskHub
from durable_retry.plugins import features_of, hook
from durable_retry.rules.dead_letters.document import DeadLetterDocument
from durable_retry.rules.dead_letters.record import (
    KeptDeadLetter,
    Status,
    archived,
    noted,
    restored,
    unreadable_record,
)
from durable_retry.rules.operations.status import OperationReplay
from durable_retry.runtime import clock
from durable_retry.runtime.deferred import imported
from durable_retry.settings.configuration import masking_of

_MOST_DEAD_LETTERS: Final = 20


async def find_letter(dead_letter_id: str) -> DeadLetterDocument:
    """Return a dead letter as people see it."""
    record = await find_dead_letter(dead_letter_id)
    if record is None:
        raise NoSuchDeadLetterError(dead_letter_id)
    return shown_letter(record)


async def archive(hub: TaskHub, dead_letter_id: str, by: str | None) -> DeadLetterDocument:
    """Archive a dead letter, and let the operations behind it go on; `by` is None for an unknown caller."""
    now = clock.now()
    letter = await move_dead_letter(dead_letter_id, lambda record: archived(record, now, by))
    for feature in features_of((letter.operation or {}).get("parts")):
        if feature.archived:
            await imported(feature.archived)(hub, letter)
    return shown_letter(letter)


async def restore(dead_letter_id: str) -> DeadLetterDocument:
    """Bring an archived dead letter back; errors as `archive`."""
    return shown_letter(await move_dead_letter(dead_letter_id, restored))


async def annotate(dead_letter_id: str, text: str, by: str | None) -> DeadLetterDocument:
    """Add a note to a dead letter; errors as `archive`, or `FullError` when it has no room for one more."""
    now = clock.now()
    return shown_letter(await change_dead_letter(dead_letter_id, lambda record: noted(record, text, now, by)))


def shown_letter(record: KeptDeadLetter) -> DeadLetterDocument:
    """Return a dead letter as people see it; one that cannot be read has a stand-in."""

    def unreadable(why: str) -> DeadLetterDocument:
        at = to_rfc3339(record.created_at)
        stand_in = unreadable_record(
            record.id, why, status=record.status, reason=record.reason, created_at=at
        )
        return DeadLetterDocument.of(stand_in, MASKED)

    return read_or(lambda: DeadLetterDocument.of(record, masking_of(record.dependency)), unreadable)


async def finish_interrupted(hub: TaskHub, intent: Intent) -> None:
    """Finish a change of a dead letter that a crash interrupted.

    Raises:
        TaskHubUnavailableError: A replay could not be started; the intent stays.
    """
    record = await find_dead_letter(intent.dead_letter_id)
    if record is not None and record.unreadable is not None:
        return  # The intent stays, for a version that can read it.
    if record is not None:
        await settle(record)
        if intent.purpose is Purpose.REPLAY and not await _start_left_over(hub, record):
            return  # The intent stays, for an app that can start the replay.
    await finish_change(intent)


async def start_if_lost(hub: TaskHub, dead_letter_id: str) -> None:
    """Start the latest replay of a dead letter unless the task hub has it; nothing where there was none.

    One that has succeeded already is not started.
    """
    record = await find_dead_letter(dead_letter_id)
    if record is not None and record.unreadable is None:
        await _start_left_over(hub, record)


async def _start_left_over(hub: TaskHub, record: KeptDeadLetter) -> bool:
    """As `start_if_lost`; False where this app cannot start a replay."""
    if record.status is Status.REPLAYED:
        if not (module := hook("replay")):
            return False
        await imported(f"{module}:start_left_over")(hub, record)
    return True


async def replays_of(document: Mapping[str, Any]) -> list[OperationReplay]:
    """Return the replays of the last `_MOST_DEAD_LETTERS` dead letters of an operation, the latest first.

    A dead letter names the one before it, whose replay failed: one row is read for each.

    Args:
        document: Its status document; of one whose history was purged only the last dead letter is known.
    """
    dead_letter_id = (document["dead_letter"] or {}).get("id") or document.get("replay_of")
    replays: list[OperationReplay] = []
    for _ in range(_MOST_DEAD_LETTERS):
        record = None if dead_letter_id is None else await find_dead_letter(dead_letter_id)
        if record is None:
            break
        for replay in reversed(record.replays):
            # The latest replay has the operation's present status.
            status = None if replays else OperationState(document["status"])
            document_of_replay = OperationReplay.taken_from(
                replay,
                dead_letter_id=record.id,
                reason=record.reason,
                status=status if replay.dead_letter_id is None else OperationState.DEAD_LETTERED,
                failed_again=replay.dead_letter_id,
            )
            replays.append(document_of_replay)
        dead_letter_id = record.replay_of
    return replays

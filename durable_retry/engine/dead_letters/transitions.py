"""What may become of a dead letter: every change of its status, and what is added to it."""

from dataclasses import replace
from datetime import datetime
from typing import Final

from durable_retry.engine.dead_letters.record import (
    MAX_NOTES,
    FullError,
    KeptDeadLetter,
    Note,
    Replay,
    Status,
    WrongStatusError,
)

STATUS_MOVES: Final = frozenset(
    {
        (Status.OPEN, Status.REPLAYED),
        (Status.REPLAYED, Status.OPEN),
        (Status.OPEN, Status.ARCHIVED),
        (Status.REPLAYED, Status.ARCHIVED),
        (Status.ARCHIVED, Status.OPEN),
        (Status.ARCHIVED, Status.REPLAYED),
    }
)
"""Every legal move."""


def archived(record: KeptDeadLetter, now: datetime, by: str | None = None) -> KeptDeadLetter:
    """Return the dead letter archived, by whom if somebody said it; WrongStatusError where it is already."""
    return replace(_record_with_status(record, Status.ARCHIVED), archived_at=now, archived_by=by)


def restored(record: KeptDeadLetter) -> KeptDeadLetter:
    """Return an archived dead letter with the status that it had before; WrongStatusError for another."""
    if record.status is not Status.ARCHIVED:
        raise WrongStatusError(record.status)
    target = Status.REPLAYED if record.replays else Status.OPEN
    return replace(_record_with_status(record, target), archived_at=None, archived_by=None)


def noted(record: KeptDeadLetter, text: str, now: datetime, by: str | None = None) -> KeptDeadLetter:
    """Add a note, by whom if somebody said it; FullError where there are as many as it can hold."""
    if len(record.notes) >= MAX_NOTES:
        raise FullError(f"it has {MAX_NOTES} notes already")
    return replace(record, notes=(*record.notes, Note(text=text, at=now, by=by).to_json()))


def replayed(record: KeptDeadLetter, started: Replay) -> KeptDeadLetter:
    """Return the dead letter with a replay added; stored before the start, and undone when the start fails.

    Raises:
        WrongStatusError: It is not open.
    """
    if record.status is not Status.OPEN:
        raise WrongStatusError(record.status)
    return replace(_record_with_status(record, Status.REPLAYED), replays=(*record.replays, started))


def not_replayed(record: KeptDeadLetter) -> KeptDeadLetter:
    """Return the dead letter without its latest replay, which could not be started.

    Unchanged when that replay did start and has failed again meanwhile.

    Raises:
        WrongStatusError: It is not replayed.
    """
    if record.status is not Status.REPLAYED:
        raise WrongStatusError(record.status)
    # The replay did start: it has failed again. Only the answer to its start was lost.
    if record.replays[-1].dead_letter_id is not None:
        return record
    return replace(_record_with_status(record, Status.OPEN), replays=record.replays[:-1])


def failed_again(record: KeptDeadLetter, dead_letter_id: str) -> KeptDeadLetter:
    """Return the dead letter with the id of the dead letter that its latest replay became."""
    if not record.replays:
        return record
    last = replace(record.replays[-1], dead_letter_id=dead_letter_id)
    return replace(record, replays=(*record.replays[:-1], last))


def _record_with_status(record: KeptDeadLetter, status: Status) -> KeptDeadLetter:
    if (record.status, status) not in STATUS_MOVES:
        raise WrongStatusError(record.status)
    return replace(record, status=status)

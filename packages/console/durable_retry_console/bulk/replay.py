"""Replaying many dead letters: one orchestration each, whose activities list and replay them a few at a time.

A few are replayed at once, unless their circuits are open (`held_until`): each would only wait there as an
orchestration of its own. A dead letter names the bulk replay that replayed it, so a repeated activity finds
what an earlier execution did, and finishes what that one began.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, cast

from durable_retry import clock
from durable_retry.engine.base.errors import (
    ContendedError,
    KeyTakenError,
    NoSuchDeadLetterError,
    NoSuchEventError,
    StillRunningError,
    StorageRefusedError,
    TaskHubUnavailableError,
)
from durable_retry.engine.base.instants import to_rfc3339
from durable_retry.engine.base.names import DeadLetterReason
from durable_retry.engine.base.validation import InvalidInputError, Problem
from durable_retry.engine.circuit.messages import snapshot_of
from durable_retry.engine.circuit.states import CircuitState
from durable_retry.engine.dead_letters.filters import DeadLetterFilter
from durable_retry.engine.dead_letters.record import (
    EditedValue,
    KeptDeadLetter,
    Replay,
    Status,
    WrongStatusError,
)
from durable_retry.engine.dead_letters.replay import ReplayBody, ReplayOptions
from durable_retry.runtime.concurrency import map_bounded
from durable_retry.services.dead_letters.replay import (
    event_id_of,
    finish_changes,
    prepare,
    replay_dead_letter,
)
from durable_retry.settings.configuration import find_dependency, masking_of
from durable_retry.stores.circuit.entity import CircuitEntity
from durable_retry.stores.dead_letters.list import list_dead_letters
from durable_retry.stores.dead_letters.records import find_dead_letter, find_dead_letters
from durable_retry.stores.task_hub import TaskHub
from durable_retry_console.bulk.document import EditPreview
from durable_retry_console.bulk.shapes import BulkItem, ItemOutcome
from durable_retry_console.bulk.store import keep_items

RECHECK: Final = timedelta(seconds=15)
"""When to look again at an open circuit without a time at which it may close."""

_SHORTEST: Final = timedelta(seconds=1)


async def held_until(hub: TaskHub, dependency_name: str) -> datetime | None:
    """Return until when replays wait for a dependency's circuit; None unless it is open or paused.

    A circuit that cannot be read delays nothing: the operation checks it before its first attempt.
    """
    dependency = find_dependency(dependency_name)
    if dependency is None or not dependency.circuit.enabled:
        return None
    try:
        breaker, _ = await CircuitEntity(hub, dependency_name).readable()
    except (TaskHubUnavailableError, ValueError):
        return None
    now = clock.now()
    seen = snapshot_of(breaker, now, settings=dependency.circuit, budget_settings=dependency.retry_budget)
    if seen.state in {CircuitState.OPEN, CircuitState.FORCED_OPEN}:
        return max(seen.retry_at or now + RECHECK, now + _SHORTEST)
    if seen.throttled_until is not None:
        return max(seen.throttled_until, now + _SHORTEST)
    return None


_AT_ONCE: Final = 8

# Errors of one dead letter, which do not stop the others.
_REFUSALS: Final = (
    InvalidInputError,
    KeyTakenError,
    StillRunningError,
    NoSuchEventError,
    ContendedError,
    StorageRefusedError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What became of some dead letters.

    Attributes:
        left: Ids of those that have to wait for a circuit.
        held_until: For how long; None when none has to wait.
    """

    items: tuple[BulkItem, ...]
    left: tuple[str, ...]
    held_until: datetime | None


async def replay_some(
    hub: TaskHub,
    ids: Sequence[str],
    *,
    replay_id: str,
    body: ReplayBody,
    asked_at: datetime,
    by: str | None,
) -> BatchResult:
    """Replay some dead letters, unless their circuits are open. Idempotent.

    Args:
        body: What each is replayed with.
        asked_at: When this was asked for, by the clock that `held_until` is to be read by: clocks of machines
            differ.

    Raises:
        TaskHubUnavailableError: The rest could not be started.
    """
    difference = asked_at - clock.now()
    records = await find_dead_letters(ids)
    until = await _held_until_by_dependency(hub, records)
    free: list[tuple[int, KeptDeadLetter | str]] = []
    left: list[str] = []
    for place, (dead_letter_id, record) in enumerate(zip(ids, records, strict=True)):
        if record is not None and record.status is Status.OPEN and record.dependency in until:
            left.append(dead_letter_id)
        else:
            free.append((place, record or dead_letter_id))
    items = await _replay_records(hub, [found for _, found in free], body, replay_id, by)
    await keep_items(
        replay_id,
        to_rfc3339(asked_at),
        zip((place for place, _ in free), items, strict=True),
    )
    return BatchResult(
        items=tuple(items),
        left=tuple(left),
        held_until=min(until.values()) + difference if left else None,
    )


async def _held_until_by_dependency(
    hub: TaskHub, records: Iterable[KeptDeadLetter | None]
) -> dict[str, datetime]:
    names = {record.dependency for record in records if record is not None} - {None}
    found = {name: await held_until(hub, name) for name in sorted(name for name in names if name is not None)}
    return {name: until for name, until in found.items() if until is not None}


async def _replay_records(
    hub: TaskHub, found: Iterable[KeptDeadLetter | str], body: ReplayBody, replay_id: str, by: str | None
) -> list[BulkItem]:
    async def one(each: KeptDeadLetter | str) -> BulkItem:
        if isinstance(each, str):
            return BulkItem(id=each, outcome=ItemOutcome.SKIPPED, detail="there is no such dead letter")
        if each.unreadable is not None:
            return BulkItem(id=each.id, outcome=ItemOutcome.FAILED, detail=each.detail)
        return await _replay_record(hub, each, body, replay_id, by)

    return await map_bounded(one, found, _AT_ONCE)


async def _replay_record(
    hub: TaskHub, record: KeptDeadLetter, body: ReplayBody, replay_id: str, by: str | None
) -> BulkItem:
    try:
        started = await replay_dead_letter(hub, record.id, body, clock.now(), replay_id=replay_id, by=by)
    except (NoSuchDeadLetterError, WrongStatusError) as error:
        return await _item_replayed_before(hub, record, replay_id, str(error))
    except _REFUSALS as error:
        return BulkItem.failed(record.id, error)
    return _replayed_item(record, started.operation_id)


def _replayed_item(record: KeptDeadLetter, operation_id: str) -> BulkItem:
    is_event = record.reason is DeadLetterReason.OUTBOX_UNDELIVERABLE
    return BulkItem(
        id=record.id,
        outcome=ItemOutcome.REPLAYED,
        operation_id=operation_id,
        event_id=event_id_of(record) if is_event else None,
    )


async def _item_replayed_before(hub: TaskHub, record: KeptDeadLetter, replay_id: str, why: str) -> BulkItem:
    """Return the item of a dead letter that is not open: this bulk replay or somebody else replayed it.

    An execution that was cut short may have marked the dead letter and not started its operation. The start
    is made here: `triggers.timers` would make it minutes later, after the bulk replay ended.
    """
    if await part_of(replay_id, record.id) is None:
        return BulkItem(id=record.id, outcome=ItemOutcome.SKIPPED, detail=why)
    await finish_changes(hub, record.id)
    mine = await part_of(replay_id, record.id)
    if mine is None:
        why = "it could not be started and is open again"
        return BulkItem(id=record.id, outcome=ItemOutcome.FAILED, detail=why)
    return _replayed_item(record, mine.operation_id)


async def part_of(replay_id: str, dead_letter_id: str) -> Replay | None:
    """Return the replay of a dead letter that a bulk replay made; None when it made none."""
    record = await find_dead_letter(dead_letter_id)
    replays = () if record is None else record.replays
    return next((replay for replay in reversed(replays) if replay.replay_id == replay_id), None)


_MOST_PREVIEWED: Final = 3


async def preview_patch(
    wanted: DeadLetterFilter | None, selection: Sequence[str], body: ReplayOptions
) -> tuple[EditPreview, ...] | None:
    """Return what a patch would change in the first dead letters that are meant; None without a patch."""
    if body.patch is None:
        return None
    ids = selection[:_MOST_PREVIEWED]
    if wanted is not None:
        page = await list_dead_letters(wanted, limit=_MOST_PREVIEWED, cursor=None)
        ids = [record.id for record in page.records]
    records = await find_dead_letters(ids)
    edits = ReplayBody.model_validate(body.options)
    return tuple(_preview_of_record(*pair, edits) for pair in zip(ids, records, strict=True))


def _preview_of_record(dead_letter_id: str, record: KeptDeadLetter | None, edits: ReplayBody) -> EditPreview:
    if record is None or record.status is not Status.OPEN:
        detail = "there is no such dead letter" if record is None else str(WrongStatusError(record.status))
        return EditPreview(id=dead_letter_id, errors=(Problem("", detail),))
    try:
        changes = prepare(record, edits, clock.now()).changes
    except InvalidInputError as error:
        return EditPreview(id=dead_letter_id, errors=error.problems)
    shown = cast("tuple[EditedValue, ...]", tuple(masking_of(record.dependency).changes(changes)))
    return EditPreview(id=dead_letter_id, changes=shown)

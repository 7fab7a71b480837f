"""Replaying many dead letters, a few at a time.

A few are replayed at once, unless their circuits are open (`held_until`): each would only wait there as an
orchestration of its own. A dead letter names the bulk action that replayed it, so a repeated activity finds
what an earlier execution did, and finishes what that one began.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final, cast

from azure.core.exceptions import AzureError

from durable_retry.base import errors
from durable_retry.base.names import DeadLetterReason
from durable_retry.base.text import counted
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.circuit.entity import CircuitEntity
from durable_retry.dead_letters.actions import finish_interrupted
from durable_retry.dead_letters.records import find_dead_letter, find_dead_letters, intents_of
from durable_retry.features.dead_letter_lists.pages import list_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.features.replay.actions import prepare, replay_dead_letter
from durable_retry.features.replay.rules import ReplayBody, ReplayOptions
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.messages import snapshot_of
from durable_retry.rules.circuit.snapshot import Snapshot
from durable_retry.rules.circuit.states import CircuitState
from durable_retry.rules.dead_letters.record import (
    EditedValue,
    FullError,
    KeptDeadLetter,
    Replay,
    Status,
    WrongStatusError,
)
from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import map_bounded
from durable_retry.settings.configuration import find_dependency, masking_of
from durable_retry_console.bulk.document import GONE, BulkItem, EditPreview, ItemOutcome
from durable_retry_console.bulk.shapes import BatchInput, BulkAction
from durable_retry_console.optional import of_feature

RECHECK: Final = timedelta(seconds=15)
"""When to look again at an open circuit without a time at which it may close."""

_SHORTEST: Final = timedelta(seconds=1)
# States by hand of a dependency's own circuit, which count for the circuits of its limit keys.
_FOR_ALL_KEYS: Final = frozenset({CircuitState.FORCED_OPEN, CircuitState.DISABLED})


async def held_until(hub: TaskHub, dependency_name: str, limit_key: str | None = None) -> datetime | None:
    """Return until when replays wait for the circuit that they pass; None unless it is open or paused.

    A hold of everything counts for a dependency without a circuit, too. A circuit that cannot be read delays
    nothing: the operation checks it before its first attempt.
    """
    dependency = find_dependency(dependency_name)
    if dependency is None:
        return None
    now = clock.now()

    async def snapshot(of_key: str | None) -> Snapshot:
        breaker, _ = await CircuitEntity(hub, dependency.name, of_key).readable()
        return snapshot_of(breaker, now, settings=dependency.circuit, budget_settings=dependency.retry_budget)

    try:
        seen = await snapshot(None)
        if limit_key is not None and dependency.circuit.is_by_key and seen.state not in _FOR_ALL_KEYS:
            seen = await snapshot(limit_key)
    except (errors.TaskHubUnavailableError, ValueError):
        return None
    if seen.frozen is None and not dependency.circuit.enabled:
        return None
    if seen.state in {CircuitState.OPEN, CircuitState.FORCED_OPEN}:
        # Somebody may end a hold sooner than it would end by itself.
        longest = timedelta(seconds=dependency.circuit.max_break_seconds)
        return max(min(seen.retry_at or now + RECHECK, now + longest), now + _SHORTEST)
    if seen.throttled_until is not None:
        return max(seen.throttled_until, now + _SHORTEST)
    return None


_AT_ONCE: Final = 8

AT_MOST: Final = "at_most"
"""The option of a recovery's bulk action: so often it replays one operation."""

RECOVERY: Final = "the recovery"
"""Who replays the dead letters of an outage."""

_SAGA: Final = "saga"
"""The source of sagas: a step that succeeds after the others were undone leaves half of the work."""

_MOST_REPLAYS: Final = 100
"""So many replays of one operation are looked at."""

# Errors of one item that its form or state explains.
_REFUSALS: Final = (
    InvalidInputError,
    errors.KeyTakenError,
    errors.StillRunningError,
    errors.NothingToReplayError,
    errors.ContendedError,
    errors.StorageRefusedError,
    FullError,
    errors.UnreadableDeadLetterError,
)
# They pass, and then the batch is done again.
_PASSING: Final = (errors.TaskHubUnavailableError, AzureError, OSError)

_log = logging.getLogger(__name__)


async def act_on_each(act: Callable[[str], Awaitable[BulkItem]], ids: Iterable[str]) -> list[BulkItem]:
    """Act on some; whatever one raises fails that one alone, but for trouble that passes."""

    async def one(item_id: str) -> BulkItem:
        try:
            return await act(item_id)
        except _PASSING:
            raise
        except _REFUSALS as error:
            return BulkItem.failed(item_id, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
            _log.exception("%s could not be acted on", item_id)
            return BulkItem.failed(item_id, f"{type(error).__name__}: {error}")

    return await map_bounded(one, ids, _AT_ONCE)


async def replay_some(
    hub: TaskHub, given: BatchInput
) -> tuple[list[BulkItem], tuple[str, ...], datetime | None]:
    """Replay some dead letters, unless their circuits are open. Idempotent.

    Returns:
        What became of each; the ids of those that have to wait for a circuit, and until when, by the clock of
        `given.now`: clocks of machines differ. None when none has to.

    Raises:
        TaskHubUnavailableError: The rest could not be started.
    """
    difference = given.now - clock.now()
    records = dict(zip(given.ids, await find_dead_letters(given.ids), strict=True))
    held = await _held_until_by_id(hub, records.values())
    options = dict(given.options)
    at_most = options.pop(AT_MOST, None)
    body = ReplayBody.model_validate({**options, "note": given.note})

    async def one(dead_letter_id: str) -> BulkItem:
        record = records[dead_letter_id]
        if record is None:
            return BulkItem.skipped(dead_letter_id, GONE)
        if record.unreadable is not None:
            return BulkItem.failed(record.id, record.detail)
        if at_most is not None and (why := await _why_not_recovered(record, at_most)):
            return BulkItem.skipped(record.id, why)
        return await _replay_record(hub, record, body, given)

    items = await act_on_each(one, (each for each in given.ids if each not in held))
    return items, tuple(held), min(held.values()) + difference if held else None


async def _held_until_by_id(hub: TaskHub, records: Iterable[KeptDeadLetter | None]) -> dict[str, datetime]:
    circuits = {
        record.id: (record.dependency or "", record.limit_key)
        for record in records
        if record is not None and record.status is Status.OPEN
    }
    each = set(circuits.values())
    ends = dict(zip(each, await map_bounded(lambda one: held_until(hub, *one), each, _AT_ONCE), strict=True))
    return {name: end for name, circuit in circuits.items() if (end := ends[circuit]) is not None}


async def _why_not_recovered(record: KeptDeadLetter, at_most: int) -> str:
    """Return why a recovery leaves a dead letter to a person; "" where it does not."""
    if record.source == _SAGA:
        return "its saga was compensated: restart that"
    replayed = await _times_recovered(record, at_most) >= at_most
    return f"{RECOVERY} has replayed it {counted(at_most, 'time')}" if replayed else ""


async def _times_recovered(record: KeptDeadLetter, at_most: int) -> int:
    """Count the recoveries among the replays of which a dead letter is the end, as far as they are kept."""
    times, letter = 0, record
    for _ in range(_MOST_REPLAYS):
        if times == at_most or letter.replay_of is None:
            break
        if (before := await find_dead_letter(letter.replay_of)) is None:
            break
        times += any(each.by == RECOVERY and each.dead_letter_id == letter.id for each in before.replays)
        letter = before
    return times


async def _replay_record(
    hub: TaskHub, record: KeptDeadLetter, body: ReplayBody, given: BatchInput
) -> BulkItem:
    now, action_id = clock.now(), given.action_id
    start = partial(replay_dead_letter, hub, record.id, body)
    if given.action is BulkAction.LOOKUP:
        ask_about = of_feature("lookup", "durable_retry.features.lookup.actions:ask_about")
        if ask_about is None:
            return BulkItem.skipped(record.id, "the app has no lookup")
        start = partial(ask_about, hub, record.id, body.note)
    try:
        started = await start(now, action_id=action_id, by=given.by)
    except errors.WrongOperationStateError as error:
        return BulkItem.skipped(record.id, str(error))
    except (errors.NoSuchDeadLetterError, WrongStatusError) as error:
        return await _item_replayed_before(hub, record, action_id, str(error))
    return _replayed_item(record, started.operation_id)


def _replayed_item(record: KeptDeadLetter, operation_id: str) -> BulkItem:
    is_event = record.reason is DeadLetterReason.OUTBOX_UNDELIVERABLE
    event_id_in = of_feature("outbox", "durable_retry.features.outbox.rules.outbox:event_id_in")
    return BulkItem(
        id=record.id,
        key=record.key,
        outcome=ItemOutcome.DONE,
        operation_id=operation_id,
        event_id=event_id_in(record) if is_event and event_id_in else None,
    )


async def _item_replayed_before(hub: TaskHub, record: KeptDeadLetter, action_id: str, why: str) -> BulkItem:
    """Return the item of a dead letter that is not open: this bulk action or somebody else replayed it.

    An execution that was cut short may have marked the dead letter and not started its operation. The start
    is made here: `upkeep.timers` would make it minutes later, after the bulk action ended.
    """
    if await part_of(action_id, record.id) is None:
        return BulkItem.skipped(record.id, why)
    for intent in await intents_of(record.id):
        await finish_interrupted(hub, intent)
    mine = await part_of(action_id, record.id)
    if mine is None:
        return BulkItem.failed(record.id, "it could not be started and is open again")
    return _replayed_item(record, mine.operation_id)


async def part_of(action_id: str, dead_letter_id: str) -> Replay | None:
    """Return the replay of a dead letter that a bulk action made; None when it made none."""
    record = await find_dead_letter(dead_letter_id)
    replays = () if record is None else record.replays
    return next((replay for replay in reversed(replays) if replay.action_id == action_id), None)


_MOST_PREVIEWED: Final = 3


async def preview_replay(
    wanted: DeadLetterFilter | None, selection: Sequence[str], options: ReplayOptions
) -> tuple[EditPreview, ...]:
    """Return what the replay would change in the first dead letters that are meant, or why it is refused."""
    ids = selection[:_MOST_PREVIEWED]
    if wanted is not None:
        page = await list_dead_letters(wanted, limit=_MOST_PREVIEWED, cursor=None)
        ids = [record.id for record in page.records]
    records = await find_dead_letters(ids)
    edits = ReplayBody.model_validate(options.options)
    return tuple(_preview_of_record(*pair, edits) for pair in zip(ids, records, strict=True))


def _preview_of_record(dead_letter_id: str, record: KeptDeadLetter | None, edits: ReplayBody) -> EditPreview:
    if record is None or record.status is not Status.OPEN:
        detail = GONE if record is None else str(WrongStatusError(record.status))
        key = None if record is None else record.key
        return EditPreview(id=dead_letter_id, key=key, errors=(Problem("", detail),))
    try:
        changes = prepare(record, edits, clock.now()).changes
    except InvalidInputError as error:
        return EditPreview(id=dead_letter_id, key=record.key, errors=error.problems)
    shown = cast("tuple[EditedValue, ...]", tuple(masking_of(record.dependency).changes(changes)))
    return EditPreview(id=dead_letter_id, key=record.key, changes=shown)

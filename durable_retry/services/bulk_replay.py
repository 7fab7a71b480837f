"""Replaying many dead letters: one orchestration each, whose activities list and replay them a few at a time.

A few are replayed at once, unless their circuits are open (`held_until`): each would only wait there as an
orchestration of its own. A dead letter names the bulk replay that replayed it, so a repeated activity finds
what an earlier execution did, and finishes what that one began.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from durable_retry import clock
from durable_retry.engine.base.validation import InvalidInputError
from durable_retry.engine.circuit import CircuitState, snapshot_of
from durable_retry.engine.dead_letters.record import (
    DeadLetterRecord,
    Status,
    WrongStatusError,
)
from durable_retry.engine.dead_letters.replay import ReplayBody
from durable_retry.services.replay import (
    KeyTakenError,
    StillRunningError,
    finish_changes,
    replay_dead_letter,
)
from durable_retry.settings.configuration import find_dependency
from durable_retry.stores.circuit import CircuitEntity
from durable_retry.stores.dead_letters.records import (
    ContendedError,
    NoSuchDeadLetterError,
    find_dead_letter,
    find_dead_letters,
)
from durable_retry.stores.outbox import NoSuchEventError
from durable_retry.stores.tables import StorageRefusedError
from durable_retry.stores.task_hub import (
    TaskHubUnavailableError,
)

RECHECK: Final = timedelta(seconds=15)
"""When to look again at an open circuit without a time at which it may close."""

_SHORTEST: Final = timedelta(seconds=1)


async def held_until(hub: str, dependency_name: str) -> datetime | None:
    """Return until when replays wait for a dependency's circuit; None when it is neither open nor paused.

    A circuit that cannot be read delays nothing: the operation checks it before its first attempt.

    Args:
        hub: Configuration of the durable client.
        dependency_name: The dependency; one that is not configured holds nothing up either.
    """
    dependency = find_dependency(dependency_name)
    if dependency is None or not dependency.circuit.enabled:
        return None
    try:
        breaker = await CircuitEntity(hub, dependency_name).read()
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

_REFUSALS: Final = (
    InvalidInputError,
    KeyTakenError,
    StillRunningError,
    NoSuchEventError,
    ContendedError,
    StorageRefusedError,
)
"""Errors of one dead letter, which do not stop the others."""


type _Failure = dict[str, str]
"""`id` and `detail` of a dead letter that could not be started."""


class _Result(StrEnum):
    REPLAYED = "replayed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What became of some dead letters.

    Attributes:
        replayed: How many operations were started.
        skipped: How many were not open any more.
        failures: `{"id", "detail"}` of each that could not be started and stays open.
        left: Ids of those that have to wait for a circuit.
        held_until: For how long; None when none has to wait.
    """

    replayed: int
    skipped: int
    failures: tuple[_Failure, ...]
    left: tuple[str, ...]
    held_until: datetime | None


async def replay_some(
    hub: str,
    ids: Sequence[str],
    *,
    replay_id: str,
    note: str | None,
    asked_at: datetime | None = None,
    by: str | None = None,
) -> BatchResult:
    """Replay some dead letters, unless their circuits are open. Idempotent.

    Args:
        hub: Configuration of the durable client.
        ids: Of the dead letters.
        replay_id: The bulk replay that they are part of.
        note: Stored with each replay; None for none.
        asked_at: When this was asked for, by the clock that `held_until` is to be read by; None means this
            machine's. Clocks of machines differ.
        by: Who asked; None when nobody said.

    Raises:
        TaskHubUnavailableError: The rest could not be started.
    """
    difference = timedelta(0) if asked_at is None else asked_at - clock.now()
    records = await find_dead_letters(ids)
    until = await _held(hub, records)
    free: list[str] = []
    left: list[str] = []
    for dead_letter_id, record in zip(ids, records, strict=True):
        is_held = record is not None and record.status is Status.OPEN and record.dependency in until
        (left if is_held else free).append(dead_letter_id)
    body = ReplayBody() if note is None else ReplayBody(note=note)
    results = await _all_of(hub, free, body, replay_id, by)
    return BatchResult(
        replayed=results.count(_Result.REPLAYED),
        skipped=results.count(_Result.SKIPPED),
        failures=tuple(result for result in results if isinstance(result, dict)),
        left=tuple(left),
        held_until=min(until.values()) + difference if left else None,
    )


async def _held(hub: str, records: Iterable[DeadLetterRecord | None]) -> dict[str, datetime]:
    """Return until when each dependency's circuit holds replays back; the others are left out."""
    names = {record.dependency for record in records if record is not None} - {None}
    found = {name: await held_until(hub, name) for name in sorted(name for name in names if name is not None)}
    return {name: until for name, until in found.items() if until is not None}


async def _all_of(
    hub: str, ids: Iterable[str], body: ReplayBody, replay_id: str, by: str | None
) -> list[_Result | _Failure]:
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(dead_letter_id: str) -> _Result | _Failure:
        async with limit:
            return await _replay(hub, dead_letter_id, body, replay_id, by)

    return list(await asyncio.gather(*(one(dead_letter_id) for dead_letter_id in ids)))


async def _replay(
    hub: str, dead_letter_id: str, body: ReplayBody, replay_id: str, by: str | None
) -> _Result | _Failure:
    try:
        await replay_dead_letter(hub, dead_letter_id, body, clock.now(), replay_id=replay_id, by=by)
    except (NoSuchDeadLetterError, WrongStatusError):
        return await _done_before(hub, dead_letter_id, replay_id)
    except _REFUSALS as error:
        return {"id": dead_letter_id, "detail": str(error) or type(error).__name__}
    return _Result.REPLAYED


async def _done_before(hub: str, dead_letter_id: str, replay_id: str) -> _Result | _Failure:
    """Return the result for a dead letter that is not open: this bulk replay or somebody else replayed it.

    An execution that was cut short may have marked the dead letter and not started its operation. The start
    is made here: `triggers.timers` would make it minutes later, after the bulk replay ended.
    """
    if not await _is_part_of(replay_id, dead_letter_id):
        return _Result.SKIPPED
    await finish_changes(hub, dead_letter_id)
    if not await _is_part_of(replay_id, dead_letter_id):
        return {"id": dead_letter_id, "detail": "it could not be started and is open again"}
    return _Result.REPLAYED


async def _is_part_of(replay_id: str, dead_letter_id: str) -> bool:
    record = await find_dead_letter(dead_letter_id)
    return record is not None and any(replay.replay_id == replay_id for replay in record.replays)

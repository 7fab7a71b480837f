"""How many operations are in which state: counted by bounded scans, and not anew for everybody who asks."""

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from heapq import nsmallest
from typing import Any, Final
from weakref import WeakKeyDictionary

from durabletask.client import OrchestrationStatus

from engine.instants import to_rfc3339
from engine.operation_summary import UNFINISHED, Tally, Window, by_status
from engine.vocabulary import OperationState
from stores import clock, operation_scan
from stores.operation_scan import Glimpse, scan_operations

MOST_COUNTED: Final = 10_000
"""Operations looked at by one scan."""

_LATE: Final = 1 / 8
"""How much of a window is counted when all of it is too much: its end, where things still happen."""

_GOOD_FOR_SECONDS: Final = 1.0
_GOOD_FOR_TIMES: Final = 8
"""An answer serves others for a second, or for this many times what it took: counting stays a small part."""

_MOST_KEPT: Final = 16

_SHOWN: Final = 8
"""Operations of which is told that they are tried next."""


@dataclass(frozen=True, slots=True)
class _Kept:
    document: dict[str, Any]
    good_until: float


@dataclass(slots=True)
class _Desk:
    """One event loop's answers, and the lock that lets one count at a time."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    answers: dict[tuple[str, float], _Kept] = field(default_factory=dict)


_desks: WeakKeyDictionary[asyncio.AbstractEventLoop, _Desk] = WeakKeyDictionary()


async def operation_summary(hub: str, window_seconds: float) -> dict[str, Any]:
    """Count the operations accepted in the last time, and those that have not ended whenever accepted.

    Args:
        hub: Configuration of the durable client.
        window_seconds: How far back.

    Returns:
        As the API shows it. `complete` is false when there were more than were looked at; of a window that
        holds too many only the last eighth is counted, which `from` tells.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    desk = _desks.setdefault(asyncio.get_running_loop(), _Desk())
    async with desk.lock:
        kept = desk.answers.get((hub, window_seconds))
        if kept is not None and clock.monotonic_seconds() < kept.good_until:
            return kept.document
        began = clock.monotonic_seconds()
        document = await _counted(hub, window_seconds)
        ended = clock.monotonic_seconds()
        while len(desk.answers) >= _MOST_KEPT:
            del desk.answers[next(iter(desk.answers))]
        good_for = max(_GOOD_FOR_SECONDS, _GOOD_FOR_TIMES * (ended - began))
        desk.answers[hub, window_seconds] = _Kept(document, ended + good_for)
        return document


async def _counted(hub: str, window_seconds: float) -> dict[str, Any]:
    now = clock.now()
    tally, is_complete = await _tally(hub, Window.before(now, window_seconds))
    if not is_complete:
        tally, is_complete = await _tally(hub, Window.before(now, window_seconds * _LATE))
    return {
        "counted_at": to_rfc3339(now),
        "complete": is_complete,
        **tally.to_json(),
        "unfinished": await _unfinished(hub),
    }


async def _tally(hub: str, window: Window) -> tuple[Tally, bool]:
    tally = Tally(window)
    seen, is_complete = await _glimpses(hub, created_after=window.begins_at)
    for one in seen:
        if one.status is not None:
            tally.add(one.status, one.created_at, one.dependency, one.attempt_count)
    return tally, is_complete


async def _unfinished(hub: str) -> dict[str, Any]:
    seen, is_complete = await _glimpses(hub, runtime_statuses=operation_scan.UNFINISHED)
    states: Counter[OperationState] = Counter()
    dependencies: dict[str, Counter[OperationState]] = {}
    for one in seen:
        if one.status in UNFINISHED:
            states[one.status] += 1
            if one.dependency is not None:
                dependencies.setdefault(one.dependency, Counter())[one.status] += 1
    return {
        "complete": is_complete,
        "by_status": by_status(states, UNFINISHED),
        "by_dependency": {name: by_status(each, UNFINISHED) for name, each in sorted(dependencies.items())},
        "next_attempts": [_told(one) for one in nsmallest(_SHOWN, filter(_is_due, seen), key=_due)],
    }


def _is_due(one: Glimpse) -> bool:
    return one.next_attempt_at is not None


def _due(one: Glimpse) -> str:
    return one.next_attempt_at or ""


def _told(one: Glimpse) -> dict[str, Any]:
    return {
        "operation_id": one.operation_id,
        "key": one.key,
        "dependency": one.dependency,
        "status": one.status,
        "attempt_count": one.attempt_count,
        "next_attempt_at": one.next_attempt_at,
    }


async def _glimpses(
    hub: str,
    *,
    runtime_statuses: Collection[OrchestrationStatus] = (),
    created_after: datetime | None = None,
) -> tuple[list[Glimpse], bool]:
    """Return at most `MOST_COUNTED` operations, and whether these are all."""
    seen: list[Glimpse] = []
    async for one in scan_operations(hub, runtime_statuses=runtime_statuses, created_after=created_after):
        seen.append(one)
        if len(seen) == MOST_COUNTED:
            return seen, one.cursor_after is None
    return seen, True

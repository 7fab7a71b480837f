"""Count operations by state: bounded scans of the task hub, cached for a short time."""

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from heapq import nsmallest
from typing import Any, Final
from weakref import WeakKeyDictionary

from durabletask.client import OrchestrationStatus

from durable_retry import clock
from durable_retry.engine.base.json_forms import to_rfc3339
from durable_retry.engine.base.names import OperationState
from durable_retry.engine.operations.status import UNFINISHED, Counters, Window, by_status
from durable_retry.stores.operations import scan as operation_scan
from durable_retry.stores.operations.scan import OperationPreview, scan_operations

MAX_SCANNED: Final = 10_000
"""Maximum operations of one scan."""

_TAIL_SHARE: Final = 1 / 8
"""Share of a window that is counted when it holds too many: its end, the most recent part."""

_MIN_FRESH_SECONDS: Final = 1.0
_FRESH_FACTOR: Final = 8
"""A document stays cached for a second, or for this many times the duration of counting if that is longer."""

_MAX_CACHED: Final = 16

_NEXT_ATTEMPTS_SHOWN: Final = 8
"""Number of next attempts in the document."""


@dataclass(frozen=True, slots=True)
class _CachedDocument:
    document: dict[str, Any]
    fresh_until: float


@dataclass(slots=True)
class _LoopCache:
    """One event loop's cached documents, and the lock that allows one count at a time."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    answers: dict[tuple[str, float], _CachedDocument] = field(default_factory=dict)


_loop_caches: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopCache] = WeakKeyDictionary()


async def operation_summary(hub: str, window_seconds: float) -> dict[str, Any]:
    """Count the operations accepted in a window, and all that have not ended.

    Args:
        hub: Configuration of the durable client.
        window_seconds: Length of the window, which ends now.

    Returns:
        The API's document. `complete` is false when there were more than one scan reads. Of a window that
        holds too many only the last eighth is counted; `from` is then its begin.

    Raises:
        TaskHubUnavailableError: The task hub did not answer.
    """
    cache = _loop_caches.setdefault(asyncio.get_running_loop(), _LoopCache())
    async with cache.lock:
        cached = cache.answers.get((hub, window_seconds))
        if cached is not None and clock.monotonic_seconds() < cached.fresh_until:
            return cached.document
        began = clock.monotonic_seconds()
        document = await _counted(hub, window_seconds)
        ended = clock.monotonic_seconds()
        while len(cache.answers) >= _MAX_CACHED:
            del cache.answers[next(iter(cache.answers))]
        fresh_seconds = max(_MIN_FRESH_SECONDS, _FRESH_FACTOR * (ended - began))
        cache.answers[hub, window_seconds] = _CachedDocument(document, ended + fresh_seconds)
        return document


async def _counted(hub: str, window_seconds: float) -> dict[str, Any]:
    now = clock.now()
    counters, is_complete = await _counters(hub, Window.before(now, window_seconds))
    if not is_complete:
        counters, is_complete = await _counters(hub, Window.before(now, window_seconds * _TAIL_SHARE))
    return {
        "counted_at": to_rfc3339(now),
        "complete": is_complete,
        **counters.to_json(),
        "unfinished": await _unfinished(hub),
    }


async def _counters(hub: str, window: Window) -> tuple[Counters, bool]:
    counters = Counters(window)
    seen, is_complete = await _previews(hub, created_after=window.begins_at)
    for one in seen:
        if one.status is not None:
            counters.add(one.status, one.created_at, one.dependency, one.attempt_count)
    return counters, is_complete


async def _unfinished(hub: str) -> dict[str, Any]:
    seen, is_complete = await _previews(hub, runtime_statuses=operation_scan.UNFINISHED)
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
        "next_attempts": [
            _next_attempt(one) for one in nsmallest(_NEXT_ATTEMPTS_SHOWN, filter(_is_due, seen), key=_due)
        ],
    }


def _is_due(one: OperationPreview) -> bool:
    return one.next_attempt_at is not None


def _due(one: OperationPreview) -> str:
    return one.next_attempt_at or ""


def _next_attempt(one: OperationPreview) -> dict[str, Any]:
    return {
        "operation_id": one.operation_id,
        "key": one.key,
        "dependency": one.dependency,
        "status": one.status,
        "attempt_count": one.attempt_count,
        "next_attempt_at": one.next_attempt_at,
    }


async def _previews(
    hub: str,
    *,
    runtime_statuses: Collection[OrchestrationStatus] = (),
    created_after: datetime | None = None,
) -> tuple[list[OperationPreview], bool]:
    """Return at most `MOST_COUNTED` operations, and whether there are no more."""
    seen: list[OperationPreview] = []
    async for one in scan_operations(hub, runtime_statuses=runtime_statuses, created_after=created_after):
        seen.append(one)
        if len(seen) == MAX_SCANNED:
            return seen, one.cursor_after is None
    return seen, True

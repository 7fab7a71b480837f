"""Answers that are shared for a moment by all who ask."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import LoopOwned

FRESH_SECONDS: Final = 2.0
FRESH_FACTOR: Final = 8
_MOST_SHARED: Final = 32


@dataclass(slots=True)
class _Shared:
    value: Any = None
    fresh_until: float = float("-inf")
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


_shared: Final = LoopOwned[dict[tuple[Any, ...], _Shared]](dict)


async def shared[T](
    key: tuple[Any, ...],
    make: Callable[[], Awaitable[T]],
    *,
    seconds: float = FRESH_SECONDS,
    factor: float = FRESH_FACTOR,
) -> T:
    """Return an answer that was made a moment ago, or make it: once for all who ask at the same time.

    Args:
        make: Called when there is none that is fresh; what it raises is not kept.
        seconds: For how long an answer is fresh, or for `factor` times what it took if that is longer.
    """
    answers = _shared.get()
    one = answers.setdefault(key, _Shared())
    async with one.lock:
        began = clock.monotonic_seconds()
        if began >= one.fresh_until:
            one.value = await make()
            ended = clock.monotonic_seconds()
            one.fresh_until = ended + max(seconds, factor * (ended - began))
    while len(answers) > _MOST_SHARED:
        del answers[next(iter(answers))]
    value: T = one.value
    return value

"""Answers that all callers share for a moment."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import LoopOwned

FRESH_SECONDS: Final = 2.0
FRESH_FACTOR: Final = 8
_MOST_FRESH_SECONDS: Final = 30.0
_PATIENCE_SECONDS: Final = 1.0
_MOST_SHARED: Final = 32


@dataclass(slots=True)
class _Shared:
    """An answer, and the task that makes the next one; None while none is made."""

    value: Any = None
    made_at: float = float("-inf")
    fresh_until: float = float("-inf")
    making: asyncio.Task[None] | None = None

    async def make(self, make: Callable[[], Awaitable[Any]], seconds: float, factor: float) -> None:
        began = clock.monotonic_seconds()
        try:
            self.value = await make()
            self.made_at = clock.monotonic_seconds()
            most = min(factor * (self.made_at - began), _MOST_FRESH_SECONDS)
            self.fresh_until = self.made_at + max(seconds, most)
        finally:
            self.making = None


_shared: Final = LoopOwned[dict[tuple[Any, ...], _Shared]](dict)


async def shared[T](
    key: tuple[Any, ...],
    make: Callable[[], Awaitable[T]],
    *,
    seconds: float = FRESH_SECONDS,
    factor: float = FRESH_FACTOR,
    older_seconds: float = 0.0,
) -> T:
    """Return an answer that was made a moment ago, or make it: once for all who ask at the same time.

    Args:
        make: Called when no answer is fresh; an error is raised and not shared later.
        seconds: For how long an answer is fresh, or for `factor` times what it took if that is longer, up to
            half a minute.
        older_seconds: When the next answer takes more than a second, the last one is returned, unless it was
            made longer ago than this.
    """
    answers = _shared.get()
    answer = answers.setdefault(key, _Shared())
    while len(answers) > _MOST_SHARED:
        del answers[next(iter(answers))]
    now = clock.monotonic_seconds()
    if answer.making is None and now >= answer.fresh_until:
        answer.making = asyncio.create_task(answer.make(make, seconds, factor))
        # Reads the error, since asyncio logs one that no caller waits for; the next caller tries anew.
        answer.making.add_done_callback(lambda task: task.cancelled() or task.exception())
    if (making := answer.making) is not None:
        if now - answer.made_at <= older_seconds:
            await asyncio.wait({making}, timeout=_PATIENCE_SECONDS)
        if making.done() or now - answer.made_at > older_seconds:
            await asyncio.shield(making)
    value: T = answer.value
    return value

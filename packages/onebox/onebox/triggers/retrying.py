"""Retries outside of durable functions: growing pauses, and the runtime's own retry policies.

A failed run of a timer, Event Hubs, Cosmos DB or Kafka function is repeated here. The count is held in
memory, as the platform documents: a restart begins at zero. Queue and HTTP functions have no such retries,
whatever their decorators say ("Error handling and retries", Azure Functions documentation).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from onebox.clock import Clock
from onebox.worker.functions import TIMER_TRIGGER, Function, RetryOptions
from onebox.worker.outputs import Outputs, values_of
from onebox.worker.runner import FunctionFailedError, FunctionRunner, Input, Retry

_LOG = logging.getLogger("onebox.functions")

RETRIED_TRIGGERS = frozenset({TIMER_TRIGGER, "eventHubTrigger", "cosmosDBTrigger", "kafkaTrigger"})
_UNLIMITED = -1
_LEAST_GROWING_PAUSE = timedelta(milliseconds=100)


class Backoff:
    """Pauses that grow from the least to the longest, each about twice the one before.

    The growth is the host's (RandomizedExponentialBackoffStrategy in the WebJobs SDK): to the least pause
    comes `2^(n-1)` times a step that is drawn between 0.8 and 1.2 times the least pause.
    """

    def __init__(self, least: timedelta, longest: timedelta, draw: Callable[[], float]) -> None:
        """Begin at the least pause.

        Args:
            least: The first pause, above nothing.
            longest: The limit.
            draw: Returns a number from 0 up to 1.
        """
        self._least = min(least, longest)
        self._longest = longest
        self._draw = draw
        self._taken = 0

    def begin_again(self) -> None:
        """Go back to the least pause."""
        self._taken = 0

    def next_pause(self) -> timedelta:
        """Return the next pause."""
        exponent = self._taken - 1
        if exponent < 0:
            self._taken += 1
            return self._least
        step = self._least * (0.8 + 0.4 * self._draw())
        # In seconds, which do not overflow; and the exponent stops growing where the limit is reached.
        seconds = self._least.total_seconds() + step.total_seconds() * float(2**exponent)
        if seconds >= self._longest.total_seconds():
            return self._longest
        self._taken += 1
        return timedelta(seconds=seconds)


class RetryingRunner:
    """Runs a function under the retry policy that it declares, if its trigger allows for one."""

    def __init__(
        self, runner: FunctionRunner, outputs: Outputs, clock: Clock, draw: Callable[[], float]
    ) -> None:
        self._runner = runner
        self._outputs = outputs
        self._clock = clock
        self._draw = draw
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Give up waiting for the next run of whatever failed."""
        self._stopping.set()

    async def run(
        self, function: Function, inputs: Sequence[Input], metadata: Mapping[str, Any], *, reason: str
    ) -> bool:
        """Run until it succeeds, its policy is exhausted or a stop; return whether it succeeded."""
        options = function.retry if function.trigger.type in RETRIED_TRIGGERS else None
        pauses = self._pauses(options)
        retry = Retry(max_count=options.max_retry_count if options else 0)
        while True:
            try:
                result = await self._runner.run(function, inputs, metadata, reason=reason, retry=retry)
                await self._outputs.send(function, result, values_of(metadata))
            except FunctionFailedError as error:
                if options is None or not _may_retry(options, retry.count):
                    return False
                retry = Retry(retry.count + 1, retry.max_count, error.failure)
            else:
                return True
            pause = pauses()
            _LOG.info("%s runs again in %.1f s (retry %s)", function.name, pause.total_seconds(), retry.count)
            if not await self._wait(pause):
                return False

    def _pauses(self, options: RetryOptions | None) -> Callable[[], timedelta]:
        if options is None or options.fixed_delay is not None:
            fixed = timedelta() if options is None else options.fixed_delay or timedelta()
            return lambda: fixed
        least = max(options.minimum_delay, _LEAST_GROWING_PAUSE)
        return Backoff(least, max(options.maximum_delay, least), self._draw).next_pause

    async def _wait(self, pause: timedelta) -> bool:
        due = self._clock.now() + pause
        while self._clock.now() < due and not self._stopping.is_set():
            await self._clock.wait(due, self._stopping)
        return not self._stopping.is_set()


def _may_retry(options: RetryOptions, done: int) -> bool:
    return options.max_retry_count == _UNLIMITED or done < options.max_retry_count

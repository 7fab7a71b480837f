"""Sends the requests of a handler or of a step with their key, and notes which may have taken effect.

A request that must not be sent twice needs a mark before it: in a step the step's record, else a `SentMark`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import uuid4

import httpx
from azure.core.exceptions import AzureError

from durable_retry.attempt.attempt import SENT_BEFORE
from durable_retry.attempt.http_client import transport_of
from durable_retry.attempt.http_pool import PROGRESS, SendProgress
from durable_retry.attempt.http_request import Plan, own_headers
from durable_retry.attempt.markers import insert_marker
from durable_retry.base.errors import ContendedError, StorageRefusedError
from durable_retry.base.foreign import names_of
from durable_retry.base.names import Category
from durable_retry.features.handlers.rules.steps import UnknownEffectError
from durable_retry.features.handlers.starts import SENT
from durable_retry.rules.operations.keys import Life
from durable_retry.rules.operations.request import is_unprotected
from durable_retry.rules.retry.classify import classify_failure, classify_status
from durable_retry.rules.retry.retry_after import parse_retry_after
from durable_retry.rules.retry.rules import ruled_answer
from durable_retry.runtime import clock

# The extension of a request that says whether it must not be sent again.
_SENT_ONCE: Final = "durable_retry.sent_once"


def may_repeat_work(plan: Plan, request: httpx.Request) -> bool:
    """Whether sending a request of an attempt again could do its work twice."""
    sent_once: bool | None = request.extensions.get(_SENT_ONCE)  # None: the handler sent it by itself
    return is_unprotected(request.method, plan.deduplication_header) if sent_once is None else sent_once


@dataclass(slots=True)
class Seen:
    """What the requests of a handler, or of one of its steps, show.

    Attributes:
        has_lost: Whether a request failed that must not be sent again, and may have taken effect.
        has_acted: Whether such a request was answered, and took effect.
        under_way: How many such requests have no answer yet.
    """

    has_lost: bool = False
    has_acted: bool = False
    under_way: int = 0

    @property
    def is_unknown(self) -> bool:
        """Whether it is unknown if a request that must not be sent again took effect."""
        return self.has_lost or self.under_way > 0

    @property
    def may_have_acted(self) -> bool:
        """Whether what sent them must not run again, unless its result is remembered."""
        return self.has_acted or self.is_unknown

    def add(self, step: "Seen") -> None:
        """Take over what a step shows whose result is not remembered."""
        self.has_lost |= step.is_unknown
        self.has_acted |= step.has_acted


class UnmarkedError(Exception):
    """The marker of what must not be sent twice could not be written, so nothing was sent."""


@dataclass(slots=True)
class SentMark:
    """The marker of what one execution of a handler sends once only, outside of its steps.

    Attributes:
        life: The life of the attempt's run.
        attempt: The attempt's number, from 1.
        unsent: Earlier executions that sent nothing although their marker may be there.
        ends_at: Until when this one may note its outcome; None when that is not known.
        execution: The name of this execution.
        is_there: Whether it is written.
    """

    life: Life
    attempt: int
    unsent: Collection[str] = ()
    ends_at: datetime | None = None
    execution: str = field(default_factory=lambda: uuid4().hex)
    is_there: bool = False
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def write(self) -> None:
        """Write it before the first request; calls after it, and beside it, write nothing.

        Raises:
            StepStoppedError: An earlier execution has sent something.
            OvertakenError: A later run has begun.
            UnmarkedError: It could not be written.
        """
        async with self._writing:
            if self.is_there:
                return
            try:
                marked = await insert_marker(
                    self.life,
                    self.attempt,
                    now=clock.now(),
                    ends_at=self.ends_at,
                    execution=self.execution,
                    unsent=self.unsent,
                    part=SENT,
                )
            except (AzureError, StorageRefusedError, ContendedError) as error:
                raise UnmarkedError(f"its marker was not written: {type(error).__name__}") from error
            if marked is not None:
                raise UnknownEffectError(SENT_BEFORE)
            self.is_there = True


class CallTransport(httpx.AsyncBaseTransport):
    """Sends the requests of one call over the pooled connections; closing it leaves them open.

    Attributes:
        seen: What its requests show.
        is_over: Whether it sends nothing more, since another attempt may run.
    """

    def __init__(
        self,
        plan: Plan,
        key: str,
        *,
        is_repeatable: bool,
        before_once: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Send by a plan.

        Args:
            plan: Names the dependency.
            key: The key of the handler or the step.
            is_repeatable: Whether all that it sends may be sent again.
            before_once: Is awaited before a request that must not be, which then raises what it raises.
        """
        self.key = key
        self.seen = Seen()
        self.is_over = False
        self._plan = plan
        self._is_repeatable = is_repeatable
        self._before_once = before_once
        self._inner = transport_of(plan.dependency)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request, with what every request carries unless the handler set that header itself.

        Raises:
            TimeoutError: The attempt is over.
        """
        for name, value in own_headers(self._plan, self.key).items():
            request.headers.setdefault(name, value)
        # A handler may say of a step that it must not run twice although the dependency deduplicates.
        is_once = not self._is_repeatable and is_unprotected(request.method, "")
        request.extensions[_SENT_ONCE] = is_once
        return await (self._answer_once(request) if is_once else self._answer(request, SendProgress()))

    async def _answer(self, request: httpx.Request, progress: SendProgress) -> httpx.Response:
        if self.is_over:
            raise TimeoutError("this attempt is over; another one may run")
        request.extensions[PROGRESS] = progress
        return await self._inner.handle_async_request(request)

    async def _answer_once(self, request: httpx.Request) -> httpx.Response:
        progress = SendProgress()
        self.seen.under_way += 1
        try:
            if self._before_once is not None:
                await self._before_once()
            answer = await self._answer(request, progress)
        except BaseException as error:
            if progress.sent:
                self._note_failure(error)
            raise
        finally:
            self.seen.under_way -= 1
        self._note_status(answer)
        if answer.is_success:  # Any other status says by itself whether the request may have acted.
            answer.stream = _WatchedStream(answer.stream, self._note_failure)
        return answer

    def _note_failure(self, error: BaseException) -> None:
        names = names_of(error)
        rules = self._plan.dependency.classify
        self._note_category(classify_failure(names, unprotected=True, rules=rules).category)

    def _note_status(self, answer: httpx.Response) -> None:
        # The body is read later, so rules about it do not count here: the request still may have acted.
        rules, status_code = self._plan.dependency.classify, answer.status_code
        ruled = ruled_answer(rules, status_code, answer.headers, lambda: None)
        hint = parse_retry_after(answer.headers, status_code=status_code, now=clock.now())
        self._note_category(ruled or classify_status(status_code, retry_hint=hint, unprotected=True))

    def _note_category(self, category: Category | None) -> None:
        self.seen.has_lost |= category is Category.AMBIGUOUS
        self.seen.has_acted |= category is None


class _WatchedStream(httpx.AsyncByteStream):
    """The body of an answer; notes that it cannot be read to its end."""

    def __init__(self, inner: Any, note_failure: Callable[[BaseException], None]) -> None:
        self._inner = inner
        self._note_failure = note_failure

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._inner:
                yield part
        except (Exception, asyncio.CancelledError) as error:  # not when the reader has enough of it
            self._note_failure(error)
            raise

    async def aclose(self) -> None:
        """Close the body."""
        await self._inner.aclose()

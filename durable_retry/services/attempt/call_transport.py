"""What the requests of a handler or of a step are sent with: the key, and a look at what may have acted."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final

import httpx

from durable_retry import clock
from durable_retry.engine.base.names import Category
from durable_retry.engine.operations.request import is_unprotected
from durable_retry.engine.retry.classify import classify_failure, classify_status, names_of
from durable_retry.engine.retry.retry_after import parse_retry_after
from durable_retry.services.attempt.http_client import transport_of
from durable_retry.services.attempt.http_pool import PROGRESS, SendProgress
from durable_retry.services.attempt.http_request import Plan, own_headers

# The extension of a request that says whether it must not be sent again.
_SENT_ONCE: Final = "durable_retry.sent_once"


def may_repeat_work(plan: Plan, request: httpx.Request) -> bool:
    """Whether sending a request of an attempt again could do its work twice."""
    sent_once: bool | None = request.extensions.get(_SENT_ONCE)  # None: the handler sent it by itself
    return is_unprotected(request.method, plan.deduplication_header) if sent_once is None else sent_once


@dataclass(slots=True)
class Seen:
    """What the requests of one attempt show.

    Attributes:
        has_lost: Whether a request failed that must not be sent again, and may have taken effect.
        under_way: How many such requests have no answer yet.
    """

    has_lost: bool = False
    under_way: int = 0

    @property
    def may_have_acted(self) -> bool:
        """Whether an attempt that failed must not be made again."""
        return self.has_lost or self.under_way > 0


class CallTransport(httpx.AsyncBaseTransport):
    """Sends the requests of one call over the pooled connections; closing it leaves them open.

    Attributes:
        own: What its requests show, beside those of the whole attempt.
        is_over: Whether it sends nothing more, since another attempt may run.
    """

    def __init__(self, plan: Plan, seen: Seen, key: str, *, is_repeatable: bool) -> None:
        self.key = key
        self.own = Seen()
        self.is_over = False
        self._plan = plan
        self._seen = seen
        self._is_repeatable = is_repeatable
        self._inner = transport_of(plan.dependency)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request, with what every request carries unless the handler set that header itself.

        Raises:
            TimeoutError: The attempt is over.
        """
        if self.is_over:
            raise TimeoutError("this attempt is over; another one may run")
        for name, value in own_headers(self._plan, self.key).items():
            request.headers.setdefault(name, value)
        # A handler may say of a step that it must not run twice although the dependency deduplicates.
        is_once = not self._is_repeatable and is_unprotected(request.method, "")
        request.extensions[_SENT_ONCE] = is_once
        return await (self._answer_once(request) if is_once else self._answer(request, SendProgress()))

    async def _answer(self, request: httpx.Request, progress: SendProgress) -> httpx.Response:
        request.extensions[PROGRESS] = progress
        return await self._inner.handle_async_request(request)

    async def _answer_once(self, request: httpx.Request) -> httpx.Response:
        progress = SendProgress()
        self._count(1)
        try:
            answer = await self._answer(request, progress)
        except BaseException as error:
            if progress.sent:
                self._note_failure(error)
            raise
        finally:
            self._count(-1)
        self._note_status(answer)
        if answer.is_success:  # Any other status says by itself whether the request may have acted.
            answer.stream = _WatchedStream(answer.stream, self._note_failure)
        return answer

    def _count(self, under_way: int) -> None:
        for seen in (self.own, self._seen):
            seen.under_way += under_way

    def _note_failure(self, error: BaseException) -> None:
        names = names_of(error)
        overrides = self._plan.dependency.classify
        self._note_category(classify_failure(names, unprotected=True, overrides=overrides).category)

    def _note_status(self, answer: httpx.Response) -> None:
        hint = parse_retry_after(answer.headers, status_code=answer.status_code, now=clock.now())
        overrides = self._plan.dependency.classify
        self._note_category(
            classify_status(answer.status_code, retry_hint=hint, unprotected=True, overrides=overrides)
        )

    def _note_category(self, category: Category | None) -> None:
        if category is Category.AMBIGUOUS:
            self.own.has_lost = self._seen.has_lost = True


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

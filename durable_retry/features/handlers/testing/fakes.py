"""Stand-ins of a test: the clock, dependencies with scripted answers, functions of steps."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from unittest.mock import patch

import httpx

from durable_retry.attempt.http_pool import PROGRESS, SendProgress
from durable_retry.features.handlers.functions import Interruption
from durable_retry.features.handlers.heartbeat import CURRENT

NOON: Final = datetime(2030, 1, 1, 12, tzinfo=UTC)
"""When every run begins."""


class FakeClock:
    """A clock that moves only when it is moved; `run_handler` moves it by each wait and each `Slow` answer.

    Args:
        start: What it shows at first.
    """

    def __init__(self, start: datetime = NOON) -> None:
        self._start, self._passed = start, 0.0

    def now(self) -> datetime:
        """Return the instant that it shows."""
        return self._start + timedelta(seconds=self._passed)

    def monotonic_seconds(self) -> float:
        """Return the seconds since its start."""
        return self._passed

    def move(self, seconds: float) -> None:
        """Let seconds pass."""
        self._passed += seconds


class FakeStep:
    """A step's function with scripted results, given in turn; the last one is repeated.

        FakeStep(Transient("busy"), Charge(id="ch-1"))

    A result is what the function returns, or an exception to raise.

    Attributes:
        calls: The arguments of each call, oldest first.
    """

    def __init__(self, *results: Any) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self._results = list(results)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Give the next result."""
        self.calls.append((args, kwargs))
        result = self._results.pop(0) if len(self._results) > 1 else self._results[0]
        if isinstance(result, BaseException):
            raise BaseException.with_traceback(result, None)  # else it would grow with each call
        return result

    def warn_if_never_asked(self, name: str) -> None:
        """Warn if it was never called."""
        if not self.calls:
            warnings.warn(f"no step {name!r} was run: its FakeStep was never called", stacklevel=4)


class Crash(Interruption):
    """An answer at which the process dies: the request was received, and nothing of the attempt goes on."""


@dataclass(frozen=True, slots=True)
class Slow:
    """An answer that takes time.

        FakeDependency(Slow(30, {"parcel": "p-1"}))

    Attributes:
        seconds: How far the clock moves. The attempt is cut off at the end of its time, or when its function
            has reported nothing for `heartbeat_seconds`.
        answer: The answer after that.
    """

    seconds: float
    answer: Any = 200


class FakeDependency:
    """A dependency with scripted answers, given in turn; the last one is repeated.

        FakeDependency(503, httpx.ConnectError("away"), {"id": "ch-1"})

    An answer is a status code, JSON for a 200, an `httpx.Response`, an exception to raise, `Slow(...)`,
    `Crash()`, or a function that takes the request and returns one of these.

    Attributes:
        requests: What it received, oldest first.
    """

    def __init__(self, *answers: Any) -> None:
        self.requests: list[httpx.Request] = []
        self._answers = list(answers) or [200]
        self._is_scripted = bool(answers)

    def keys(self, header: str = "Idempotency-Key") -> list[str | None]:
        """Return the idempotency key of each request."""
        return [request.headers.get(header) for request in self.requests]

    def transport(self, time: FakeClock) -> httpx.AsyncBaseTransport:
        """Return a transport that sends to it, by the clock of a run."""
        return httpx.MockTransport(
            lambda request: self.receive(request, time, float(request.headers.get("X-Seconds-Left", "inf")))
        )

    def receive(self, request: httpx.Request, time: FakeClock, seconds_left: float) -> httpx.Response:
        """Return the next answer to a request of an attempt that has so much time left.

        Raises:
            BaseException: The answer is one, or the attempt's time is over.
        """
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        while isinstance(answer, Slow) or (callable(answer) and not isinstance(answer, type)):
            if isinstance(answer, Slow):
                _let_pass(time, answer.seconds, seconds_left)
                answer = answer.answer
            else:
                answer = answer(request)
        return _response_to(request, answer)

    def warn_if_never_asked(self, name: str) -> None:
        """Warn if it has scripted answers and received no request."""
        if self._is_scripted and not self.requests:
            warnings.warn(
                f"the FakeDependency of {name!r} was never asked: it answers `call.client` and httpx clients "
                "of the function's own; replace what another library sends in the function's module",
                stacklevel=4,
            )


def _response_to(request: httpx.Request, answer: Any) -> httpx.Response:
    progress: SendProgress = request.extensions.get(PROGRESS) or SendProgress()
    progress.sent = not isinstance(answer, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    match answer:
        case BaseException():
            raise BaseException.with_traceback(answer, None)  # else it would grow with each request
        case httpx.Response():
            return answer
        case int() if not isinstance(answer, bool):
            return httpx.Response(answer)
        case _:
            return httpx.Response(200, json=answer)


def _let_pass(time: FakeClock, seconds: float, seconds_left: float) -> None:
    heartbeat = CURRENT.get()
    if heartbeat is not None and heartbeat.seconds_left <= min(seconds, seconds_left):
        time.move(heartbeat.seconds_left)
        raise heartbeat.missed()
    time.move(min(seconds, seconds_left))
    if seconds >= seconds_left:
        raise TimeoutError(f"not finished within {seconds_left:g} s")


@contextmanager
def answering_own_clients(answer: Callable[[httpx.Request], httpx.Response]) -> Iterator[None]:
    """Answer in place of the network what a function sends with httpx clients of its own."""

    def handle(_transport: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        request.read()
        return answer(request)

    async def handle_async(_transport: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        await request.aread()
        return answer(request)

    with (
        patch.object(httpx.HTTPTransport, "handle_request", handle),
        patch.object(httpx.AsyncHTTPTransport, "handle_async_request", handle_async),
    ):
        yield

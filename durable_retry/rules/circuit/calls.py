"""Calls that ended: counted over the last seconds, and reported by a worker to the circuit.

A window of W seconds has ten buckets of W/10, so that old ones drop out without a timer. The bucket that is
being filled is one of the ten, so the totals cover between 0.9 W and W. Two windows of the same width add up
bucket by bucket: so the report of a worker joins the shared counts at the times when the calls ended. When a
process reports is in `reporters`; how reporting affects the shared ratio, in `docs/circuit.md`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Self, assert_never

from durable_retry.base.json_forms import JsonRow, JsonShape, MsInstant, from_ms, to_ms
from durable_retry.base.names import Category

BUCKETS = 10


@dataclass(frozen=True, slots=True)
class Counts(JsonRow):
    """How many calls ended, how many of them failed, and how many were slow; a call can be both."""

    calls: int = 0
    failures: int = 0
    slow: int = 0

    def __add__(self, other: Self) -> "Counts":
        return Counts(self.calls + other.calls, self.failures + other.failures, self.slow + other.slow)

    def __mul__(self, times: int) -> "Counts":
        return Counts(self.calls * times, self.failures * times, self.slow * times)


NO_CALLS: Final = Counts()


@dataclass(frozen=True, slots=True)
class SlidingWindow(JsonShape):
    """Counts by bucket."""

    bucket_ms: int  # width of one bucket in milliseconds, at least 1
    # (bucket number since 1970, counts), oldest first, empty ones left out.
    buckets: tuple[tuple[int, Counts], ...] = ()

    @classmethod
    def over(cls, window_seconds: float) -> "SlidingWindow":
        """Return an empty window that covers this many seconds."""
        return cls(bucket_ms=max(1, round(window_seconds * 1000 / BUCKETS)))

    def add(self, at: datetime, counts: Counts) -> "SlidingWindow":
        """Count calls that ended at this instant."""
        if counts == NO_CALLS:
            return self
        return self._with_buckets([(self._bucket_number(at), counts)])

    def merge(self, other: "SlidingWindow", at: datetime) -> "SlidingWindow":
        """Add the counts of another window at an instant; its later buckets count as of that instant.

        Windows of another width (the settings changed while a report was sent) have other buckets: then all
        their counts go to the bucket of `at`.
        """
        if other.bucket_ms == self.bucket_ms:
            newest = self._bucket_number(at)
            return self._with_buckets((min(number, newest), counts) for number, counts in other.buckets)
        return self.add(at, other.everything())

    def trimmed(self, at: datetime) -> "SlidingWindow":
        """Return the window without the buckets that are too old at this instant."""
        oldest = self._bucket_number(at) - BUCKETS + 1
        return SlidingWindow(self.bucket_ms, tuple(b for b in self.buckets if b[0] >= oldest))

    def totals(self, at: datetime) -> Counts:
        """Return the totals at this instant; buckets of the future do not count yet."""
        newest = self._bucket_number(at)
        # A machine whose clock is ahead fills buckets of the future.
        return _sum_of_counts([counts for number, counts in self.trimmed(at).buckets if number <= newest])

    def rows(self, at: datetime) -> list[tuple[datetime, Counts]]:
        """Return the ten buckets up to this instant, oldest first: where each begins, and its counts."""
        newest, by_number = self._bucket_number(at), dict(self.buckets)
        numbers = range(newest - BUCKETS + 1, newest + 1)
        return [(from_ms(number * self.bucket_ms), by_number.get(number, NO_CALLS)) for number in numbers]

    @property
    def newest_at(self) -> datetime | None:
        """Where the newest bucket that holds calls begins; None while none does."""
        return from_ms(self.buckets[-1][0] * self.bucket_ms) if self.buckets else None

    @property
    def has_bad_calls(self) -> bool:
        """Whether calls failed or were slow."""
        return any(counts.failures or counts.slow for _, counts in self.buckets)

    def everything(self) -> Counts:
        """Return the totals of all buckets, whatever the time."""
        return _sum_of_counts([counts for _, counts in self.buckets])

    def _bucket_number(self, at: datetime) -> int:
        return to_ms(at) // self.bucket_ms

    def _with_buckets(self, added: Iterable[tuple[int, Counts]]) -> "SlidingWindow":
        by_number = dict(self.buckets)
        for number, counts in added:
            by_number[number] = by_number.get(number, NO_CALLS) + counts
        return SlidingWindow(self.bucket_ms, tuple(sorted(by_number.items())))


def _sum_of_counts(all_counts: Iterable[Counts]) -> Counts:
    calls = failures = slow = 0
    for counts in all_counts:
        calls, failures, slow = calls + counts.calls, failures + counts.failures, slow + counts.slow
    return Counts(calls, failures, slow)


_SERVER_ERRORS: Final = 500
_NOT_IMPLEMENTED: Final = 501
"""The 5xx that blames the request."""
_CONNECTION_STATUSES: Final = frozenset({408, 425, 460, 499})
"""The 4xx that report a timeout or a lost connection."""
_CREDENTIAL_STATUSES: Final = frozenset({401, 403, 407})


class CallHealth(StrEnum):
    """How the breaker counts a call."""

    SUCCESS = "success"
    FAILURE = "failure"
    UNAUTHORIZED = "unauthorized"  # a failure by which the dependency refuses its own credential
    SILENT = "silent"  # counts as neither call nor failure

    @property
    def is_failure(self) -> bool:
        return self in {CallHealth.FAILURE, CallHealth.UNAUTHORIZED}


@dataclass(frozen=True, slots=True)
class CallEnd:
    """How a call ended, or an attempt that made none.

    Attributes:
        throttled_until: Until when the dependency asked all callers to pause; None when it did not.
        throttled_by: What asked for that, for a person.
        failure: What went wrong; it is reported where the call counts as failed.
    """

    health: CallHealth = CallHealth.SILENT
    duration_seconds: float = 0.0
    throttled_until: datetime | None = None
    throttled_by: str | None = None
    failure: str | None = None


def call_health(
    category: Category | None, status_code: int | None, *, of_key: bool = False, is_ruled: bool = False
) -> CallHealth:
    """Return how a call counts, by its category; None is a success.

    A dependency that rejects a request is healthy; one that fails is not, also where it says that a retry
    does not help. Throttling is an instruction and not a failure: it pauses the circuit and changes no ratio.
    A transient or ambiguous outcome is a failure when it was a timeout, a broken connection (no status code)
    or a server error; a 4xx that says "not now" is an answer.

    Args:
        of_key: Whether it counts for the circuit of a limit key. Few calls may pass that, so every refused
            credential counts, and `unauthorized_calls` of them in a row open it.
        is_ruled: Whether `classify` gives it its category: what is transient there is a failure here.
    """
    match category:
        case Category.UNAUTHORIZED if of_key:
            return CallHealth.UNAUTHORIZED
        case Category.TRANSIENT if is_ruled:
            return CallHealth.FAILURE
        case Category.MALFORMED if not is_ruled and status_code not in {None, _NOT_IMPLEMENTED}:
            return _health_by_status(status_code, frozenset())
        case None | Category.MALFORMED | Category.UNAUTHORIZED | Category.NOT_FOUND | Category.BUSINESS_RULE:
            return CallHealth.SUCCESS
        case Category.TRANSIENT | Category.AMBIGUOUS:
            return _health_by_status(status_code, _CREDENTIAL_STATUSES if of_key else frozenset())
        case Category.THROTTLED | Category.CIRCUIT_OPEN | Category.DEADLINE_EXCEEDED:
            return CallHealth.SILENT
        case _ as never:
            assert_never(never)


def _health_by_status(status_code: int | None, failing: frozenset[int]) -> CallHealth:
    if status_code is None or status_code >= _SERVER_ERRORS or status_code in _CONNECTION_STATUSES | failing:
        return CallHealth.FAILURE
    return CallHealth.SUCCESS


@dataclass(frozen=True, slots=True)
class ProbeResult(JsonRow):
    lease_id: str
    epoch: int  # in which it was permitted
    health: CallHealth  # SILENT returns the lease: the call never left, or was throttled
    # The end of the lease that it had: an attempt that asks again after that has another one of the same id.
    lease_expires_at: MsInstant | None


ERROR_CHARACTERS = 160
"""Characters of an error's text in a report."""


@dataclass(frozen=True, slots=True)
class Report(JsonShape):
    """The results of one worker since its last report."""

    reporter: str  # name of the worker process; 32 characters are kept
    sequence: int  # 1 for its first report, one more for each further one
    at: MsInstant  # when it was made, aware UTC
    epoch: int  # in which the counted calls were permitted
    window: SlidingWindow  # the calls, by the time they ended
    trailing_failures: int = 0  # failures since the last success, of this report alone
    # Those of them by which the dependency refuses its own credential; None for none.
    unauthorized: int | None = None
    unauthorized_by: str | None = None  # what refused it the last time, such as `401`; None for nothing
    refused: int = 0  # operations that began to wait for the circuit or for the end of a throttling pause
    first_attempts: int = 0  # first attempts that started
    retries: int = 0  # retries that started, or that the retry budget promised
    # The dependency asked for no calls until then; None when it did not. With `at` it gives the length of the
    # pause, which is what the circuit uses: clocks differ.
    throttled_until: MsInstant | None = None
    throttled_by: str | None = None  # what asked for that, such as `429`
    probes: tuple[ProbeResult, ...] = ()  # probes that ended
    # What went wrong in the latest call that counts as failed, for a person; None when none does.
    last_error: str | None = None

"""What a worker reports to the shared circuit: how calls went, since its last report.

How reporting affects the shared ratio is in `docs/circuit.md`; when a process reports is in `reporters`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

from durable_retry.engine.base.json_forms import JsonRow, JsonShape, MsInstant
from durable_retry.engine.base.names import Category
from durable_retry.engine.base.sliding_window import SlidingWindow
from durable_retry.engine.pace import Quota

_SERVER_ERRORS: Final = 500
_OF_TROUBLE: Final = frozenset({408, 425, 460, 499})
"""The 4xx that speak of time and of lost connections."""


class CallHealth(StrEnum):
    """How the breaker counts a call."""

    SUCCESS = "success"
    FAILURE = "failure"
    SILENT = "silent"  # counts as neither call nor failure


def call_health(category: Category | None, status_code: int | None) -> CallHealth:
    """Return how a call counts, by its category; None is a success.

    A dependency that rejects a request is healthy. Throttling is an instruction and not a failure: it pauses
    the circuit and changes no ratio. A transient or ambiguous outcome is a failure when it was a timeout, a
    broken connection (no status code) or a server error; a 4xx that says "not now" is an answer.
    """
    match category:
        case None | Category.MALFORMED | Category.UNAUTHORIZED | Category.NOT_FOUND | Category.BUSINESS_RULE:
            return CallHealth.SUCCESS
        case Category.TRANSIENT | Category.AMBIGUOUS:
            return _health_by_status(status_code)
        case Category.THROTTLED | Category.CIRCUIT_OPEN | Category.DEADLINE_EXCEEDED:
            return CallHealth.SILENT
        case _ as never:
            assert_never(never)


def _health_by_status(status_code: int | None) -> CallHealth:
    if status_code is None or status_code >= _SERVER_ERRORS or status_code in _OF_TROUBLE:
        return CallHealth.FAILURE
    return CallHealth.SUCCESS


@dataclass(frozen=True, slots=True)
class ProbeResult(JsonRow):
    """The end of a probe."""

    lease_id: str
    epoch: int  # in which it was permitted
    health: CallHealth  # SILENT returns the lease: the call never left, or was throttled


ERROR_CHARACTERS = 160
"""Only so much of an error's text goes into a report."""


@dataclass(frozen=True, slots=True)
class Report(JsonShape):
    """The results of one worker since its last report."""

    reporter: str  # name of the worker process; 32 characters are kept
    sequence: int  # 1 for its first report, one more for each further one
    at: MsInstant  # when it was made, aware UTC
    epoch: int  # in which the counted calls were permitted
    window: SlidingWindow  # the calls, by the time they ended
    trailing_failures: int = 0  # failures since the last success, of this report alone
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
    # What is left of the dependency's rate limit; None unless that is low, or has just been.
    quota: Quota | None = None

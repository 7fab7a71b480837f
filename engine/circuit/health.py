"""What the end of a call says about the health of its dependency."""

from enum import StrEnum
from typing import assert_never

from engine.vocabulary import Category

_SERVER_ERRORS = 500


class Verdict(StrEnum):
    """What the breaker counts a call as."""

    SUCCESS = "success"
    FAILURE = "failure"
    SILENT = "silent"  # says nothing: neither a call nor a failure


def verdict_of(category: Category | None, status_code: int | None) -> Verdict:
    """Judge a call by its category; None is a success.

    A dependency that rejects a request is a healthy dependency. Throttling is an instruction and not a
    failure: it pauses the circuit and moves no ratio. An ambiguous outcome is a failure when it was a
    timeout, a broken connection (no status code) or a server error; the ambiguity concerns the request, the
    sickness is the dependency's either way.
    """
    match category:
        case None | Category.MALFORMED | Category.UNAUTHORIZED | Category.NOT_FOUND | Category.BUSINESS_RULE:
            return Verdict.SUCCESS
        case Category.TRANSIENT:
            return Verdict.FAILURE
        case Category.AMBIGUOUS:
            return _verdict_of_ambiguous(status_code)
        case Category.THROTTLED | Category.CIRCUIT_OPEN | Category.DEADLINE_EXCEEDED:
            return Verdict.SILENT
        case _ as never:
            assert_never(never)


def _verdict_of_ambiguous(status_code: int | None) -> Verdict:
    if status_code is None or status_code >= _SERVER_ERRORS or status_code in {408, 425}:
        return Verdict.FAILURE
    return Verdict.SUCCESS

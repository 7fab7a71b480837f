"""Which category a failure is (contract section 3).

Two questions are asked in order. Did the dependency say anything definite? And if the request may have taken
effect all the same, may it be sent again? An *unprotected* request is one that must not simply be repeated:
POST or PATCH to a dependency that deduplicates on no header. For it:

- never sent (no connection, none free in the pool): safe for any method, `transient`;
- refused unprocessed (408, 425, 429, 503): safe for any method, `transient` or `throttled`;
- sent, and then silence or a broken answer (read and write timeouts, lost connection): `ambiguous`;
- 500, 502, 504 and every other 5xx that is `transient` otherwise: somebody failed while working on it, or
  stopped waiting for who does, after it was sent: `ambiguous`.

What `classify` in dependencies.toml says about a status code or an exception name stands above all of this,
also above `ambiguous`: who writes `500 = "transient"` says that it is safe there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from engine.retry_after import RetryHint
from engine.vocabulary import Category

_BY_STATUS: Final[Mapping[int, Category]] = {
    **dict.fromkeys((408, 425, 500, 502, 503, 504), Category.TRANSIENT),
    429: Category.THROTTLED,
    **dict.fromkeys((400, 405, 406, 411, 413, 414, 415, 422, 431, 501), Category.MALFORMED),
    **dict.fromkeys((401, 403, 407), Category.UNAUTHORIZED),
    **dict.fromkeys((404, 410), Category.NOT_FOUND),
    **dict.fromkeys((402, 409, 412, 423), Category.BUSINESS_RULE),
}

_REFUSED_UNPROCESSED: Final = frozenset({408, 425, 429, 503})
"""Answers that say that the request was not worked on."""

_UNSAFE_METHODS: Final = frozenset({"POST", "PATCH"})
"""Methods that are not idempotent by themselves (RFC 9110 section 9.2.2, RFC 5789)."""


class Sent(StrEnum):
    """Whether a failed request can have reached the dependency."""

    NO = "no"
    MAYBE = "maybe"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a failure is.

    Attributes:
        category: See the contract.
        sent: Whether the request can have reached the dependency.
        counted: False when the failure is this side's own: it costs no attempt, nobody else is at fault.
    """

    category: Category
    sent: Sent = Sent.MAYBE
    counted: bool = True


_NEVER_SENT: Final = Verdict(Category.TRANSIENT, Sent.NO)
_LOST: Final = Verdict(Category.TRANSIENT)
_UNSENDABLE: Final = Verdict(Category.MALFORMED, Sent.NO)

_BY_EXCEPTION: Final[Mapping[str, Verdict]] = {
    # No connection was made, so nothing was sent.
    "ConnectError": _NEVER_SENT,
    "ConnectTimeout": _NEVER_SENT,
    "ProxyError": _NEVER_SENT,
    # No connection was free here: our own shortage.
    "PoolTimeout": Verdict(Category.TRANSIENT, Sent.NO, counted=False),
    # Some or all of it was sent, and how it ended is unknown.
    "ReadTimeout": _LOST,
    "ReadError": _LOST,
    "WriteTimeout": _LOST,
    "WriteError": _LOST,
    "CloseError": _LOST,
    "RemoteProtocolError": _LOST,
    "DecodingError": _LOST,
    "TimeoutException": _LOST,
    "NetworkError": _LOST,
    "TransportError": _LOST,
    "TimeoutError": _LOST,
    # The request itself cannot be sent, now or later.
    "UnsupportedProtocol": _UNSENDABLE,
    "LocalProtocolError": _UNSENDABLE,
    "InvalidURL": _UNSENDABLE,
    "TooManyRedirects": Verdict(Category.MALFORMED),
}

_BY_HANDLER: Final[Mapping[str, Verdict]] = {
    "Transient": _LOST,
    "Throttled": Verdict(Category.THROTTLED),
    "Rejected": Verdict(Category.BUSINESS_RULE),
}
"""A handler's own words (contract section 6)."""


def is_unprotected(method: str, idempotency_header: str) -> bool:
    """Tell whether a request must not simply be repeated.

    Args:
        method: In any case.
        idempotency_header: What the dependency deduplicates on; "" means that it does not.
    """
    return method.upper() in _UNSAFE_METHODS and idempotency_header == ""


def classify_status(
    status_code: int,
    *,
    retry_hint: RetryHint | None = None,
    unprotected: bool = False,
    overrides: Mapping[str, Category] | None = None,
) -> Category | None:
    """Classify an answer; None means success.

    Args:
        status_code: Of the answer.
        retry_hint: What `engine.retry_after.parse_retry_after` found in its headers.
        unprotected: See `is_unprotected`.
        overrides: `classify` of the dependency.
    """
    override = (overrides or {}).get(str(status_code))
    if override is not None:
        return override
    if 200 <= status_code < 300:  # noqa: PLR2004  the class of success is known by these numbers
        return None
    if status_code == 503 and retry_hint is not None and retry_hint.is_usable:  # noqa: PLR2004  the contract names the code itself
        return Category.THROTTLED
    category = _BY_STATUS.get(status_code) or _by_class(status_code)
    unknown_effect = category is Category.TRANSIENT and status_code not in _REFUSED_UNPROCESSED
    return Category.AMBIGUOUS if unprotected and unknown_effect else category


def classify_failure(
    exception_names: Iterable[str],
    *,
    unprotected: bool = False,
    overrides: Mapping[str, Category] | None = None,
) -> Verdict:
    """Classify an exception raised instead of an answer.

    Known by name, so that this needs no HTTP library: pass the names of the exception's class and its bases,
    most special first: `[cls.__name__ for cls in type(error).__mro__]`.

    Args:
        exception_names: See above. Anything unknown is `transient` and may have been sent.
        unprotected: See `is_unprotected`.
        overrides: `classify` of the dependency.
    """
    names = list(exception_names)
    known = _first_known(names, _BY_EXCEPTION) or _LOST
    override = _first_known(names, overrides or {})
    if override is not None:
        return Verdict(override, known.sent)
    if unprotected and known.category is Category.TRANSIENT and known.sent is Sent.MAYBE:
        return Verdict(Category.AMBIGUOUS)
    return known


def classify_handler_failure(
    exception_names: Iterable[str], *, overrides: Mapping[str, Category] | None = None
) -> Verdict:
    """Classify an exception that a handler raised: by its own words, and anything else is `transient`.

    What a handler has sent before it failed is not known here, so every attempt of it counts.

    Args:
        exception_names: As for `classify_failure`.
        overrides: `classify` of the dependency.
    """
    names = list(exception_names)
    override = _first_known(names, overrides or {})
    return Verdict(override) if override is not None else _first_known(names, _BY_HANDLER) or _LOST


def _first_known[T](names: Iterable[str], table: Mapping[str, T]) -> T | None:
    """Look up the most special name that a table knows."""
    return next((table[name] for name in names if name in table), None)


def _by_class(status_code: int) -> Category:
    """Any other 5xx is transient; any other answer that is no success is malformed."""
    return Category.TRANSIENT if status_code >= 500 else Category.MALFORMED  # noqa: PLR2004  a class of codes

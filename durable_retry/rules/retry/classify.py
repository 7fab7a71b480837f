"""The category of a failure.

Two questions decide it. What did the dependency say? And if the request may have taken effect, may it be sent
again? A request is *unprotected* when repeating it could do its work twice: POST or PATCH to a dependency
that deduplicates on no header. For an unprotected request:

- not sent (no connection, or none free in the pool): safe for any method, `transient`;
- refused before processing (503, and 4xx but 460 and 499): safe for any method;
- sent, then silence or a success that breaks off (read and write timeouts, a lost connection): `ambiguous`;
- 500, 502, 504 and every other 5xx that is `transient` otherwise: a server failed while it processed the
  request, or a proxy stopped waiting for it: `ambiguous`;
- 460 and 499, by which a proxy says that the one before it went away while the request was on: `ambiguous`.

A 4xx with a usable hint says "not now": 403 and 429 are `throttled`, others `transient`. 409 after an attempt
of the same key whose end is unknown is `transient`: a dependency that deduplicates answers so while the first
request is under way. 421 (the wrong server for this host) is `malformed`: every attempt goes the same way.

Some vendors say in a header whether a retry helps: `true` makes any error `transient`, `false` ends what
would be so. It changes neither `throttled` nor `ambiguous`.

The entries of `classify` in dependencies.toml take precedence over all of this, also over `ambiguous`: an
owner who writes `500 = "transient"` states that a repeat is safe there. See `rules.retry.rules`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from durable_retry.base.names import Category
from durable_retry.rules.retry.retry_after import RetryHint
from durable_retry.rules.retry.rules import NO_RULES, Rules, ruled_name

_BY_STATUS: Final[Mapping[int, Category]] = {
    **dict.fromkeys((408, 425), Category.TRANSIENT),
    429: Category.THROTTLED,
    **dict.fromkeys((401, 403, 407), Category.UNAUTHORIZED),
    **dict.fromkeys((404, 410), Category.NOT_FOUND),
    **dict.fromkeys((402, 409, 412, 423), Category.BUSINESS_RULE),
    501: Category.MALFORMED,
}
"""Answers that are not what `_by_class` says of their class."""

_CALLER_LEFT: Final = frozenset({460, 499})
"""The only 4xx that are no refusals: a proxy (AWS's balancer, nginx) lost the connection to its caller."""

_LOWEST_ERROR: Final = 400
_UNAVAILABLE: Final = 503

_PAUSING: Final = frozenset({403, _UNAVAILABLE})
"""`throttled` where they say for how long; 429 always is."""

_CONFLICT: Final = 409
_UNKNOWN_CALLER: Final = frozenset({401, 407})


class Sent(StrEnum):
    """Whether a failed request can have reached the dependency."""

    NO = "no"
    MAYBE = "maybe"


@dataclass(frozen=True, slots=True)
class Classification:
    category: Category  # what kind of failure it is; decides what follows
    sent: Sent = Sent.MAYBE  # whether the request can have reached the dependency
    counted: bool = True  # False when the failure is this side's own: it costs no attempt


_NEVER_SENT: Final = Classification(Category.TRANSIENT, Sent.NO)
_LOST: Final = Classification(Category.TRANSIENT)
_UNSENDABLE: Final = Classification(Category.MALFORMED, Sent.NO)

_BY_EXCEPTION: Final[Mapping[str, Classification]] = {
    # No connection was made, so nothing was sent.
    "ConnectError": _NEVER_SENT,
    "ConnectTimeout": _NEVER_SENT,
    "ProxyError": _NEVER_SENT,
    # No connection was free here: our own shortage.
    "PoolTimeout": Classification(Category.TRANSIENT, Sent.NO, counted=False),
    # No credential to send: its issuer does not answer, or refuses the app.
    "SignInError": Classification(Category.TRANSIENT, Sent.NO, counted=False),
    "CredentialRefusedError": Classification(Category.UNAUTHORIZED, Sent.NO, counted=False),
    # The request itself cannot be sent, now or later.
    "UnsupportedProtocol": _UNSENDABLE,
    "LocalProtocolError": _UNSENDABLE,
    "InvalidURL": _UNSENDABLE,
    "TooManyRedirects": Classification(Category.MALFORMED),
}
"""Every other exception is `_LOST`: timeouts and broken connections after some or all of it was sent."""

UNAUTHORIZED: Final = Classification(Category.UNAUTHORIZED, counted=False)
"""A refused credential, which is a failure of our side where it is the app's own."""


def classify_status(
    status_code: int,
    *,
    retry_hint: RetryHint | None = None,
    unprotected: bool = False,
    after_unknown: bool = False,
    advice: bool | None = None,
) -> Category | None:
    """Classify an answer of which the dependency's `classify` says nothing; None means success.

    Args:
        after_unknown: Whether an earlier attempt of the same key may have acted, or be under way.
        advice: Whether the dependency says that a retry helps, see `advised_retry`.
    """
    if is_2xx(status_code):
        return None
    category = _BY_STATUS.get(status_code) or _by_class(status_code)
    unclear = category is Category.TRANSIENT or status_code in _CALLER_LEFT
    if unprotected and unclear and not (status_code == _UNAVAILABLE or is_refusal(status_code)):
        return Category.AMBIGUOUS
    later = category
    if retry_hint is not None and retry_hint.is_usable:
        later = _hinted(category, status_code)
    elif after_unknown and status_code == _CONFLICT:
        later = Category.TRANSIENT
    return later if advice is None or status_code < _LOWEST_ERROR else _advised(category, later, advice)


def _advised(category: Category, later: Category, advice: bool) -> Category:  # noqa: FBT001 - it is the word
    """Return the category of an error whose dependency says whether a retry helps; a pause is kept."""
    if later is Category.THROTTLED:
        return later
    if advice:
        return Category.TRANSIENT
    return Category.MALFORMED if category is Category.TRANSIENT else category


def _hinted(category: Category, status_code: int) -> Category:
    if status_code in _PAUSING:
        return Category.THROTTLED
    return Category.TRANSIENT if is_4xx(status_code) and category is not Category.THROTTLED else category


def is_of_credential(category: Category | None, status_code: int, *, is_ruled: bool) -> bool:
    """Whether an answer refuses the credential itself; 403 does that only where `classify` says so."""
    return category is Category.UNAUTHORIZED and (is_ruled or status_code in _UNKNOWN_CALLER)


def is_refusal(status_code: int) -> bool:
    """Whether an answer says that the dependency did nothing; no 5xx does, as proxies send them too."""
    return is_4xx(status_code) and status_code not in _CALLER_LEFT


def is_2xx(status_code: int) -> bool:
    """Whether an answer says that it succeeded."""
    return 200 <= status_code < 300  # noqa: PLR2004  a class of codes


def is_4xx(status_code: int) -> bool:
    """Whether an answer blames the request."""
    return 400 <= status_code < 500  # noqa: PLR2004  a class of codes


def classify_failure(
    exception_names: Iterable[str],
    *,
    unprotected: bool = False,
    rules: Rules = NO_RULES,
) -> Classification:
    """Classify an exception that was raised instead of an answer.

    Exceptions are matched by name, so that the engine needs no HTTP library: pass the names of the
    exception's class and its bases, most specific first, as `base.foreign.names_of` returns them. An
    unknown one is `transient` and may have been sent.
    """
    names = list(exception_names)
    category = _first_known(names, _BY_EXCEPTION) or _LOST
    ruled = ruled_name(names, rules)
    if ruled is not None:
        return Classification(ruled, category.sent)
    if unprotected and category.category is Category.TRANSIENT and category.sent is Sent.MAYBE:
        return Classification(Category.AMBIGUOUS)
    return category


def _first_known[T](names: Iterable[str], table: Mapping[str, T]) -> T | None:
    return next((table[name] for name in names if name in table), None)


def _by_class(status_code: int) -> Category:
    return Category.TRANSIENT if status_code >= 500 else Category.MALFORMED  # noqa: PLR2004  a class of codes

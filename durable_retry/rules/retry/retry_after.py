"""The wait that a dependency asks for, from the headers of its response, and Google's from the body.

They are tried in this order, and the first that can be read counts; of a field that came twice the longest
wait. Where seconds are usual, an epoch time, a date and a duration such as `6m0s` are read, too. Instants
count from the response's own `Date`, since clocks differ:

1. `retry-after-ms`, `x-ms-retry-after-ms`, `x-amz-retry-after`: milliseconds, finer than the standard field;
2. `Retry-After` (RFC 9110 section 10.2.3): seconds, or a date; then `google.rpc.RetryInfo` of the body;
3. `RateLimit` with nothing left (draft-ietf-httpapi-ratelimit-headers): `"p";r=0;t=30`, or without `t` the
   window `w` of the same policy in `RateLimit-Policy`; also the older `limit=10, remaining=0, reset=30`;
4. `RateLimit-Reset`, `X-RateLimit-Reset`, `X-RateLimit-Reset-After` and other vendors' fields, see
   `_LIMITS`, with nothing remaining: the longest. Less than nothing left, or a limit of 0, is no limit.

What cannot be read is ignored, a negative wait counts as 0, and one over a year is cut; each leaves a note.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from email.utils import parsedate_tz
from functools import cached_property
from math import isnan
from typing import Any, Final

from durable_retry.base.json_forms import JsonShape, from_rfc3339
from durable_retry.base.names import Category
from durable_retry.base.text import cut_text, seconds_text

_IN_UTC_OR_BY_OFFSET: Final = re.compile(r"(?:[0-9]|GMT|UTC?|Z)\s*\Z", re.IGNORECASE)


def parse_http_date(text: str) -> datetime | None:
    """Read an HTTP-date (RFC 9110 section 5.6.7), in UTC; None when the text is none.

    A leap second counts as the second before it. Two digits of a year, in the obsolete form of RFC 850, are
    read as in RFC 2822: 69 and later are of the 20th century. A wait is cut to a year anyway.
    """
    parsed = parsedate_tz(text)
    # An unknown zone such as CET is read as none at all, which would move the instant by hours.
    if parsed is None or not _IN_UTC_OR_BY_OFFSET.search(text):
        return None
    year, month, day, hour, minute, second = parsed[:6]
    try:
        zone = timezone(timedelta(seconds=parsed[9] or 0))
        return datetime(year, month, day, hour, minute, min(second, 59), tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


MAX_HINT_SECONDS: Final = 31_536_000.0

_MOST_NOTES: Final = 5
"""An answer may have thousands of values that cannot be read, and its notes travel with the operation."""

_TOO_MANY_REQUESTS: Final = 429
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,400}(\.[0-9]{1,400})?")
_EPOCH_SECONDS: Final = 1_000_000_000.0
_EPOCH_MILLISECONDS: Final = 100_000_000_000.0
_ITEM: Final = re.compile(r'(?:"[^"]*"|[^",])+')
_PARAMETER: Final = re.compile(r"[;,]?\s*([a-z]+)\s*=\s*([+-]?[0-9]{1,15}(?:\.[0-9]{1,15})?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RetryHint(JsonShape):
    """The wait that a dependency or a handler asks for."""

    delay_seconds: float  # counted from the answer; 0 or more
    # The header that it comes from, e.g. `Retry-After`; "" when there are only notes.
    source: str = "Retry-After"
    notes: tuple[str, ...] = ()  # what was cut or ignored, for a person

    @property
    def is_usable(self) -> bool:
        """Whether a wait was asked for at all."""
        return self.source != ""


def hint_from_handler(retry_after_seconds: float) -> RetryHint:
    """Return the hint of a handler's `raise Transient(..., retry_after=3)`."""
    return _hint_in_range("retry_after", retry_after_seconds, [])


def parse_retry_after(
    headers: Mapping[str, str],
    *,
    status_code: int,
    now: datetime,
    ruled: Category | None = None,
    document: Callable[[], Any] = lambda: None,
) -> RetryHint | None:
    """Read the headers of a response, and its body; never raises, whatever they hold.

    A rate-limit field of a response that throttles counts also without a field that says how much remains.

    Args:
        ruled: What the dependency's `classify` says of the response; None where it says nothing.
        document: Returns its body as JSON; None where it is none.

    Returns:
        None when nothing asks for a wait; a hint that is not usable and has notes when none can be read.
    """
    is_throttled = status_code == _TOO_MANY_REQUESTS or ruled is Category.THROTTLED
    reading = _Reading(_plain_headers(headers), now, is_throttled=is_throttled, document=document)
    for source, read in _FIELDS:
        seconds = read(reading)
        if seconds is not None:
            return _hint_in_range(source, seconds, reading.notes)
    resets = [
        (seconds, limit.shown)
        for limit in _LIMITS
        if limit.reset in reading.headers and (seconds := _seconds_until_reset(limit, reading)) is not None
    ]
    if resets:
        seconds, source = max(resets)
        return _hint_in_range(source, seconds, reading.notes)
    return RetryHint(0.0, "", tuple(reading.notes)) if reading.notes else None


_ADVICE: Final = ("stripe-should-retry", "x-should-retry")
"""Headers of Stripe, and of OpenAI and Anthropic."""


def advised_retry(headers: Mapping[str, str]) -> bool | None:
    """Return whether a dependency says that a retry helps; None where it does not say so."""
    words = {value.strip().lower() for name, value in headers.items() if name.lower() in _ADVICE}
    return "true" in words if words & {"true", "false"} else None


def parse_used_up(headers: Mapping[str, str], *, now: datetime) -> RetryHint | None:
    """Return how long nothing is left of the rate limit, by an answer that was no refusal; None otherwise.

    `Retry-After` does not count: beside a success it says when to look again at what was asked for.
    """
    limits = {name: value for name, value in headers.items() if _speaks_of_a_limit(name)}
    hint = parse_retry_after(limits, status_code=0, now=now) if limits else None
    return hint if hint is not None and hint.delay_seconds > 0 else None


def _plain_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value.strip() for name, value in headers.items()}


class _Reading:
    """One response, and notes on what of it cannot be read."""

    def __init__(
        self,
        headers: Mapping[str, str],
        now: datetime,
        *,
        is_throttled: bool = False,
        document: Callable[[], Any] = lambda: None,
    ) -> None:
        self.headers = headers
        self.is_throttled = is_throttled
        self.document = document
        self.notes: list[str] = []
        self._now = now

    @cached_property
    def answered_at(self) -> datetime:
        """When it was answered, by the dependency's clock; by ours where it has no readable `Date`."""
        return parse_http_date(self.headers.get("date", "")) or self._now

    def longest(self, name: str, shown: str, read: Callable[[str], float | None]) -> float | None:
        """Return the longest wait that the values of a field name, and note those that cannot be read."""
        text = self.headers.get(name)
        waits = []
        for value in () if text is None else map(_unquoted, _values_of(_unquoted(text))):
            if (wait := read(value)) is None:
                self.ignore(shown, value)
            else:
                waits.append(wait)
        return max(waits, default=None)

    def seconds(self, name: str, shown: str) -> float | None:
        """Return the wait of a field in which seconds are usual."""
        return self.longest(name, shown, lambda text: _seconds_in(text, self))

    def ignore(self, name: str, text: str) -> None:
        if len(self.notes) == _MOST_NOTES:
            return
        shown = text if text.isprintable() else repr(text)
        self.notes.append(f"{name} ignored: {cut_text(shown, 60)!r} cannot be read")

    def is_used_up(self, remaining: float | None, limit: float | None) -> bool:
        """Whether nothing is left; some write -1 remaining, or a limit of 0, where there is no limit."""
        if remaining is None or remaining < 0 or limit == 0:
            return self.is_throttled
        return remaining < 1


def _seconds_from_ms(name: str) -> Callable[[_Reading], float | None]:
    def read(reading: _Reading) -> float | None:
        value = reading.longest(name, name, _number_in)
        return None if value is None else value / 1000

    return read


def _retry_after(reading: _Reading) -> float | None:
    return reading.seconds("retry-after", "Retry-After")


def _retry_info(reading: _Reading) -> float | None:
    """Return the longest wait of a `google.rpc.RetryInfo` in the body, such as `"retryDelay": "3.5s"`."""
    waits = []
    for text in _retry_delays(reading.document()):
        if (wait := _duration_in(text)) is None:
            reading.ignore("RetryInfo", text)
        else:
            waits.append(wait)
    return max(waits, default=None)


def _retry_delays(document: Any) -> Iterator[str]:
    # Google's streams answer with a list of one error.
    for answer in document if isinstance(document, list) else [document]:
        error = answer.get("error", answer) if isinstance(answer, dict) else None
        details = error.get("details") if isinstance(error, dict) else None
        for detail in details if isinstance(details, list) else ():
            is_hint = isinstance(detail, dict) and str(detail.get("@type")).endswith("/google.rpc.RetryInfo")
            if is_hint and "retryDelay" in detail:
                yield str(detail["retryDelay"])


_WEEKDAY: Final = re.compile(r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*", re.IGNORECASE)
_DURATION: Final = re.compile(
    r"(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m(?!s))?(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)s)?(?:([0-9]{1,9})ms)?"
)
_SECONDS_OF: Final = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)


def _values_of(text: str) -> list[str]:
    """Return the values of a field that came more than once; the comma inside of a date does not split it."""
    values: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        if values and _WEEKDAY.fullmatch(values[-1]):
            values[-1] += f", {part}"
        else:
            values.append(part)
    return values


def _unquoted(text: str) -> str:
    return text[1:-1] if re.fullmatch(r'"[^"]*"', text) else text


def _seconds_in(text: str, reading: _Reading) -> float | None:
    """Return the wait in a value: seconds, an epoch time, a duration or a date; None where it is none."""
    number = _number_in(text)
    if number is not None:
        return _seconds_or_epoch(number, reading)
    duration = _duration_in(text)
    if duration is not None:
        return duration
    try:
        until = parse_http_date(text) or from_rfc3339(text)
    except ValueError:
        return None
    return (until - reading.answered_at).total_seconds()


def _duration_in(text: str) -> float | None:
    duration = _DURATION.fullmatch(text)
    if duration is None or not text:
        return None
    return sum(float(part or 0) * unit for part, unit in zip(duration.groups(), _SECONDS_OF, strict=True))


def _seconds_or_epoch(number: float, reading: _Reading) -> float:
    if number < _EPOCH_SECONDS:
        return number
    epoch_seconds = number / 1000 if number >= _EPOCH_MILLISECONDS else number
    return epoch_seconds - reading.answered_at.timestamp()


def _rate_limit(reading: _Reading) -> float | None:
    """Return the longest wait of the policies with nothing left."""
    text = reading.headers.get("ratelimit")
    if text is None:
        return None
    if not _item_parameters(text):
        reading.ignore("RateLimit", text)
    waits = [wait for item in _policy_items(text) if (wait := _policy_wait(item, reading)) is not None]
    return max(waits, default=None)


def _policy_items(text: str) -> list[str]:
    """Return the policies of a field `RateLimit`; the older form has one, its parameters parted by commas."""
    return [text] if "remaining" in text.lower() else _ITEM.findall(text)


def _policy_wait(item: str, reading: _Reading) -> float | None:
    parameters, policy = _item_parameters(item), _policy_of(item, reading)
    remaining = parameters.get("r", parameters.get("remaining"))
    limit = parameters.get("limit", policy.get("q"))
    if remaining is None or not reading.is_used_up(remaining, limit):
        return None
    return parameters.get("t", parameters.get("reset", policy.get("w")))


def _policy_of(item: str, reading: _Reading) -> dict[str, float]:
    """Return the parameters that `RateLimit-Policy` gives the policy of an item of `RateLimit`."""
    name = item.split(";", 1)[0].strip()
    policies = _ITEM.findall(reading.headers.get("ratelimit-policy", ""))
    same = next((policy for policy in policies if policy.split(";", 1)[0].strip() == name), "")
    return _item_parameters(same)


@dataclass(frozen=True, slots=True)
class _Limit:
    """The fields by which a dependency states one of its limits, in lower case."""

    shown: str  # the field of the reset as it is usually written
    limit: str
    remaining: str
    reset: str

    @classmethod
    def of(cls, shown: str, pattern: str) -> "_Limit":
        """Return a limit from the pattern of its fields, with `{}` for `limit`, `remaining` and `reset`."""
        return cls(shown, *map(pattern.format, ("limit", "remaining", "reset")))


_LIMITS: Final = (
    _Limit.of("RateLimit-Reset", "ratelimit-{}"),
    _Limit.of("X-RateLimit-Reset", "x-ratelimit-{}"),
    _Limit(
        "X-RateLimit-Reset-After", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset-after"
    ),
    _Limit.of("X-Rate-Limit-Reset", "x-rate-limit-{}"),
    _Limit.of("X-RateLimit-Reset-Requests", "x-ratelimit-{}-requests"),
    _Limit.of("X-RateLimit-Reset-Tokens", "x-ratelimit-{}-tokens"),
    _Limit.of("Anthropic-RateLimit-Requests-Reset", "anthropic-ratelimit-requests-{}"),
    _Limit.of("Anthropic-RateLimit-Tokens-Reset", "anthropic-ratelimit-tokens-{}"),
)


def _speaks_of_a_limit(name: str) -> bool:
    return "ratelimit" in name.lower().replace("rate-limit", "ratelimit")


def _seconds_until_reset(limit: _Limit, reading: _Reading) -> float | None:
    remaining = reading.longest(limit.remaining, limit.remaining, _number_in)
    is_used_up = reading.is_used_up(remaining, _stated_limit(limit, reading))
    return reading.seconds(limit.reset, limit.shown) if is_used_up else None


_FIRST_NUMBER: Final = re.compile(r"[0-9]{1,15}")


def _stated_limit(limit: _Limit, reading: _Reading) -> float | None:
    stated = _FIRST_NUMBER.match(reading.headers.get(limit.limit, ""))  # `100, 100;w=60` in an older draft
    return None if stated is None else float(stated[0])


_FIELDS: Final[tuple[tuple[str, Callable[[_Reading], float | None]], ...]] = (
    ("retry-after-ms", _seconds_from_ms("retry-after-ms")),
    ("x-ms-retry-after-ms", _seconds_from_ms("x-ms-retry-after-ms")),
    ("x-amz-retry-after", _seconds_from_ms("x-amz-retry-after")),
    ("Retry-After", _retry_after),
    ("RetryInfo", _retry_info),
    ("RateLimit", _rate_limit),
)


def _number_in(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _item_parameters(item: str) -> dict[str, float]:
    """Return the `name=number` parameters outside a quoted policy name."""
    unquoted = re.sub(r'"[^"]*"', "", item)
    return {name.lower(): float(value) for name, value in _PARAMETER.findall(unquoted)}


def _hint_in_range(source: str, seconds: float, notes: list[str]) -> RetryHint:
    all_notes = list(notes)
    if isnan(seconds):
        return RetryHint(0.0, source, (*all_notes, f"{source} is not a number and counts as 0 s"))
    if seconds < 0:
        all_notes.append(f"{source} lies {seconds_text(-seconds)} in the past and counts as 0 s")
    if seconds > MAX_HINT_SECONDS:
        all_notes.append(f"{source} asks for more than a year and is cut to {seconds_text(MAX_HINT_SECONDS)}")
    return RetryHint(min(max(seconds, 0.0), MAX_HINT_SECONDS), source, tuple(all_notes))

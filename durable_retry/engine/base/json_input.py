"""JSON that callers and handlers gave: read, and checked for what cannot be stored or sent on."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Any, Final, NoReturn

from durable_retry.engine.base.validation import InvalidInputError, Problem, pointer_of

MAX_DEPTH: Final = 48
"""Levels of a document that is taken over: objects and lists inside of one another, itself the first.

The Functions host reads at most 64 levels of a message to an activity, an orchestrator or an entity, and of
what they return: Newtonsoft's default, and measured with host 4.1037. Ours put up to 7 levels around a
document (tests/replay/test_message_depth.py); twice as many are kept for them, two for the host's wrapping.
"""


MOST_DIGITS: Final = 300
"""Digits of an integer that is taken over: Newtonsoft, by which the host reads JSON, takes 380 characters."""

_TOO_LARGE: Final = 10**MOST_DIGITS
_STRIDE: Final = 30
_MANY_DIGITS: Final = re.compile(f"[0-9]{{{MOST_DIGITS // _STRIDE}}}")


class MalformedJsonError(InvalidInputError):
    """A text is not JSON."""


type _Pairs = list[tuple[str, Any]]


def read_json(text: str | bytes, collect: Callable[[_Pairs], Any] | None = None) -> Any:
    """Parse a JSON text (RFC 8259).

    Args:
        collect: Makes an object of its members; None makes a dictionary, with the last of each name.

    Raises:
        MalformedJsonError: It is not JSON, not UTF-8, holds NaN or Infinity, or nests without end. No other
            error leaves this function.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=collect)
    except RecursionError:
        raise MalformedJsonError([Problem("", "nests too deeply")]) from None
    except ValueError as error:
        raise MalformedJsonError([Problem("", f"is not JSON: {error}")]) from None


def read_checked[T](text: str | bytes, check: Callable[[Any], T]) -> T:
    """Parse a JSON text, and return what a check makes of the document.

    An object that has a member twice is a mistake: parsers differ in which one they take (RFC 8259,
    section 4), so what was checked might not be what a dependency reads.

    Raises:
        MalformedJsonError: As `read_json`.
        InvalidInputError: As the check raises it, with every repeated member beside what the check found.
    """
    repeated: list[tuple[dict[str, Any], str]] = []

    def collect(pairs: _Pairs) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            repeated.extend((members, name) for name, count in counts.items() if count > 1)
        return members

    document = read_json(text, collect)
    problems = [
        Problem(pointer_of(*path, name), "stands in its object more than once")
        for path, value in (_walk_values(document) if repeated else ())
        for members, name in repeated
        if value is members
    ]
    try:
        result = check(document)
    except InvalidInputError as error:
        raise type(error)([*error.problems, *problems]) from None
    if problems:
        raise InvalidInputError(problems)
    return result


def json_object(text: str | None) -> dict[str, Any] | None:
    """Parse a JSON object; None for anything else, since anyone may have put it there.

    The SDK's own codec could instantiate classes that the data names.
    """
    try:
        value = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def json_problems(document: Any) -> list[Problem]:
    """List what makes a parsed document unfit to be passed on: depth, half surrogate pairs, numbers."""
    if _is_plainly_fit(document):
        return []
    problems = []
    for path, value in _walk_values(document):
        if len(path) >= MAX_DEPTH and isinstance(value, Mapping | list):
            return [Problem(pointer_of(*path), f"nests deeper than {MAX_DEPTH} levels")]
        if (detail := _value_problem(value)) is not None:
            problems.append(Problem(pointer_of(*path), detail))
    return problems


def _is_plainly_fit(document: Any) -> bool:
    """Whether nothing is wrong with a document; False when only a look at each value can tell.

    Its text shows that in a tenth of the time: what is no JSON cannot be written or encoded, with few
    brackets it is not deep, and a large integer shows in every thirtieth character.
    """
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        return False
    is_flat = text.count("{") + text.count("[") <= MAX_DEPTH
    return is_flat and _MANY_DIGITS.search(text[::_STRIDE]) is None


def size_problem(document: Any, most_bytes: int) -> Problem | None:
    """Return that the shortest text of a JSON document is larger than it may be; None when it is not."""
    is_larger = json_size(document) > most_bytes
    return Problem("", f"is larger than {most_bytes} bytes") if is_larger else None


def json_size(document: Any) -> int:
    """Return how many bytes the shortest text of a JSON document has."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode("utf-8", "surrogatepass"))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _walk_values(document: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Visit every value and every name without recursion; the caller stops at the depth it allows."""
    pending: list[tuple[tuple[str | int, ...], Any]] = [((), document)]
    while pending:
        path, value = pending.pop()
        yield path, value
        if isinstance(value, Mapping):
            pending.extend(((*path, str(name)), item) for name, item in value.items())
            # Names can hold lone surrogates too.
            yield from ((path, name) for name in value)
        elif isinstance(value, list):
            pending.extend(((*path, index), item) for index, item in enumerate(value))


def number_problem(number: float) -> str | None:
    """Return why a number cannot be passed on; None when it can."""
    if isinstance(number, int):
        return f"has more than {MOST_DIGITS} digits" if abs(number) >= _TOO_LARGE else None
    return None if isfinite(number) else "is not a finite number"


def _value_problem(value: Any) -> str | None:
    if isinstance(value, int | float):
        return number_problem(value)
    if isinstance(value, str) and not _has_utf8_form(value):
        return "holds half a surrogate pair, which has no UTF-8 form"
    return None


def _has_utf8_form(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

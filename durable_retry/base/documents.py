"""JSON documents of strangers: the cost of reading one is bounded by its length.

    read_checked(body, check)   for what callers and senders submit: strict, and every mistake is named
    read_answer(text)           for what a dependency answers: tolerant
    json_problems(document)     for what is no text any more: made of values, or patched

The text itself shows whether it can be deep, or hold what cannot be passed on. The parser notes what only it
sees: members that are repeated, and numbers that it rounds. That is enough for most documents. Only a sign of
a mistake leads to a walk through all values, which finds its place. The walk keeps one path and names at most
20 places, however many there are.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from math import inf, isfinite
from typing import Any, Final, NoReturn

from pydantic_core import from_json, to_json

from durable_retry.base.validation import InvalidInputError, Problem, pointer_of, with_more

MAX_DEPTH: Final = 48
"""Levels of a document that is accepted: objects and lists inside of one another, itself the first.

The Functions host reads at most 64 levels of a message to an activity, an orchestrator or an entity, and of
what they return: Newtonsoft's default, and measured with host 4.1037. Ours put up to 7 levels around a
document (tests/replay/test_message_depth.py); twice as many are kept for them, two for the host's wrapping.
"""

MOST_DIGITS: Final = 300
"""Digits of an integer that is accepted: Newtonsoft, by which the host reads JSON, takes 380 characters."""

MOST_NAMED: Final = 20
"""Places of mistakes that are named in a document."""

_TOO_LARGE: Final = 10**MOST_DIGITS
_STRIDE: Final = 30
_MANY_DIGITS: Final = re.compile(f"[0-9]{{{MOST_DIGITS // _STRIDE}}}")
_NO_DIGITS: Final = re.compile(r"[-+._]|[eE].*")
_DIGITS_OF_FLOAT: Final = 15
"""A float of 64 bits holds any number of so many digits that is not smaller than `_LEAST_FLOAT`."""
_LEAST_FLOAT: Final = 2.2250738585072014e-308
_MOST_DIGITS_OF_FLOAT: Final = 767
"""A float of 64 bits has no more, written out."""


_CONTAINERS: Final = (dict, list)


class MalformedJsonError(InvalidInputError):
    """A text is not JSON."""


type _Members = list[tuple[str, Any]]
type Path = tuple[str | int, ...]
type Mistake = tuple[Path, str]


def read_json(text: str | bytes) -> Any:
    """Parse a JSON text (RFC 8259), with the last of each name.

    Raises:
        MalformedJsonError: It is not JSON, not UTF-8, holds NaN or Infinity, or nests without end. No other
            error leaves this function.
    """
    return _parsed(text)


def read_checked[T](
    text: str | bytes, check: Callable[[Any], T], *, levels: int = MAX_DEPTH, has_parts: bool = False
) -> T:
    """Parse a JSON text, and return what a check makes of the document.

    An object that has a member twice is a mistake: parsers differ in which one they take (RFC 8259,
    section 4), so what was checked might not be what a dependency reads. So is a number that JSON would
    replace by another one.

    Args:
        levels: How deep it may nest.
        has_parts: Whether the check looks at each part by `part_problems`, so that one which is unfit to be
            passed on does not make the others so.

    Raises:
        MalformedJsonError: As `read_json`.
        InvalidInputError: It is unfit to be passed on; or as the check raises it, with repeated members
            beside what the check found.
    """
    text = text if isinstance(text, str) else _decoded(text)
    noted, document = _Noted(), _plain_document(text)
    if document is None:
        document = _parsed(text, object_pairs_hook=noted.members, parse_float=noted.number)
    if _may_be_deep(text, levels) and _is_deep(document, levels):
        raise InvalidInputError(_depth_problems(document, levels))
    may_be_unfit = not has_parts and (noted.is_unfit or _may_hold_unfit_values(text))
    if may_be_unfit and (unfit := _value_problems(document)):
        raise InvalidInputError(unfit)
    repeated = noted.repeated_members(document)
    try:
        result = check(document)
    except InvalidInputError as error:
        raise type(error)([*error.problems, *repeated]) from None
    if repeated:
        raise InvalidInputError(repeated)
    return result


def read_answer(text: str) -> Any:
    """Parse what a dependency answers in JSON; of a member that comes twice the last one counts.

    Raises:
        MalformedJsonError: As `read_json`.
        InvalidInputError: It cannot be passed on as JSON.
    """
    document = _parsed(text, parse_float=_finite)
    if (_may_be_deep(text, MAX_DEPTH) or _may_hold_unfit_values(text)) and (unfit := json_problems(document)):
        raise InvalidInputError(unfit)
    return document


def read_toml(text: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Parse a text of TOML, which settings are written in.

    Raises:
        ValueError: It is none, or nests so deeply that no walk by recursion ends.
    """
    try:
        document = tomllib.loads(text, parse_float=parse_float)
    except RecursionError:
        raise ValueError("it nests too deeply") from None
    # Documents of JSON stand in it, below tables.
    if _is_deep(document, 2 * MAX_DEPTH):
        raise ValueError("it nests too deeply")
    return document


def json_object(text: str | None) -> dict[str, Any] | None:
    """Parse a JSON object; None for anything else, since anyone may have put it there.

    The SDK's own codec could instantiate classes that the data names.
    """
    try:
        value = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def changed_json(text: str, change: Callable[[Any], Any]) -> str | None:
    """Return a JSON text whose document is changed; None where it is no JSON of an object, a list or a text.

    A text that the change leaves as it was is returned as it is. Of a member that is repeated the last stays.

    Args:
        change: Must not leave more than `MAX_DEPTH` levels or so: they are written by recursion.
    """
    if not _MAY_BE_JSON.match(text):
        return None
    repeats: list[str] = []

    def collect(pairs: _Members) -> dict[str, Any]:
        members = dict(pairs)
        repeats.extend([pairs[0][0]] if len(members) < len(pairs) else [])
        return members

    try:
        document = json.loads(text, object_pairs_hook=collect, parse_float=_finite_number)
        changed = change(document)
    except (ValueError, RecursionError):
        return None
    if changed == document and not repeats:
        return text
    has_utf8_form = _has_utf8_form(json.dumps(changed, ensure_ascii=False))
    return json.dumps(changed, ensure_ascii=not has_utf8_form)


def _finite_number(text: str) -> float | str:
    number = float(text)
    return number if isfinite(number) else text


_MAY_BE_JSON: Final = re.compile(r'\s*[{\["]')


def _decoded(body: bytes) -> str:
    try:
        # Half a surrogate pair is a mistake with a place.
        return body.decode(json.detect_encoding(body), "surrogatepass")
    except ValueError as error:
        raise _malformed(error) from None


def _plain_document(text: str) -> Any:
    """Return a text's document, if writing the document gives the same text; None otherwise.

    This takes half the time of `_parsed`. A repeated member, or a number that no float holds, is written in
    another way. White space and zeros are ignored: some write more zeros, and rounding changes other digits.
    """
    try:
        body = text.encode()
        document = from_json(body, allow_inf_nan=False)
        written = to_json(document, ensure_ascii=text.isascii())
    except ValueError:
        return None
    return document if written.translate(None, _IDLE) == body.translate(None, _IDLE) else None


_IDLE: Final = b" \t\r\n0"


def _parsed(text: str | bytes, **hooks: Any) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant, **hooks)
    except RecursionError:
        raise MalformedJsonError([Problem("", "nests too deeply")]) from None
    except ValueError as error:
        raise _malformed(error) from None


def _malformed(error: ValueError) -> MalformedJsonError:
    return MalformedJsonError([Problem("", f"is not JSON: {error}")])


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text:.80} is not a finite number")
    return number


class _Repeating(dict[str, Any]):
    """An object with repeated members: how often each of them came, by name."""

    __slots__ = ("counts",)
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Rounded:
    """A number with a fraction or an exponent that a float does not hold; no JSON is written of it."""

    text: str


class _Noted:
    """What only the parser sees."""

    def __init__(self) -> None:
        self.is_unfit = False
        self._named = 0
        self._left_out = 0

    def members(self, pairs: _Members) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) == len(pairs):
            return members
        self._left_out += len(pairs) - len(members)
        return self._marked(members, pairs) if self._named < MOST_NAMED else members

    def _marked(self, members: dict[str, Any], pairs: _Members) -> _Repeating:
        counts = ((name, count) for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        marked = _Repeating(members)
        marked.counts = dict(islice(counts, MOST_NAMED - self._named))
        self._named += len(marked.counts)
        self._left_out -= sum(marked.counts.values()) - len(marked.counts)
        return marked

    def repeated_members(self, document: Any) -> list[Problem]:
        if self._named == 0:
            return []
        marked = (
            Problem(pointer_of(*path, name), f"stands in its object {count} times")
            for path, value in walked(document)
            if isinstance(value, _Repeating)
            for name, count in value.counts.items()
        )
        return with_more(list(islice(marked, self._named)), self._left_out)

    def number(self, text: str) -> float | Rounded:
        number = float(text)
        if len(text) <= _DIGITS_OF_FLOAT and _LEAST_FLOAT <= abs(number) < inf:
            return number
        parsed: float | Rounded = parsed_float(text)
        self.is_unfit = self.is_unfit or isinstance(parsed, Rounded)
        return parsed


def parsed_float(text: str) -> Any:
    """Read a number with a fraction or an exponent; `json_problems` lists one that no float holds."""
    number = float(text)
    return number if not text.strip("-.0") or _holds_digits(number, text) else Rounded(text)


def _holds_digits(number: float, text: str) -> bool:
    """Whether a float is the number of a text, to as many digits as the text has.

    Many programs write a float with 17 digits, 0.10000000000000001: the float itself has these digits.
    """
    digits = _NO_DIGITS.sub("", text).strip("0")
    if not digits:
        return True
    if not isfinite(number) or len(digits) > _MOST_DIGITS_OF_FLOAT:
        return False
    return Decimal(f"{number:.{len(digits) - 1}e}") == Decimal(text)


def _may_hold_unfit_values(text: str) -> bool:
    may_hold_half_pairs = "\\" in text and ("\\ud" in text or "\\uD" in text)
    return may_hold_half_pairs or not _has_utf8_form(text) or _may_hold_many_digits(text)


def _may_hold_many_digits(text: str) -> bool:
    # A large integer shows in every thirtieth character.
    return _MANY_DIGITS.search(text[::_STRIDE]) is not None


def _may_be_deep(text: str, levels: int) -> bool:
    """Whether a text nests deeper, or is no JSON; False is sure.

    It removes the innermost pairs of brackets, level by level: a fifth of the time of parsing.
    """
    if text.count("{") + text.count("[") <= levels:
        return False
    brackets = _brackets_of(text.encode("utf-8", "surrogatepass"))
    for _ in range(levels):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return False
    return True


_AS_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_BESIDE_BRACKETS: Final = bytes(set(range(256)) - set(b'[]{}"'))


def _brackets_of(text: bytes) -> bytes:
    """Return the brackets of a JSON text that stand outside of its strings, all of them as square ones."""
    if b"\\" in text:
        text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    # Most strings hold no bracket: their two quotes are now side by side, and can go.
    marked = text.translate(_AS_SQUARE, _BESIDE_BRACKETS).replace(b'""', b"")
    return b"".join(marked.split(b'"')[::2])


def json_problems(document: Any, levels: int = MAX_DEPTH) -> list[Problem]:
    """List what makes a document unfit to be passed on: depth, half surrogate pairs, numbers."""
    if _is_deep(document, levels):
        return _depth_problems(document, levels)
    return _value_problems(document)


def _value_problems(document: Any) -> list[Problem]:
    return [] if _is_plainly_fit(document) else named_problems(_unfit_values(document))


def _depth_problems(document: Any, levels: int) -> list[Problem]:
    place = next(
        tuple(path)
        for path, value in walked(document)
        if len(path) >= levels and isinstance(value, _CONTAINERS)
    )
    return [Problem(pointer_of(*place), f"nests deeper than {levels} levels")]


def _is_deep(document: Any, levels: int) -> bool:
    level = [document] if isinstance(document, _CONTAINERS) else []
    for _ in range(levels):
        values = (value.values() if isinstance(value, dict) else value for value in level)
        level = [inner for inside in values for inner in inside if isinstance(inner, _CONTAINERS)]
        if not level:
            return False
    return True


def _is_plainly_fit(document: Any) -> bool:
    """Whether nothing is wrong with the values of a document; False when each must be checked to tell.

    Writing it as text shows that in a tenth of the time: what is no JSON cannot be written or encoded.
    """
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return not _may_hold_many_digits(text)


def _unfit_values(document: Any) -> Iterator[Mistake]:
    for path, value in walked(document):
        names = value if isinstance(value, Mapping) else ()  # they can hold half a pair, too
        for part in (value, *names):
            if (detail := _value_problem(part)) is not None:
                yield tuple(path), detail


def named_problems(mistakes: Iterator[Mistake]) -> list[Problem]:
    """Return the first mistakes with their places, and how many there are beside them."""
    named = [Problem(pointer_of(*path), detail) for path, detail in islice(mistakes, MOST_NAMED)]
    return with_more(named, sum(1 for _ in mistakes))


def walked(document: Any) -> Iterator[tuple[list[str | int], Any]]:
    """Visit every value, with its path; this is one list, which changes on the way.

    No recursion, and no memory but for the values above the present one.
    """
    path: list[str | int] = []
    pending = [_members_of(document)]
    yield path, document
    while pending:
        for name, value in pending[-1]:
            path.append(name)
            yield path, value
            if isinstance(value, Mapping | list):
                pending.append(_members_of(value))
                break
            path.pop()
        else:
            pending.pop()
            del path[-1:]  # of the document itself there is none


def _members_of(value: Any) -> Iterator[tuple[str | int, Any]]:
    members: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        members = ((str(name), member) for name, member in value.items())
    elif isinstance(value, list):
        members = enumerate(value)
    return iter(members)


def is_longer_than(document: Any, most_bytes: int) -> bool:
    """Whether the text of a document has more than about so many bytes; stops once it has."""
    bytes_left, pending = most_bytes - _SHORT, [document]
    while pending and bytes_left >= 0:
        value = pending.pop()
        if isinstance(value, str):
            bytes_left -= len(value)
        elif isinstance(value, dict):
            bytes_left -= sum(map(len, value)) + _SHORT * len(value)
            pending += value.values()
        elif isinstance(value, list):
            bytes_left -= _SHORT * len(value)
            pending += value
    return bytes_left < 0


_SHORT: Final = 4
"""Bytes of a number, and of the signs around a text, a name or an item."""


def number_problem(number: float) -> str | None:
    """Return why a number cannot be passed on; None when it can."""
    if isinstance(number, int):
        return f"has more than {MOST_DIGITS} digits" if abs(number) >= _TOO_LARGE else None
    return None if isfinite(number) else "is not a finite number"


def _value_problem(value: Any) -> str | None:
    if isinstance(value, int | float):
        return number_problem(value)
    if isinstance(value, Rounded):
        rounded = float(value.text)
        if (problem := number_problem(rounded)) is not None:
            return problem
        return f"has more digits than a fraction keeps, and would be {rounded!r}: send it as a text"
    if isinstance(value, str) and not _has_utf8_form(value):
        return "holds half a surrogate pair, which has no UTF-8 form"
    return None


def _has_utf8_form(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def part_problems(document: Any, most_bytes: int) -> list[Problem]:
    """List what makes a part unfit as a document by itself: its size, or what `json_problems` lists."""
    text = _shortest_text(document)
    if _size_of(text) > most_bytes:
        return [_too_large(most_bytes)]
    may_be_unfit = _may_be_deep(text, MAX_DEPTH) or _may_hold_unfit_values(text)
    return json_problems(document) if may_be_unfit or _NOT_PLAIN.search(text) else []


def size_problem(document: Any, most_bytes: int) -> Problem | None:
    """Return that the shortest text of a JSON document is larger than it may be; None when it is not."""
    return _too_large(most_bytes) if json_size(document) > most_bytes else None


def _too_large(most_bytes: int) -> Problem:
    return Problem("", f"is larger than {most_bytes} bytes")


def json_size(document: Any) -> int:
    """Return how many bytes the shortest text of a JSON document has."""
    return _size_of(_shortest_text(document))


def _shortest_text(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=written_digits)


_NOT_PLAIN: Final = re.compile("Infinity|rounded ")
"""Signs of numbers that no JSON can be written of."""


def written_digits(value: Any) -> Any:
    """Return what stands for a value that is no JSON; the `default` of `json.dumps`."""
    return f"rounded {value.text}" if isinstance(value, Rounded) else dict(value)


def _size_of(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))

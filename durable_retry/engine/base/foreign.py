"""What comes from outside: JSON texts of callers, and objects of code that is not ours.

A text is read, and checked for what cannot be stored or sent on. What an object shows of itself is code of
its author: a text, an attribute, even its class. No look raises.

The JSON of a value says exactly what it is. What would change silently on its way to JSON, or has no value
yet, is refused at its place:

    a generator, an iterator, an awaitable     its body would run while the JSON is made
    a key of an object that is no text         JSON would make text of it, and one of two equal texts would go
    bytes, a set                               JSON has none; the order of a set is another one each time
    NaN, Infinity                              pydantic would write null
    an integer of more than 300 digits         the host could not read it

Models and dataclasses say themselves what keys, bytes and sets of theirs are as JSON.
"""

import json
import re
from collections import Counter
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any, Final, NoReturn

from pydantic import BaseModel, TypeAdapter

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


def changed_json(text: str, change: Callable[[Any], Any]) -> str | None:
    """Return a JSON text whose document is changed; None where it is no JSON of an object, a list or a text.

    A text that the change leaves as it was is returned as it is. Of a member that is repeated the last stays.

    Args:
        change: Must not leave more than `MAX_DEPTH` levels or so: they are written by recursion.
    """
    if not _MAY_BE_JSON.match(text):
        return None
    repeats: list[str] = []

    def collect(pairs: _Pairs) -> dict[str, Any]:
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


_TEXT_CHARS: Final = 10_000
"""More than is shown of any error; a text may be as large as the memory."""


def look[T](read: Callable[[], T], otherwise: T) -> T:
    """Return what a look gives, and `otherwise` where the look itself raises, whatever that is.

    Args:
        read: Must not await: a cancellation would be swallowed.
    """
    try:
        return read()
    except BaseException:  # noqa: BLE001 - see above: a property may call sys.exit
        return otherwise


def text_of(error: BaseException) -> str:
    """Return the beginning of an error's text."""
    return look(lambda: plain_text(error), "(its text cannot be read)")


def name_of(error: BaseException) -> str:
    """Return the name of an error's class."""
    return look(lambda: plain_text(type(error).__name__), "Exception")


def plain_text(value: object) -> str:
    """Return the beginning of an object's text as UTF-8 can carry it: half a surrogate pair is escaped."""
    # By the methods of `str`: a subclass may have others.
    beginning = str.__getitem__(str(value), slice(_TEXT_CHARS))
    return str.encode(beginning, "utf-8", "backslashreplace").decode()


_ANYTHING: Final[TypeAdapter[Any]] = TypeAdapter(Any)
_LAZY: Final = (Iterator, Awaitable, AsyncIterable)
_WITHOUT_FORM: Final = (set, frozenset, bytes, bytearray, memoryview)
_PLAIN: Final = (str, bool, type(None))


def plain_json(value: Any, pointer: str = "") -> Any:
    """Return a value as plain JSON, also of models; problems point below `pointer`.

    Raises:
        InvalidInputError: It has no JSON form that says exactly what it is, or none that can be sent.
    """
    document, changes = json_form(value, pointer)
    if changes:
        raise InvalidInputError(changes)
    return document


def json_form(value: Any, pointer: str) -> tuple[Any, list[Problem]]:
    """Return a value as JSON, and what is another thing there, unless a type says how to read it back.

    Raises:
        InvalidInputError: It has no JSON form, or none that can be sent.
    """
    changes: list[Problem] = []
    document = look(lambda: _exact_copy(value), None)
    if document is None and value is not None:
        try:
            refused, changes = _problems_in(value)
            document = None if refused else _ANYTHING.dump_python(value, mode="json")
        except BaseException as error:  # noqa: BLE001 - a serializer is code of the app, and raises anything
            refused = [Problem("", f"has no JSON form: {text_of(error)}")]
        if refused:
            raise InvalidInputError(_below(pointer, refused))
    if problems := json_problems(document):
        raise InvalidInputError(_below(pointer, problems))
    return document, _below(pointer, changes)


def _below(pointer: str, problems: list[Problem]) -> list[Problem]:
    return [Problem(pointer + problem.pointer, problem.detail) for problem in problems]


def _exact_copy(value: Any) -> Any:
    """Return a copy of what is plain JSON; None when only a look at each value can tell."""
    copy = json.loads(json.dumps(value, allow_nan=False))
    return copy if copy == value else None


def _problems_in(value: Any) -> tuple[list[Problem], list[Problem]]:
    """Return what can never be JSON, and what is another thing as JSON."""
    refused: list[Problem] = []
    changes: list[Problem] = []
    pending: list[tuple[tuple[str | int, ...], Any, bool]] = [((), value, False)]
    seen: set[int] = set()
    while pending:
        path, current, is_described = pending.pop()
        kind, place = type(current), pointer_of(*path)
        if issubclass(kind, _PLAIN) or id(current) in seen:
            continue
        seen.add(id(current))
        if issubclass(kind, Mapping):
            changes += [] if is_described else _keys_changed(current, path)
            pending += [((*path, str(name)), item, is_described) for name, item in current.items()]
        elif issubclass(kind, BaseModel) or is_dataclass(kind):
            pending += [((*path, name), getattr(current, name), True) for name in _fields_of(kind)]
        elif issubclass(kind, list | tuple):
            pending += [((*path, index), item, is_described) for index, item in enumerate(current)]
        elif (detail := _refusal_of(current, is_described=is_described)) is not None:
            refused.append(Problem(place, detail))
        elif issubclass(kind, _WITHOUT_FORM) and not is_described:
            changes.append(Problem(place, f"is of type {kind.__name__}, which JSON does not have"))
    return refused, changes


def _keys_changed(mapping: Mapping[Any, Any], path: tuple[str | int, ...]) -> list[Problem]:
    return [
        Problem(pointer_of(*path, str(name)), f"has a key of type {type(name).__name__}: JSON has texts only")
        for name in mapping
        if not issubclass(type(name), str)
    ]


def _fields_of(kind: Any) -> list[str]:
    if issubclass(kind, BaseModel):
        return [name for name, field in kind.model_fields.items() if not field.exclude]
    return [field.name for field in fields(kind)]


def _refusal_of(value: Any, *, is_described: bool) -> str | None:
    kind = type(value)
    if issubclass(kind, _LAZY):
        return f"is of type {kind.__name__}, which has no value yet: give a list, or the value itself"
    if issubclass(kind, int | float):
        return number_problem(value)
    if is_described or issubclass(kind, _WITHOUT_FORM):
        return None
    try:
        _ANYTHING.dump_python(value, mode="json")
    except BaseException as error:  # noqa: BLE001 - as above
        return f"has no JSON form: {text_of(error)}"
    return None

"""Objects of code that is not ours.

To read a text, an attribute or even the class of such an object runs its author's code: see `look`.

The JSON of a value must say exactly what the value is. A part that JSON would change silently, or that has no
value yet, is refused at its place:

    a generator, an iterator, an awaitable     its body would run while the JSON is made
    a key of an object that is no text         JSON would make text of it, and one of two equal texts would go
    bytes, a set                               JSON has none; the order of a set is another one each time
    NaN, Infinity                              pydantic would write null
    an integer of more than 300 digits         the host could not read it

Models and dataclasses say themselves what keys, bytes and sets of theirs are as JSON.
"""

import json
import re
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter

from durable_retry.base.documents import json_problems, number_problem
from durable_retry.base.validation import InvalidInputError, Problem, pointer_of

_TEXT_CHARS: Final = 10_000
"""More than is shown of any error; a text may be as large as the memory."""


def look[T](read: Callable[[], T], otherwise: T) -> T:
    """Return what `read` returns, or `otherwise` when it raises anything.

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


def names_of(error: BaseException) -> list[str]:
    """Return the names by which an exception is classified, the most special first.

    Each class has three: `redis.exceptions.ConnectionError`, `redis.ConnectionError`, `ConnectionError`.
    Those with a code that the exception carries come before all: ClientError.SlowDown.
    """
    classes = [name for cls in type(error).__mro__ for name in _names_of_class(cls)]
    coded = [f"{name}.{code}" for code in _codes_of(error) for name in classes]
    return list(dict.fromkeys([*coded, *classes]))


def qualified_name(cls: type) -> str:
    """Return the name of a class in full: `redis.exceptions.ConnectionError`."""
    module, name = look(lambda: str(cls.__module__), ""), look(lambda: str(cls.__name__), "")
    return f"{module}.{name}"


def _names_of_class(cls: type) -> tuple[str, ...]:
    full = qualified_name(cls)
    name = full.rpartition(".")[2]
    return full, f"{full.partition('.')[0]}.{name}", name


_CODE: Final = re.compile(r"[\w:.\-]{1,64}")
_HOLD_CODES: Final = ("grpc_status_code", "code", "error_code", "status_code", "error")


def _codes_of(error: Any) -> list[str]:
    values = [
        look(lambda: error.response["Error"]["Code"], None),
        *(look(partial(getattr, error, name), None) for name in _HOLD_CODES),
        *look(lambda: list(error._error_labels), []),  # noqa: SLF001 - pymongo has no list of them elsewhere
        # A reply of Redis begins with its code.
        next((word for word in text_of(error).split(" ")[:1] if word.isupper()), None),
    ]
    codes = (look(partial(_code_text, code), "") for code in values)
    return list(dict.fromkeys(code for code in codes if _CODE.fullmatch(code)))


def _code_text(code: Any) -> str:
    if callable(code):  # of grpc
        code = code()
    if issubclass(type(code), str):
        return plain_text(str.__str__(code))
    return str(int(code)) if issubclass(type(code), int) else plain_text(code.name)


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
    """Return a value as JSON, and the parts that JSON changes, unless a type says how to read them back.

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
            raise InvalidInputError(problem.below(pointer) for problem in refused)
    if problems := json_problems(document):
        raise InvalidInputError(problem.below(pointer) for problem in problems)
    return document, [problem.below(pointer) for problem in changes]


def _exact_copy(value: Any) -> Any:
    """Return a copy of what is plain JSON; None when each value must be checked to tell."""
    copy = json.loads(json.dumps(value, allow_nan=False))
    return copy if copy == value else None


def _problems_in(value: Any) -> tuple[list[Problem], list[Problem]]:
    """Return what can never be JSON, and what JSON changes."""
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
        return f"is of type {kind.__name__}, which has no value yet: await it, or give a list"
    if issubclass(kind, int | float):
        return number_problem(value)
    if is_described or issubclass(kind, _WITHOUT_FORM):
        return None
    try:
        _ANYTHING.dump_python(value, mode="json")
    except BaseException as error:  # noqa: BLE001 - as above
        return f"has no JSON form: {text_of(error)}"
    return None

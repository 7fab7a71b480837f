"""JSON that strangers sent: parsing it, and checking what can be passed on."""

import json
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any, Final, NoReturn

from durable_retry.engine.base.validation import InvalidInputError, Problem, pointer_of

MAX_DEPTH: Final = 64
"""Deeper documents are refused: later code walks them recursively."""


def read_json(text: str | bytes) -> Any:
    """Parse a JSON text (RFC 8259).

    Raises:
        InvalidInputError: It is not JSON, not UTF-8, holds NaN or Infinity, or nests without end. No other
            error leaves this function.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise InvalidInputError([Problem("", "nests too deeply")]) from None
    except ValueError as error:
        raise InvalidInputError([Problem("", f"is not JSON: {error}")]) from None


def json_problems(document: Any) -> list[Problem]:
    """List what makes a parsed document unfit to be passed on: depth, lone surrogates, NaN, Infinity."""
    found = []
    for depth, path, value in _walk(document):
        if depth > MAX_DEPTH:
            return [Problem("", f"nests deeper than {MAX_DEPTH} levels")]
        if (detail := _value_problem(value)) is not None:
            found.append(Problem(pointer_of(*path), detail))
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _walk(document: Any) -> Iterator[tuple[int, tuple[str | int, ...], Any]]:
    """Visit every value and every name without recursion; the caller stops at the depth it allows."""
    pending: list[tuple[tuple[str | int, ...], Any]] = [((), document)]
    while pending:
        path, value = pending.pop()
        yield len(path), path, value
        if isinstance(value, Mapping):
            pending.extend(((*path, str(name)), item) for name, item in value.items())
            # Names can hold lone surrogates too.
            yield from ((len(path), path, name) for name in value)
        elif isinstance(value, list):
            pending.extend(((*path, index), item) for index, item in enumerate(value))


def _value_problem(value: Any) -> str | None:
    if isinstance(value, float) and not isfinite(value):
        return "is not a finite number"
    if isinstance(value, str) and not _has_utf8_form(value):
        return "holds half a surrogate pair, which has no UTF-8 form"
    return None


def _has_utf8_form(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

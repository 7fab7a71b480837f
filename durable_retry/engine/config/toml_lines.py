"""Where the keys of a TOML document are written: `tomllib` keeps no lines."""

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from durable_retry.engine.base.validation import pointer_of, pointer_parts


def line_of(text: str, pointer: str) -> int:
    """Return the line, from 1, of what a pointer points at, or of the nearest table around it.

    Args:
        text: Valid TOML; of any other the first line is returned.
        pointer: A JSON pointer.
    """
    lines = _lines_by_pointer(text)
    parts = pointer_parts(pointer)
    around = (pointer_of(*parts[:length]) for length in range(len(parts), 0, -1))
    return next((lines[each] for each in around if each in lines), 1)


def _lines_by_pointer(text: str) -> dict[str, int]:
    lines: dict[str, int] = {}
    table: tuple[str, ...] = ()
    for number, statement in _statements(text):
        document = tomllib.loads(statement)
        if statement.lstrip().startswith("["):
            table = max(_paths(document), key=len, default=())
            document = {}
            lines.setdefault(pointer_of(*table), number)
        for path in _paths(document):
            lines.setdefault(pointer_of(*table, *path), number)
    return lines


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield each header and each assignment with its line; a statement ends where it parses by itself."""
    lines = text.splitlines()
    begins = 0
    for number in range(1, len(lines) + 1):
        statement = "\n".join(lines[begins:number])
        try:
            tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        yield begins + 1, statement
        begins = number


def _paths(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each key inside a value, outer ones first."""
    members = value.items() if isinstance(value, Mapping) else ()
    for name, inner in members:
        yield (*path, name)
        yield from _paths(inner, (*path, name))

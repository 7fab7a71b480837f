"""What rows hold: texts of any length, and what cannot be read."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from durable_retry.base.answers import CAUSES, reason_of
from durable_retry.storage.tables import KEYS, Row

_CHUNK_CHARS: Final = 15_000
"""A string property holds 64 KiB of UTF-16, that is 32,768 code units; some characters take two."""

_log = logging.getLogger(__name__)


def readable[T](table: str, rows: Iterable[Row], read: Callable[[Row], T]) -> list[T]:
    """Return what is read from rows, without those that cannot be read: the log names them.

    For rows of which nothing else can be shown, such as sums.
    """
    values: list[T] = []
    for row in rows:
        try:
            values.append(read(row))
        except CAUSES as error:
            keys = [row.get(name) for name in KEYS]
            _log.warning("a row of %s cannot be read: %s: %s", table, keys, reason_of(error))
    return values


def packed(name: str, text: str) -> Row:
    """Split a text into properties that each fit the size limit: `name_0`, `name_1`, ..."""
    chunks = range(0, max(len(text), 1), _CHUNK_CHARS)
    return {f"{name}_{number}": text[at : at + _CHUNK_CHARS] for number, at in enumerate(chunks)}


def unpacked(name: str, row: Mapping[str, Any]) -> str:
    """Join the text that `packed` split."""
    parts: list[str] = []
    while (part := row.get(f"{name}_{len(parts)}")) is not None:
        parts.append(part)
    return "".join(parts)

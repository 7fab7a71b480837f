"""Markdown tables that are made from the code and committed: each stands behind a marker.

<!-- table -->

| name | what it is |
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

MARKER: Final = "<!-- table -->\n"

MADE: Final = re.compile(rf"{MARKER}(?:\n(?:\|.*\n)+)?")
"""A marker, and the table behind it."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Give a Markdown table; cells hold no line breaks."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


def with_tables(text: str, tables: Iterable[str]) -> str:
    """Return a text with a table behind each marker, in place of what was there.

    Raises:
        ValueError: There are not as many markers as tables.
    """
    before, *parts = MADE.split(text)
    return before + "".join(f"{MARKER}\n{made}\n{part}" for made, part in zip(tables, parts, strict=True))

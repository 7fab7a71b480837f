"""How text is laid out for whoever reads it: columns that fit the terminal, colours, and the zone of times.

`main` sets the layout once per run; without one, text has no colours and any width, as a pipe wants it.
"""

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Self, TextIO

_CELL_WIDTH: Final = 72
"""Most columns of a cell; longer ones are cut, and `--json` shows them whole."""
_LEAST_WIDTH: Final = 8
"""A column of free text is cut to no less, so that one can tell its cells apart."""
_LINES: Final = 24
"""Taken for a terminal that does not say how many it has."""
_GAP: Final = "  "
_SIGNS: Final = re.compile(r"\x1b\[\d*m")
_ID: Final = re.compile(r"[a-z]+-[0-9a-z]{16,}(-\d+)?|\d{4}-\d\d-\d\dT\S+")
"""Ids and instants are for copying, so they are not cut."""
_INSTANTS: Final = frozenset({"at", "until", "pending_since", "throttled_until"})

_RED, _GREEN, _YELLOW, _DIM, _BOLD = "31", "32", "33", "2", "1"
_COLOURS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("dead_lettered", "failed", "failed_again", "open", "forced_open", "firing", "FAILED", "refused"),
        _RED,
    ),
    **dict.fromkeys(("compensation_failed", "new", "unhealthy", "blocked"), _RED),
    **dict.fromkeys(("succeeded", "closed", "sent", "completed", "works", "ok", "resolved", "done"), _GREEN),
    **dict.fromkeys(("waiting_retry", "waiting_circuit", "waiting_order", "half_open", "paused"), _YELLOW),
    **dict.fromkeys(("pending", "compensating", "compensated", "acknowledged"), _YELLOW),
    **dict.fromkeys(("cancelled", "archived", "disabled", "silenced", "stopped", "skipped"), _DIM),
}
"""Colour of a state's word; the others have none."""


def _unlimited() -> tuple[int, int] | None:
    return None


@dataclass(frozen=True, slots=True)
class Layout:
    """What the reader's side can show.

    Attributes:
        size: Returns the columns and lines of the terminal, which may change; None where nothing limits.
        has_colours: Whether words may be coloured.
        is_utc: Whether instants are shown in UTC rather than in the machine's zone.
    """

    size: Callable[[], tuple[int, int] | None] = _unlimited
    has_colours: bool = False
    is_utc: bool = False

    @classmethod
    def of(cls, out: TextIO, *, colours: bool = True, columns: str = "", is_utc: bool = False) -> Self:
        """Return the layout for an output: colours and a width only on a terminal.

        Args:
            out: The output.
            colours: Whether they are wanted.
            columns: The width in place of the terminal's own; "" for none.
            is_utc: See the class.
        """
        if not out.isatty():
            return cls(is_utc=is_utc)
        return cls(partial(_terminal_size, out, columns), colours, is_utc)

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None when nothing limits a line."""
        return None if (size := self.size()) is None else size[0]


def _terminal_size(out: TextIO, columns: str) -> tuple[int, int] | None:
    try:
        width, height = os.get_terminal_size(out.fileno())
    except OSError:  # such as a terminal of a test, which has no file
        width, height = 0, _LINES
    width = int(columns) if columns.isdecimal() else width
    return (width, height) if width else None


_PLAIN: Final = Layout()
CURRENT: Final[ContextVar[Layout]] = ContextVar("layout", default=_PLAIN)


class Painted(str):
    """Text with colours of its own, which a cell keeps.

    Attributes:
        plain: The same without colours.
    """

    __slots__ = ("plain",)
    plain: str

    def __new__(cls, plain: str, colour: str | None) -> Self:
        """Paint the text; None, or a layout without colours, leaves it as it is."""
        has_colour = colour is not None and CURRENT.get().has_colours
        painted = super().__new__(cls, f"\x1b[{colour}m{plain}\x1b[0m" if has_colour else plain)
        painted.plain = plain
        return painted


def state(word: str, more: str = "") -> Painted:
    """Return a state in its colour, and what is to be said with it."""
    return Painted(word + more, _COLOURS.get(word))


def bold(text: str) -> Painted:
    """Return text that stands out."""
    return Painted(text, _BOLD)


def instant(text: str | None) -> str | None:
    """Return an instant of the API, to the second, in the zone that the reader chose; None stays None."""
    if text is None:
        return None
    at = datetime.fromisoformat(text).astimezone(UTC if CURRENT.get().is_utc else None)
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def cells(document: Mapping[str, Any], *names: str) -> list[Any]:
    """Return fields of a document as cells: states in their colours, instants in the chosen zone."""
    return [_cell_of(name, document.get(name)) for name in names]


def _cell_of(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in {"status", "state", "outcome"}:
        return state(value)
    return instant(value) if name in _INSTANTS or name.endswith("_at") else value


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "(none)") -> str:
    """Lay rows out in columns; where a terminal is too narrow, cut cells, or give each row its own lines.

    Args:
        headers: One for each column.
        rows: Cells of any type; None shows as `-`.
        empty: Text in place of a table without rows.
    """
    lines = [[cell(value) for value in row] for row in rows]
    if not lines:
        return empty
    heads = [bold(header) for header in headers]
    columns = [[head, *cells] for head, cells in zip(heads, zip(*lines, strict=True), strict=True)]
    widths = _fitted([_most(cells) for cells in columns], [_least(cells) for cells in columns])
    if widths is None:
        names = [header.lower() for header in headers]
        return "\n\n".join(facts(zip(names, line, strict=True)) for line in lines)
    return "\n".join(_GAP.join(map(_padded, line, widths)).rstrip(" ") for line in zip(*columns, strict=True))


def _most(cells: Iterable[str]) -> int:
    return max(map(columns_of, cells))


def _least(cells: Sequence[str]) -> int:
    """Return the width below which a column would lose a header, a state, an id or an instant."""
    kept = (each for each in cells if isinstance(each, Painted) or _ID.fullmatch(each))
    return max(min(_most(cells), _LEAST_WIDTH), *map(columns_of, kept))


def _fitted(widths: list[int], least: Sequence[int]) -> list[int] | None:
    """Take from the widest columns what does not fit; None when the least does not fit either."""
    width = CURRENT.get().width
    if width is None:
        return widths
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    while excess > 0:
        room, widest = max(
            (have - need and have, place)
            for place, (have, need) in enumerate(zip(widths, least, strict=True))
        )
        if not room:
            return None
        widths[widest] -= 1
        excess -= 1
    return widths


def _padded(text: str, width: int) -> str:
    fitting = text if columns_of(text) <= width else cut(text, width)
    return fitting + " " * (width - columns_of(fitting))


def facts(pairs: Iterable[tuple[str, Any]]) -> str:
    """Lay out names and values, one pair per line; pairs whose value is None are left out."""
    known = [(name, str(value)) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in known), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in known)


def cell(value: Any) -> str:
    """Return a value as one line of at most 72 columns; None is `-`."""
    if value is None:
        return "-"
    return value if isinstance(value, Painted) else cut(printable(str(value)), _CELL_WIDTH)


def cut(text: str, width: int) -> str:
    """Return what so many columns hold of a line, with `…` for the rest; one that is cut has no colours."""
    if columns_of(text) <= width:
        return text
    kept = _SIGNS.sub("", text)[: width - 1]
    while columns_of(kept) >= width:
        kept = kept[:-1]
    return f"{kept}…"


def columns_of(text: str) -> int:
    """Return how many columns a line takes: two for a wide character, none for a mark or a colour."""
    plain = _SIGNS.sub("", text)
    if plain.isascii():
        return len(plain)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in plain
    )


def printable(text: str) -> str:
    """Replace control characters, so that text from a dependency cannot steer the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)

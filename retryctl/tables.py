"""Text for a terminal: tables, spans of time, bars."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400
_WIDEST: Final = 72
"""Characters of a cell; longer ones are cut, and `--json` shows them whole."""


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "(none)") -> str:
    """Lay rows out in columns.

    Args:
        headers: One for each column.
        rows: Cells of anything; None shows as `-`.
        empty: Stands in place of a table without rows.
    """
    cells = [[cell(value) for value in row] for row in rows]
    if not cells:
        return empty
    lines = [list(headers), *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def facts(pairs: Iterable[tuple[str, Any]]) -> str:
    """Lay names and values out below each other, without those that are None."""
    known = [(name, str(value)) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in known), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in known)


def cell(value: Any) -> str:
    """Return a value as one line that is not too long; None shows as `-`."""
    if value is None:
        return "-"
    text = printable(str(value))
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def printable(text: str) -> str:
    """Return a text as one line: control characters of strangers' texts never reach the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def span(seconds: float) -> str:
    """Return a length of time as a person says it: `41 ms`, `1.37 s`, `2 min 5 s`, `3 h`, `2 d 4 h`."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < _MINUTE:
        return f"{seconds:.3g} s"
    for unit, size, name, below in ((_DAY, _HOUR, "d", "h"), (_HOUR, _MINUTE, "h", "min")):
        if seconds >= unit:
            whole, rest = divmod(int(seconds), unit)
            return f"{whole} {name}" + (f" {rest // size} {below}" if rest >= size else "")
    whole, rest = divmod(int(seconds), _MINUTE)
    return f"{whole} min" + (f" {rest} s" if rest else "")


def until(instant: str, now: datetime) -> float:
    """Return the seconds from now to an RFC 3339 instant; 0 when it is over."""
    return max(0.0, (datetime.fromisoformat(instant) - now).total_seconds())


def bar(done: float, total: float, *, width: int = 30) -> str:
    """Draw a progress bar with its share: `[#####.....]  50 %`."""
    share = 1.0 if total <= 0 else min(1.0, done / total)
    filled = round(share * width)
    return f"[{'#' * filled}{'.' * (width - filled)}] {share:4.0%}"

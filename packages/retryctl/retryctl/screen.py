"""Output as text, JSON or ids; tables, durations, bars, and the plot of waits."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TextIO

type Form = Literal["text", "json", "ids"]

_CLEAR_LINE: Final = "\r\x1b[K"

PLOT_WIDTH: Final = 60
_PLOT_ROWS: Final = 20
_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400
_CELL_WIDTH: Final = 72
"""Most characters of a cell; longer ones are cut, and `--json` shows them whole."""


class Screen:
    """Standard output in one form: text, JSON, or one id per line; notes go to standard error."""

    def __init__(self, out: TextIO, err: TextIO, form: Form) -> None:
        self._out = out
        self._err = err
        self._form = form
        self._is_live = out.isatty() and form == "text"
        self._has_live_line = False

    def show(self, document: Any, text: str) -> None:
        """Write the document as JSON, or else its text."""
        self._write(json.dumps(document, indent=2) if self._form == "json" else text)

    def show_list(self, document: Any, id_name: str, text: str) -> None:
        """Write a list as JSON, as the ids of its items, or as text."""
        if self._form != "ids":
            self.show(document, text)
            return
        for item in document["items"]:
            self._write(item[id_name])

    def show_change(self, document: Any, text: str) -> None:
        """Write one change of a followed document: a line of JSON, or the text unless it is empty."""
        if self._form == "json":
            self._write(json.dumps(document))
        elif text:
            self._write(text)

    def line(self, text: str) -> None:
        """Write a line before the document that ends the command; none where JSON is asked for."""
        if self._form != "json":
            self._write(text)

    def note(self, text: str) -> None:
        """Write a line to standard error."""
        print(f"retryctl: {text}", file=self._err)

    def live(self, text: str) -> None:
        """Redraw the last line; does nothing when the output is not a terminal."""
        if self._is_live:
            self._out.write(f"{_CLEAR_LINE}{text}")
            self._out.flush()
            self._has_live_line = True

    def _write(self, text: str) -> None:
        if self._has_live_line:
            self._out.write(_CLEAR_LINE)
            self._has_live_line = False
        self._out.write(f"{text}\n")
        self._out.flush()


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "(none)") -> str:
    """Lay rows out in columns.

    Args:
        headers: One for each column.
        rows: Cells of any type; None shows as `-`.
        empty: Text in place of a table without rows.
    """
    cells = [[cell(value) for value in row] for row in rows]
    if not cells:
        return empty
    lines = [list(headers), *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def facts(pairs: Iterable[tuple[str, Any]]) -> str:
    """Lay out names and values, one pair per line; pairs whose value is None are left out."""
    known = [(name, str(value)) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in known), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in known)


def cell(value: Any) -> str:
    """Return a value as one line of at most 72 characters; None is `-`."""
    if value is None:
        return "-"
    text = printable(str(value))
    return text if len(text) <= _CELL_WIDTH else text[: _CELL_WIDTH - 1] + "…"


def printable(text: str) -> str:
    """Replace control characters, so that text from a dependency cannot steer the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def span(seconds: float) -> str:
    """Return a duration as text: `41 ms`, `1.37 s`, `2 min 5 s`, `3 h`, `2 d 4 h`."""
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


def bar(done: float, total: float, *, width: int = 30) -> str:
    """Draw a progress bar with its share: `[#####.....]  50%`."""
    share = 1.0 if total <= 0 else min(1.0, done / total)
    filled = round(share * width)
    return f"[{'#' * filled}{'.' * (width - filled)}] {share:4.0%}"


def plot_waits(waits: Sequence[Mapping[str, Any]]) -> str:
    """Draw each wait as a line from its least to its most seconds, with an `o` at the expected value.

    Args:
        waits: At least one, as the API previews them; the first 20 are drawn.
    """
    drawn = waits[:_PLOT_ROWS]
    longest = max(each["most_seconds"] for each in drawn) or 1.0
    digits = len(str(drawn[-1]["after_attempt"]))
    lines = [f"{each['after_attempt']:>{digits}} |{_plot_line(each, longest)}" for each in drawn]
    scale = f"{' ' * digits} +{'-' * (PLOT_WIDTH + 1)}\n{' ' * digits}  0{span(longest):>{PLOT_WIDTH}}"
    rest = f"\n(and {len(waits) - len(drawn)} more)" if len(waits) > len(drawn) else ""
    return "\n".join([*lines, scale]) + rest


def _plot_line(wait: Mapping[str, Any], longest: float) -> str:
    least, expected, most = (
        round(wait[f"{name}_seconds"] / longest * PLOT_WIDTH) for name in ("least", "expected", "most")
    )
    letters = [" "] * (PLOT_WIDTH + 1)
    letters[least : most + 1] = "-" * (most + 1 - least)
    letters[least] = letters[most] = "|"
    letters[expected] = "o"
    return "".join(letters).rstrip()

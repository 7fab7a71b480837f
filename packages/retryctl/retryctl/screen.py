"""Output as text, JSON or ids; durations, bars, and the plot of waits."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, TextIO

from retryctl.layout import CURRENT, cut

type Form = Literal["text", "json", "ids"]

_CLEAR_REST: Final = "\x1b[K"
_CLEAR_LINE: Final = f"\r{_CLEAR_REST}"
_CLEAR_BELOW: Final = "\x1b[J"
_HOME: Final = "\x1b[H"
# The terminal's other screen, without a cursor.
_TAKE: Final = "\x1b[?1049h\x1b[?25l"
_GIVE_BACK: Final = "\x1b[?25h\x1b[?1049l"

PLOT_WIDTH: Final = 60
_PLOT_ROWS: Final = 20
_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400


class Screen:
    """Standard output in one form: text, JSON, or one id per line; notes go to standard error."""

    def __init__(self, out: TextIO, err: TextIO, form: Form) -> None:
        self._out = out
        self._err = err
        self._form = form
        self.is_live = out.isatty() and form == "text"
        """Whether lines can be redrawn."""
        self.found_nothing = False
        """Whether what was shown is a list without items, or a count of nothing."""
        self._has_live_line = False

    def show(self, document: Any, text: str) -> None:
        """Write the document as JSON, or else its text."""
        self._look_into(document)
        self._write(json.dumps(document, indent=2) if self._form == "json" else text)

    def show_list(self, document: Any, id_name: str, text: str) -> None:
        """Write a list as JSON, as the ids of its items, or as text."""
        if self._form != "ids":
            self.show(document, text)
            return
        self._look_into(document)
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
        if self.is_live:
            width = CURRENT.get().width
            # A line that wraps could not be redrawn.
            self._out.write(f"{_CLEAR_LINE}{text if width is None else cut(text, width - 1)}")
            self._out.flush()
            self._has_live_line = True

    @contextmanager
    def whole(self) -> Iterator[Callable[[str], None]]:
        """Take the whole terminal, and give back what was on it; yields what redraws it."""

        def draw(text: str) -> None:
            size = CURRENT.get().size()
            lines = text.split("\n")
            if size is not None:
                # One that wraps would push the first ones out.
                lines = [cut(line, size[0]) for line in lines[: size[1] - 1]]
            self._out.write(_HOME + "".join(f"{line}{_CLEAR_REST}\n" for line in lines) + _CLEAR_BELOW)
            self._out.flush()

        self._out.write(_TAKE)
        try:
            yield draw
        finally:
            self._out.write(_GIVE_BACK)
            self._out.flush()

    def _look_into(self, document: Any) -> None:
        if isinstance(document, dict):
            self.found_nothing = document.get("items") == [] or document.get("matched") == 0

    def _write(self, text: str) -> None:
        if self._has_live_line:
            self._out.write(_CLEAR_LINE)
            self._has_live_line = False
        self._out.write(f"{text}\n")
        self._out.flush()


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

"""Output as text, JSON or ids: tables that fit the terminal, colours, durations, lines that are redrawn.

A view makes what is shown of a document, whose members it names by paths such as `sample.reason`. The path
says how a value is shown: a state in its colour, an instant in the reader's zone, seconds as a duration.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from string import Formatter
from typing import Any, Final, Literal, TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from retryctl.api import NO_COLOR

type Form = Literal["text", "json", "ids"]
type Lines = Iterable[RenderableType]
type View = Callable[[Any], Lines]

IN_UTC: Final[ContextVar[bool]] = ContextVar("in_utc", default=False)
"""Whether instants are shown in UTC rather than in the zone of the machine."""

_ANY_WIDTH: Final = 1_000_000
_CELL_WIDTH: Final = 72
"""Most columns of a cell on a terminal, where longer ones are cut; a file has them whole."""
_LEAST_WIDTH: Final = 8
"""A column of free text is cut to no less, so that one can tell its cells apart."""
_GAP: Final = 2
_CLEAR_LINE: Final = "\r\x1b[K"
_ID: Final = re.compile(r"[a-z]+-[0-9a-z]{16,}(-\d+)?|\d{4}-\d\d-\d\dT\S+")
"""Ids and instants are for copying, so they are not cut."""
_STYLES: Final = {
    word: style
    for style, words in {
        "red": (
            "dead_lettered failed failed_again open forced_open raised FAILED refused compensation_failed "
            "new unhealthy blocked"
        ),
        "green": "succeeded closed sent completed works ok resolved done",
        "yellow": (
            "undone waiting_retry waiting_throttle waiting_circuit waiting_order half_open paused pending "
            "compensating compensated acknowledged"
        ),
        "dim": "cancelled archived disabled stopped skipped not_run",
    }.items()
    for word in words.split()
}
"""Style of a state's word; the others have none."""


class _Printing(Console):
    """A console on which text from elsewhere cannot steer the terminal, from whatever answer it is."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield what is written; only Rich itself steers."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


class Screen:
    """Standard output in one form, with colours and a width on a terminal; notes go to standard error."""

    def __init__(
        self, out: TextIO, err: TextIO, form: Form, environ: Mapping[str, str], width: int = _ANY_WIDTH
    ) -> None:
        self._is_terminal = is_terminal = out.isatty()
        self._out = out
        self._err = err
        self.form = form
        self.is_live = is_terminal and form == "text"
        """Whether lines can be redrawn."""
        self.found_nothing = False
        """Whether what was shown is a list without items, or a count of nothing."""
        self._has_live_line = False
        self._console = _Printing(
            file=out,
            force_terminal=is_terminal,
            color_system=None if NO_COLOR.get(environ) else "auto",
            width=None if is_terminal else width,
            markup=False,
            highlight=False,
            emoji=False,
            _environ=environ,
        )

    def show(self, document: Any, view: View, ids: str = "") -> None:
        """Write a document as JSON, as the ids of its items, or as its view has it."""
        if isinstance(document, dict):
            self.found_nothing = document.get("items") == [] or document.get("matched") == 0
        if self.form == "json":
            self._write(json.dumps(document, indent=2))
        elif self.form == "ids" and ids:
            for item in document["items"]:
                # A pipe gets them as they are, to ask for.
                self._write(printable(item[ids]) if self._is_terminal else item[ids])
        else:
            self.lines(view(document))

    def show_change(self, document: Any, lines: Lines) -> None:
        """Write one change of a followed document: a line of JSON, or its lines."""
        if self.form == "json":
            self._write(json.dumps(document))
        else:
            self.lines(lines)

    def lines(self, lines: Lines) -> None:
        """Write lines before the document that ends the command; none where JSON is asked for."""
        if self.form != "json":
            for line in lines:
                self._write(self._rendered(line))

    def note(self, text: str) -> None:
        """Write a line to standard error."""
        print(f"retryctl: {printable(text)}", file=self._err)

    def live(self, line: Text) -> None:
        """Redraw the last line; does nothing when the output is not a terminal."""
        if self.is_live:
            # A line that wraps could not be redrawn.
            line.truncate(self._console.width - 1, overflow="ellipsis")
            self._out.write(f"{_CLEAR_LINE}{self._rendered(line)}")
            self._out.flush()
            self._has_live_line = True

    @contextmanager
    def whole(self) -> Iterator[Callable[[Lines], None]]:
        """Take the whole terminal, and give back what was on it; yields what redraws it."""
        with Live(
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as live:
            yield lambda lines: live.update(Group(*map(_cut, lines)), refresh=True)

    def _rendered(self, shown: RenderableType) -> str:
        with self._console.capture() as capture:
            self._console.print(shown, soft_wrap=True)
        return "\n".join(line.rstrip() for line in capture.get().splitlines())

    def _write(self, text: str) -> None:
        clear = _CLEAR_LINE if self._has_live_line else ""
        self._has_live_line = False
        self._out.write(f"{clear}{text}\n")
        self._out.flush()


def _cut(line: RenderableType) -> RenderableType:
    """Let a line of text be cut where it would wrap and push the first lines out."""
    if isinstance(line, str | Text):
        return Text.assemble(line, no_wrap=True, overflow="ellipsis")
    return line


@dataclass(frozen=True, slots=True)
class Rows:
    """A table. A terminal that is too narrow cuts free text, or else shows each row on lines of its own."""

    items: Sequence[Any]  # one for each row
    # Paths, with a header where it is not the last name: `sample.detail:sample last_seen_at`. One that has a
    # `?` at its end is left out where no item has a value.
    columns: str
    empty: str = "(none)"  # in place of a table without rows

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.items:
            yield Text(self.empty)
            return
        headers, paths = zip(*self._shown_columns(), strict=True)
        cells = [[field(item, path) or Text("-") for path in paths] for item in self.items]
        if options.max_width < _ANY_WIDTH:
            for text in (text for row in cells for text in row if not text.no_wrap):
                text.truncate(_CELL_WIDTH, overflow="ellipsis")
        widths = _fitted(list(map(_widths, headers, zip(*cells, strict=True))), options.max_width)
        if widths is None:
            for number, row in enumerate(cells):
                yield from [Text()] * (number > 0)
                yield _lines(list(zip(headers, row, strict=True)))
            return
        yield from (_row(row, widths) for row in ((Text(text.upper(), "bold") for text in headers), *cells))

    def _shown_columns(self) -> Iterator[tuple[str, str]]:
        """Yield label and path of each column, of one with a `?` where any item has a value."""
        for label, path in _labelled(self.columns):
            name = path.removesuffix("?")
            if name == path or any(field(item, name) for item in self.items):
                yield label.removesuffix("?"), name


def _row(cells: Iterable[Text], widths: Sequence[int]) -> Text:
    fitting = list(cells)
    for cell, width in zip(fitting, widths, strict=True):
        cell.truncate(width, overflow="ellipsis", pad=True)
    return Text(" " * _GAP).join(fitting)


def _labelled(columns: str) -> Iterator[tuple[str, str]]:
    """Yield the label of each path, and the path."""
    for word in columns.split():
        path, _, label = word.partition(":")
        yield (label or re.sub(r".*\.|_(at|id|seconds)$", "", path)).replace("_", " "), path


def _widths(header: str, cells: Sequence[Text]) -> tuple[int, int]:
    """Return a column's width, and that below which it would lose a header, a state, an id or an instant."""
    width = max(cell_len(header), *(cell.cell_len for cell in cells))
    kept = (cell.cell_len for cell in cells if cell.no_wrap or _ID.fullmatch(cell.plain))
    return width, max(cell_len(header), min(width, _LEAST_WIDTH), *kept)


def _fitted(columns: Sequence[tuple[int, int]], most: int) -> list[int] | None:
    """Take from the widest columns what does not fit; None when the least does not fit either."""
    widths = [width for width, _ in columns]
    while sum(widths) + _GAP * (len(widths) - 1) > most:
        room, at = max((width * (width > columns[at][1]), at) for at, width in enumerate(widths))
        if not room:
            return None
        widths[at] -= 1
    return widths


def facts(document: Any, columns: str) -> Text:
    """Lay out members with their labels, see `Rows`, one per line; what has no value is left out."""
    pairs = ((label, field(document, path)) for label, path in _labelled(columns))
    return _lines([(label, value) for label, value in pairs if value is not None])


def _lines(pairs: Sequence[tuple[str, Text]]) -> Text:
    width = max((len(label) for label, _ in pairs), default=0) + _GAP
    return Text("\n").join(Text(label.ljust(width)).append_text(value) for label, value in pairs)


def field(document: Any, path: str) -> Text | None:
    """Return a member of a document as a cell; None where it has no value."""
    value: Any = document
    for name in path.split("."):
        value = value.get(name) if value else None
    if value is None:
        return None
    show = next((show for pattern, show in _SHOWN if re.fullmatch(pattern, path)), cell)
    return value if isinstance(value, Text) else cell(show(value))


def fill(template: str, document: Any) -> Text:
    """Put members of a document into a line, such as `{id}  {status:not known}[ by {by}]`.

    In place of a member without a value stands what is behind its colon, or else `-`; of brackets, nothing.
    """
    line = Text()
    for part in re.split(r"(\[[^]]*\])", template):
        pieces = list(Formatter().parse(part.strip("[]")))
        values = [field(document, path) or Text(otherwise or "") for _, path, otherwise, _ in pieces if path]
        if all(values) or not part.startswith("["):
            for words, path, *_ in pieces:
                line.append(words)
                if path:
                    line.append_text(values.pop(0) or Text("-"))
    return line


def filled(template: str, documents: Iterable[Any]) -> Lines:
    """Fill a line for each document."""
    return (fill(template, document) for document in documents)


def spaced(parts: Iterable[Lines]) -> Lines:
    """Yield the lines of parts with an empty line between two parts."""
    for number, part in enumerate(parts):
        yield from [""] * (number > 0)
        yield from part


def cell(value: Any) -> Text:
    """Return a value as one line, a list as its items."""
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    return value if isinstance(value, Text) else Text(" ".join(str(value).split("\n")))


def state(word: str, more: str = "") -> Text:
    """Return a state in its colour, and what is to be said with it; a table does not cut it."""
    return Text.assemble((word + more, _STYLES.get(word, "")), no_wrap=True)


def instant(text: str) -> str:
    """Return an instant of the API, to the second, in the zone that the reader chose."""
    at = datetime.fromisoformat(text).astimezone(UTC if IN_UTC.get() else None)
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def said(text: str) -> str:
    """Return a sentence of the API with its instants in the zone that the reader chose."""
    return _INSTANT.sub(lambda found: instant(found[0]), text)


def printable(text: str) -> str:
    """Replace control characters but line ends: text from elsewhere cannot steer the terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text)


def plural(count: int, one: str) -> str:
    """Return a count of things: `1 cause`, `2 causes`."""
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


def whose(limit_keys: Mapping[str, Any] | None, count: int) -> str | None:
    """Return whose some things are, by limit keys: `initech`, `3 keys: initech 9, ...`; None without."""
    if limit_keys is None:
        return None
    keys, most = limit_keys["keys"], limit_keys["most"]
    if list(most.values()) == [count]:
        return str(*most)
    more = f" and {keys - len(most)} more" if keys > len(most) else ""
    return f"{plural(keys, 'key')}: {', '.join(f'{key} {part}' for key, part in most.items())}{more}"


def span(seconds: float) -> str:
    """Return a duration as text: `41 ms`, `1.37 s`, `2 min 5 s`, `3 h`, `2 d 4 h`."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    for unit, size, name, below in ((86_400, 3_600, "d", "h"), (3_600, 60, "h", "min"), (60, 1, "min", "s")):
        if seconds >= unit:
            whole, rest = divmod(int(seconds), unit)
            return f"{whole} {name}" + (f" {rest // size} {below}" if rest >= size else "")
    return f"{seconds:.3g} s"


def bar(done: float, total: float, *, width: int = 30) -> str:
    """Draw a progress bar with its share: `[#####.....]  50%`."""
    share = 1.0 if total <= 0 else min(1.0, done / total)
    filled = round(share * width)
    return f"[{'#' * filled}{'.' * (width - filled)}] {share:4.0%}"


_SHOWN: Final[tuple[tuple[str, Callable[[Any], Any]], ...]] = (
    (r"(.*[._])?(status|state|outcome)", state),
    (r"(.*[._])?(at|until|since)", instant),
    (r".*seconds", span),
    (r".*_ms(\..*)?", lambda milliseconds: span(milliseconds / 1000)),
    (r"(.*[._])?(why|detail|error|reasons?)", lambda text: said(cell(text).plain)),
    (r"before|after|result", json.dumps),
    (r".*ratio", "{:.0%}".format),
    (r"amplification", "{:.2f}".format),
)
"""How values are shown, by a pattern of their paths."""

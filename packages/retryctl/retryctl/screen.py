"""Output as text, JSON or ids, with one live line on a terminal."""

import json
from typing import Any, Literal, TextIO

type Form = Literal["text", "json", "ids"]

_CLEAR_LINE = "\r\x1b[K"


class Screen:
    """Standard output in one form: text, JSON, or one id per line."""

    def __init__(self, out: TextIO, form: Form) -> None:
        self._out = out
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
        """Write one of many changes: a line of JSON, or the text unless it is empty."""
        if self._form == "json":
            self._write(json.dumps(document))
        elif text:
            self._write(text)

    def note(self, text: str) -> None:
        """Write a line beside the answer; only in text form."""
        if self._form == "text":
            self._write(text)

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

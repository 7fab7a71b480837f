"""Where answers go: text for a person or JSON for a program, and one line that is drawn again and again."""

import json
from typing import Any, Literal, TextIO

type Form = Literal["text", "json", "ids"]

_CLEAR_LINE = "\r\x1b[K"


class Screen:
    """Standard output, as text, as JSON, or as one id in each line."""

    def __init__(self, out: TextIO, form: Form) -> None:
        self._out = out
        self._form = form
        self._is_live = out.isatty() and form == "text"
        self._has_live_line = False

    def show(self, document: Any, text: str) -> None:
        """Show an answer: the document, or the text that tells it."""
        self._line(json.dumps(document, indent=2) if self._form == "json" else text)

    def listed(self, document: Any, id_name: str, text: str) -> None:
        """Show a list: the document, the ids of its items, or the text that tells it."""
        if self._form != "ids":
            self.show(document, text)
            return
        for item in document["items"]:
            self._line(item[id_name])

    def change(self, document: Any, text: str) -> None:
        """Show one of many changes: a line of JSON each, or the text, where there is any."""
        if self._form == "json":
            self._line(json.dumps(document))
        elif text:
            self._line(text)

    def live(self, text: str) -> None:
        """Draw the last line anew; only a terminal has one."""
        if self._is_live:
            self._out.write(f"{_CLEAR_LINE}{text}")
            self._out.flush()
            self._has_live_line = True

    def _line(self, text: str) -> None:
        """Write lines that stay."""
        if self._has_live_line:
            self._out.write(_CLEAR_LINE)
            self._has_live_line = False
        self._out.write(f"{text}\n")
        self._out.flush()

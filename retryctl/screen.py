"""Where answers go: text for a person or JSON for a program, and one line that is drawn again and again."""

import json
from typing import Any, TextIO

_CLEAR_LINE = "\r\x1b[K"


class Screen:
    """Standard output, as text or as JSON."""

    def __init__(self, out: TextIO, *, as_json: bool) -> None:
        self.as_json = as_json
        self._out = out
        self._is_live = out.isatty() and not as_json
        self._has_live_line = False

    def show(self, document: Any, text: str) -> None:
        """Show an answer: the document, or the text that tells it."""
        self.line(json.dumps(document, indent=2) if self.as_json else text)

    def change(self, document: Any, text: str) -> None:
        """Show one of many changes: a line of JSON each, or the text, where there is any."""
        if self.as_json:
            self.line(json.dumps(document))
        elif text:
            self.line(text)

    def line(self, text: str) -> None:
        """Write lines that stay."""
        self._wipe()
        self._out.write(f"{text}\n")
        self._out.flush()

    def live(self, text: str) -> None:
        """Draw the last line anew; only a terminal has one."""
        if self._is_live:
            self._out.write(f"{_CLEAR_LINE}{text}")
            self._out.flush()
            self._has_live_line = True

    def _wipe(self) -> None:
        if self._has_live_line:
            self._out.write(_CLEAR_LINE)
            self._has_live_line = False

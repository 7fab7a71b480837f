"""What happened, in the order in which it happened, as lines that a person reads."""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

_NAME_WIDTH: Final = 12
_FINISHED: Final = frozenset({"succeeded", "dead_lettered", "cancelled"})
_INDENT: Final = " " * 11


class Timeline:
    """Prints what is new in status documents, each line with the seconds since the start.

    Args:
        dashboard: Address of the dashboard, without what follows its `#`.
    """

    def __init__(self, dashboard: str) -> None:
        self._dashboard = dashboard
        self._began = time.monotonic()
        self._printed: set[tuple[str, ...]] = set()

    def scene(self, title: str) -> None:
        """Begin a part of the story."""
        print(f"\n{title}")

    def see(self, view: str) -> None:
        """Say where the dashboard shows this."""
        print(f"{_INDENT}see {self._dashboard}#/{view}", flush=True)

    def show(self, name: str, text: str) -> None:
        """Say what happened to whom."""
        print(f"{time.monotonic() - self._began:7.1f} s  {name:<{_NAME_WIDTH}} {text}", flush=True)

    def look(self, document: Mapping[str, Any]) -> bool:
        """Show what is new in a status document.

        Returns:
            Whether the operation is finished.
        """
        name = str(document["key"])
        for attempt in document["attempts"]:
            self._once(name, f"attempt {attempt['number']}", _attempt_line(attempt))
        for wait in document.get("waits", ()):
            self._once(name, f"{wait['kind']} {wait['before_attempt']}", _wait_line(wait))
        finished = document["status"] in _FINISHED
        if finished:
            self._once(name, f"end {document['updated_at']}", _end_line(document))
        return finished

    def _once(self, name: str, what: str, line: str) -> None:
        if (name, what) not in self._printed:
            self._printed.add((name, what))
            self.show(name, line)


def _attempt_line(attempt: Mapping[str, Any]) -> str:
    said = "no answer" if attempt["status_code"] is None else f"answered {attempt['status_code']}"
    line = f"attempt {attempt['number']} {said}"
    if attempt["category"] is not None:
        line += f", {attempt['category']}"
    return line


def _wait_line(wait: Mapping[str, Any]) -> str:
    until, began_at = (datetime.fromisoformat(wait[name]) for name in ("until", "began_at"))
    return f"waits {(until - began_at).total_seconds():.1f} s: {', '.join(wait['delay_reasons'])}"


def _end_line(document: Mapping[str, Any]) -> str:
    if document["dead_letter"] is None:
        count = document["attempt_count"]
        return f"{document['status']} after {count} attempt{'' if count == 1 else 's'}"
    dead = document["dead_letter"]
    return f"dead letter: {dead['reason']} ({dead['category']}), for a person to look at"

"""What is remembered of timers between starts, so that one that came due meanwhile fires late, not never."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class TimerStatus:
    """When a timer fired and fires.

    Attributes:
        last: The last due time at which it fired; None for never.
        next_due: The due time after that.
        updated: When this was written.
    """

    last: datetime | None
    next_due: datetime
    updated: datetime


class TimerRecords:
    """The status of every monitored timer, in one small file that is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, name: str) -> TimerStatus | None:
        """Return what is known of a timer; None when it never ran here, or the file cannot be read."""
        entry = self._all().get(name)
        if not isinstance(entry, dict):
            return None
        last = entry.get("last")
        return TimerStatus(
            last=None if last is None else datetime.fromisoformat(last),
            next_due=datetime.fromisoformat(entry["next_due"]),
            updated=datetime.fromisoformat(entry["updated"]),
        )

    def write(self, name: str, status: TimerStatus) -> None:
        """Remember a timer's status."""
        entry = {key: None if value is None else value.isoformat() for key, value in asdict(status).items()}
        text = json.dumps({**self._all(), name: entry}, indent=1)
        fresh = self._path.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self._path)

    def _all(self) -> Mapping[str, Any]:
        try:
            content = json.loads(self._path.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

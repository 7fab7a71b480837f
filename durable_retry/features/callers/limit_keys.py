"""Bounds the limit keys of a caller: keys take turns, so a caller of random keys would take most turns."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from durable_retry.base.errors import OverloadedError
from durable_retry.base.text import counted

_WINDOW: Final = timedelta(minutes=1)


@dataclass(slots=True)
class LimitKeysOfCallers:
    """The limit keys of the submissions over HTTP of the last minute, in this process."""

    most: int  # of one caller; 0 means no limit
    # By caller, the latest at the end: its keys with their last use, the latest at the end, too.
    _used: dict[str, dict[str, datetime]] = field(default_factory=dict)

    def note(self, caller: str, limit_key: str, now: datetime) -> None:
        """Count the key of a submission.

        Raises:
            OverloadedError: It is one too many.
        """
        if self.most == 0:
            return
        self._forget_idle(now)
        used = self._used[caller] = self._used.pop(caller, {})
        while used and used[oldest := next(iter(used))] <= now - _WINDOW:
            del used[oldest]
        if limit_key not in used and len(used) >= self.most:
            raise OverloadedError(f"{caller} has used {counted(self.most, 'limit key')} within a minute")
        used.pop(limit_key, None)
        used[limit_key] = now

    def _forget_idle(self, now: datetime) -> None:
        while self._used:
            caller, used = next(iter(self._used.items()))
            if next(reversed(used.values())) > now - _WINDOW:
                return
            del self._used[caller]

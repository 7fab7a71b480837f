"""What dead letters are looked for by that no list is made for: whole names, and words."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from durable_retry.engine.base.text import may_mention, mentions
from durable_retry.engine.base.unreadable import read_or
from durable_retry.engine.dead_letters.record import KeptDeadLetter

_WHOLE: Final = ("key", "correlation_id")
_WORDED: Final = ("key", "operation_id", "correlation_id", "detail", "order_key", "debounce_key")

NAME_CHARS: Final = 300
"""Characters of each of its names that an index row has of a dead letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSearch:
    """Conditions on dead letters that no list is made for; None means any."""

    key: str | None = None  # the whole key
    correlation_id: str | None = None  # the whole correlation id
    # Each must stand in a key, the correlation id, one of the ids, the reason or the detail.
    words: str | None = None

    @property
    def _whole(self) -> dict[str, str]:
        return {name: value for name in _WHOLE if (value := getattr(self, name)) is not None}

    def may_match(self, dead_letter_id: str, row: Mapping[str, Any]) -> bool:
        """Return whether a dead letter may match, as far as its index row shows."""
        return read_or(lambda: self._may_match(dead_letter_id, row), lambda _: True)

    def _may_match(self, dead_letter_id: str, row: Mapping[str, Any]) -> bool:
        text, more = row["names"], (dead_letter_id, row["reason"])
        # Nearly every row is refused here, before its names are parsed.
        if self.words is not None and not may_mention(self.words, text, *more):
            return False
        return self._fits_entry(more, json.loads(text), NAME_CHARS)

    def matches(self, record: KeptDeadLetter) -> bool:
        """Return whether a dead letter matches; of its detail the beginning counts, as in the index.

        When nobody can read a dead letter, only the index has what to compare.
        """
        if record.unreadable is not None:
            return True
        names = record.names
        names["detail"] = names["detail"][:NAME_CHARS]
        return self._fits_entry((record.id, record.reason.value), names, None)

    def _fits_entry(self, more: tuple[str, str], names: Mapping[str, str], chars: int | None) -> bool:
        return all(names[name] == value[:chars] for name, value in self._whole.items()) and (
            self.words is None or mentions(self.words, *more, *map(names.get, _WORDED))
        )


EVERY: Final = DeadLetterSearch()

"""The conditions of a query for dead letters.

A filter has what the lists can be read by; a search has whole names and words, which are compared row by row.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Final, Self

from durable_retry.base.answers import read_or
from durable_retry.base.json_forms import JsonShape
from durable_retry.base.names import TURN_NAMES, TurnNames
from durable_retry.base.text import may_mention, mentions
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.dead_letters.record import FACETS, NAME_CHARS, KeptDeadLetter, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter(TurnNames, JsonShape):
    """Conditions on dead letters; None means any."""

    status: Status | None = None
    reason: str | None = None  # a value of `DeadLetterReason`
    reasons: tuple[str, ...] | None = None  # several of them
    category: str | None = None
    dependency: str | None = None
    group: str | None = None
    created_after: datetime | None = None  # created at this instant or later
    created_before: datetime | None = None  # created before this instant
    app_version: str | None = None  # the whole version of the app

    CONDITIONS: ClassVar[tuple[str, ...]] = (*TURN_NAMES, "app_version")

    def facets(self, dependency: Dependency | None) -> dict[str, tuple[str, ...]]:
        """Return the values of which a dead letter must have one, by facet.

        Args:
            dependency: The one that is asked for, whose dead letters keep the name that it had: of nine names
                at most, so that a query has room for them. None where no dependency has this name.
        """
        names = {} if dependency is None else {"dependency": dependency.names}
        return {name: (value,) for name in FACETS if (value := getattr(self, name)) is not None} | names

    def may_match_names(self, row: Mapping[str, Any]) -> bool:
        """Return whether a dead letter may have the names and reasons, as far as its index row shows."""
        if self.reasons is not None and row["reason"] not in self.reasons:
            return False
        if not self.turn_names:
            return True
        return read_or(lambda: self.fits_names(json.loads(row["names"])), lambda _: True)

    def matches_record(self, record: KeptDeadLetter) -> bool:
        """Return whether a dead letter has the status, a reason and, where it can be read, the names."""
        fits_names = record.unreadable is not None or self.fits_names(record.names)
        fits_names = fits_names and (self.reasons is None or record.reason.value in self.reasons)
        return fits_names and self.status in (None, record.status)

    @property
    def columns(self) -> tuple[str, ...]:
        """What `may_match_names` reads of an index row."""
        names = ("names",) if self.turn_names else ()
        return names if self.reasons is None else (*names, "reason")

    def until(self, instant: datetime) -> Self:
        return replace(self, created_before=min(self.created_before or instant, instant))


_WHOLE: Final = ("key", "correlation_id")
_NO_WORDS: Final = frozenset({"priority", "app_version"})


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
        text, texts = row["names"], (dead_letter_id, row["reason"])
        # Nearly every row is refused here, before its names are parsed.
        if self.words is not None and not may_mention(self.words, text, *texts):
            return False
        return self._fits_entry(texts, json.loads(text), NAME_CHARS)

    def matches(self, record: KeptDeadLetter) -> bool:
        """Return whether a dead letter matches; of its detail the beginning counts, as in the index.

        One that cannot be read matches: only the index has something to compare.
        """
        if record.unreadable is not None:
            return True
        names = record.names
        names["detail"] = record.detail[:NAME_CHARS]
        return self._fits_entry((record.id, record.reason.value), names, None)

    def _fits_entry(self, texts: tuple[str, str], names: Mapping[str, str], chars: int | None) -> bool:
        worded = (text for name, text in names.items() if name not in _NO_WORDS)
        return all(names.get(name) == value[:chars] for name, value in self._whole.items()) and (
            self.words is None or mentions(self.words, *texts, *worded)
        )


EVERY: Final = DeadLetterSearch()

"""The dead letters that a query means, and the list that it reads."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

from durable_retry.engine.base.json_forms import JsonShape
from durable_retry.engine.base.unreadable import read_or
from durable_retry.engine.dead_letters.record import FACETS, Facets, KeptDeadLetter, Status
from durable_retry.engine.operations.turn_names import TurnNames


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter(TurnNames, JsonShape):
    """Conditions on dead letters; None means any."""

    status: Status | None = None
    reason: str | None = None  # a value of `DeadLetterReason`
    category: str | None = None
    dependency: str | None = None
    group: str | None = None
    created_after: datetime | None = None  # created at this instant or later
    created_before: datetime | None = None  # created before this instant

    @property
    def key(self) -> str:
        """The name of the shortest list that contains every match.

        A group lies within one dependency, reason and category. Of the others the list of a dependency is
        usually the shortest.
        """
        for name in ("group", "dependency", "reason", "category"):
            if (value := getattr(self, name)) is not None:
                return f"{name}={value}"
        return "all"

    @property
    def is_exact(self) -> bool:
        """Whether every entry of the list of `key` matches."""
        facets = [getattr(self, name) for name in FACETS]
        return not self.turn_names and facets.count(None) >= len(FACETS) - 1

    def matches(self, facets: Facets) -> bool:
        """Return whether a dead letter with these facets matches."""
        return all(getattr(self, name) in (None, getattr(facets, name)) for name in FACETS)

    def may_match_names(self, row: Mapping[str, Any]) -> bool:
        """Return whether a dead letter may have the names, as far as its index row shows."""
        if not self.turn_names:
            return True
        return read_or(lambda: self.fits_names(json.loads(row["names"])), lambda _: True)

    def matches_record(self, record: KeptDeadLetter) -> bool:
        """Return whether a dead letter has the status and, where it can be read, the names."""
        fits_names = record.unreadable is not None or self.fits_names(record.names)
        return fits_names and self.status in (None, record.status)

    def until(self, instant: datetime) -> Self:
        """Return the filter limited to dead letters created before an instant."""
        return replace(self, created_before=min(self.created_before or instant, instant))

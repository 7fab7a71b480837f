"""The dead letters that a query means."""

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
    def facets(self) -> dict[str, str]:
        """The facets that are asked for."""
        return {name: value for name in FACETS if (value := getattr(self, name)) is not None}

    def matches(self, facets: Facets) -> bool:
        """Return whether a dead letter with these facets matches."""
        return all(value == getattr(facets, name) for name, value in self.facets.items())

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

"""Which dead letters are wanted."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

from engine.dead_letter import DeadLetterRecord, Status
from engine.instants import optional_from_rfc3339, optional_to_rfc3339


@dataclass(frozen=True, slots=True, kw_only=True)
class Facets:
    """What a dead letter can be found by, beside its status and time.

    Attributes:
        reason: The contract's name.
        category: Of the last failure.
        dependency: "" for a message that names none.
        group: Of its root cause.
    """

    reason: str
    category: str
    dependency: str
    group: str

    @classmethod
    def of(cls, record: DeadLetterRecord) -> Self:
        """Return a dead letter's."""
        return cls(
            reason=record.reason.value,
            category=record.category.value,
            dependency=record.dependency or "",
            group=record.group,
        )

    @property
    def lists(self) -> tuple[str, ...]:
        """The name of every list that the dead letter stands in."""
        return (
            "all",
            f"reason={self.reason}",
            f"category={self.category}",
            f"dependency={self.dependency}",
            f"group={self.group}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Wanted dead letters; None means any.

    Attributes:
        status: Where they stand.
        reason: The contract's name.
        category: Of the last failure.
        dependency: Its name.
        group: Of the root cause.
        created_after: Created at this instant or later.
        created_before: Created before this instant.
    """

    status: Status | None = None
    reason: str | None = None
    category: str | None = None
    dependency: str | None = None
    group: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None

    @property
    def key(self) -> str:
        """The name of the shortest list that holds everything wanted.

        A group lies within one dependency, reason and category. Of the others a dependency usually says most.
        """
        for name, value in (
            ("group", self.group),
            ("dependency", self.dependency),
            ("reason", self.reason),
            ("category", self.category),
        ):
            if value is not None:
                return f"{name}={value}"
        return "all"

    @property
    def is_exact(self) -> bool:
        """Whether the list of `key` holds nothing else."""
        given = [self.group, self.dependency, self.reason, self.category]
        return len(given) - given.count(None) <= 1

    def matches(self, facets: Facets) -> bool:
        """Tell whether a dead letter of these facets is wanted."""
        return all(
            wanted in (None, found)
            for wanted, found in (
                (self.reason, facets.reason),
                (self.category, facets.category),
                (self.dependency, facets.dependency),
                (self.group, facets.group),
            )
        )

    def until(self, instant: datetime) -> Self:
        """Return the same without what is created from this instant on."""
        ends = [end for end in (self.created_before, instant) if end is not None]
        return replace(self, created_before=min(ends))

    def to_json(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {
            "status": None if self.status is None else self.status.value,
            "reason": self.reason,
            "category": self.category,
            "dependency": self.dependency,
            "group": self.group,
            "created_after": optional_to_rfc3339(self.created_after),
            "created_before": optional_to_rfc3339(self.created_before),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        return cls(
            status=None if data["status"] is None else Status(data["status"]),
            reason=data["reason"],
            category=data["category"],
            dependency=data["dependency"],
            group=data["group"],
            created_after=optional_from_rfc3339(data["created_after"]),
            created_before=optional_from_rfc3339(data["created_before"]),
        )

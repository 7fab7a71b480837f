"""How an operation ended, in the few words that whoever waits for it needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from engine.vocabulary import FINISHED, Category, OperationState
from engine.wording import cut_text

_ERROR_CHARS: Final = 300

_REFUSALS: Final = frozenset(
    {Category.MALFORMED, Category.UNAUTHORIZED, Category.NOT_FOUND, Category.BUSINESS_RULE}
)
"""Answers after which the dependency has certainly done nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of an operation.

    Attributes:
        operation_id: Whose.
        status: Succeeded, dead-lettered or cancelled.
        category: Of a dead letter, else None.
        attempt_count: Counted attempts in all.
        error: Why it did not succeed, as one line; None when it did.
    """

    operation_id: str
    status: OperationState
    category: Category | None = None
    attempt_count: int = 0
    error: str | None = None

    @property
    def succeeded(self) -> bool:
        """Whether it did what it was to do."""
        return self.status is OperationState.SUCCEEDED

    @property
    def may_have_acted(self) -> bool:
        """Whether the dependency can have done something although the operation did not succeed."""
        return not self.succeeded and self.attempt_count > 0 and self.category not in _REFUSALS

    def to_json(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {
            "operation_id": self.operation_id,
            "status": self.status.value,
            "category": None if self.category is None else self.category.value,
            "attempt_count": self.attempt_count,
            "error": self.error,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        values = dict(data)
        values["status"] = OperationState(data["status"])
        values["category"] = None if data["category"] is None else Category(data["category"])
        return cls(**values)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self | None:
        """Read the end out of a status document; None when the operation has not ended."""
        status = OperationState(document["status"])
        if status not in FINISHED:
            return None
        dead_letter = document["dead_letter"] or {}
        category = dead_letter.get("category")
        return cls(
            operation_id=document["operation_id"],
            status=status,
            category=None if category is None else Category(category),
            attempt_count=document["attempt_count"],
            error=_error(status, dead_letter),
        )


def _error(status: OperationState, dead_letter: Mapping[str, Any]) -> str | None:
    if status is OperationState.SUCCEEDED:
        return None
    told = [str(dead_letter[name]) for name in ("reason", "detail") if dead_letter.get(name)]
    return cut_text(": ".join(told) or status.value, _ERROR_CHARS)

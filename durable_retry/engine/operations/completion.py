"""How an operation ended, as batches, sagas and callers that wait for it need it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from durable_retry.engine.base.enums import FINISHED, Category, OperationState
from durable_retry.engine.base.json_record import JsonRecord
from durable_retry.engine.base.text import cut_text

_ERROR_CHARS: Final = 300

_REFUSALS: Final = frozenset(
    {Category.MALFORMED, Category.UNAUTHORIZED, Category.NOT_FOUND, Category.BUSINESS_RULE}
)
"""Categories after which the dependency has certainly done nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion(JsonRecord):
    """The end of an operation.

    Attributes:
        operation_id: Of the operation.
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
        """Whether the operation succeeded."""
        return self.status is OperationState.SUCCEEDED

    @property
    def may_have_acted(self) -> bool:
        """Whether the dependency may have done something although the operation did not succeed."""
        return not self.succeeded and self.attempt_count > 0 and self.category not in _REFUSALS

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self | None:
        """Return the end that a status document shows; None when the operation has not ended."""
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
    parts = [str(dead_letter[name]) for name in ("reason", "detail") if dead_letter.get(name)]
    return cut_text(": ".join(parts) or status.value, _ERROR_CHARS)

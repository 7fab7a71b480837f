"""A question to the lists of operations, dead letters, events, workflows, bulk replays and activity."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from durable_retry.console.finding.found import NAMES, FoundItem, FoundType, names_of
from durable_retry.engine.base.names import OperationState, Priority
from durable_retry.engine.base.text import mentions
from durable_retry.engine.operations.status import last_error
from durable_retry.stores.operations.index import OperationEntry

_SEARCHED: Final = ("operation_id", "key", "correlation_id", "order_key", "debounce_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is looked for; None means any.

    Attributes:
        words: Each must stand in a name, an id or the error of an item.
        status: In the words of the item's kind.
        source: `http`, `queue`, ...
    """

    words: str | None = None
    kind: FoundType | None = None
    status: str | None = None
    dependency: str | None = None
    handler: str | None = None
    source: str | None = None
    key: str | None = None
    correlation_id: str | None = None
    order_key: str | None = None
    priority: Priority | None = None
    debounce_key: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None

    def is_in_time(self, created_at: datetime) -> bool:
        """Return whether what was created at an instant can match."""
        is_late = self.created_after is None or created_at >= self.created_after
        return is_late and (self.created_before is None or created_at < self.created_before)

    def has_words(self, *texts: object) -> bool:
        """Return whether the words stand in some texts; what is no text has none."""
        return self.words is None or mentions(self.words, *(each for each in texts if isinstance(each, str)))

    def matches(self, item: FoundItem) -> bool:
        """Return whether an item matches, its words aside."""
        exact = all(getattr(self, name) in (None, getattr(item, name)) for name in ("status", *NAMES))
        return exact and self.is_in_time(item.created_at)

    def matches_operation(self, document: Mapping[str, Any]) -> bool:
        """Return whether the operation of a status document matches, whenever it was created."""
        is_of_status = self.status in (None, document["status"])
        return is_of_status and self._fits_document(document, last_error(document))

    def may_match(self, entry: OperationEntry) -> bool:
        """Return whether an operation may match, as far as the index shows; its time is not looked at."""
        return self._may_have_status(entry.status) and self._fits_document(
            {name: getattr(entry, name) for name in (*NAMES, "operation_id")}, entry.error
        )

    def _may_have_status(self, noted: OperationState | None) -> bool:
        if self.status in (None, noted):
            return True
        # The index always has these two; a cancelled operation may have ended otherwise before that arrived.
        if self.status in {OperationState.DEAD_LETTERED, OperationState.CANCELLED}:
            return False
        return noted not in {OperationState.SUCCEEDED, OperationState.DEAD_LETTERED}

    def _fits_document(self, shown: Mapping[str, Any], error: str) -> bool:
        has_names = all(getattr(self, name) in (None, value) for name, value in names_of(shown).items())
        return has_names and self.has_words(*map(shown.get, _SEARCHED), error)

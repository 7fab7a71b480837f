"""Batches: many independent operations, submitted together, of which a limited number runs at once.

An item that is no valid operation is reported and dead-lettered by itself. No failure stops the other items;
whether the batch succeeded is decided at its end, by the number of failures that it tolerates.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import Field

from durable_retry.engine.base.enums import OperationState
from durable_retry.engine.base.json_record import JsonRecord
from durable_retry.engine.base.validation import Strict

MAX_ITEMS: Final = 1_000
MAX_CONCURRENCY: Final = 100


class BatchRequest(Strict):
    """The body of `POST /api/batches`.

    Attributes:
        items: Bodies of `POST /api/operations`; each is validated by itself.
        max_concurrency: The most operations of this batch that run at once.
        tolerated_failures: With more of them the batch counts as failed.
    """

    items: Annotated[list[Any], Field(min_length=1, max_length=MAX_ITEMS)]
    max_concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)] = 10
    tolerated_failures: Annotated[int, Field(ge=0, le=MAX_ITEMS)] = 0


class BatchState(StrEnum):
    """The state of a batch."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress(JsonRecord):
    """Which items have ended, which run, and which are next.

    Attributes:
        total: Number of items.
        max_concurrency: The most that run at once.
        next_index: The first item that was not started.
        running: The items of each operation that runs; two items with one key are one operation.
    """

    total: int
    max_concurrency: int
    next_index: int = 0
    running: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether every item has ended."""
        return self.next_index >= self.total and not self.running

    @property
    def startable(self) -> list[int]:
        """The items to start now."""
        room = self.max_concurrency - len(self.running)
        return list(range(self.next_index, min(self.total, self.next_index + max(0, room))))

    def with_started(self, indices: Iterable[int], running: Mapping[int, str]) -> Self:
        """Return the progress after items were started.

        Args:
            indices: All that were.
            running: The operations of those that did not end at once.
        """
        ids = {operation_id: list(items) for operation_id, items in self.running.items()}
        for index, operation_id in running.items():
            items = ids.setdefault(operation_id, [])
            # An activity that ran twice reports its items twice.
            if index not in items:
                items.append(index)
        next_index = max((self.next_index, *(index + 1 for index in indices)))
        return replace(
            self, next_index=next_index, running={name: tuple(items) for name, items in ids.items()}
        )

    def without(self, operation_ids: Iterable[str]) -> Self:
        """Return the progress after operations ended; unknown ones change nothing."""
        ended = set(operation_ids)
        running = {name: items for name, items in self.running.items() if name not in ended}
        return replace(self, running=running)


def counts_of(statuses: Iterable[str]) -> dict[str, int]:
    """Count items by status, all statuses named, and all items as `total`."""
    listed = list(statuses)
    counted = {state.value: listed.count(state.value) for state in OperationState}
    return {"total": len(listed), **counted}


def batch_state_of(counts: Mapping[str, int], tolerated_failures: int) -> BatchState:
    """Return the state of a batch by its counts."""
    failures = counts[OperationState.DEAD_LETTERED] + counts[OperationState.CANCELLED]
    if counts[OperationState.SUCCEEDED] + failures < counts["total"]:
        return BatchState.RUNNING
    return BatchState.SUCCEEDED if failures <= tolerated_failures else BatchState.FAILED

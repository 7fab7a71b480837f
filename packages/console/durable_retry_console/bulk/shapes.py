"""Doing something to many: to which dead letters or operations, at what rate, and how far it got."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil
from typing import Annotated, Any, Final, Self

from durable_retry.engine.base.json_forms import NOT_STORED, JsonShape
from durable_retry.engine.base.names import OperationState
from durable_retry.engine.base.text import cut_text
from durable_retry.engine.base.validation import InvalidInputError, Problem
from durable_retry.engine.operations.turn_names import TurnNames

MAX_BATCH: Final = 25
"""Dead letters that one activity replays: far below `functionTimeout`, and the rate stays smooth."""

BATCHES_PER_PAGE: Final = 20
"""Batches per read of the list; then the orchestration continues as new, which keeps its history short."""

KEPT_FAILURES: Final = 20
_KEPT_ERRORS: Final = 10
_DETAIL_CHARS: Final = 200


class BulkAction(StrEnum):
    """What is done to many: the first two to dead letters, the others to operations."""

    REPLAY = "replay"
    ARCHIVE = "archive"
    CANCEL = "cancel"
    RETRY_NOW = "retry_now"
    PAUSE = "pause"
    RESUME = "resume"

    @property
    def is_of_dead_letters(self) -> bool:
        """Whether it is done to dead letters."""
        return self in {BulkAction.REPLAY, BulkAction.ARCHIVE}

    @property
    def has_later_end(self) -> bool:
        """Whether what it starts ends later; otherwise an item is over when it was acted on."""
        return self in {BulkAction.REPLAY, BulkAction.CANCEL}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedFilter(TurnNames, JsonShape):
    """Conditions on operations that have not ended; None means any. See `OperationsBody`."""

    status: OperationState | None = None
    dependency: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class BatchPace:
    """How a rate is kept: the size of a batch, and the interval between the starts of two batches."""

    batch: int
    interval: timedelta

    @classmethod
    def of(cls, rate_per_second: float) -> Self:
        """Return the pace for a rate: about one batch a second, of at most `MAX_BATCH`."""
        batch = max(1, min(MAX_BATCH, int(rate_per_second)))
        # Rounded up: a microsecond less per batch would exceed the rate.
        return cls(batch, timedelta(microseconds=ceil(batch * 1_000_000 / rate_per_second)))

    @property
    def page(self) -> int:
        """How many dead letters to read at once."""
        return self.batch * BATCHES_PER_PAGE


class ItemOutcome(StrEnum):
    """What a bulk action did to one item."""

    REPLAYED = "replayed"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkItem(JsonShape):
    """What a bulk action did to one dead letter or operation.

    Attributes:
        outcome: `replayed` or `done` when it was done; `skipped` when its state did not allow it; `failed`
            when it could not be done.
        detail: Why it was skipped or failed; None otherwise.
        errors: What is wrong with its content, place by place; None where that is not why.
        operation_id: The operation that replays the dead letter, or that was acted on; None when there is
            none.
        unreadable: Why its row cannot be read, of what is shown in its place; it is never stored.
    """

    id: str
    outcome: ItemOutcome
    detail: str | None = None
    operation_id: str | None = None
    event_id: str | None = None
    errors: tuple[Problem, ...] | None = None
    unreadable: Annotated[str | None, NOT_STORED] = None

    @property
    def is_started(self) -> bool:
        """Whether it was replayed or acted on."""
        return self.outcome in {ItemOutcome.REPLAYED, ItemOutcome.DONE}

    @classmethod
    def failed(cls, item_id: str, error: Exception) -> Self:
        """Return one that could not be done."""
        return cls(
            id=item_id,
            outcome=ItemOutcome.FAILED,
            detail=str(error) or type(error).__name__,
            errors=error.problems if isinstance(error, InvalidInputError) else None,
        )

    def shortened(self) -> Self:
        """Return it with a detail and errors that fit a row and a line."""
        errors = None if self.errors is None else tuple(map(_shortened_problem, self.errors[:_KEPT_ERRORS]))
        detail = None if self.detail is None else cut_text(self.detail, _DETAIL_CHARS)
        return replace(self, detail=detail, errors=errors)


def _shortened_problem(problem: Problem) -> Problem:
    return replace(problem, detail=cut_text(problem.detail, _DETAIL_CHARS))


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemEnd(JsonShape):
    """How that ended which a bulk action started.

    Attributes:
        succeeded: Whether it ended as it should: a replay sent the event or succeeded, a cancelled operation
            is cancelled.
        status: The status of the operation or the event; None where that was not looked up, or is gone.
        dead_letter_id: The dead letter that a replay ended as.
    """

    succeeded: bool
    status: str | None = None
    dead_letter_id: str | None = None


def counts_of(items: Sequence[BulkItem]) -> dict[str, Any]:
    """Return `replayed`, `skipped` and `failures` of a batch, as its orchestration adds them up."""
    outcomes = Counter(item.outcome for item in items)
    return {
        "replayed": outcomes[ItemOutcome.REPLAYED] + outcomes[ItemOutcome.DONE],
        "skipped": outcomes[ItemOutcome.SKIPPED],
        "failures": [
            {"id": item.id, "detail": item.detail} for item in items if item.outcome is ItemOutcome.FAILED
        ],
    }


class ReplayState(StrEnum):
    """The state of a bulk replay."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING_CIRCUIT = "waiting_circuit"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


FINISHED_REPLAY: Final = frozenset({ReplayState.COMPLETED, ReplayState.CANCELLED, ReplayState.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class EndCounts(JsonShape):
    """How what a bulk action started has ended.

    Attributes:
        counted_at: When it was counted; what was started since is under way. None before the first time.
    """

    succeeded: int = 0
    failed_again: int = 0
    under_way: int = 0
    counted_at: datetime | None = None

    def plus(self, started: int) -> Self:
        """Add what was started since."""
        return replace(self, under_way=self.under_way + started)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayProgress(JsonShape):
    """The progress of a bulk replay.

    Attributes:
        replayed: Dead letters whose replay started.
        skipped: Dead letters that were no longer open when their turn came.
        failed: Dead letters that could not be started, and stay open.
        failures: `{"id", "detail"}` of the latest of these.
        cursor: Where to continue reading the list; None at the beginning.
        ends: How what was replayed has ended.
    """

    replayed: int = 0
    skipped: int = 0
    failed: int = 0
    failures: tuple[Mapping[str, Any], ...] = ()
    cursor: str | None = None
    ends: EndCounts = field(default_factory=EndCounts)

    def plus(self, step: Mapping[str, Any]) -> Self:
        """Add the result of one batch: `replayed`, `skipped` and `failures`."""
        failures = [
            {"id": one["id"], "detail": cut_text(one["detail"], _DETAIL_CHARS)} for one in step["failures"]
        ]
        return replace(
            self,
            replayed=self.replayed + step["replayed"],
            skipped=self.skipped + step["skipped"],
            failed=self.failed + len(failures),
            ends=self.ends.plus(step["replayed"]),
            failures=(*self.failures, *failures)[-KEPT_FAILURES:],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given(JsonShape):
    """What the app reads of a bulk action's input."""

    replay_id: str
    filter: Mapping[str, Any]
    rate_per_second: float
    note: str | None = None
    matched: int
    created_at: datetime


def checked_input(given: dict[str, Any]) -> dict[str, Any]:
    """Return the input of a bulk action, if it is one.

    Raises:
        ValueError: Nobody can read it as one.
    """
    _Given.from_json(given)
    return given

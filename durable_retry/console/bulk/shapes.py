"""Doing something to many: to which dead letters or operations, at what rate, and how far it got."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil
from typing import Annotated, Any, Final, Literal, Self, TypedDict, override

from pydantic import AfterValidator, Field

from durable_retry.engine.base.instants import from_rfc3339, optional_from_rfc3339
from durable_retry.engine.base.json_forms import Form, JsonRecord
from durable_retry.engine.base.names import Category, DeadLetterReason, OperationState
from durable_retry.engine.base.text import cut_text
from durable_retry.engine.base.unreadable import StoredInstant, shaped
from durable_retry.engine.base.validation import (
    InvalidInputError,
    Label,
    Problem,
    Strict,
    checked,
    validated,
    with_example,
)
from durable_retry.engine.dead_letters.filters import DeadLetterFilter
from durable_retry.engine.dead_letters.record import Status
from durable_retry.engine.dead_letters.replay import NoteText

MAX_BATCH: Final = 25
"""Dead letters that one activity replays: far below `functionTimeout`, and the rate stays smooth."""

BATCHES_PER_PAGE: Final = 20
"""Batches per read of the list; then the orchestration continues as new, which keeps its history short."""

KEPT_FAILURES: Final = 20
_DETAIL_CHARS: Final = 200


def _one_of_words(words: type[StrEnum]) -> AfterValidator:
    names = [word.value for word in words]
    return checked(lambda text: None if text in names else f"must be one of {', '.join(names)}")


def _instant_problem(text: str) -> str | None:
    try:
        from_rfc3339(text)
    except ValueError:
        return "must be an RFC 3339 instant such as 2026-11-21T09:30:00Z"
    return None


type InstantText = Annotated[str, checked(_instant_problem)]


class FilterBody(Strict):
    """A choice of dead letters, as in the query of the list; only open ones can be replayed."""

    status: Literal["open"] = "open"
    reason: Annotated[str, _one_of_words(DeadLetterReason)] | None = None
    category: Annotated[str, _one_of_words(Category)] | None = None
    dependency: Label | None = None
    group: Label | None = None
    created_after: InstantText | None = None
    created_before: InstantText | None = None

    def wanted(self, now: datetime) -> DeadLetterFilter:
        """Return the filter, limited to what exists now: a bulk replay never meets its own failures."""
        return DeadLetterFilter(
            status=Status.OPEN,
            reason=self.reason,
            category=self.category,
            dependency=self.dependency,
            group=self.group,
            created_after=optional_from_rfc3339(self.created_after),
            created_before=optional_from_rfc3339(self.created_before),
        ).until(now)


class BulkAction(StrEnum):
    """What is done to many: the first two to dead letters, the others to operations."""

    REPLAY = "replay"
    ARCHIVE = "archive"
    CANCEL = "cancel"
    RETRY_NOW = "retry_now"

    @property
    def is_of_dead_letters(self) -> bool:
        """Whether it is done to dead letters."""
        return self in {BulkAction.REPLAY, BulkAction.ARCHIVE}

    @property
    def has_later_end(self) -> bool:
        """Whether what it starts ends later; otherwise an item is over when it was acted on."""
        return self in {BulkAction.REPLAY, BulkAction.CANCEL}


class BulkBody(Strict):
    """What a bulk replay and another bulk action are asked for with.

    Attributes:
        rate_per_second: The most per second, on average.
        dry_run: Whether to count only.
        note: Stored with each dead letter.
    """

    rate_per_second: Annotated[float, Field(ge=0.001, le=100)] = 5.0
    dry_run: bool = False
    note: NoteText | None = None

    @property
    def what(self) -> BulkAction:
        """The action."""
        return BulkAction.REPLAY

    @property
    def selection(self) -> list[str]:
        """The ids that are meant, each once; none where a filter says which."""
        return []


class BulkReplayBody(BulkBody):
    """The body of `POST /api/dead-letters/replays`; `filter` is required, and `{}` means all."""

    model_config = with_example(filter={"dependency": "payments"}, rate_per_second=5.0, dry_run=True)

    filter: FilterBody


class OperationsBody(Strict):
    """A choice among the operations that have not ended."""

    status: Literal["pending", "running", "waiting_retry", "waiting_circuit"] | None = None
    dependency: Label | None = None
    created_after: InstantText | None = None
    created_before: InstantText | None = None

    def wanted(self, now: datetime) -> "UnfinishedFilter":
        """Return the filter, limited to what exists now."""
        before = optional_from_rfc3339(self.created_before)
        return UnfinishedFilter(
            status=None if self.status is None else OperationState(self.status),
            dependency=self.dependency,
            created_after=optional_from_rfc3339(self.created_after),
            created_before=now if before is None else min(before, now),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedFilter(JsonRecord):
    """Conditions on operations that have not ended; None means any. See `OperationsBody`."""

    status: OperationState | None = None
    dependency: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None


MAX_SELECTED: Final = 200

type SelectedId = Annotated[str, Field(min_length=1, max_length=100)]


class BulkActionBody(BulkBody):
    """The body of `POST /api/bulk-actions`: a filter or a selection.

    Attributes:
        action: `replay` and `archive` dead letters; `cancel` operations, or `retry_now` those that wait.
        filter: Which: for dead letters as `POST /api/dead-letters/replays` takes it; for operations `status`,
            `dependency`, `created_after` and `created_before`. `{}` means all that are open or not ended.
        ids: Which, in place of a filter.
    """

    model_config = with_example(action="archive", filter={"dependency": "payments"}, dry_run=True)

    action: Literal["replay", "archive", "cancel", "retry_now"]
    filter: dict[str, Any] | None = None
    ids: Annotated[list[SelectedId], Field(min_length=1, max_length=MAX_SELECTED)] | None = None

    @property
    @override
    def what(self) -> BulkAction:
        return BulkAction(self.action)

    @property
    @override
    def selection(self) -> list[str]:
        return list(dict.fromkeys(self.ids or ()))

    def wanted(self, now: datetime) -> "DeadLetterFilter | UnfinishedFilter | None":
        """Return the filter; None for a selection.

        Raises:
            InvalidInputError: Neither or both are given, or the filter does not fit the action.
        """
        if (self.filter is None) == (self.ids is None):
            raise InvalidInputError([Problem("", "needs a filter or ids, and not both")])
        if self.note is not None and not self.what.is_of_dead_letters:
            raise InvalidInputError([Problem("/note", "is kept with dead letters only")])
        if self.filter is None:
            return None
        try:
            if self.what.is_of_dead_letters:
                return validated(FilterBody, self.filter).wanted(now)
            return validated(OperationsBody, self.filter).wanted(now)
        except InvalidInputError as error:
            problems = [Problem(f"/filter{one.pointer}", one.detail) for one in error.problems]
            raise InvalidInputError(problems) from None


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
class BulkItem(JsonRecord):
    """What a bulk action did to one dead letter or operation.

    Attributes:
        outcome: `replayed` or `done` when it was done; `skipped` when its state did not allow it; `failed`
            when it could not be done.
        detail: Why it was skipped or failed; None otherwise.
        operation_id: The operation that replays the dead letter, or that was acted on; None when there is
            none.
        unreadable: Why its row cannot be read, of what is shown in its place; it is never stored.
    """

    id: str
    outcome: ItemOutcome
    detail: str | None = None
    operation_id: str | None = None
    event_id: str | None = None
    unreadable: Annotated[str | None, Form(is_stored=False)] = None

    @property
    def is_started(self) -> bool:
        """Whether it was replayed or acted on."""
        return self.outcome in {ItemOutcome.REPLAYED, ItemOutcome.DONE}

    @classmethod
    def failed(cls, item_id: str, error: Exception) -> Self:
        """Return one that could not be done."""
        return cls(id=item_id, outcome=ItemOutcome.FAILED, detail=str(error) or type(error).__name__)

    def shortened(self) -> Self:
        """Return it with a detail that fits a row and a line."""
        return self if self.detail is None else replace(self, detail=cut_text(self.detail, _DETAIL_CHARS))


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemEnd(JsonRecord):
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
class EndCounts(JsonRecord):
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
class ReplayProgress(JsonRecord):
    """The progress of a bulk replay.

    Attributes:
        replayed: Dead letters whose replay started.
        skipped: Dead letters that were no longer open when their turn came.
        failed: Dead letters that could not be started, and stay open.
        failures: `{"id", "detail"}` of the latest of these.
        cursor: Where to continue reading the list; None at the beginning.
        ends: How what was replayed has ended; None where an older version began, which does not count that.
    """

    replayed: int = 0
    skipped: int = 0
    failed: int = 0
    failures: tuple[Mapping[str, Any], ...] = ()
    cursor: str | None = None
    ends: Annotated[EndCounts | None, Form(omits_none=True)] = None

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
            ends=None if self.ends is None else self.ends.plus(step["replayed"]),
            failures=(*self.failures, *failures)[-KEPT_FAILURES:],
        )


class _Given(TypedDict):
    """What the app reads of a bulk action's input."""

    replay_id: str
    filter: dict[str, Any]
    rate_per_second: float
    note: str | None
    matched: int
    created_at: StoredInstant


def checked_input(given: dict[str, Any]) -> dict[str, Any]:
    """Return the input of a bulk action, if it is one.

    Raises:
        ValueError: Nobody can read it as one.
    """
    return shaped(_Given, given)

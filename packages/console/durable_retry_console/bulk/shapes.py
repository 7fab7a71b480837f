"""Bulk actions: what is done to many, what their orchestration is given, and how far it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil
from typing import Any, Final, Self

from durable_retry.base.json_forms import JsonShape
from durable_retry.base.names import OperationState, TurnNames
from durable_retry.rules.dead_letters.record import Status
from durable_retry_console.bulk.proof import Proof

MAX_BATCH: Final = 25
"""Items that one activity acts on: far below `functionTimeout`, and the rate stays smooth."""

BATCHES_PER_PAGE: Final = 20
"""Batches per read of the list."""

KEPT_FAILURES: Final = 20


class BulkAction(StrEnum):
    """What is done to many: the first four to dead letters, the others to operations."""

    REPLAY = "replay"
    LOOKUP = "lookup"
    ARCHIVE = "archive"
    RESTORE = "restore"
    CANCEL = "cancel"
    RETRY_NOW = "retry_now"
    PAUSE = "pause"
    RESUME = "resume"

    @property
    def is_of_dead_letters(self) -> bool:
        return self.is_replay or self in {BulkAction.ARCHIVE, BulkAction.RESTORE}

    @property
    def meets(self) -> Status:
        """The status of the dead letters that it is done to."""
        return Status.ARCHIVED if self is BulkAction.RESTORE else Status.OPEN

    @property
    def is_replay(self) -> bool:
        """Whether it starts operations of dead letters again; a lookup does so to ask, and sends nothing."""
        return self in {BulkAction.REPLAY, BulkAction.LOOKUP}

    @property
    def has_later_end(self) -> bool:
        """Whether what it starts ends later; otherwise an item is over when it was acted on."""
        return self.is_replay or self is BulkAction.CANCEL


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedFilter(TurnNames, JsonShape):
    """Conditions on operations that have not ended; None means any."""

    status: OperationState | None = None
    dependency: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None

    def until(self, instant: datetime) -> Self:
        """Return the filter limited to operations accepted before an instant."""
        return replace(self, created_before=min(self.created_before or instant, instant))


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
        """How many items to read at once."""
        return self.batch * BATCHES_PER_PAGE


class BulkState(StrEnum):
    """The state of a bulk action; it is completed once all that it started has ended."""

    RUNNING = "running"
    COMPLETED = "completed"
    STOPPED = "stopped"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class BulkFailure(JsonShape):
    """One that the action could not be done to."""

    id: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkProgress(JsonShape):
    """How far a bulk action is: what its orchestration shows, continues with and returns."""

    status: BulkState = BulkState.RUNNING
    started: int = 0  # how many were acted on
    skipped: int = 0  # how many were in a state that does not allow it when their turn came
    failed: int = 0  # how many it could not be done to
    failures: tuple[BulkFailure, ...] = ()  # the latest of these
    # How many of those started ended as they should; those started after `counted_at` do not count yet.
    succeeded: int = 0
    failed_again: int = 0  # how many ended otherwise
    under_way: int = 0  # how many have not ended
    counted_at: datetime | None = None  # when the ends were counted; None before the first time
    # When it next checks the circuit that it waits for; None when it does not wait.
    waiting_until: datetime | None = None
    proof: Proof | None = None  # how it proves itself; None where it sends all
    reason: str | None = None  # why it stopped; None unless it is stopped
    stopped_at: datetime | None = None  # when it did

    @property
    def refused(self) -> int:
        return self.skipped + self.failed

    def may_start(self, most: int) -> int:
        return most if self.proof is None else self.proof.may_start(self.started, most)

    def stopped(self, reason: str, now: datetime) -> Self:
        """Stop: what it sends fails again."""
        return replace(self, status=BulkState.STOPPED, reason=reason, stopped_at=now)

    def resumed(self, now: datetime) -> Self:
        """Go on after a stop, and prove itself again."""
        proof = None if self.proof is None else self.proof.resumed(self.started, now)
        return replace(self, status=BulkState.RUNNING, reason=None, stopped_at=None, proof=proof)

    def plus(self, batch: "BatchResult") -> Self:
        return replace(
            self,
            started=self.started + batch.started,
            skipped=self.skipped + batch.skipped,
            failed=self.failed + len(batch.failures),
            under_way=self.under_way + batch.started,
            failures=(*self.failures, *batch.failures)[-KEPT_FAILURES:],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkOrder(JsonShape):
    """What is done to each."""

    action_id: str
    action: BulkAction
    note: str | None = None
    by: str | None = None
    # What was given of `ReplayOptions` or `PauseOptions`, beside the note.
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkInput(BulkOrder):
    """What the orchestration of a bulk action is given at its start, and where it continues as new."""

    # The conditions on dead letters or on operations, as they are stored; None for a selection.
    filter: Mapping[str, Any] | None = None
    rate_per_second: float
    matched: int
    created_at: datetime
    restarts: int = 0  # how often upkeep started it anew
    ids: tuple[str, ...] = ()  # the rest of a page, or of a selection; without it, the next page is read
    cursor: str | None = None  # of the next page; None for the first, and beside the rest of the last one
    held: tuple[str, ...] = ()  # ids of dead letters whose circuits were open at their turn: others go first
    is_over: bool = False  # whether there is nothing more to begin: only ends are left to count
    progress: BulkProgress = field(default_factory=BulkProgress)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInput(BulkOrder):
    """What an activity does to some; `now` is the instant of the orchestrator."""

    ids: tuple[str, ...]
    now: datetime
    resumes: int | None = None  # of its `Proof`; None without one


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult(JsonShape):
    """What an activity did to some."""

    started: int = 0
    skipped: int = 0
    failures: tuple[BulkFailure, ...] = ()
    left: tuple[str, ...] = ()  # ids of dead letters that have to wait for a circuit
    # For how long, by the clock of `BatchInput.now`; None when none has to wait.
    held_until: datetime | None = None

"""What people see of bulk replays and bulk actions."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from durable_retry.engine.base.answers import Answer, Instant, left_out
from durable_retry.engine.base.instants import from_rfc3339
from durable_retry.engine.base.json_forms import is_none
from durable_retry.engine.base.names import EventState, OperationState
from durable_retry.engine.base.unreadable import Unreadable
from durable_retry.engine.base.validation import Problem
from durable_retry.engine.dead_letters.filters import DeadLetterFilter
from durable_retry.engine.dead_letters.record import EditedValue
from durable_retry.engine.operations.pause import PauseOptions
from durable_retry_console.bulk.shapes import (
    BulkAction,
    ItemOutcome,
    ReplayProgress,
    ReplayState,
    UnfinishedFilter,
)


class BulkFailure(Answer):
    """One that the action could not be done to."""

    id: str
    detail: str


type Ended = Annotated[
    int,
    Field(
        description="Of what was started: `succeeded`; `failed_again` ended otherwise, as a dead letter or "
        "cancelled; `under_way` had not ended at `counted_at`."
    ),
]


class BulkPause(PauseOptions):
    """How a bulk action pauses each operation."""

    model_config = ConfigDict(extra="ignore")  # a later version may have stored more


class BulkProgress(Answer):
    """How far something that is done to many got."""

    status: ReplayState
    filter: Annotated[
        dict[str, Any],
        Field(
            description="Which: for dead letters as for their list, for operations that have not ended "
            "`status`, `dependency`, `created_after` and `created_before`. null means any."
        ),
    ]
    rate_per_second: float
    note: str | None
    matched: int
    skipped: int = 0
    failed: int = 0
    failures: tuple[BulkFailure, ...]
    started: Annotated[int, Field(description="Were replayed, or acted on.")]
    succeeded: Ended = 0
    failed_again: Ended = 0
    under_way: Ended = 0
    refused: Annotated[int, Field(description="`skipped` and `failed` together.")]
    counted_at: Annotated[
        Instant | None, Field(description="When the ends were last counted; null before the first time.")
    ] = None
    remaining: int = 0
    waiting_until: Annotated[
        Instant | None, Field(description="When it next checks the circuit that it waits for.")
    ] = None
    created_at: Instant
    by: Annotated[str | None, Field(description="Who began it; null where it is not known.")] = None
    patch: Annotated[list[dict[str, Any]] | None, left_out("The change that each gets, secrets masked.")] = (
        None
    )
    pause: Annotated[BulkPause | None, left_out("How each is paused; of a pause only.")] = None
    unreadable: Annotated[Unreadable, Field(exclude_if=is_none)] = None


class BulkReplayDocument(BulkProgress):
    """How far a bulk replay got: also what its orchestration shows and returns."""

    replay_id: str
    replayed: int

    def stored(self) -> dict[str, Any]:
        """Return what an orchestration writes: who began it and the patch stand in the input."""
        return self.model_dump(mode="json", exclude={"by"})


class BulkActionDocument(BulkProgress):
    """How far a bulk action got."""

    action_id: str
    action: BulkAction
    selected: int
    done: int


def progress_document(
    given: Mapping[str, Any],
    state: ReplayState,
    progress: ReplayProgress,
    *,
    waiting_until: datetime | None = None,
) -> BulkReplayDocument:
    """Return the document of `GET /api/dead-letters/replays/{id}`.

    Args:
        waiting_until: When it next checks the circuit that it waits for; None when it does not wait.
    """
    done = progress.replayed + progress.skipped + progress.failed
    return BulkReplayDocument.taken_from(
        progress,
        **{name: given[name] for name in ("replay_id", "rate_per_second", "note", "matched")},
        filter=_shown_filter(given),
        status=state,
        failures=tuple(BulkFailure(**failure) for failure in progress.failures),
        started=progress.replayed,
        refused=progress.skipped + progress.failed,
        **asdict(progress.ends),
        remaining=max(0, given["matched"] - done),
        waiting_until=waiting_until,
        created_at=from_rfc3339(given["created_at"]),
        by=given.get("by"),
    )


def _shown_filter(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conditions of a bulk action, those that were not given among them."""
    action = BulkAction(given.get("action", BulkAction.REPLAY))
    kind = DeadLetterFilter if action.is_of_dead_letters else UnfinishedFilter
    return {condition.name: given["filter"].get(condition.name) for condition in fields(kind)}


def action_document(progress: BulkReplayDocument, given: Mapping[str, Any]) -> BulkActionDocument:
    """Return the document of `GET /api/bulk-actions/{id}`."""
    return BulkActionDocument.taken_from(
        progress,
        action_id=progress.replay_id,
        action=BulkAction(given.get("action", BulkAction.REPLAY)),
        selected=given.get("selected", 0),
        done=progress.replayed,
    )


class BulkItemDocument(Answer):
    """What a bulk replay or a bulk action did to one, and what became of it."""

    id: Annotated[str, Field(description="Of the dead letter or the operation.")]
    outcome: ItemOutcome
    detail: Annotated[str | None, Field(description="Why it was skipped or failed; null otherwise.")]
    operation_id: Annotated[str | None, Field(description="Replays the dead letter, or was acted on.")]
    event_id: Annotated[str | None, Field(description="The event that was sent again.")]
    at: Annotated[Instant | None, Field(description="When its turn came.")]
    status: Annotated[
        OperationState | EventState | None,
        Field(description="Of the operation or the event now; null when there is none, or none any more."),
    ]
    failed_again: Annotated[str | None, Field(description="The dead letter that the replay ended as.")]
    errors: Annotated[
        tuple[Problem, ...] | None, left_out("What is wrong with the content of one that failed.")
    ] = None
    unreadable: Annotated[Unreadable, Field(exclude_if=is_none)] = None


class EditPreview(Answer):
    """What a patch would change in one dead letter, or why it does not fit it."""

    id: str
    changes: Annotated[tuple[EditedValue, ...], Field(description="Each place, as people see it.")] = ()
    errors: Annotated[tuple[Problem, ...], Field(description="Why it would not be replayed.")] = ()


class MatchedDeadLetters(Answer):
    """How many open dead letters a filter finds."""

    matched: int
    preview: Annotated[
        tuple[EditPreview, ...] | None,
        left_out("What a patch would change in the newest three; left out without a patch."),
    ] = None


class BulkMatches(MatchedDeadLetters):
    """How many an action would meet; `complete` is false when there may be more, which nobody looked at."""

    complete: bool

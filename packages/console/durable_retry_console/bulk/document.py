"""What people see of bulk actions."""

from dataclasses import fields
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Final, Self

from pydantic import ConfigDict, Field

from durable_retry.base.answers import Answer, Instant, Unreadable, left_out, read_or
from durable_retry.base.json_forms import is_none
from durable_retry.base.masking import MASKED
from durable_retry.base.names import EventState, OperationState
from durable_retry.base.text import cut_text
from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.rules.dead_letters.record import EditedValue
from durable_retry.rules.operations.waits import PauseOptions
from durable_retry_console.bulk.shapes import BulkAction, BulkFailure, BulkInput, BulkProgress, BulkState


class BulkPause(PauseOptions):
    """How a bulk action pauses each operation."""

    model_config = ConfigDict(extra="ignore")  # a later version may have stored more


type Ended = Annotated[
    int,
    Field(
        description="Of what was started: `succeeded`; `failed_again` ended otherwise, as a dead letter or "
        "cancelled; `under_way` had not ended at `counted_at`."
    ),
]


class BulkActionDocument(Answer):
    """How far a bulk action is."""

    action_id: str
    action: BulkAction
    status: BulkState
    filter: dict[str, Any] | None = Field(description="Which are meant; null for a selection.")
    rate_per_second: float
    note: str | None
    matched: int
    started: int = Field(description="Were acted on.")
    succeeded: Ended
    failed_again: Ended
    under_way: Ended
    refused: int = Field(description="`skipped` and `failed` together.")
    skipped: int
    failed: int
    failures: tuple[BulkFailure, ...]
    remaining: int = Field(description="Whose turn has not come.")
    counted_at: Instant | None = Field(
        description="When the ends were last counted; null before the first time."
    )
    waiting_until: Instant | None = Field(description="When it next checks the circuit that it waits for.")
    stop_at_failed: float | None = Field(
        description="The share of failures above which it stops; null where it does all."
    )
    reason: str | None = Field(description="Why it stopped; null unless it is stopped.")
    stopped_at: Instant | None = Field(description="When it stopped; null unless it is stopped.")
    created_at: Instant
    by: str | None = Field(description="Who began it; null where it is not known.")
    patch: list[dict[str, Any]] | None = left_out("The change that each gets, secrets masked.")
    pause: BulkPause | None = left_out("How each is paused; of a pause only.")
    error: str | None = left_out("Why the platform ended it before it was over.")
    unreadable: Unreadable = Field(default=None, exclude_if=is_none)

    @classmethod
    def of(cls, given: BulkInput, progress: BulkProgress, **more: str | None) -> Self:
        done = {each.name: getattr(progress, each.name) for each in fields(progress)}
        acted_on = progress.started + progress.refused
        pause = partial(BulkPause.model_validate, given.options)
        return cls.taken_from(
            given,
            **done,
            # One may have come since they were counted.
            matched=max(given.matched, acted_on),
            refused=progress.refused,
            remaining=max(0, given.matched - acted_on),
            stop_at_failed=None if progress.proof is None else progress.proof.stop_at_failed,
            patch=read_or(lambda: [_shown_step(step) for step in given.options["patch"]], lambda _: None),
            pause=None if given.action is not BulkAction.PAUSE else read_or(pause, lambda _: None),
            **more,
        )


def _shown_step(step: dict[str, Any]) -> dict[str, Any]:
    # The dependencies' own rules are not known here: what is known everywhere is masked.
    return step | ({"value": MASKED.value_at(step["path"], step["value"])} if "value" in step else {})


class ItemOutcome(StrEnum):
    """What a bulk action did to one item."""

    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


GONE: Final = "there is no such dead letter"
"""Why an item is skipped that is not there any more."""

_DETAIL_CHARS: Final = 200
_KEPT_ERRORS: Final = 10


class BulkItem(Answer):
    """What a bulk action did to one, and what became of it."""

    id: str = Field(description="Of the dead letter or the operation.")
    key: str | None = Field(default=None, description="Its key; null where nobody knows it any more.")
    outcome: ItemOutcome = Field(
        description="`skipped`: its state did not allow it. `failed`: it could not be done."
    )
    detail: str | None = Field(default=None, description="Why it was skipped or failed; null otherwise.")
    operation_id: str | None = Field(default=None, description="Replays the dead letter, or was acted on.")
    event_id: str | None = Field(default=None, description="The event that was sent again.")
    at: Instant | None = Field(default=None, description="When its turn came.")
    succeeded: bool | None = Field(
        default=None, description="Whether what it started ended well; null before it was seen to end."
    )
    status: OperationState | EventState | None = Field(
        default=None,
        description="Of the operation or the event now; null when there is none, or none any more.",
    )
    failed_again: str | None = Field(default=None, description="The dead letter that the replay ended as.")
    ended_at: Instant | None = left_out("When what it started ended, once that was seen.")
    resumes: int | None = left_out("How often the replay had been resumed by then, where it proves itself.")
    errors: tuple[Problem, ...] | None = left_out("What is wrong with the content of one that failed.")
    unreadable: Unreadable = Field(default=None, exclude_if=is_none)

    @classmethod
    def skipped(cls, item_id: str, why: str) -> Self:
        """Return one whose state does not allow it."""
        return cls(id=item_id, outcome=ItemOutcome.SKIPPED, detail=why)

    @classmethod
    def failed(cls, item_id: str, error: Exception | str) -> Self:
        """Return one that it could not be done to, with a detail and errors that fit a row and a line."""
        problems = error.problems[:_KEPT_ERRORS] if isinstance(error, InvalidInputError) else ()
        errors = tuple(Problem(each.pointer, cut_text(each.detail, _DETAIL_CHARS)) for each in problems)
        detail = cut_text(str(error) or type(error).__name__, _DETAIL_CHARS)
        return cls(id=item_id, outcome=ItemOutcome.FAILED, detail=detail, errors=errors or None)

    @property
    def is_under_way(self) -> bool:
        """Whether nobody has seen how that ended which it started."""
        return self.outcome is ItemOutcome.DONE and self.succeeded is None


class EditPreview(Answer):
    """What the replay of one dead letter would change, or why it would be refused."""

    id: str
    key: str | None = Field(default=None, description="null where it is gone.")
    changes: tuple[EditedValue, ...] = Field(default=(), description="Each place, as people see it.")
    errors: tuple[Problem, ...] = Field(default=(), description="Why it would not be replayed.")


class BulkMatches(Answer):
    """How many an action would meet."""

    matched: int
    complete: bool = Field(description="False when there may be more, which nobody looked at.")
    preview: tuple[EditPreview, ...] | None = left_out(
        "What would become of the newest three dead letters; of a replay only."
    )


class StartedBulkAction(Answer):
    """A bulk action that was started."""

    action_id: str
    matched: int
    status_url: str

"""What bulk actions are asked for with."""

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, override

from pydantic import AfterValidator, Field

from durable_retry.base.names import Category, DeadLetterReason, OperationState, PriorityName
from durable_retry.base.validation import (
    InstantText,
    InvalidInputError,
    Label,
    Problem,
    Strict,
    checked,
    with_example,
)
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.features.replay.rules import ReplayOptions
from durable_retry.rules.operations.waits import PauseOptions, Resume, ResumeOptions
from durable_retry_console.bulk.proof import Proof
from durable_retry_console.bulk.shapes import BulkAction, UnfinishedFilter


def _one_of_words(words: type[StrEnum]) -> AfterValidator:
    names = [word.value for word in words]
    return checked(lambda text: None if text in names else f"must be one of {', '.join(names)}")


_OF_STATUS: Final = ("open", "archived")
_OF_LETTERS: Final = ("reason", "category", "group", "app_version")


class BulkFilter(Strict):
    """A choice of dead letters, or of operations that have not ended; `{}` means all of them.

    Attributes:
        status: Of operations; dead letters are `open`, or for a restore `archived`.
    """

    status: (
        Literal[
            "open",
            "archived",
            "pending",
            "scheduled",
            "paused",
            "running",
            "waiting_retry",
            "waiting_throttle",
            "waiting_circuit",
            "waiting_order",
        ]
        | None
    ) = None
    reason: Annotated[str, _one_of_words(DeadLetterReason)] | None = Field(
        default=None, description="Of dead letters."
    )
    category: Annotated[str, _one_of_words(Category)] | None = Field(
        default=None, description="Of dead letters."
    )
    group: Label | None = Field(default=None, description="Of dead letters.")
    app_version: Label | None = Field(default=None, description="Of dead letters.")
    dependency: Label | None = None
    order_key: Label | None = None
    priority: PriorityName | None = None
    limit_key: Label | None = None
    debounce_key: Label | None = None
    created_after: InstantText | None = None
    created_before: InstantText | None = None

    def misfits(self, action: BulkAction) -> Iterator[Problem]:
        """Yield what does not choose what the action is done to."""
        if action.is_of_dead_letters:
            if self.status not in {None, action.meets}:
                yield Problem("/filter/status", f"must be {action.meets} for dead letters")
            return
        if self.status in _OF_STATUS:
            yield Problem("/filter/status", "is for dead letters only")
        yield from (
            Problem(f"/filter/{name}", "is for dead letters only")
            for name in _OF_LETTERS
            if getattr(self, name) is not None
        )

    def wanted(
        self, action: BulkAction, now: datetime, *, of_all: bool = False
    ) -> DeadLetterFilter | UnfinishedFilter:
        """Return what the action meets, limited to what exists now: a replay never meets its own failures.

        Args:
            of_all: Whether a resume meets those that are not paused, too.
        """
        given = self.model_dump()
        if action is BulkAction.LOOKUP:
            given["category"] = self.category or Category.AMBIGUOUS
        if action.is_of_dead_letters:
            return DeadLetterFilter.from_json(given | {"status": action.meets}).until(now)
        if action is BulkAction.RESUME and self.status is None and not of_all:
            given["status"] = OperationState.PAUSED
        return UnfinishedFilter.from_json(given).until(now)


MAX_SELECTED: Final = 200

type SelectedId = Annotated[str, Field(min_length=1, max_length=100)]


_OF_STEERING: Final = {
    BulkAction.PAUSE: frozenset(PauseOptions.model_fields),
    BulkAction.RESUME: frozenset(Resume.model_fields),
}
_STEERING: Final = frozenset().union(*_OF_STEERING.values())
_OF_PROBES: Final = frozenset({"probe", "stop_at_failed"})


class BulkActionBody(ReplayOptions, PauseOptions, ResumeOptions):
    """What is done to many, and to which: by a filter, a selection or a batch.

    Attributes:
        action: `replay` or `archive` open dead letters, `restore` archived ones, or `lookup` whether
            ambiguous ones happened; `cancel` or `pause` operations, `retry_now` those that wait, or `resume`
            those that are paused.
        ids: Which, in place of a filter.
        batch_id: The dead letters of the operations of this batch, in place of a filter.
        rate_per_second: The most per second, on average.
        probe: Whether a replay proves itself: it sends 1, waits for its end, sends 5, then the rest.
        stop_at_failed: Above which share of the last 20 that ended it stops, where they failed again.
        dry_run: Whether to count only, and to preview what a replay would do to the first three.
    """

    model_config = with_example(action="replay", filter={"dependency": "payments"}, dry_run=True)

    action: Literal["replay", "lookup", "archive", "restore", "cancel", "retry_now", "pause", "resume"]
    filter: BulkFilter | None = None
    ids: Annotated[list[SelectedId], Field(min_length=1, max_length=MAX_SELECTED)] | None = None
    batch_id: SelectedId | None = None
    rate_per_second: Annotated[float, Field(ge=0.001, le=100)] = 5.0
    probe: bool = True
    stop_at_failed: Annotated[float, Field(ge=0, le=1)] = 0.5
    dry_run: bool = False

    @property
    def what(self) -> BulkAction:
        return BulkAction(self.action)

    @property
    def dependency(self) -> str | None:
        """The one that is meant; None for any."""
        return None if self.filter is None else self.filter.dependency

    @property
    def selection(self) -> tuple[str, ...]:
        """The ids that are meant, each once; none where a filter says which."""
        return tuple(dict.fromkeys(self.ids or ()))

    def proof(self, now: datetime) -> Proof | None:
        """Return how it begins to prove itself; None for what does all."""
        is_probed = self.what is BulkAction.REPLAY and self.probe
        return Proof(stop_at_failed=self.stop_at_failed, since=now) if is_probed else None

    @property
    @override
    def options(self) -> dict[str, Any]:
        return super().options | self.model_dump(
            include=set(_STEERING), exclude_unset=True, exclude_none=True
        )

    def wanted(self, now: datetime) -> DeadLetterFilter | UnfinishedFilter | None:
        """Return the filter; None for a selection or a batch.

        Raises:
            InvalidInputError: Not exactly one of the three is given, or something does not fit the action.
        """
        if [self.filter, self.ids, self.batch_id].count(None) != 2:  # noqa: PLR2004 # all but one
            raise InvalidInputError([Problem("", "needs a filter, ids or batch_id, and one of them only")])
        if misfits := list(self._misfits()):
            raise InvalidInputError(misfits)
        return None if self.filter is None else self.filter.wanted(self.what, now, of_all=self.at_once)

    def _misfits(self) -> Iterator[Problem]:
        """Yield what is of other actions."""
        is_of_letters = self.what.is_of_dead_letters
        if self.batch_id is not None and not is_of_letters:
            yield Problem("/batch_id", "is for dead letters: replay, look up, archive or restore them")
        if self.filter is not None:
            yield from self.filter.misfits(self.what)
        for name in sorted(self.options.keys() | _OF_PROBES & self.model_fields_set):
            if name == "note":
                if not is_of_letters:
                    yield Problem("/note", "is kept with dead letters only")
            elif name not in _OF_STEERING.get(self.what, ()) and (
                name in _STEERING or self.what is not BulkAction.REPLAY
            ):
                owners = [f"{action}s" for action, own in _OF_STEERING.items() if name in own]
                yield Problem(f"/{name}", f"is for {' and '.join(owners) or 'replays'} only")

"""What bulk replays and other bulk actions are asked for with."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, override

from pydantic import AfterValidator, Field

from durable_retry.engine.base.names import Category, DeadLetterReason, OperationState, PriorityName
from durable_retry.engine.base.validation import (
    InstantText,
    InvalidInputError,
    Label,
    Problem,
    Strict,
    checked,
    validated,
    with_example,
)
from durable_retry.engine.dead_letters.filters import DeadLetterFilter
from durable_retry.engine.dead_letters.replay import ReplayOptions
from durable_retry.engine.operations.pause import PauseOptions
from durable_retry_console.bulk.shapes import BulkAction, UnfinishedFilter


def _one_of_words(words: type[StrEnum]) -> AfterValidator:
    names = [word.value for word in words]
    return checked(lambda text: None if text in names else f"must be one of {', '.join(names)}")


class _TurnNamesBody(Strict):
    order_key: Label | None = None
    priority: PriorityName | None = None
    debounce_key: Label | None = None


class FilterBody(_TurnNamesBody):
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
        return DeadLetterFilter.from_json(self.model_dump()).until(now)


class BulkBody(ReplayOptions):
    """What a bulk replay and another bulk action are asked for with.

    Attributes:
        rate_per_second: The most per second, on average.
        dry_run: Whether to count only, and to preview a patch on the first three.
    """

    rate_per_second: Annotated[float, Field(ge=0.001, le=100)] = 5.0
    dry_run: bool = False

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

    @property
    def dependency(self) -> str | None:
        """The one that is meant; None for any."""
        return self.filter.dependency


class OperationsBody(_TurnNamesBody):
    """A choice among the operations that have not ended."""

    status: (
        Literal[
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
    dependency: Label | None = None
    created_after: InstantText | None = None
    created_before: InstantText | None = None

    def wanted(self, now: datetime) -> UnfinishedFilter:
        """Return the filter, limited to what exists now."""
        wanted = UnfinishedFilter.from_json(self.model_dump())
        return replace(wanted, created_before=min(wanted.created_before or now, now))


MAX_SELECTED: Final = 200

type SelectedId = Annotated[str, Field(min_length=1, max_length=100)]


_OF_PAUSES: Final = frozenset(PauseOptions.model_fields)


class BulkActionBody(BulkBody, PauseOptions):
    """The body of `POST /api/bulk-actions`: a filter or a selection.

    Attributes:
        action: `replay` and `archive` dead letters; `cancel` or `pause` operations, `retry_now` those that
            wait, or `resume` those that are paused.
        filter: Which: for dead letters as `POST /api/dead-letters/replays` takes it; for operations `status`,
            `dependency`, `order_key`, `priority`, `debounce_key`, `created_after` and `created_before`. `{}`
            means all that are open or not ended.
        ids: Which, in place of a filter.
        batch_id: The dead letters of the operations of this batch, in place of a filter.
    """

    model_config = with_example(action="archive", filter={"dependency": "payments"}, dry_run=True)

    action: Literal["replay", "archive", "cancel", "retry_now", "pause", "resume"]
    filter: dict[str, Any] | None = None
    ids: Annotated[list[SelectedId], Field(min_length=1, max_length=MAX_SELECTED)] | None = None
    batch_id: SelectedId | None = None

    @property
    @override
    def what(self) -> BulkAction:
        return BulkAction(self.action)

    @property
    def dependency(self) -> str | None:
        """The one that is meant; None for any."""
        return (self.filter or {}).get("dependency")

    @property
    @override
    def selection(self) -> list[str]:
        return list(dict.fromkeys(self.ids or ()))

    @property
    @override
    def options(self) -> dict[str, Any]:
        return super().options | self.model_dump(
            include=set(_OF_PAUSES), exclude_unset=True, exclude_none=True
        )

    def wanted(self, now: datetime) -> DeadLetterFilter | UnfinishedFilter | None:
        """Return the filter; None for a selection or a batch.

        Raises:
            InvalidInputError: Not exactly one of the three is given, or it does not fit the action.
        """
        if [self.filter, self.ids, self.batch_id].count(None) != 2:  # noqa: PLR2004 # all but one
            raise InvalidInputError([Problem("", "needs a filter, ids or batch_id, and one of them only")])
        if self.batch_id is not None and not self.what.is_of_dead_letters:
            raise InvalidInputError([Problem("/batch_id", "is for dead letters: replay or archive them")])
        if misfits := list(self._misfits()):
            raise InvalidInputError(misfits)
        if self.filter is None:
            return None
        try:
            if self.what.is_of_dead_letters:
                return validated(FilterBody, self.filter).wanted(now)
            wanted = validated(OperationsBody, self.filter).wanted(now)
        except InvalidInputError as error:
            problems = [Problem(f"/filter{problem.pointer}", problem.detail) for problem in error.problems]
            raise InvalidInputError(problems) from None
        is_any_paused = self.what is BulkAction.RESUME and wanted.status is None
        return replace(wanted, status=OperationState.PAUSED) if is_any_paused else wanted

    def _misfits(self) -> Iterator[Problem]:
        """List the options that are of other actions."""
        for name in sorted(self.options):
            if name == "note":
                if not self.what.is_of_dead_letters:
                    yield Problem("/note", "is kept with dead letters only")
            elif self.what is not (BulkAction.PAUSE if name in _OF_PAUSES else BulkAction.REPLAY):
                yield Problem(f"/{name}", f"is of {'pauses' if name in _OF_PAUSES else 'replays'} only")

"""The orchestration of a bulk replay or another bulk action: page by page, batch by batch, at a rate.

Then it has the ends of what it started counted, until nothing is under way.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

import azure.durable_functions as df
from durabletask import task

from durable_retry.engine.base.instants import from_rfc3339, to_rfc3339
from durable_retry.engine.base.names import (
    BULK_ACTION,
    BULK_BATCH,
    BULK_ENDS,
    BULK_PAGE,
    CANCEL_REPLAY_EVENT,
    REPLAY,
    REPLAY_BATCH,
    REPLAY_PAGE,
)
from durable_retry.runtime.turns import Turns, after_early, call_until_success, fired_early
from durable_retry_console.bulk.document import progress_document
from durable_retry_console.bulk.shapes import BatchPace, EndCounts, ReplayProgress, ReplayState

blueprint = df.Blueprint()

LOOKS_PER_HISTORY: Final = 20
"""Looks at an open circuit after which the orchestration continues as new: it may stay open for days, and is
looked at every few seconds."""

_FIRST_COUNT: Final = timedelta(seconds=2)
_LONGEST_COUNT: Final = timedelta(minutes=15)
# Ends are counted each time the bulk action is an eighth older: what it shows is late by a part of its age,
# and one that waits for days costs little.
_AGE_PER_COUNT: Final = 8


@dataclass(slots=True)
class BulkReplay:
    """One execution of the orchestration.

    Attributes:
        end: The state in which it will end, once it only waits for what it started; None before.
    """

    ctx: task.OrchestrationContext
    given: Mapping[str, Any]
    pace: BatchPace
    progress: ReplayProgress
    cancel: task.CancellableTask[Any]
    end: ReplayState | None = None

    @classmethod
    def resume(cls, ctx: task.OrchestrationContext, given: Mapping[str, Any]) -> Self:
        """Begin from a start's input, or continue from the execution before this one."""
        progress = given.get("progress")
        return cls(
            ctx=ctx,
            given=given,
            pace=BatchPace.of(given["rate_per_second"]),
            progress=ReplayProgress() if progress is None else ReplayProgress.from_json(progress),
            cancel=ctx.wait_for_external_event(CANCEL_REPLAY_EVENT),
            end=ReplayState(given["end"]) if "end" in given else None,
        )

    @property
    def next_count_at(self) -> datetime:
        """When the ends are to be counted again."""
        began_at = from_rfc3339(self.given["created_at"])
        wait = min(max(_FIRST_COUNT, (self.now - began_at) / _AGE_PER_COUNT), _LONGEST_COUNT)
        return (self.progress.ends.counted_at or began_at) + wait

    @property
    def now(self) -> datetime:
        """The replay-safe time, aware UTC."""
        return self.ctx.current_utc_datetime.replace(tzinfo=UTC)

    def show(self, state: ReplayState, *, waiting_until: datetime | None = None) -> dict[str, Any]:
        """Let status queries see the progress, and return that document."""
        shown = progress_document(self.given, state, self.progress, waiting_until=waiting_until)
        document = shown.stored()
        self.ctx.set_custom_status(document)
        return document

    def wait(self, until: datetime) -> Turns[None]:
        """Wait for an instant, unless someone cancels what is not cancelled yet."""
        if until <= self.now:
            return
        timer, early = self.ctx.create_timer(until), 0
        others = [] if self.end is ReplayState.CANCELLED else [self.cancel]
        while (yield task.when_any([timer, *others])) is timer:
            if not fired_early(until, self.now, early):
                return
            timer, early = self.ctx.create_timer(after_early(until, self.now)), early + 1


def replay(ctx: task.OrchestrationContext, given: dict[str, Any]) -> Turns[dict[str, Any] | None]:
    """Run a bulk replay: one page of dead letters per execution, so that the history stays short.

    Args:
        given: `replay_id`, `filter`, `rate_per_second`, `matched`, `note`, `created_at`, `by`;
            `options` where some were given; `action` unless it is a replay; when it continues as new
            `progress`, `page` when it is in the middle of one, and `end` when only ends are left to count. A
            selection begins with its `page`.

    Returns:
        The document of its end; None when the orchestration continues as new.
    """
    bulk = BulkReplay.resume(ctx, given)
    if bulk.end is not None:
        return (yield from _count_until_over(bulk, bulk.end))
    bulk.show(ReplayState.RUNNING)
    page = given.get("page") or (yield from _next_page(bulk))
    # Other pages than those of dead letters may be longer than a short history can take.
    now, later = page["ids"][: bulk.pace.page], page["ids"][bulk.pace.page :]
    left = [*(yield from _replay_all(bulk, now)), *later]
    if bulk.cancel.is_complete:
        return (yield from _count_until_over(bulk, ReplayState.CANCELLED))
    if not left and page["cursor"] is None:
        return (yield from _count_until_over(bulk, ReplayState.COMPLETED))
    if left:
        progress, rest = bulk.progress, {**page, "ids": left}
    else:
        progress, rest = replace(bulk.progress, cursor=page["cursor"]), None
    ctx.continue_as_new({**given, "progress": progress.to_json(), "page": rest}, save_events=True)
    return None


def _next_page(bulk: BulkReplay) -> Turns[Any]:
    request = {"filter": bulk.given["filter"], "limit": bulk.pace.page, "cursor": bulk.progress.cursor}
    page = BULK_PAGE if "action" in bulk.given else REPLAY_PAGE
    return (yield from call_until_success(bulk.ctx, page, request | _action_members(bulk)))


def _action_members(bulk: BulkReplay) -> dict[str, Any]:
    # A bulk replay has no action.
    return {name: bulk.given[name] for name in ("action", "by") if name in bulk.given}


def _replay_all(bulk: BulkReplay, ids: list[str]) -> Turns[list[str]]:
    """Replay dead letters batch by batch, until the history is long; return those that are left."""
    waiting, looks = list(ids), 0
    while waiting and looks < LOOKS_PER_HISTORY and not bulk.cancel.is_complete:
        batch, waiting = waiting[: bulk.pace.batch], waiting[bulk.pace.batch :]
        began = bulk.now
        given = {name: bulk.given[name] for name in ("replay_id", "note", "options") if name in bulk.given}
        given |= _action_members(bulk)
        request = {**given, "ids": batch, "now": to_rfc3339(began)}
        activity = BULK_BATCH if "action" in bulk.given else REPLAY_BATCH
        step = yield from call_until_success(bulk.ctx, activity, request)
        bulk.progress = bulk.progress.plus(step)
        if step["left"]:
            looks += 1
            waiting = [*step["left"], *waiting]
            until = from_rfc3339(step["held_until"])
            bulk.show(ReplayState.WAITING_CIRCUIT, waiting_until=until)
            yield from bulk.wait(until)
        bulk.show(ReplayState.RUNNING)
        if bulk.next_count_at <= bulk.now:
            yield from _count_ends(bulk)
            bulk.show(ReplayState.RUNNING)
        yield from bulk.wait(began + bulk.pace.interval)
    return waiting


def _count_until_over(bulk: BulkReplay, end: ReplayState) -> Turns[dict[str, Any] | None]:
    """Count the ends of what was started until nothing is under way; None to continue as new."""
    bulk.end = end
    for _ in range(LOOKS_PER_HISTORY):
        ends = yield from _count_ends(bulk)
        if not ends.under_way:
            return bulk.show(bulk.end)
        bulk.show(ReplayState.CANCELLED if bulk.end is ReplayState.CANCELLED else ReplayState.RUNNING)
        yield from bulk.wait(bulk.next_count_at)
        if bulk.cancel.is_complete:
            bulk.end = ReplayState.CANCELLED
    progress = bulk.progress.to_json()
    carried = {**bulk.given, "progress": progress, "page": None, "end": bulk.end.value}
    bulk.ctx.continue_as_new(carried, save_events=True)
    return None


def _count_ends(bulk: BulkReplay) -> Turns[EndCounts]:
    sums: Counter[str] = Counter()
    cursor, is_more = None, True
    while is_more:
        request = {"replay_id": bulk.given["replay_id"], "cursor": cursor, **_action_members(bulk)}
        part = yield from call_until_success(bulk.ctx, BULK_ENDS, request)
        cursor = part.pop("cursor")
        sums.update(part)
        is_more = cursor is not None
    ends = EndCounts(**sums, counted_at=bulk.now)
    bulk.progress = replace(bulk.progress, ends=ends)
    return ends


def bulk_action(ctx: task.OrchestrationContext, given: dict[str, Any]) -> Turns[dict[str, Any] | None]:
    """Run a bulk action other than a replay."""
    return (yield from replay(ctx, given))


blueprint.orchestration_trigger(context_name="context", orchestration=REPLAY)(replay)
blueprint.orchestration_trigger(context_name="context", orchestration=BULK_ACTION)(bulk_action)

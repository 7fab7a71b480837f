"""The orchestration of a bulk replay or another bulk action: page by page, batch by batch, at a rate."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Self

import azure.durable_functions as df
from durabletask import task

from durable_retry.engine.base.json_forms import from_rfc3339, to_rfc3339
from durable_retry.engine.base.names import (
    BULK_ACTION,
    BULK_BATCH,
    BULK_PAGE,
    CANCEL_REPLAY_EVENT,
    REPLAY,
    REPLAY_BATCH,
    REPLAY_PAGE,
)
from durable_retry.engine.dead_letters.bulk_replay import (
    BatchPace,
    ReplayProgress,
    ReplayState,
    progress_document,
)

from .steps import Steps, after_early, call_until_success, fired_early

blueprint = df.Blueprint()

LOOKS_PER_HISTORY: Final = 20
"""Looks at an open circuit after which the orchestration continues as new: it may stay open for days, and is
looked at every few seconds."""


@dataclass(slots=True)
class BulkReplay:
    """One execution of the orchestration.

    Attributes:
        ctx: The durable context.
        given: The input of the bulk replay.
        pace: Size and interval of its batches.
        progress: Counts so far.
        cancel: Completes when someone cancels.
    """

    ctx: task.OrchestrationContext
    given: Mapping[str, Any]
    pace: BatchPace
    progress: ReplayProgress
    cancel: task.CancellableTask[Any]

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
        )

    @property
    def now(self) -> datetime:
        """The replay-safe time, aware UTC."""
        return self.ctx.current_utc_datetime.replace(tzinfo=UTC)

    def show(self, state: ReplayState, *, waiting_until: datetime | None = None) -> dict[str, Any]:
        """Let status queries see the progress, and return that document."""
        document = progress_document(self.given, state, self.progress, waiting_until=waiting_until)
        self.ctx.set_custom_status(document)
        return document

    def wait(self, until: datetime) -> Steps[None]:
        """Wait for an instant, unless someone cancels."""
        if until <= self.now:
            return
        timer, early = self.ctx.create_timer(until), 0
        while (yield task.when_any([timer, self.cancel])) is timer:
            if not fired_early(self.given.get("form", 1), until, self.now, early):
                return
            timer, early = self.ctx.create_timer(after_early(until, self.now)), early + 1


def replay(ctx: task.OrchestrationContext, given: dict[str, Any]) -> Steps[dict[str, Any] | None]:
    """Run a bulk replay: one page of dead letters per execution, so that the history stays short.

    Args:
        ctx: The durable context.
        given: `replay_id`, `filter`, `rate_per_second`, `matched`, `note`, `created_at`, `form`, `by`;
            `action` unless it is a replay; when it continues as new `progress`, and `page` when it is in the
            middle of one. A selection begins with its `page`.

    Returns:
        The document of its end; None when the orchestration continues as new.
    """
    bulk = BulkReplay.resume(ctx, given)
    bulk.show(ReplayState.RUNNING)
    page = given.get("page") or (yield from _next_page(bulk))
    # Other pages than those of dead letters may be longer than a short history can take.
    now, later = page["ids"][: bulk.pace.page], page["ids"][bulk.pace.page :]
    left = [*(yield from _replay_all(bulk, now)), *later]
    if bulk.cancel.is_complete:
        return bulk.show(ReplayState.CANCELLED)
    if not left and page["cursor"] is None:
        return bulk.show(ReplayState.COMPLETED)
    if left:
        progress, rest = bulk.progress, {**page, "ids": left}
    else:
        progress, rest = replace(bulk.progress, cursor=page["cursor"]), None
    ctx.continue_as_new({**given, "progress": progress.to_json(), "page": rest}, save_events=True)
    return None


def _next_page(bulk: BulkReplay) -> Steps[Any]:
    request = {"filter": bulk.given["filter"], "limit": bulk.pace.page, "cursor": bulk.progress.cursor}
    page = BULK_PAGE if "action" in bulk.given else REPLAY_PAGE
    return (yield from call_until_success(bulk.ctx, page, request | _action(bulk)))


def _action(bulk: BulkReplay) -> dict[str, Any]:
    """Return what the inputs of older versions do not have."""
    return {name: bulk.given[name] for name in ("action", "by") if name in bulk.given}


def _replay_all(bulk: BulkReplay, ids: list[str]) -> Steps[list[str]]:
    """Replay dead letters batch by batch, until none is left, someone cancels, or the history is long.

    Returns:
        Those that are left.
    """
    waiting, looks = list(ids), 0
    while waiting and looks < LOOKS_PER_HISTORY and not bulk.cancel.is_complete:
        batch, waiting = waiting[: bulk.pace.batch], waiting[bulk.pace.batch :]
        began = bulk.now
        given = {"replay_id": bulk.given["replay_id"], "note": bulk.given["note"], **_action(bulk)}
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
        yield from bulk.wait(began + bulk.pace.interval)
    return waiting


def bulk_action(ctx: task.OrchestrationContext, given: dict[str, Any]) -> Steps[dict[str, Any] | None]:
    """Run a bulk action other than a replay."""
    return (yield from replay(ctx, given))


blueprint.orchestration_trigger(context_name="context", orchestration=REPLAY)(replay)
blueprint.orchestration_trigger(context_name="context", orchestration=BULK_ACTION)(bulk_action)

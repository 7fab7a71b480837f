"""The orchestration of a bulk action: page by page, batch by batch, at a rate.

Then it has the ends of what it started counted, until nothing is under way.
"""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Self

import azure.durable_functions as df
from durabletask import task

from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import (
    DUE_AT,
)
from durable_retry.hub.turns import Alarm, Signals, Turns, call_until_success, wait_out
from durable_retry_console.bulk.names import (
    BULK_ACTION,
    BULK_BATCH,
    BULK_ENDS,
    BULK_PAGE,
    CANCEL_BULK_EVENT,
)
from durable_retry_console.bulk.shapes import (
    BatchInput,
    BatchPace,
    BatchResult,
    BulkInput,
    BulkProgress,
    BulkState,
)

blueprint = df.Blueprint()

LOOKS_PER_HISTORY: Final = 20
"""Looks at an open circuit after which the orchestration continues as new: it may stay open for days, and is
looked at every few seconds."""

_FIRST_COUNT: Final = timedelta(seconds=2)
_LONGEST_COUNT: Final = timedelta(minutes=15)
# Ends are counted each time the bulk action is an eighth older: what it shows is late by a part of its age,
# and one that waits for days costs little.
_AGE_PER_COUNT: Final = 8


class _CancelledError(Exception):
    """Somebody has cancelled the action while our own side fails to do its next step."""


@dataclass(slots=True)
class _Execution:
    """One execution of the orchestration."""

    ctx: task.OrchestrationContext
    given: BulkInput
    pace: BatchPace
    progress: BulkProgress
    signals: Signals
    cancel: task.CancellableTask[Any]

    @classmethod
    def begin(cls, ctx: task.OrchestrationContext, given: BulkInput) -> Self:
        """Begin, or continue from the execution before this one."""
        signals = Signals(ctx)
        cancel = signals.awaited(CANCEL_BULK_EVENT)
        return cls(ctx, given, BatchPace.of(given.rate_per_second), given.progress, signals, cancel)

    @property
    def next_count_at(self) -> datetime:
        """When the ends are to be counted again."""
        began_at = self.given.created_at
        wait = min(max(_FIRST_COUNT, (self.now - began_at) / _AGE_PER_COUNT), _LONGEST_COUNT)
        return (self.progress.counted_at or began_at) + wait

    @property
    def now(self) -> datetime:
        """The replay-safe time, aware UTC."""
        return self.ctx.current_utc_datetime.replace(tzinfo=UTC)

    def show(self, progress: BulkProgress) -> dict[str, Any]:
        """Let status queries see the progress, and return its form."""
        self.progress = progress
        shown = progress.to_json()
        self.ctx.set_custom_status(shown)
        return shown

    @property
    def ends(self) -> tuple[str, ...]:
        """The events that end a wait: a cancel, unless the action is cancelled already."""
        return () if self.progress.status is BulkState.CANCELLED else (CANCEL_BULK_EVENT,)

    def call(self, activity: str, request: dict[str, Any]) -> Turns[Any]:
        """Call an activity until it answers; `_CancelledError` where it fails and somebody cancels."""
        wait = partial(self._wait_out, activity)
        return (yield from call_until_success(self.signals, activity, request, wait=wait))

    def _wait_out(self, activity: str, failures: int, error: str) -> Turns[None]:
        ends = self.ends
        yield from wait_out(self.signals, activity, failures, error, ends=ends)
        if any(map(self.signals.has_come, ends)):
            raise _CancelledError

    def wait(self, until: datetime) -> Turns[None]:
        """Wait for an instant, unless someone cancels what is not cancelled yet."""
        if until <= self.now:
            return
        self.ctx.set_custom_status(self.progress.to_json() | {DUE_AT: to_rfc3339(until)})
        yield from Alarm(self.signals, until).event(*self.ends)
        self.show(self.progress)

    def continue_with(self, **changes: Any) -> None:
        """Continue as new."""
        given = replace(self.given, progress=self.progress, **changes)
        self.ctx.continue_as_new(given.to_json(), save_events=True)


def bulk_action(ctx: task.OrchestrationContext, given: dict[str, Any]) -> Turns[dict[str, Any] | None]:
    """Run a bulk action: one page per execution, so that the history stays short.

    Args:
        given: A `BulkInput`.

    Returns:
        The `BulkProgress` of its end; None when the orchestration continues as new.
    """
    run = _Execution.begin(ctx, BulkInput.from_json(given))
    run.show(run.progress)
    try:
        return (yield from _act_on_page(run))
    except _CancelledError:
        return (yield from _end_as_cancelled(run))


def _end_as_cancelled(run: _Execution) -> Turns[dict[str, Any] | None]:
    run.show(replace(run.progress, status=BulkState.CANCELLED))
    return (yield from _count_until_over(run))


def _act_on_page(run: _Execution) -> Turns[dict[str, Any] | None]:
    if run.given.is_over:
        return (yield from _count_until_over(run))
    ids, cursor, held, page = run.given.ids, run.given.cursor, run.given.held, run.pace.page
    # What is held must not keep back what is not; beyond a page it does.
    if not ids and (not held or (cursor is not None and len(held) < page)):
        ids, cursor = yield from _next_page(run)
    if ids:
        # Pages of operations may be longer than a short history can take.
        held += yield from _act_on_all(run, ids[:page], -(-len(ids[:page]) // run.pace.batch))
    else:
        held = yield from _act_on_all(run, held, LOOKS_PER_HISTORY, are_held=True)
    ids = ids[page:]
    if run.cancel.is_complete:
        return (yield from _end_as_cancelled(run))
    if not ids and not held and cursor is None:
        return (yield from _count_until_over(run))
    run.continue_with(ids=ids, cursor=cursor, held=held)
    return None


def _next_page(run: _Execution) -> Turns[tuple[tuple[str, ...], str | None]]:
    given = run.given
    request = {
        "action": given.action.value,
        "filter": given.filter,
        "limit": run.pace.page,
        "cursor": given.cursor,
    }
    page = yield from run.call(BULK_PAGE, request)
    return tuple(page["ids"]), page["cursor"]


def _act_on_all(
    run: _Execution, ids: tuple[str, ...], batches: int, *, are_held: bool = False
) -> Turns[tuple[str, ...]]:
    """Act on so many batches; return those that are left, such as those whose circuits are open.

    Args:
        are_held: Whether all were held before: a batch that is so again waits for a circuit.
    """
    left, given = ids, run.given
    for _ in range(batches):
        if not left or run.cancel.is_complete:
            break
        batch, left = left[: run.pace.batch], left[run.pace.batch :]
        began = run.now
        request = BatchInput(
            action_id=given.action_id,
            action=given.action,
            ids=batch,
            note=given.note,
            by=given.by,
            options=given.options,
            now=began,
        )
        answer = yield from run.call(BULK_BATCH, request.to_json())
        result = BatchResult.from_json(answer)
        run.show(run.progress.plus(result))
        left += result.left
        if are_held and result.held_until is not None and len(result.left) == len(batch):
            run.show(replace(run.progress, waiting_until=result.held_until))
            yield from run.wait(result.held_until)
            run.show(replace(run.progress, waiting_until=None))
        if run.next_count_at <= run.now:
            yield from _count_ends(run)
        yield from run.wait(began + run.pace.interval)
    return left


def _count_until_over(run: _Execution) -> Turns[dict[str, Any] | None]:
    """Count the ends of what was started until nothing is under way; None to continue as new."""
    for _ in range(LOOKS_PER_HISTORY):
        yield from _count_ends(run)
        is_cancelled = run.progress.status is BulkState.CANCELLED
        if not run.progress.under_way:
            return run.show(
                run.progress if is_cancelled else replace(run.progress, status=BulkState.COMPLETED)
            )
        yield from run.wait(run.next_count_at)
        if run.cancel.is_complete and not is_cancelled:
            run.show(replace(run.progress, status=BulkState.CANCELLED))
    run.continue_with(ids=(), cursor=None, is_over=True)
    return None


def _count_ends(run: _Execution) -> Turns[None]:
    sums: Counter[str] = Counter()
    cursor, is_more = None, True
    while is_more:
        request = {
            "action_id": run.given.action_id,
            "action": run.given.action.value,
            "cursor": cursor,
        }
        part = yield from run.call(BULK_ENDS, request)
        cursor = part.pop("cursor")
        sums.update(part)
        is_more = cursor is not None
    ends: dict[str, Any] = dict(sums)
    run.show(replace(run.progress, **ends, counted_at=run.now))


blueprint.orchestration_trigger(context_name="context", orchestration=BULK_ACTION)(bulk_action)

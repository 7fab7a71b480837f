"""The orchestration of a bulk action: page by page, batch by batch, at a rate.

A replay proves itself meanwhile (`proof`). Then it has the ends of what it started counted, until nothing is
under way.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import azure.durable_functions as df
from durabletask import task

from durable_retry.base.json_forms import instant_in, to_rfc3339
from durable_retry.base.names import DUE_AT
from durable_retry.hub.turns import InterruptibleTimer, Signals, Turns, call_until_success, wait_out
from durable_retry_console.bulk import names
from durable_retry_console.bulk.proof import LATEST, End, latest_of, stop_reason
from durable_retry_console.bulk.shapes import (
    BATCHES_PER_PAGE,
    BatchInput,
    BatchPace,
    BatchResult,
    BulkInput,
    BulkProgress,
    BulkState,
)

blueprint = df.Blueprint()

STEPS_PER_HISTORY: Final = BATCHES_PER_PAGE
"""Batches, or looks at ends or an open circuit, after which the orchestration continues as new: what it waits
for may take days, and is looked at every few seconds."""

RESUMABLE_FOR: Final = timedelta(days=30)
"""How long a stopped one can be resumed."""

_FIRST_COUNT: Final = timedelta(seconds=2)
_LONGEST_COUNT: Final = timedelta(minutes=15)
# Ends are counted each time the bulk action is an eighth older: what it shows is late by a part of its age,
# and one that waits for days costs little.
_AGE_PER_COUNT: Final = 8


class _CancelledError(Exception):
    """Somebody has cancelled the action while our own side fails to do its next step."""


class _Execution:
    """One execution of the orchestration; it may continue the one before it."""

    def __init__(self, ctx: task.OrchestrationContext, given: BulkInput) -> None:
        self.ctx, self.given, self.progress = ctx, given, given.progress
        self.pace = BatchPace.of(given.rate_per_second)
        self.signals = Signals(ctx)
        self.cancel = self.signals.awaited(names.CANCEL_BULK_EVENT)

    @property
    def next_count_at(self) -> datetime:
        """When the ends are to be counted again."""
        began_at = self.given.created_at
        wait = min(max(_FIRST_COUNT, (self.now - began_at) / _AGE_PER_COUNT), _LONGEST_COUNT)
        return (self.progress.counted_at or began_at) + wait

    @property
    def next_look_at(self) -> datetime:
        """When ends are to be looked at again while more is begun."""
        proof = self.progress.proof
        return self.next_count_at if proof is None else proof.next_look_at(self.progress.started)

    @property
    def is_cancelled(self) -> bool:
        return self.cancel.is_complete

    @property
    def is_stopped(self) -> bool:
        """Whether it waits for somebody to resume it."""
        return self.progress.status is BulkState.STOPPED

    @property
    def now(self) -> datetime:
        """The replay-safe time, aware UTC."""
        return self.signals.now

    def show(self, progress: BulkProgress) -> dict[str, Any]:
        """Let status queries see the progress, and return its form."""
        self.progress = progress
        shown = progress.to_json()
        self.ctx.set_custom_status(shown)
        return shown

    @property
    def ends(self) -> tuple[str, ...]:
        """The events that end a wait: a cancel, unless the action is cancelled already."""
        return () if self.progress.status is BulkState.CANCELLED else (names.CANCEL_BULK_EVENT,)

    def call(self, activity: str, request: dict[str, Any], is_answer: Callable[[Any], bool]) -> Turns[Any]:
        """Call an activity until it answers; `_CancelledError` where it fails and somebody cancels.

        `is_answer` as in `call_until_success`: when a lost turn runs again, another activity may be due.
        """
        wait = partial(self._wait_out, activity)
        return (
            yield from call_until_success(self.signals, activity, request, wait=wait, is_answer=is_answer)
        )

    def _wait_out(self, activity: str, failures: int, error: str) -> Turns[None]:
        ends = self.ends
        yield from wait_out(self.signals, activity, failures, error, ends=ends)
        if any(map(self.signals.has_come, ends)):
            raise _CancelledError

    def wait(self, until: datetime) -> Turns[None]:
        """Wait for an instant, unless someone cancels what is not cancelled yet, or resumes what stopped."""
        if until <= self.now:
            return
        self.ctx.set_custom_status(self.progress.to_json() | {DUE_AT: to_rfc3339(until)})
        resume = (names.RESUME_BULK_EVENT,) if self.is_stopped else ()
        yield from InterruptibleTimer(self.signals, until).event(*self.ends, *resume)
        self.show(self.progress)

    def takes_resume(self) -> bool:
        """Whether somebody has resumed it since it stopped; one that means an earlier stop came late."""
        if not self.is_stopped or not self.signals.has_come(names.RESUME_BULK_EVENT):
            return False
        return (
            instant_in(self.signals.take(names.RESUME_BULK_EVENT), "stopped_at") == self.progress.stopped_at
        )

    def continue_with(self, **changes: Any) -> None:
        given = replace(self.given, progress=self.progress, **changes)
        self.ctx.continue_as_new(given.to_json(), save_events=True)


def bulk_action(ctx: task.OrchestrationContext, given: dict[str, Any]) -> Turns[dict[str, Any] | None]:
    """Run a bulk action: one page per execution, so that the history stays short.

    Args:
        given: A `BulkInput`.

    Returns:
        The `BulkProgress` of its end; None when the orchestration continues as new.
    """
    run = _Execution(ctx, BulkInput.from_json(given))
    run.show(run.progress)
    try:
        if run.given.is_over or run.is_stopped:
            return (yield from _count_until_over(run))
        return (yield from _act_on_page(run))
    except _CancelledError:
        return (yield from _end_as_cancelled(run))


def _end_as_cancelled(run: _Execution) -> Turns[dict[str, Any] | None]:
    run.show(replace(run.progress, status=BulkState.CANCELLED))
    return (yield from _count_until_over(run))


def _act_on_page(run: _Execution) -> Turns[dict[str, Any] | None]:
    ids, cursor, held = run.given.ids, run.given.cursor, run.given.held
    # What is held must not keep back what is not; beyond a page it does.
    if not ids and (not held or (cursor is not None and len(held) < run.pace.page)):
        request = {"action": run.given.action.value, "filter": run.given.filter, "cursor": cursor}
        wanted = request | {"limit": run.pace.page}
        page = yield from run.call(names.BULK_PAGE, wanted, lambda answer: "ids" in answer)
        ids, cursor = tuple(page["ids"]), page["cursor"]
    if ids:
        ids, held_now = yield from _act_on_all(run, ids)
        held += held_now
    else:
        held = sum((yield from _act_on_all(run, held, are_held=True)), ())
    if run.is_cancelled:
        return (yield from _end_as_cancelled(run))
    if not ids and not held and cursor is None:
        return (yield from _count_until_over(run))
    run.continue_with(ids=ids, cursor=cursor, held=held)
    return None


def _act_on_all(
    run: _Execution, ids: tuple[str, ...], *, are_held: bool = False
) -> Turns[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Act on some, in as many steps as a short history can take.

    Args:
        are_held: Whether all were held before: a batch that is so again waits for a circuit.

    Returns:
        Those whose turn has not come, and those whose circuits are open.
    """
    left, held = ids, tuple[str, ...]()
    for _ in range(STEPS_PER_HISTORY):
        if are_held and not left:
            left, held = held, left
        if not left:
            break
        may_start = yield from _count_that_may_start(run)
        if run.is_cancelled or run.is_stopped:
            break
        batch, left = left[:may_start], left[may_start:]
        if not batch:
            continue
        began = run.now
        result = yield from _act_on_batch(run, batch)
        held += result.left
        if are_held and result.held_until is not None and len(result.left) == len(batch):
            run.show(replace(run.progress, waiting_until=result.held_until))
            yield from run.wait(result.held_until)
            run.show(replace(run.progress, waiting_until=None))
        yield from run.wait(began + run.pace.interval)
    return left, held


def _act_on_batch(run: _Execution, batch: tuple[str, ...]) -> Turns[BatchResult]:
    given, proof = run.given, run.progress.proof
    request = BatchInput(
        action_id=given.action_id,
        action=given.action,
        ids=batch,
        note=given.note,
        by=given.by,
        options=given.options,
        now=run.now,
        resumes=None if proof is None else proof.resumes,
    )
    answer = yield from run.call(
        names.BULK_BATCH, request.to_json(), lambda answer: not {"ids", "under_way"} & answer.keys()
    )
    result = BatchResult.from_json(answer)
    run.show(run.progress.plus(result))
    return result


def _count_that_may_start(run: _Execution) -> Turns[int]:
    """Return how many may begin next; 0 where more has to end first, or too much has failed again."""
    if not run.progress.may_start(run.pace.batch):
        yield from run.wait(run.next_look_at)
    if not run.is_cancelled and run.next_look_at <= run.now:
        latest = yield from _count_ends(run, is_whole=run.next_count_at <= run.now)
        proof = run.progress.proof
        if proof is not None and proof.is_failing(latest):
            reason = stop_reason(run.progress.started, run.given.matched, latest)
            run.show(run.progress.stopped(reason, run.now))
    return run.progress.may_start(run.pace.batch)


def _count_until_over(run: _Execution) -> Turns[dict[str, Any] | None]:
    """Count the ends of what was started until nothing is under way; None to continue as new.

    One that is stopped waits then for somebody to resume it.
    """
    for _ in range(STEPS_PER_HISTORY):
        yield from _count_ends(run)
        stopped_at = run.progress.stopped_at if run.is_stopped else None
        resumable_until = run.now if stopped_at is None else stopped_at + RESUMABLE_FOR
        until = run.next_count_at if run.progress.under_way else resumable_until
        if until <= run.now:
            is_running = run.progress.status is BulkState.RUNNING
            return run.show(replace(run.progress, status=BulkState.COMPLETED) if is_running else run.progress)
        yield from run.wait(until)
        if run.is_cancelled:
            run.show(replace(run.progress, status=BulkState.CANCELLED))
        elif run.takes_resume():
            run.show(run.progress.resumed(run.now))
            run.continue_with()
            return None
    if run.is_stopped:
        run.continue_with()
    else:
        run.continue_with(ids=(), cursor=None, held=(), is_over=True)
    return None


def _count_ends(run: _Execution, *, is_whole: bool = True) -> Turns[tuple[End, ...]]:
    """Have ends counted.

    Args:
        is_whole: Whether of all that was started; else of the newest part.

    Returns:
        The last that ended, where the replay proves itself; none where a part does not show them.
    """
    sums, latest, cursor, proof = Counter[str](), tuple[End, ...](), None, run.progress.proof
    while True:
        request = {
            "action_id": run.given.action_id,
            "action": run.given.action.value,
            "cursor": cursor,
            **({} if proof is None else {"resumes": proof.resumes}),
        }
        part = yield from run.call(names.BULK_ENDS, request, lambda answer: "under_way" in answer)
        cursor = part.pop("cursor")
        latest = latest_of([*latest, *map(End.from_json, part.pop("latest", ()))])
        sums.update(part)
        if cursor is None or not is_whole:
            break
    if proof is not None:
        proof = replace(proof, ended=sums.pop("ended"), looked_at=run.now)
    counts: dict[str, Any] = {**sums, "counted_at": run.now} if cursor is None else {}
    run.show(replace(run.progress, proof=proof, **counts))
    return latest if cursor is None or len(latest) == LATEST else ()


blueprint.orchestration_trigger(context_name="context", orchestration=names.BULK_ACTION)(bulk_action)

"""Notes that the index of operations lacks: operations are compared with it, so that lists show them all.

A process that is killed loses what it had not written. A comparison covers the operations that were accepted
or have changed since the last one, and compares each with the index. It begins with a run of upkeep

    at once                when a process has ended and left the row that announces what it may lose
    in any case            60 times as long after the last one as that took, an hour at most: a process that
                           is killed while storage is away has left no row

First come the operations that were accepted since. Then those that were accepted before: the task hub finds
what has changed only by reading all its instances, which may take several runs.

What the index has without an end, and the task hub has not, was purged from outside while it ran: it becomes
a dead letter (`services.upkeep.gone`).
"""

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Self

from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry import clock
from durable_retry.concurrency import map_bounded
from durable_retry.engine.base.json_forms import JsonShape
from durable_retry.engine.base.names import FINISHED
from durable_retry.engine.base.unreadable import read_or
from durable_retry.engine.operations.status import last_error
from durable_retry.services.upkeep.gone import keep_gone
from durable_retry.stores.operations.index import (
    TABLE,
    OperationEntry,
    OperationList,
    buckets,
    close_gap,
    gaps,
)
from durable_retry.stores.operations.notes import is_listed, note_document, unwritten, write_noted
from durable_retry.stores.operations.status import find_status, preview_of
from durable_retry.stores.storage import rounds
from durable_retry.stores.task_hub import Selection, TaskHub

LOST_AFTER: Final = timedelta(minutes=3)
"""A process that holds unwritten entries renews its row more often than this."""

SETTLED_AFTER: Final = timedelta(minutes=1)
"""By then a process has written what it noted, unless storage is away or it has ended."""

_REST: Final = 60
"""How many times as long as a comparison took none begins: they take one sixtieth of the time at most."""

_MOST_REST: Final = timedelta(hours=1)

_AT_ONCE: Final = 16

_PLACE: Final = "lost-notes"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(JsonShape):
    """Where the comparison of operations with the index goes on, or when the last one was."""

    since: datetime  # operations that were accepted or have changed since then are compared; aware UTC
    until: datetime  # and before this
    is_over: bool = False
    is_of_earlier: bool = False  # whether it has come to those that were accepted before `since`
    token: str | None = None  # of the task hub's next page; None for the first
    seconds: float = 0.0  # what it has taken so far

    @classmethod
    def before_the_first(cls, now: datetime) -> Self:
        """Return what stands for the last one when there was none."""
        return cls(since=now - _MOST_REST, until=now - _MOST_REST, is_over=True)

    @property
    def due_at(self) -> datetime:
        """The instant of the next one when no process has left a row."""
        return self.until + SETTLED_AFTER + min(_REST * timedelta(seconds=self.seconds), _MOST_REST)

    def following(self, now: datetime, left: Mapping[str, datetime]) -> Self:
        """Return the next one; it covers what ended processes may have lost since the instants of `left`."""
        # What was accepted just before may have been in no page of the task hub yet.
        since = min([self.until - LOST_AFTER, *left.values()])
        return type(self)(since=since, until=now - SETTLED_AFTER)

    @property
    def selection(self) -> Selection:
        """The instances that it reads now."""
        if self.is_of_earlier:
            return Selection(created_before=self.since)
        return Selection(created_after=self.since, created_before=self.until)

    def covers(self, instance: pb.OrchestrationState) -> bool:
        """Whether an instance that was read is compared."""
        changed_at: datetime = instance.lastUpdatedTimestamp.ToDatetime(tzinfo=UTC)
        return not self.is_of_earlier or self.since <= changed_at < self.until

    def looks_for(self, entry: OperationEntry) -> bool:
        """Whether the instances that it reads now must have an operation of the index."""
        if self.is_of_earlier:
            return entry.created_at < self.since
        return self.since <= entry.created_at < self.until

    def after_page(self, following: str | None, seconds: float) -> Self:
        """Return where it goes on after a page that took so long."""
        return replace(
            self,
            is_over=following is None and self.is_of_earlier,
            is_of_earlier=following is None or self.is_of_earlier,
            token=following,
            seconds=self.seconds + seconds,
        )


async def add_lost(hub: TaskHub, now: datetime, seconds: float) -> int:
    """Add to the index what ended processes had not written; return how many operations that concerned.

    Args:
        seconds: When to stop; the next run goes on.

    Raises:
        TaskHubUnavailableError: The task hub did not answer; the next run repeats it.
    """
    stored = (await rounds.read_round(TABLE, _PLACE)).after
    comparison = read_or(
        lambda: Comparison.from_json_text(stored), lambda _: Comparison.before_the_first(now)
    )
    if comparison.is_over:
        left = await gaps(now - LOST_AFTER)
        if not left and now < comparison.due_at:
            return 0
        comparison = comparison.following(now, left)
    added, comparison = await _compare_pages(hub, comparison, seconds)
    await write_noted()
    if unwritten() is not None:
        return added  # This process may lose it: the next run compares the same once more.
    if comparison.is_over:
        await _close_gaps(comparison)
    text = json.dumps(comparison.to_json())
    await rounds.write_round(TABLE, rounds.Round(text), _PLACE)
    if added:
        _log.warning("added %d operations to the index that an ended process had not written", added)
    return added


async def entries_in_list(
    kind: OperationList, since: datetime | None, before: datetime | None = None
) -> dict[str, OperationEntry]:
    """Return the operations of a list, by their id, of those accepted in a window.

    Args:
        since: Where the window begins; None for all.
        before: Where it ends, exclusive; None for now.
    """
    found: dict[str, OperationEntry] = {}
    async for begin, _, entries in buckets(kind, before):
        # A replay is listed once more, at its own time: the latest entry counts.
        found = {
            each.operation_id: each
            for each in entries
            if (since is None or since <= each.created_at) and (before is None or each.created_at < before)
        } | found
        if since is not None and begin <= since:
            break
    return found


async def _compare_pages(hub: TaskHub, comparison: Comparison, seconds: float) -> tuple[int, Comparison]:
    """Go on with a comparison for so long; return how many operations were added, and where it goes on."""
    begun = page_begun = clock.monotonic_seconds()
    failed = await entries_in_list(OperationList.FAILED, None)
    known = await entries_in_list(OperationList.ALL, comparison.since)
    added, seen = 0, set[str]()
    while not comparison.is_over and page_begun - begun <= seconds:
        page = await hub.instance_page(comparison.selection, comparison.token)
        seen.update(each.instanceId for each in page.instances)
        for instance in filter(comparison.covers, page.instances):
            is_known = comparison.is_of_earlier or instance.instanceId in known
            added += await _add_to_index(hub, instance, failed.get(instance.instanceId), is_known=is_known)
        if page.following is None:
            listed = failed if comparison.is_of_earlier else known | failed
            await _keep_vanished(hub, comparison, [each for id_, each in listed.items() if id_ not in seen])
        page_ended = clock.monotonic_seconds()
        comparison = comparison.after_page(page.following, page_ended - page_begun)
        page_begun = page_ended
    return added, comparison


async def _keep_vanished(hub: TaskHub, comparison: Comparison, unseen: Iterable[OperationEntry]) -> None:
    """Keep what the index has without an end, and was in no page of this run; each is read before."""
    unended = [each for each in unseen if comparison.looks_for(each) and each.status not in FINISHED]
    gone = await map_bounded(partial(keep_gone, hub), unended, _AT_ONCE)
    if any(gone):
        _log.warning("%d operations were purged from outside while they ran: dead letters", sum(gone))


async def _add_to_index(
    hub: TaskHub,
    instance: pb.OrchestrationState,
    failed: OperationEntry | None,
    *,
    is_known: bool,
) -> bool:
    """Add an operation that the index does not have, or not as it is; return whether it was added."""
    if is_known and is_listed(preview_of(instance).status, None if failed is None else failed.status):
        return False
    document = await find_status(hub, instance.instanceId)
    if document is None:
        return False
    note_document(document, last_error(document), is_known=is_known)
    return True


async def _close_gaps(comparison: Comparison) -> None:
    """Forget the ended processes whose losses a comparison has covered."""
    for name, since in (await gaps(comparison.until + SETTLED_AFTER - LOST_AFTER)).items():
        if since >= comparison.since:
            await close_gap(name)

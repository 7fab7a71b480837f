"""The comparison of the task hub with the index of operations, so that lists show them all.

A process that is killed loses what it had not written. A comparison covers the operations that were accepted
or have changed since the last one, and compares each with the index. It begins with a run of upkeep

    at once                when a process has ended and left the row that announces what it may lose
    in any case            60 times as long after the last one as that took, an hour at most: a process that
                           is killed while storage is away has left no row

First come the operations that were accepted since. Then those that were accepted before: the task hub finds
what has changed only by reading all its instances, which may take several runs.

What the index has without an end, and the task hub has not, was purged by its id, from outside, while it ran:
it becomes a dead letter.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Self

from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry.base.answers import marked, read_or
from durable_retry.base.json_forms import JsonShape
from durable_retry.base.names import FINISHED, OPERATION, DeadLetterReason, OperationState
from durable_retry.dead_letters.records import keep_message
from durable_retry.hub.task_hub import Selection, TaskHub
from durable_retry.operations.entities import complete_record, read_record
from durable_retry.operations.lone_records import let_answer_alone
from durable_retry.operations.status import find_status
from durable_retry.rules.dead_letters.record import of_message
from durable_retry.rules.facts import OperationEnded
from durable_retry.rules.operations.completion import unreadable_completion, unreadable_document
from durable_retry.rules.operations.status import checked_document
from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import map_bounded
from durable_retry.settings.retention import retention
from durable_retry.storage import rounds
from durable_retry.telemetry.facts import report
from durable_retry.upkeep.rounds import STEP_SECONDS
from durable_retry_console.index.notes import is_listed, note_document, unwritten, write_noted
from durable_retry_console.index.store import OperationEntry, OperationList, buckets, close_gap, gaps
from durable_retry_console.states import last_error, preview_of

LOST_AFTER: Final = timedelta(minutes=3)
"""A process that holds unwritten entries renews its row more often than this."""

SETTLED_AFTER: Final = timedelta(minutes=1)
"""By then a process has written what it noted, unless storage is away or it has ended."""

_REST: Final = 60
"""How many times as long as a comparison took none begins: they take one sixtieth of the time at most."""

_MOST_REST: Final = timedelta(hours=1)

_AT_ONCE: Final = 16

_PLACE: Final = "comparison"

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


async def add_lost(hub: TaskHub, now: datetime, seconds: float = STEP_SECONDS) -> int:
    """Add to the index what ended processes had not written; return how many operations that concerned.

    Args:
        seconds: When to stop; the next run goes on.
    """
    stored, an_hour_ago = (await rounds.read_round(_PLACE)).after, now - _MOST_REST
    first = Comparison(since=an_hour_ago, until=an_hour_ago, is_over=True)
    comparison = read_or(lambda: Comparison.from_json_text(stored), lambda _: first)
    if comparison.is_over:
        left = await gaps(now - LOST_AFTER)
        if not left and now < comparison.due_at:
            return 0
        comparison = comparison.following(now, left)
    added, comparison = await _compare_pages(hub, comparison, seconds)
    await write_noted(seconds=None)
    if unwritten() is not None:
        return added  # This process may lose it: the next run compares the same once more.
    if comparison.is_over:
        # The losses of these ended processes are covered.
        for name, since in (await gaps(comparison.until + SETTLED_AFTER - LOST_AFTER)).items():
            if since >= comparison.since:
                await close_gap(name)
    await rounds.write_round(_PLACE, rounds.Round(json.dumps(comparison.to_json())))
    if added:
        _log.warning("added %d operations to the index that an ended process had not written", added)
    return added


@dataclass(frozen=True, slots=True)
class _Listed:
    """What a comparison asks of the index: there may be many operations, so whole entries are few."""

    accepted: set[str] = field(default_factory=set)  # ids of those accepted since it begins
    # States that the list of what failed has, by id.
    failed: dict[str, OperationState | None] = field(default_factory=dict)
    unended: dict[str, OperationEntry] = field(default_factory=dict)  # entries without an end, by id


async def _read_index(since: datetime) -> _Listed:
    # A replay is listed once more, at its own time: the latest entry counts, which comes first.
    listed = _Listed()
    async for _, _, entries in buckets([OperationList.FAILED], None):
        for entry in entries:
            if entry.operation_id not in listed.failed:
                listed.failed[entry.operation_id] = entry.status
                if entry.status not in FINISHED:
                    listed.unended[entry.operation_id] = entry
    async for _, _, entries in buckets([OperationList.ALL], None, since=since):
        for entry in entries:
            if entry.created_at >= since and entry.operation_id not in listed.accepted:
                listed.accepted.add(entry.operation_id)
                if entry.status not in FINISHED and entry.operation_id not in listed.failed:
                    listed.unended[entry.operation_id] = entry
    return listed


async def _compare_pages(hub: TaskHub, comparison: Comparison, seconds: float) -> tuple[int, Comparison]:
    """Go on with a comparison for so long; return how many operations were added, and where it goes on."""
    begun = page_begun = clock.monotonic_seconds()
    listed = await _read_index(comparison.since)
    added, seen = 0, set[str]()
    while not comparison.is_over and page_begun - begun <= seconds:
        instances, following = await hub.instance_page(comparison.selection, comparison.token)
        seen.update(each.instanceId for each in instances)
        for instance in filter(comparison.covers, instances):
            is_known = comparison.is_of_earlier or instance.instanceId in listed.accepted
            noted = listed.failed.get(instance.instanceId)
            if is_known and is_listed(preview_of(instance).status, noted):
                continue
            if (document := await find_status(hub, instance.instanceId)) is not None:
                has_failed = noted is not None
                note_document(document, last_error(document), is_known=is_known, has_failed=has_failed)
                added += 1
        if following is None:
            unseen = [entry for id_, entry in listed.unended.items() if id_ not in seen]
            await _keep_vanished(hub, comparison, unseen)
        page_ended = clock.monotonic_seconds()
        comparison = comparison.after_page(following, page_ended - page_begun)
        page_begun = page_ended
    return added, comparison


async def _keep_vanished(hub: TaskHub, comparison: Comparison, unseen: Iterable[OperationEntry]) -> None:
    """Keep what the index has without an end, and was in no page of this run; each is read before.

    The index has no end of a success. The history of an older one than histories are kept may have been
    removed, where the app stood still for so long.
    """
    kept_for = retention().history_for
    kept_since = datetime.min.replace(tzinfo=UTC) if kept_for is None else clock.now() - kept_for
    unended = [
        entry
        for entry in unseen
        if comparison.looks_for(entry) and (entry.status is not None or entry.created_at > kept_since)
    ]
    gone = await map_bounded(partial(keep_gone, hub), unended, _AT_ONCE)
    if any(gone):
        _log.warning("%d operations were purged from outside while they ran: dead letters", sum(gone))


GONE: Final = "its orchestration was purged from outside before its end was seen, or the task hub lost it"

_NAMED: Final = ("key", "dependency", "source", "correlation_id")


async def keep_gone(hub: TaskHub, entry: OperationEntry) -> bool:
    """Make a dead letter of an operation that the index has, without an end, and the task hub has not.

    What it did, and was to do, is not known. Its key answers with the dead letter for a day.

    Returns:
        Whether it is gone. It is not where its record has an end, or cannot be read, or where the task hub
        may never have had it.
    """
    if entry.was_answered is False or await hub.read_instance(entry.operation_id) is not None:
        return False
    try:
        record = await read_record(hub, entry.operation_id)
        if record is not None:
            checked = checked_document(record.document)
            note_document(checked, last_error(checked), is_known=True, has_failed=entry.status is not None)
            return False
    except ValueError as error:
        _log.warning("the record of %s cannot be read: %s", entry.operation_id, error)
        return False
    reason, at = DeadLetterReason.AMBIGUOUS_OUTCOME, entry.created_at
    letter = of_message(
        "", source=OPERATION, message_id=entry.operation_id, reason=reason, detail=GONE, now=at
    )
    letter = replace(letter, dependency=entry.dependency, correlation_id=entry.correlation_id)
    dead_letter_id = await keep_message(letter)
    given = {"operation": {name: getattr(entry, name) for name in _NAMED}}
    document = unreadable_document(
        entry.operation_id, given, at, dead_letter_id=dead_letter_id, detail=GONE, reason=reason
    ) | marked(GONE)
    completion = unreadable_completion(given, document, clock.now())
    await complete_record(hub, entry.operation_id, completion)
    await let_answer_alone(completion.expires_at, completion.now)
    note_document(document, GONE, is_known=True)
    report(OperationEnded(document, None))
    return True

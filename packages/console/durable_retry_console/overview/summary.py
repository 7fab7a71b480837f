"""Counts of operations for the overview, and answers that are shared for a moment.

What was accepted, tried and ended comes from the metrics over time; what has not ended from the index of
operations and the documents that it leads to. Neither scans the task hub: Azure Storage would read every
instance.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import batched, chain, islice, zip_longest
from operator import itemgetter
from typing import Annotated, Any, Final

from pydantic import Field

from durable_retry.base.answers import Answer, Instant, left_out
from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.base.json_forms import optional_from_rfc3339
from durable_retry.base.names import FINISHED, OperationState
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.status import document_of
from durable_retry.rules.operations.status import is_finished
from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import LoopOwned, map_bounded
from durable_retry.runtime.sharing import shared
from durable_retry.settings.configuration import (
    dependencies,
    find_dependency,
    present_name,
    registered_handlers,
)
from durable_retry.storage import clients as storage_clients
from durable_retry.telemetry.spans import QUEUE
from durable_retry_console.index.notes import write_noted
from durable_retry_console.index.store import OperationEntry, OperationList, buckets
from durable_retry_console.limit_keys import LimitKeyCounts
from durable_retry_console.metrics.document import MetricFigures, MetricsDocument
from durable_retry_console.metrics.minutes import MINUTES
from durable_retry_console.metrics.series import MINUTE, floored, metrics_between

type StateCounts = Annotated[
    dict[OperationState, int],
    Field(
        description="By state: `scheduled` begin later, `paused` wait for somebody, `waiting_order` for "
        "their turn in an order, the others for their next attempt, a pause or a circuit."
    ),
]


class OperationShare(Answer):
    """Some of the operations of a window."""

    operations: int
    attempts: int
    amplification: float | None = Field(description="Attempts per operation that was tried.")
    by_status: StateCounts

    @property
    def is_empty(self) -> bool:
        return not (self.operations or self.attempts or any(self.by_status.values()))


class TimeBucket(Answer):
    """Operations that ended in one part of a window, and those accepted in it that have not ended."""

    begins_at: Instant = Field(alias="from")
    by_status: StateCounts


class NextAttempt(Answer):
    """The operation of some that goes on first."""

    operation_id: str
    key: str
    attempt_count: int
    next_attempt_at: Instant


class WaitingOperations(Answer):
    """Operations of one dependency that wait for the same."""

    dependency: str
    status: OperationState
    count: int
    limit_keys: LimitKeyCounts | None = left_out("Whose they are. Left out without limit keys.")
    first: NextAttempt | None = Field(description="null while nobody has read when they go on.")


class UnfinishedSummary(Answer):
    """Operations that have not ended, whenever accepted."""

    complete: bool = Field(description="False when there were more than were looked at.")
    by_status: StateCounts
    by_dependency: dict[str, StateCounts]
    waiting: tuple[WaitingOperations, ...] = Field(
        description="What has not begun its next attempt, most first."
    )
    lacking: tuple[str, ...] | None = left_out(
        "What they need and this app does not have, such as `handler ship-order`. Left out where it has all."
    )


class OperationSummary(OperationShare):
    """Operations that ended between `from` and `to`, and those accepted then that have not ended.

    `operations` counts those accepted then, `attempts` those made then.
    """

    counted_at: Instant
    complete: bool = Field(description="False when there were more than were looked at.")
    begins_at: Instant = Field(alias="from")
    ends_at: Instant = Field(alias="to")
    by_dependency: dict[str, OperationShare] = Field(
        description="Without operations that wait for their first turn."
    )
    bucket_seconds: float
    buckets: tuple[TimeBucket, ...]
    unfinished: UnfinishedSummary


OLDER_SECONDS: Final = 120.0
"""So old is a part of the overview at most that is shown while reading it again takes long."""


async def recent_metrics(window_seconds: int) -> MetricsDocument:
    """Return the metrics of all dependencies over the last seconds, in whole minutes."""

    async def read() -> MetricsDocument:
        # So that what this process counted a moment ago is included.
        await storage_clients.run_in_pool(MINUTES.flush)
        now = clock.now()
        begin = floored(now - timedelta(seconds=window_seconds), MINUTE)
        return await metrics_between([*sorted(dependencies().dependencies), QUEUE], begin, now)

    return await shared(("metrics", window_seconds), read, older_seconds=OLDER_SECONDS)


async def operation_summary(hub: TaskHub, window_seconds: int) -> OperationSummary:
    """Count the operations of a window, which ends now, and all that have not ended.

    Those that ended count when they did, the others when they were accepted.
    """

    async def count() -> OperationSummary:
        known = _known.get()[hub]
        refreshed = shared(("unfinished", hub), partial(known.refresh, hub))
        found, _ = await asyncio.gather(recent_metrics(window_seconds), refreshed)
        return _summary_of_metrics(found, known)

    return await shared(("operations", hub, window_seconds), count, older_seconds=OLDER_SECONDS)


def _summary_of_metrics(found: MetricsDocument, unfinished: "_Unfinished") -> OperationSummary:
    step = timedelta(seconds=found.step_seconds)
    present = unfinished.present()
    recent = [one for one in present if one.entry.created_at >= found.begins_at]
    points = found.points
    parts: list[Counter[str]] = [Counter(point.ended_by_status) for point in points]
    for one in recent:
        parts[min(len(parts) - 1, (one.entry.created_at - points[0].at) // step)][one.status] += 1
    figures = {each.dependency: each for each in found.dependencies if each.dependency != QUEUE}
    of_each = {
        name: _shares_of_outcomes([each], [one for one in recent if one.entry.dependency == name])
        for name, each in figures.items()
    }
    return OperationSummary(
        **dict(_shares_of_outcomes(figures.values(), recent)),
        counted_at=unfinished.as_of(),
        complete=unfinished.is_complete,
        begins_at=found.begins_at,
        ends_at=found.ends_at,
        by_dependency={name: share for name, share in of_each.items() if not share.is_empty},
        bucket_seconds=found.step_seconds,
        buckets=tuple(
            TimeBucket(begins_at=point.at, by_status=_counted(OperationState, counts))
            for point, counts in zip(points, parts, strict=True)
        ),
        unfinished=_unfinished_summary(present, is_complete=unfinished.is_complete),
    )


def _shares_of_outcomes(figures: Iterable[MetricFigures], recent: Iterable["_Open"]) -> OperationShare:
    listed = list(figures)
    attempts = sum(one.attempts for one in listed)
    first_attempts = attempts - sum(one.retries for one in listed)
    states: Counter[str] = Counter(one.status for one in recent)
    for one in listed:
        states.update(one.ended_by_status)
    return OperationShare(
        operations=sum(one.started for one in listed),
        attempts=attempts,
        amplification=round(attempts / first_attempts, 3) if first_attempts > 0 else None,
        by_status=_counted(OperationState, states),
    )


def _unfinished_summary(present: Sequence["_Open"], *, is_complete: bool) -> UnfinishedSummary:
    by_dependency: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in present:
        by_dependency[one.entry.dependency][one.status] += 1
    return UnfinishedSummary(
        complete=is_complete,
        by_status=_counted(_UNFINISHED, Counter(one.status for one in present)),
        by_dependency={name: _counted(_UNFINISHED, states) for name, states in sorted(by_dependency.items())},
        waiting=_waiting(present),
        lacking=_lacking([one.entry for one in present]),
    )


def _lacking(entries: Sequence[OperationEntry]) -> tuple[str, ...] | None:
    handlers, names = registered_handlers(), {entry.dependency for entry in entries}
    gone = {f"dependency {name}" for name in names if find_dependency(name) is None}
    gone |= {f"handler {each.handler}" for each in entries if each.handler and each.handler not in handlers}
    return tuple(sorted(gone)) or None


def _counted(states: Iterable[OperationState], counts: Counter[str]) -> dict[OperationState, int]:
    return {state: counts[state] for state in states}


_UNFINISHED: Final = tuple(state for state in OperationState if state not in FINISHED)


def _waiting(present: Iterable["_Open"]) -> tuple[WaitingOperations, ...]:
    groups: defaultdict[tuple[str, OperationState], list[_Open]] = defaultdict(list)
    for one in present:
        if one.status not in _UNDER_WAY:
            groups[one.entry.dependency, one.status].append(one)
    waiting = (
        WaitingOperations(
            dependency=dependency,
            status=status,
            count=len(group),
            limit_keys=LimitKeyCounts.of(
                Counter(one.entry.limit_key for one in group if one.entry.limit_key)
            ),
            first=_first_of(group),
        )
        for (dependency, status), group in groups.items()
    )
    return tuple(sorted(waiting, key=lambda each: (-each.count, each.dependency, each.status)))


_UNDER_WAY: Final = frozenset({OperationState.PENDING, OperationState.RUNNING})


def _first_of(group: Iterable["_Open"]) -> NextAttempt | None:
    due = ((one.next_attempt_at, one) for one in group if one.next_attempt_at is not None)
    at, one = min(due, key=itemgetter(0), default=(None, None))
    if one is None:
        return None
    return NextAttempt.taken_from(one.entry, attempt_count=one.attempt_count, next_attempt_at=at)


@dataclass(slots=True)
class _Open:
    """An operation that had not ended when it was last looked at."""

    entry: OperationEntry
    status: OperationState  # the status of its document; before that was read, what the index says
    attempt_count: int = 0
    next_attempt_at: datetime | None = None
    looked_at: float | None = None  # when its document was read, in monotonic seconds; None before that
    due: float = float("-inf")  # when to read it again


def _under_present_name(entry: OperationEntry) -> OperationEntry:
    name = present_name(entry.dependency)
    return entry if name == entry.dependency else replace(entry, dependency=name)


_MICROSECOND: Final = timedelta(microseconds=1)
# How far back each refresh reads the index: for longer than an operation's first attempt and its note.
_RECENT: Final = timedelta(minutes=5)
_MOST_FAILED: Final = 20_000
# Entries of the index for each refresh.
_MOST_ACCEPTED: Final = 5_000
_MOST_ROWS: Final = 1_000
_MOST_DOCUMENTS: Final = 2_000
_READS_AT_ONCE: Final = 16
# Answers show meanwhile what is known, see `shared`, which leaves eight times as long between two.
_LOOK_SECONDS: Final = 2.0
_MOST_OPEN: Final = 50_000
_MOST_ENDED: Final = 50_000
_AGAIN_SECONDS: Final = 2.0
# A document is read again when its wait ends, within these seconds.
_LATEST_AGAIN_SECONDS: Final = 30.0
# Who was due for so long may have ended: it is not counted until its document is read again.
_KNOWN_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Unfinished:
    """The operations that have not ended, as one event loop knows them.

    Each refresh reads the latest part of the index, goes on with the older part of what failed until it has
    read that once, and looks at some documents: of those not seen and those seen longest ago, in turn.
    """

    open: dict[str, _Open] = field(default_factory=dict)  # by id
    # Creation times of the last runs that were seen to have ended, by id.
    ended: dict[str, datetime] = field(default_factory=dict)
    read_at: datetime | None = None  # when the index was last read; None before that
    frontier: datetime | None = None  # what failed before this is not read yet; None before the first refresh
    is_whole: bool = False  # whether all that failed was read
    is_cut: bool = False  # whether the latest refresh left something out
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # one refresh at a time

    @property
    def is_complete(self) -> bool:
        """Whether nothing that may be unfinished is missing in what is `present`."""
        return self.is_whole and not self.is_cut and len(self.present()) == len(self.open)

    def as_of(self) -> datetime:
        """Return when those were read that are due to be read again by now; where none is, now."""
        now = clock.monotonic_seconds()
        late = (now - one.looked_at for one in self.present() if one.looked_at and one.due <= now)
        return clock.now() - timedelta(seconds=max(late, default=0.0))

    def present(self) -> list[_Open]:
        """Return those that had not ended a moment ago, and those of which the index says that they wait."""
        known = clock.monotonic_seconds() - _KNOWN_SECONDS
        return [
            one
            for one in self.open.values()
            if (one.entry.status is not None if one.looked_at is None else one.due > known)
        ]

    async def refresh(self, hub: TaskHub) -> None:
        """Read the latest operations, and some of the older ones, again."""
        async with self.lock:
            now = clock.now()
            await write_noted()
            since = min(now, self.read_at or now) - _RECENT
            await self._read_recent(since)
            self.read_at = now
            self.frontier = self.frontier or since
            if not self.is_whole:
                await self._read_older(self.frontier)
            try:
                await self._look_at_due(hub)
            except TaskHubUnavailableError:
                self.is_cut = True

    async def _read_recent(self, since: datetime) -> None:
        latest: dict[str, OperationEntry] = {}
        self.is_cut = False
        for kind, most in ((OperationList.ALL, _MOST_ACCEPTED), (OperationList.FAILED, _MOST_FAILED)):
            entries_read = 0
            async for begin, _, entries in buckets([kind], None):
                for entry in entries:
                    known = latest.get(entry.operation_id)
                    # A replay has a new time of acceptance, later than the end of the run before it.
                    if known is None or (known.created_at, known.rank) <= (entry.created_at, entry.rank):
                        latest[entry.operation_id] = entry
                entries_read += len(entries)
                if begin <= since:
                    break
                if entries_read >= most:
                    self.is_cut = True
                    break
        self._take_entries(latest.values())

    async def _read_older(self, frontier: datetime) -> None:
        rows = 0
        async for begin, count, entries in buckets([OperationList.FAILED], frontier):
            self._take_entries(entry for entry in entries if entry.operation_id not in self.open)
            self.frontier, rows = begin - _MICROSECOND, rows + count  # The partition before it.
            if rows >= _MOST_ROWS:
                return
        self.is_whole = True

    def _take_entries(self, entries: Iterable[OperationEntry]) -> None:
        for entry in map(_under_present_name, entries):
            known = self.open.get(entry.operation_id)
            if entry.status in FINISHED:
                if known is not None and known.entry.created_at <= entry.created_at:
                    del self.open[entry.operation_id]
            elif known is not None and known.entry == entry:
                continue
            elif self.ended.get(entry.operation_id) != entry.created_at:
                if len(self.open) >= _MOST_OPEN:
                    self.is_cut = True
                    return
                self.open[entry.operation_id] = _Open(entry, entry.status or OperationState.RUNNING)

    async def _look_at_due(self, hub: TaskHub) -> None:
        now = clock.monotonic_seconds()
        due = [one for one in self.open.values() if one.due <= now]
        unseen = [one for one in due if one.looked_at is None]
        unseen.sort(key=lambda one: one.entry.created_at, reverse=True)
        seen = sorted((one for one in due if one.looked_at is not None), key=lambda one: one.looked_at or 0.0)

        async def look(one: _Open) -> None:
            instance = await hub.read_instance(one.entry.operation_id)
            self._note_status(one, None if instance is None else document_of(instance))

        # Those of one kind may be more than there is time for; the others must not grow old meanwhile.
        turns = filter(None, chain.from_iterable(zip_longest(unseen, seen)))
        # Whoever reads longer is asked less often, and what it shows is older.
        for some in batched(islice(turns, _MOST_DOCUMENTS), _READS_AT_ONCE, strict=False):
            await map_bounded(look, some, _READS_AT_ONCE)
            if clock.monotonic_seconds() - now >= _LOOK_SECONDS:
                break

    def _note_status(self, one: _Open, document: Mapping[str, Any] | None) -> None:
        if document is None or is_finished(document):
            self.open.pop(one.entry.operation_id, None)
            self.ended[one.entry.operation_id] = one.entry.created_at
            while len(self.ended) > _MOST_ENDED:
                del self.ended[next(iter(self.ended))]
            return
        one.status = OperationState(document["status"])
        one.attempt_count = document["attempt_count"]
        one.next_attempt_at = optional_from_rfc3339(document["next_attempt_at"])
        one.looked_at = clock.monotonic_seconds()
        now = clock.now()
        wait = ((one.next_attempt_at or now) - now).total_seconds()
        one.due = one.looked_at + min(max(wait, _AGAIN_SECONDS), _LATEST_AGAIN_SECONDS)


_known: Final = LoopOwned[defaultdict[TaskHub, _Unfinished]](partial(defaultdict, _Unfinished))

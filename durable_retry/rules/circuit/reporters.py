"""The buffer of what a process reports to a circuit, and what a circuit stores about its reporters.

Each report is counted once, although it may be delivered twice: `Reporters` remembers which were counted.
Successes are held back and sent with the next failure, or in batches. A failure is gathered for a second, and
one after which the circuit may open goes at once, with all that follows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from durable_retry.base.json_forms import JsonRow, JsonShape, MsInstant
from durable_retry.rules.circuit.calls import (
    BUCKETS,
    NO_CALLS,
    CallEnd,
    CallHealth,
    Counts,
    ProbeResult,
    Report,
    SlidingWindow,
)
from durable_retry.rules.circuit.snapshot import VALID, Permitted, Snapshot, TakenHere, latest
from durable_retry.rules.circuit.states import CircuitSettings
from durable_retry.rules.circuit.trips import is_near_trip

KEPT = 32
"""Reporters that are remembered, the most recent ones. Duplicates of a forgotten one would count again."""
NAME_CHARACTERS = 32
"""Characters of a reporter's name that are stored and compared."""
LATE = 32
"""A report may be overtaken by this many later ones of its reporter and still count."""

QUIET_CALLS = 20
"""With a healthy dependency a report waits for this many calls: at most one message per 20 successes."""
GATHER = timedelta(milliseconds=100)
"""Near a trip a failed or slow call is reported at once; those of the next tenth of a second go together."""
KEPT_SENT = 32
"""Reports that may be under way; older ones have arrived or are lost."""
KNOWN_PART: Final = 0.5
"""A worker with attempts in its share of a limit reports within this part of the window: once it was silent
for a whole window, the others divide its share among themselves."""
ANNOUNCED: Final = timedelta(seconds=2)
"""A new worker that has reported this lately need not do so again: the next copies of the circuit show it."""
INTERVAL = timedelta(seconds=1)
"""Failures, slow calls and retries are held back for this long at most; near a trip everything is."""

FRESH_AFTER_FAILURE: Final = timedelta(milliseconds=100)
"""Maximum age of a snapshot once a failure was reported that it does not contain yet; else it is valid for a
second."""


def name_of(reporter: str) -> str:
    """Return a reporter's name as it is stored."""
    return reporter[:NAME_CHARACTERS]


@dataclass(frozen=True, slots=True)
class Reporter(JsonRow):
    """What is remembered of one worker process."""

    name: str
    highest: int  # the highest sequence number that was counted
    counted: int  # bit k is set when number `highest - k` was counted
    seen_at: MsInstant  # when its latest report arrived

    def has(self, sequence: int) -> bool:
        """Whether this number was counted, or is too old to say."""
        behind = self.highest - sequence
        # Too old to say means counted: counting calls twice would distort the ratio.
        return behind >= 0 and (behind >= LATE or bool(self.counted >> behind & 1))

    def with_number(self, sequence: int, at: datetime) -> "Reporter":
        """Return the reporter with a number that was not counted before."""
        ahead = sequence - self.highest
        if ahead > 0:
            # The shift is limited and the result masked: the integer stays at 32 bits.
            counted = self.counted << min(ahead, LATE) | 1
            return Reporter(self.name, sequence, counted & (1 << LATE) - 1, at)
        return Reporter(self.name, self.highest, self.counted | 1 << -ahead, at)


@dataclass(frozen=True, slots=True)
class Reporters(JsonShape):
    """The remembered reporters, the most recent last."""

    remembered: tuple[Reporter, ...] = ()

    def has_counted(self, name: str, sequence: int) -> bool:
        """Whether this report was counted before."""
        reporter = self._reporter_of_name(name)
        return reporter is not None and reporter.has(sequence)

    def with_report(self, name: str, sequence: int, at: datetime) -> "Reporters":
        earlier = self._reporter_of_name(name)
        fresh = Reporter(name_of(name), sequence, 1, at)
        updated = fresh if earlier is None else earlier.with_number(sequence, at)
        others = tuple(reporter for reporter in self.remembered if reporter is not earlier)
        return Reporters((*others, updated)[-KEPT:])

    def highest(self, name: str) -> int:
        """Return the highest sequence number that was counted of a reporter; 0 when none is remembered."""
        reporter = self._reporter_of_name(name)
        return 0 if reporter is None else reporter.highest

    def heard_at(self, name: str) -> datetime | None:
        """Return when a reporter was heard last; None when none is remembered."""
        reporter = self._reporter_of_name(name)
        return None if reporter is None else reporter.seen_at

    def active(self, since: datetime) -> set[str]:
        """Return the names of those that reported since an instant."""
        return {reporter.name for reporter in self.remembered if reporter.seen_at >= since}

    def _reporter_of_name(self, name: str) -> Reporter | None:
        kept_name = name_of(name)
        return next((reporter for reporter in self.remembered if reporter.name == kept_name), None)


@dataclass(slots=True)
class ReportBuffer:
    """The unreported results of one worker process for one dependency. No I/O, no clock, no lock.

    The caller guards it with a lock of its own. It calls `see` with each new snapshot, `started`, `refused`,
    `asked`, `postponed` and `ended` as these happen, and sends `take()` when `due_at` is reached.
    """

    reporter: str  # unique per process and start, so that a restarted process begins a new sequence
    settings: CircuitSettings
    # Whether attempts are under way in this worker's share of a limit, of which the others must know.
    holds_share: Callable[[], bool] = lambda: False
    sequence: int = 0
    epoch: int = 0
    last_report_at: datetime | None = None
    here: TakenHere = field(default_factory=TakenHere)
    _snapshot: Snapshot | None = None
    _window: SlidingWindow = field(init=False)
    _oldest_at: datetime | None = None
    _gathered_since: datetime | None = None
    _trailing_failures: int = 0
    _unauthorized: int = 0
    _unauthorized_by: str | None = None
    _bad_calls: int = 0  # failed or slow ones, which may open the circuit
    _refused: int = 0
    _first_attempts: int = 0
    _retries: int = 0
    _throttled_until: datetime | None = None
    _probes: list[ProbeResult] = field(default_factory=list)
    _last_error: str | None = None
    _sent: list[Report] = field(default_factory=list)
    _counted_since: datetime | None = None
    _known_since: datetime | None = None
    _taken_as_newcomer: int = 0
    _is_announcing: bool = False

    def __post_init__(self) -> None:
        self._window = SlidingWindow.over(self.settings.window_seconds)

    def see(self, snapshot: Snapshot, *, reporters: Reporters | None = None) -> None:
        """Take a new snapshot into account. Counts of an epoch that is over are dropped.

        What `reporters` does not contain yet still counts as taken here; None means that it contains all.
        """
        # Two readers may overlap: an older snapshot must not undo a newer one.
        if self._snapshot is not None and snapshot.taken_at <= self._snapshot.taken_at:
            return
        self._snapshot = snapshot
        # Not by the highest number alone: reports overtake each other.
        self._sent = [
            sent
            for sent in self._sent
            if reporters is not None and not reporters.has_counted(self.reporter, sent.sequence)
        ]
        self.here = TakenHere(
            retries=self._retries + sum(sent.retries for sent in self._sent),
            first_attempts=self._first_attempts + sum(sent.first_attempts for sent in self._sent),
            refused=self._refused + sum(sent.refused for sent in self._sent),
            throttled_until=latest(self._throttled_until, *(sent.throttled_until for sent in self._sent)),
            throttled_by=self.here.throttled_by,
        )
        self._enter_epoch(snapshot.epoch)
        self._note_counted(snapshot)

    def taken_as_newcomer(self, now: datetime) -> int | None:
        """Return the tokens taken before this worker was counted for a second; None when it was.

        Until then a copy that another worker spends from may lack it.
        """
        is_known = self._counted_since is not None and now - self._counted_since >= VALID
        return None if is_known else self._taken_as_newcomer

    def is_known(self, now: datetime) -> bool:
        """Whether the others have known of this worker for a second, as one of those that share a limit."""
        return self._known_since is not None and now - self._known_since >= VALID

    def announce(self, at: datetime) -> None:
        """Make a report due although there is nothing to report: the other workers must count this one."""
        self._is_announcing = True
        self._note_oldest(at)

    def is_fresh(self, snapshot: Snapshot, now: datetime) -> bool:
        """Whether a snapshot need not be read anew: it is valid, and lacks no trouble that was reported."""
        # The circuit may be about to open: the process that sees failures then stops calling soon after.
        is_young = not self.has_sent_trouble or now < snapshot.taken_at + FRESH_AFTER_FAILURE
        return is_young and snapshot.is_valid(now)

    @property
    def has_sent_trouble(self) -> bool:
        """Whether trouble was reported that no snapshot has shown yet."""
        return any(sent.window.has_bad_calls or sent.probes or sent.throttled_until for sent in self._sent)

    def uncounted(self, now: datetime, reporters: Reporters | None = None) -> Report | None:
        """Return the first report sent of a probe in its lease, or of a pause that goes on, and not counted.

        `reporters` are those of the circuit; None means that it was not read since.
        """
        for sent in self._sent:
            lease_ends = (probe.lease_expires_at for probe in sent.probes)
            matters_until = latest(sent.throttled_until, *lease_ends)
            is_counted = reporters is not None and reporters.has_counted(self.reporter, sent.sequence)
            if matters_until is not None and matters_until > now and not is_counted:
                return sent
        return None

    def started(self, attempt: int, at: datetime, *, promised: bool = False) -> None:
        """Count an attempt that starts. `promised`: the budget took its token when it postponed it."""
        if attempt == 1:
            self._first_attempts += 1
            self.here.first_attempts += 1
        elif not promised:
            self._take_token(at)
        self._note_oldest(at)

    def postponed(self, at: datetime) -> None:
        """Count a retry that the budget promised for later."""
        self._take_token(at)
        self._note_oldest(at)

    def asks_again(self, at: datetime) -> None:
        """Count a retry that must ask the budget again."""
        self.here.asking_again += 1
        # Its first second counts from the latest report that a copy shows: another report would prolong it.
        is_announced = self.last_report_at is not None and at < self.last_report_at + ANNOUNCED
        if self.taken_as_newcomer(at) is not None and not is_announced:
            self.announce(at)

    def refused(self, at: datetime) -> None:
        """Count an operation that begins to wait; call it once per wait."""
        self._refused += 1
        self.here.refused += 1
        self._note_oldest(at)

    def asked(self) -> None:
        """Count an operation that was sent to the entity for a probe."""
        self.here.asked += 1

    def ended(self, permitted: Permitted, end: CallEnd, at: datetime) -> None:
        """Count a call that ended, under the epoch of its permit."""
        health = end.health
        if health.is_failure and end.failure is not None:
            self._last_error = end.failure
        if health is CallHealth.UNAUTHORIZED and end.failure is not None:
            self._unauthorized_by = end.failure.partition(":")[0]
        slow = 0 < self.settings.slow_call_seconds <= end.duration_seconds
        if end.throttled_until is not None:
            self._throttled_until = latest(self._throttled_until, end.throttled_until)
            self.here.throttled_until = latest(self.here.throttled_until, end.throttled_until)
            self.here.throttled_by = end.throttled_by or self.here.throttled_by
        if permitted.lease_id is not None:
            # A slow probe does not show that the dependency has recovered.
            counted = CallHealth.FAILURE if slow and health is CallHealth.SUCCESS else health
            lease_id, ends_at = permitted.lease_id, permitted.lease_expires_at
            self._probes.append(ProbeResult(lease_id, permitted.epoch, counted, ends_at))
        elif health is not CallHealth.SILENT and permitted.epoch >= self.epoch:
            self._enter_epoch(permitted.epoch)
            self._count_call(at, health, slow=slow)
        self._note_oldest(at)

    def due_at(self) -> datetime | None:
        """Return when the next report is due; a past instant means now, None means that none is needed."""
        due, last = self._due_by_counts(), self.last_report_at
        if last is None or not self.holds_share():
            return due
        silent_until = last + timedelta(seconds=self.settings.window_seconds * KNOWN_PART)
        return silent_until if due is None else min(due, silent_until)

    def _due_by_counts(self) -> datetime | None:
        if self._oldest_at is None:
            return None
        last = self.last_report_at or self._oldest_at - INTERVAL
        # These change the circuit for every worker, so they are sent at once.
        if self._probes or self._throttled_until is not None:
            return self._oldest_at
        calls = max(self._window.everything().calls, self._first_attempts)
        is_near = self._snapshot is not None and self._snapshot.near_trip
        gathered_since = self._oldest_at if is_near and calls else self._gathered_since
        due = None if gathered_since is None else gathered_since + INTERVAL
        if self._bad_calls and self._may_trip():
            due = max(self._oldest_at, last + GATHER)
        elif self._refused or self._is_announcing:
            due = max(self._oldest_at, last + INTERVAL)
        elif due is None and calls >= QUIET_CALLS:
            due = max(self._oldest_at, last + timedelta(seconds=self.settings.window_seconds / BUCKETS))
        return due

    def take(self, at: datetime) -> Report:
        """Empty the buffer into a report. If sending fails, the same report may be sent again."""
        self.sequence += 1
        report = Report(
            reporter=self.reporter,
            sequence=self.sequence,
            at=at,
            epoch=self.epoch,
            window=self._window.trimmed(at),
            trailing_failures=self._trailing_failures,
            unauthorized=self._unauthorized or None,
            unauthorized_by=self._unauthorized_by,
            refused=self._refused,
            first_attempts=self._first_attempts,
            retries=self._retries,
            throttled_until=self._throttled_until,
            throttled_by=None if self._throttled_until is None else self.here.throttled_by,
            probes=tuple(self._probes),
            last_error=self._last_error,
        )
        # Until a snapshot contains this report, its retries and refusals count as taken here.
        self._sent = [*self._sent, report][-KEPT_SENT:]
        self._drop_counts()
        self._refused = self._first_attempts = self._retries = 0
        self._throttled_until = None
        self._is_announcing = False
        self._probes = []
        self._last_error = self._unauthorized_by = None
        self._oldest_at = self._gathered_since = None
        self.last_report_at = at
        return report

    def _note_counted(self, snapshot: Snapshot) -> None:
        if snapshot.budget is None or not snapshot.budget.is_known:
            self._known_since = None
        elif self._known_since is None:
            self._known_since = snapshot.taken_at
        heard_at = None if snapshot.budget is None else snapshot.budget.heard_at
        if heard_at is None and self._counted_since is not None:  # It was silent, and is new again.
            self._taken_as_newcomer = 0
        if heard_at is None or self._counted_since is None:
            self._counted_since = heard_at

    def _may_trip(self) -> bool:
        """Whether its calls may open the circuit, if the other workers hold back as much."""
        mine = sum([sent.window.everything() for sent in self._sent], self._window.everything())
        shared, workers, in_a_row = NO_CALLS, 1, 0
        if self._snapshot is not None:
            shared, in_a_row = self._snapshot.counts, self._snapshot.failures_in_a_row
            workers = 1 if self._snapshot.budget is None else self._snapshot.budget.workers
        in_a_row += self._trailing_failures * workers
        return self._unauthorized > 0 or is_near_trip(shared + mine * workers, in_a_row, self.settings)

    def _take_token(self, at: datetime) -> None:
        if self.taken_as_newcomer(at) is None:
            self._gathered_since = self._gathered_since or at
        else:
            self._taken_as_newcomer += 1
            self.announce(at)
        self._retries += 1
        self.here.retries += 1

    def _note_oldest(self, at: datetime) -> None:
        self._oldest_at = self._oldest_at or at

    def _count_call(self, at: datetime, health: CallHealth, *, slow: bool) -> None:
        counts = Counts(calls=1, failures=int(health.is_failure), slow=int(slow))
        self._window = self._window.add(at, counts).trimmed(at)
        if health.is_failure or slow:
            self._bad_calls += 1
            self._gathered_since = self._gathered_since or at
        if not health.is_failure:
            self._trailing_failures = self._unauthorized = 0
            return
        self._trailing_failures += 1
        self._unauthorized += health is CallHealth.UNAUTHORIZED

    def _enter_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self._drop_counts()

    def _drop_counts(self) -> None:
        self._window = SlidingWindow.over(self.settings.window_seconds)
        self._bad_calls = 0
        self._trailing_failures = self._unauthorized = 0

"""Results that a worker process collects before it reports them to the shared circuit.

While a dependency is healthy, successes are held back and sent with the next failure, or in batches. How this
affects the shared ratio is in `docs/circuit.md`.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from durable_retry.engine.base.sliding_window import BUCKETS, Counts, SlidingWindow
from durable_retry.engine.circuit.report import CallHealth, ProbeResult, Report
from durable_retry.engine.circuit.settings import CircuitSettings
from durable_retry.engine.circuit.snapshot import Snapshot, TakenHere

QUIET_CALLS = 20
"""With a healthy dependency a report waits for this many calls: at most one message per 20 successes."""
GATHER = timedelta(milliseconds=100)
"""The first failure is reported at once; those of the next tenth of a second go together."""
KEPT_SENT = 32
"""Reports that may be under way; older ones have arrived or are lost."""
TROUBLED_INTERVAL = timedelta(seconds=1)
"""While the shared window shows failures, nothing is held back for longer."""


@dataclass(slots=True)
class ReportBuffer:
    """The unreported results of one worker process for one dependency. No I/O, no clock, no lock.

    The caller guards it with a lock of its own. It calls `see` with each new snapshot, `started`, `refused`,
    `asked`, `postponed` and `ended` as these happen, and sends `take()` when `due_at` is reached.

    Attributes:
        reporter: Unique per process and start, so that a restarted process begins a new sequence.
        settings: Of the dependency's circuit.
    """

    reporter: str
    settings: CircuitSettings
    sequence: int = 0
    epoch: int = 0
    last_report_at: datetime | None = None
    here: TakenHere = field(default_factory=TakenHere)
    _troubled: bool = False
    _snapshot_at: datetime | None = None
    _window: SlidingWindow = field(init=False)
    _oldest_at: datetime | None = None
    _trailing_failures: int = 0
    _failures: int = 0
    _refused: int = 0
    _first_attempts: int = 0
    _retries: int = 0
    _throttled_until: datetime | None = None
    _probes: list[ProbeResult] = field(default_factory=list)
    _sent: list[Report] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._window = SlidingWindow.over(self.settings.window_seconds)

    def see(self, snapshot: Snapshot, *, heard: int | None = None) -> None:
        """Take a new snapshot into account. Counts of an epoch that is over are dropped.

        Args:
            snapshot: The copy.
            heard: Sequence number of the last report of this buffer that the snapshot contains; None means
                all that were taken. What it does not contain yet still counts as taken here.
        """
        # Two readers may overlap: an older snapshot must not undo a newer one.
        if self._snapshot_at is not None and snapshot.taken_at <= self._snapshot_at:
            return
        self._snapshot_at = snapshot.taken_at
        self._troubled = snapshot.troubled
        self._sent = [] if heard is None else [sent for sent in self._sent if sent.sequence > heard]
        self.here = TakenHere(
            retries=self._retries + sum(sent.retries for sent in self._sent),
            refused=self._refused + sum(sent.refused for sent in self._sent),
        )
        self._enter(snapshot.epoch)

    @property
    def has_unseen_trouble(self) -> bool:
        """Whether a report of trouble is not in the snapshot yet: the circuit may be about to open."""
        return any(
            sent.window.everything().failures or sent.probes or sent.throttled_until for sent in self._sent
        )

    def started(self, attempt: int, at: datetime, *, promised: bool = False) -> None:
        """Count an attempt that starts. `promised`: the budget took its token when it postponed it."""
        if attempt == 1:
            self._first_attempts += 1
        elif not promised:
            self._take_token()
        self._note(at)

    def postponed(self, at: datetime) -> None:
        """Count a retry that the budget promised for later."""
        self._take_token()
        self._note(at)

    def refused(self, at: datetime) -> None:
        """Count an operation that begins to wait; call it once per wait."""
        self._refused += 1
        self.here = self.here.plus(refused=1)
        self._note(at)

    def asked(self) -> None:
        """Count an operation that was sent to the entity for a probe."""
        self.here = self.here.plus(asked=1)

    def ended(
        self,
        health: CallHealth,
        at: datetime,
        *,
        epoch: int,
        duration_seconds: float,
        throttled_until: datetime | None = None,
        lease_id: str | None = None,
    ) -> None:
        """Count a call that ended.

        Args:
            health: How it counts.
            at: When it ended.
            epoch: Of its permit.
            duration_seconds: How long it took.
            throttled_until: The dependency asked for no calls until then; None when it did not.
            lease_id: Of the probe; None when it was none.
        """
        slow = 0 < self.settings.slow_call_seconds <= duration_seconds
        if throttled_until is not None:
            self._throttled_until = max(throttled_until, self._throttled_until or throttled_until)
        if lease_id is not None:
            # A slow probe has not shown that the dependency is well again.
            sick = slow and health is CallHealth.SUCCESS
            self._probes.append(ProbeResult(lease_id, epoch, CallHealth.FAILURE if sick else health))
        elif health is not CallHealth.SILENT and epoch >= self.epoch:
            self._enter(epoch)
            self._count(at, failed=health is CallHealth.FAILURE, slow=slow)
        self._note(at)

    def due_at(self) -> datetime | None:
        """Return when the next report is due; a past instant means now, None means that none is needed."""
        if self._oldest_at is None:
            return None
        last = self.last_report_at or self._oldest_at - TROUBLED_INTERVAL
        # These change the circuit for every worker, so they are sent at once.
        if self._probes or self._throttled_until is not None:
            return self._oldest_at
        if self._failures:
            return max(self._oldest_at, last + GATHER)
        calls = self._window.everything().calls
        if self._refused or self._retries or (self._troubled and (calls or self._first_attempts)):
            return max(self._oldest_at, last + TROUBLED_INTERVAL)
        if max(calls, self._first_attempts) >= QUIET_CALLS:
            return max(self._oldest_at, last + self._quiet_interval())
        return None

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
            refused=self._refused,
            first_attempts=self._first_attempts,
            retries=self._retries,
            throttled_until=self._throttled_until,
            probes=tuple(self._probes),
        )
        # Until a snapshot contains this report, its retries and refusals count as taken here.
        self._sent = [*self._sent, report][-KEPT_SENT:]
        self._clear()
        self.last_report_at = at
        return report

    def _quiet_interval(self) -> timedelta:
        return timedelta(seconds=self.settings.window_seconds / BUCKETS)

    def _take_token(self) -> None:
        self._retries += 1
        self.here = self.here.plus(retries=1)

    def _note(self, at: datetime) -> None:
        if self._oldest_at is None:
            self._oldest_at = at

    def _count(self, at: datetime, *, failed: bool, slow: bool) -> None:
        counts = Counts(calls=1, failures=int(failed), slow=int(slow))
        self._window = self._window.add(at, counts).trimmed(at)
        self._failures += counts.failures
        self._trailing_failures = self._trailing_failures + 1 if failed else 0

    def _enter(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self._drop_counts()

    def _drop_counts(self) -> None:
        self._window = SlidingWindow.over(self.settings.window_seconds)
        self._failures = 0
        self._trailing_failures = 0

    def _clear(self) -> None:
        self._drop_counts()
        self._refused = self._first_attempts = self._retries = 0
        self._throttled_until = None
        self._probes = []
        self._oldest_at = None

"""What a worker process saves up before it tells the shared circuit.

While all is well nothing is worth a message of its own: successes are held back and travel with the next
failure, or in batches. What they do to the shared ratio until then is stated in `docs/circuit.md`.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from engine.circuit.health import Verdict
from engine.circuit.report import ProbeResult, Report
from engine.circuit.settings import CircuitSettings
from engine.circuit.snapshot import Snapshot, TakenHere
from engine.sliding_window import BUCKETS, Counts, SlidingWindow

QUIET_CALLS = 20
"""With a healthy dependency a report waits for this many calls: at most one message per 20 successes."""
GATHER = timedelta(milliseconds=100)
"""The first failure is reported at once; those of the next tenth of a second go together."""
KEPT_TOLD = 32
"""Reports that may be on their way; what is older was heard or is lost."""
TROUBLED_INTERVAL = timedelta(seconds=1)
"""While the shared window shows failures, nothing is held back for longer."""


@dataclass(slots=True)
class ReportBuffer:
    """What one worker process saved up for one dependency. Does no I/O, reads no clock, takes no lock.

    The caller shares it between threads under a lock of its own, and calls `see` with each new snapshot,
    `started`, `refused`, `asked`, `postponed` and `ended` as they happen,
    and sends `take()` when `due_at` has come.

    Attributes:
        reporter: unique per process and start, so that a restarted process begins a new sequence.
        settings: the dependency's circuit.
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
    _told: list[Report] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._window = SlidingWindow.over(self.settings.window_seconds)

    def see(self, snapshot: Snapshot, *, heard: int | None = None) -> None:
        """Take note of a snapshot: counts of an epoch that is over are worth no message, so they go.

        Args:
            snapshot: the copy.
            heard: the last report of this buffer that the copy shows; None = all that were taken. What it
                does not show yet was taken here all the same.
        """
        if self._snapshot_at is not None and snapshot.taken_at <= self._snapshot_at:
            return
        self._snapshot_at = snapshot.taken_at
        self._troubled = snapshot.troubled
        self._told = [] if heard is None else [told for told in self._told if told.sequence > heard]
        self.here = TakenHere(
            retries=self._retries + sum(told.retries for told in self._told),
            refused=self._refused + sum(told.refused for told in self._told),
        )
        self._enter(snapshot.epoch)

    @property
    def awaits_verdict(self) -> bool:
        """Whether trouble was told that the copy does not show yet: it may say more than it did."""
        return any(
            told.window.everything().failures or told.probes or told.throttled_until for told in self._told
        )

    def started(self, attempt: int, at: datetime, *, promised: bool = False) -> None:
        """An attempt goes out. `promised`: a retry whose token the budget took when it postponed it."""
        if attempt == 1:
            self._first_attempts += 1
        elif not promised:
            self._take_token()
        self._note(at)

    def postponed(self, at: datetime) -> None:
        """The budget promised a retry for later."""
        self._take_token()
        self._note(at)

    def refused(self, at: datetime) -> None:
        """An operation begins to wait; not called again while the same wait goes on."""
        self._refused += 1
        self.here = self.here.plus(refused=1)
        self._note(at)

    def asked(self) -> None:
        """An operation is sent to the entity for a probe."""
        self.here = self.here.plus(asked=1)

    def ended(
        self,
        verdict: Verdict,
        at: datetime,
        *,
        epoch: int,
        duration_seconds: float,
        throttled_until: datetime | None = None,
        lease_id: str | None = None,
    ) -> None:
        """A call ended.

        Args:
            verdict: what it says about the dependency.
            at: when it ended.
            epoch: the epoch of its permit.
            duration_seconds: how long it took.
            throttled_until: until when the dependency asked to be left alone; None = it did not.
            lease_id: the lease of a probe; None = it was none.
        """
        slow = 0 < self.settings.slow_call_seconds <= duration_seconds
        if throttled_until is not None:
            self._throttled_until = max(throttled_until, self._throttled_until or throttled_until)
        if lease_id is not None:
            # A slow probe has not shown that the dependency is well again.
            sick = slow and verdict is Verdict.SUCCESS
            self._probes.append(ProbeResult(lease_id, epoch, Verdict.FAILURE if sick else verdict))
        elif verdict is not Verdict.SILENT and epoch >= self.epoch:
            self._enter(epoch)
            self._count(at, failed=verdict is Verdict.FAILURE, slow=slow)
        self._note(at)

    def due_at(self) -> datetime | None:
        """When the next report should go; an instant in the past means now, None means that it can wait."""
        if self._oldest_at is None:
            return None
        last = self.last_report_at or self._oldest_at - TROUBLED_INTERVAL
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
        self._told = [*self._told, report][-KEPT_TOLD:]
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

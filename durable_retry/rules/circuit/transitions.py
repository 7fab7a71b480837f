"""What moves the shared circuit: the report of a worker, a request for a probe, manual control."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from durable_retry.base.asks import is_repeated
from durable_retry.base.json_forms import JsonShape, MsInstant, from_ms, to_ms
from durable_retry.base.text import counted
from durable_retry.rules.circuit.breaker import (
    BY_CHARACTERS,
    FREE,
    REASON_CHARACTERS,
    AuditEntry,
    Breaker,
    Lease,
    ManualControl,
    advanced,
    freed,
    moved,
    opened,
)
from durable_retry.rules.circuit.calls import CallHealth, ProbeResult, Report, SlidingWindow
from durable_retry.rules.circuit.retry_budget import Budget, RetryBudgetSettings, account
from durable_retry.rules.circuit.snapshot import (
    ALL_PROBES_UNDER_WAY,
    CLOCKS_APART,
    RECHECK,
    Permitted,
    Refused,
    refused,
    throttled,
)
from durable_retry.rules.circuit.states import CircuitMove, CircuitSettings, CircuitState
from durable_retry.rules.circuit.trips import trip_reason

LONGEST_PAUSE = timedelta(days=1)
"""A throttling pause beyond this is taken for a mistake of the dependency, or of a clock."""


def apply_report(
    breaker: Breaker,
    report: Report,
    received_at: datetime,
    *,
    settings: CircuitSettings,
    budget_settings: RetryBudgetSettings,
) -> Breaker:
    """Apply a report; one that was counted before changes nothing.

    A throttling pause, the waiting operations and the spent retries count in every epoch. Results of calls
    count only in the epoch in which the calls were permitted: a late success cannot close a circuit that
    opened after its call began, and a late failure cannot open one that was closed since.
    """
    breaker = advanced(breaker, received_at)
    # Signals are delivered at least once.
    if breaker.reporters.has_counted(report.reporter, report.sequence):
        return breaker
    now = breaker.clock or received_at
    budget = account(
        breaker.budget,
        at=now,
        first_attempts=report.first_attempts,
        retries=report.retries,
        settings=budget_settings,
    )
    breaker = replace(
        breaker, budget=budget, reporters=breaker.reporters.with_report(report.reporter, report.sequence, now)
    )
    breaker = _after_pause(breaker, report, now)
    breaker = replace(breaker, waiting=breaker.waiting + report.refused)
    if report.last_error is not None:
        breaker = _with_error(breaker, report.last_error, now)
    for probe in report.probes:
        breaker = _after_probe(breaker, probe, now, settings, report.unauthorized_by)
    if report.epoch != breaker.epoch or breaker.state not in FREE:
        return breaker
    breaker = _after_report(breaker, report, now, settings)
    return _tripped_if_sick(breaker, now, settings, report.unauthorized_by or "its answer")


def _with_error(breaker: Breaker, error: str, now: datetime) -> Breaker:
    """Return the circuit after a failed call; errors of one status or exception are of one kind."""
    kind, last = error.partition(":")[0], (breaker.last_error or error).partition(":")[0]
    since = breaker.failing_since if kind == last else now
    return replace(breaker, last_error=error, failing_since=since)


@dataclass(frozen=True, slots=True)
class Gone(JsonShape):
    """Signal `gone`: an operation that the circuit held up will make no attempt."""

    was_waiting: bool = False  # whether it counts as waiting
    was_promised: bool = False  # whether the retry budget took a token for it
    permit: Permitted | None = None  # for a probe that waited for a slot, which is free again; None for none

    def apply(self, breaker: Breaker, received_at: datetime) -> Breaker:
        """Return the circuit after it; its token comes back as far as the budget is in debt."""
        breaker = advanced(breaker, received_at)
        tokens = breaker.budget.tokens
        if self.was_promised and tokens < 0:
            breaker = replace(breaker, budget=replace(breaker.budget, tokens=min(tokens + 1.0, 0.0)))
        if self.permit is not None:
            probe = (self.permit.lease_id, self.permit.lease_expires_at)
            ended = [lease for lease in breaker.leases if (lease.lease_id, lease.expires_at) == probe]
            breaker = breaker.without_leases(ended)
        return replace(breaker, waiting=breaker.waiting - self.was_waiting)


def _end_of_pause(report: Report, now: datetime) -> datetime | None:
    """Return the end of the pause that a report asks for: it lasts from its arrival, unless it is old."""
    late = now - report.at
    if report.throttled_until is None or late > CLOCKS_APART:
        return report.throttled_until
    return report.throttled_until + late


def _after_pause(breaker: Breaker, report: Report, now: datetime) -> Breaker:
    until = _end_of_pause(report, now)
    if until is None or until <= now:
        return breaker
    until = from_ms(to_ms(min(until, now + LONGEST_PAUSE)))
    if not breaker.is_throttled(now):
        # Operations that were released since no longer count as waiting.
        breaker = replace(breaker, waiting=breaker.remaining_waiting(now), throttled_since=now)
    if breaker.throttled_until is not None and until < breaker.throttled_until:
        return breaker
    return replace(breaker, throttled_until=until, throttled_by=report.throttled_by)


def _after_probe(
    breaker: Breaker,
    probe: ProbeResult,
    now: datetime,
    settings: CircuitSettings,
    unauthorized_by: str | None,
) -> Breaker:
    # A probe counts under its lease alone: after it expired, another operation may be probing.
    reported = (probe.lease_id, probe.lease_expires_at)
    ended = [lease for lease in breaker.leases if (lease.lease_id, lease.expires_at) == reported]
    if breaker.state is not CircuitState.HALF_OPEN or probe.epoch != breaker.epoch or not ended:
        return breaker
    breaker = breaker.without_leases(ended)
    if probe.health is CallHealth.SILENT:
        return breaker
    if probe.health.is_failure:
        refused_by = unauthorized_by if probe.health is CallHealth.UNAUTHORIZED else None
        return opened(
            breaker,
            CircuitMove.PROBE_FAILED,
            now,
            settings,
            reason="a probe failed",
            unauthorized_by=refused_by,
        )
    successes = breaker.probe_successes + 1
    if successes >= settings.half_open_calls:
        return freed(
            breaker, CircuitMove.PROBES_SUCCEEDED, now, reason=f"{counted(successes, 'probe')} got through"
        )
    return replace(breaker, probe_successes=successes)


def _after_report(breaker: Breaker, report: Report, now: datetime, settings: CircuitSettings) -> Breaker:
    window = breaker.window
    empty = SlidingWindow.over(settings.window_seconds)
    if window.bucket_ms != empty.bucket_ms:
        window = empty.merge(window, now)  # the settings changed: the counts stay, their times are lost
    fresh = report.window.trimmed(now)  # the results of a report that was long under way are old
    calls = fresh.everything().calls
    if not calls:
        return replace(breaker, window=window.merge(fresh, now))
    succeeded_too = calls > report.trailing_failures
    # A success in this report ends the series that were counted before.
    in_a_row = report.trailing_failures if succeeded_too else breaker.failures_in_a_row + calls
    before = 0 if succeeded_too else breaker.unauthorized_in_a_row or 0
    return replace(
        breaker,
        window=window.merge(fresh, now),
        failures_in_a_row=in_a_row,
        unauthorized_in_a_row=before + (report.unauthorized or 0) or None,
    )


def _tripped_if_sick(
    breaker: Breaker, now: datetime, settings: CircuitSettings, unauthorized_by: str
) -> Breaker:
    if breaker.state is not CircuitState.CLOSED or not settings.enabled:
        return breaker
    if 0 < settings.unauthorized_calls <= (breaker.unauthorized_in_a_row or 0):
        return opened(breaker, CircuitMove.TRIP, now, settings, reason="", unauthorized_by=unauthorized_by)
    reason = trip_reason(breaker.window.totals(now), breaker.failures_in_a_row, settings)
    return breaker if reason is None else opened(breaker, CircuitMove.TRIP, now, settings, reason=reason)


SHORTEST_LEASE_SECONDS = 1.0
LONGEST_LEASE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class ProbeRequest(JsonShape):
    """The request of an operation to probe a half-open circuit."""

    operation_id: str
    # Number of the attempt that would probe, from 1; a repeated request for it gets the same lease.
    attempt: int
    # When it was made, aware UTC: one that is delivered again after its probe is over gets no lease.
    at: MsInstant
    # The longest that its call can take: the time limit of an attempt, and room for transport. After that the
    # probe is free again. Limited to 1 s to 1 hour.
    lease_seconds: float

    @property
    def lease_id(self) -> str:
        """The name of the lease: one per attempt."""
        return f"{self.operation_id}:{self.attempt}"


def probes_free(breaker: Breaker, settings: CircuitSettings) -> int:
    """Return how many probes may start: successes and probes in flight never exceed `half_open_calls`."""
    if breaker.state is not CircuitState.HALF_OPEN:
        return 0
    return max(0, settings.half_open_calls - breaker.probe_successes - len(breaker.leases))


def probe_requested(
    breaker: Breaker, request: ProbeRequest, settings: CircuitSettings, received_at: datetime
) -> tuple[Breaker, Permitted | Refused]:
    """Grant a lease, or return when to ask again.

    The circuit may have changed since the worker read it: closed permits without a lease, open and forced
    open refuse.
    """
    breaker = advanced(breaker, received_at)
    now = breaker.clock or received_at
    refusal = _refusal_of_calls(breaker, request.operation_id, now, settings)
    if refusal is not None:
        stops = refusal.stops_deadline or breaker.holds_deadlines
        return breaker, replace(refusal, stops_deadline=stops or None)
    if breaker.state is not CircuitState.HALF_OPEN:
        return breaker, Permitted(epoch=breaker.epoch)
    for lease in breaker.leases:
        if lease.lease_id == request.lease_id:
            renewed = replace(lease, asked_at=max(request.at, lease.asked_at or request.at))
            leases = tuple(renewed if other is lease else other for other in breaker.leases)
            return replace(breaker, leases=leases), _permit_of_lease(breaker, renewed)
    is_again = is_repeated(breaker.probed, request.lease_id, request.at)
    if is_again or probes_free(breaker, settings) == 0:
        again_at, failure = now + RECHECK, breaker.failing
        id_, waiting = request.operation_id, breaker.waiting
        return breaker, refused(id_, again_at, waiting, ALL_PROBES_UNDER_WAY, failure)
    seconds = min(max(request.lease_seconds, SHORTEST_LEASE_SECONDS), LONGEST_LEASE_SECONDS)
    expires_at = now + timedelta(milliseconds=round(seconds * 1000))
    lease = Lease(request.lease_id, expires_at, request.at)
    return replace(breaker, leases=(*breaker.leases, lease)), _permit_of_lease(breaker, lease)


def _refusal_of_calls(
    breaker: Breaker, operation_id: str, now: datetime, settings: CircuitSettings
) -> Refused | None:
    if breaker.freeze is not None and not breaker.freeze.lets_through(operation_id, now):
        # By then the worker has read of the freeze, and refuses by itself.
        refusal = refused(operation_id, now + RECHECK, breaker.waiting, breaker.freeze.why)
        return replace(refusal, frozen=True, stops_deadline=breaker.freeze.stops_deadline)
    if breaker.state is CircuitState.FORCED_OPEN:
        until = now + timedelta(seconds=settings.max_break_seconds)
        until, reason = (
            min(until, breaker.expires_at or until),
            f"the circuit is held open: {breaker.reason_of_wait}",
        )
        return refused(operation_id, until, breaker.waiting, reason)
    if breaker.state is CircuitState.OPEN:
        until, reason = breaker.retry_at or now + RECHECK, f"the circuit is open: {breaker.reason_of_wait}"
        return refused(operation_id, until, breaker.waiting, reason, breaker.failing)
    if breaker.throttled_until is not None and breaker.is_throttled(now):
        return throttled(operation_id, breaker.throttled_until, breaker.waiting, breaker.throttled_by)
    return None


def _permit_of_lease(breaker: Breaker, lease: Lease) -> Permitted:
    return Permitted(breaker.epoch, lease_id=lease.lease_id, lease_expires_at=lease.expires_at)


@dataclass(frozen=True, slots=True)
class ManualAction(JsonShape):
    """Signal `hand`: one use of manual control."""

    control: ManualControl
    at: MsInstant  # when, aware UTC
    by: str
    reason: str
    # How long opening or disabling lasts, above 0; None means until the next manual control. Ignored for
    # closing and resetting, which have no duration.
    for_seconds: float | None = None
    # The epoch of the circuit that the person saw: in any other the action changes nothing. None means that
    # it applies whatever the circuit did meanwhile.
    epoch: int | None = None
    # Whether the deadlines of operations that wait for it stop while it is held open; None means that they go
    # on. Ignored for everything but opening.
    stops_deadline: bool | None = None
    # The limit key whose circuit it is for; None for that of the dependency.
    limit_key: str | None = None
    # Whether the dependency's limit keys have circuits of their own; None for not.
    by_key: bool | None = None

    def apply(self, breaker: Breaker, received_at: datetime) -> Breaker:
        """Return the circuit after it, with the record of it. One that arrives twice is applied once.

        A message that a later one overtook is recorded and changes nothing: the latest action of a person
        counts. Which one is later is decided by the clocks of the senders; where those differ by more than
        messages are late, by the arrival.
        """
        keys = breaker.keys if self.by_key is None else breaker.keys or ()
        breaker = replace(breaker, limit_key=self.limit_key, keys=keys)
        current = advanced(breaker, received_at)
        now = current.clock or received_at
        entry = AuditEntry(
            at=from_ms(to_ms(self.at)),
            control=self.control,
            by=self.by[:BY_CHARACTERS],
            reason=self.reason[:REASON_CHARACTERS],
            until=_end_of_control(self, now),
        )
        if breaker.audit.has(entry):
            return breaker
        if self.epoch is not None and self.epoch != current.epoch:
            return current
        if breaker.audit.overtakes(entry, now):
            return replace(current, audit=breaker.audit.with_entry(entry))
        changed = _after_control(current, self, entry, now)
        # A control whose time was over before its message arrived ends at once.
        return advanced(replace(changed, audit=breaker.audit.with_entry(entry)), received_at)


def _end_of_control(action: ManualAction, now: datetime) -> datetime | None:
    if action.for_seconds is None or action.control in {ManualControl.CLOSE, ManualControl.RESET}:
        return None
    # A message that was under way for longer than clocks differ is old: its time counts from its sending.
    begins_at = action.at if now - action.at > CLOCKS_APART else now
    return from_ms(to_ms(begins_at + timedelta(seconds=action.for_seconds)))


def _after_control(breaker: Breaker, action: ManualAction, entry: AuditEntry, now: datetime) -> Breaker:
    match action.control:
        case ManualControl.OPEN:
            return replace(_held_open(breaker, entry, now), stops_deadline=action.stops_deadline)
        case ManualControl.DISABLE:
            free = freed(breaker, CircuitMove.DISABLE, now, reason=entry.reason, by=entry.by)
            return replace(free, expires_at=entry.until)
        case ManualControl.CLOSE:
            return freed(breaker, CircuitMove.CLOSE, now, reason=entry.reason, by=entry.by)
        case ManualControl.RESET:
            until = breaker.throttled_until and min(breaker.throttled_until, now)
            breaker = freed(breaker, CircuitMove.RESET, now, reason=entry.reason, by=entry.by)
            return replace(breaker, throttled_until=until, budget=Budget())
        case _ as never:
            assert_never(never)


def _held_open(breaker: Breaker, entry: AuditEntry, now: datetime) -> Breaker:
    return replace(
        moved(breaker, CircuitMove.FORCE_OPEN, now, reason=entry.reason, by=entry.by),
        opened_at=now,
        first_opened_at=breaker.closed_to_calls_since or now,
        opened_because=breaker.opened_because or entry.reason,
        last_error=None if breaker.state in FREE else breaker.last_error,
        unauthorized_by=None,
        retry_at=None,
        reopened_at=None,
        draining_since=None,
        expires_at=entry.until,
    )

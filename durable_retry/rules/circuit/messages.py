"""Messages to and from the entity `circuit_breaker`, and the views of its state for workers and for the API.

Each message carries the settings, so the entity stores none, and an edit of `dependencies.toml` takes effect
with the first message that was made after it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Self

from pydantic import Field

from durable_retry.base.answers import Answer, Instant, Unreadable, left_out
from durable_retry.base.json_forms import JsonShape, is_none
from durable_retry.base.text import counted, names_text, paused_text, time_text
from durable_retry.rules.circuit.breaker import (
    FREE,
    AuditEntry,
    Breaker,
    advanced,
)
from durable_retry.rules.circuit.calls import Report, SlidingWindow
from durable_retry.rules.circuit.freeze import FreezeFigures
from durable_retry.rules.circuit.key_changes import KEPT_KEYS, NO_KEY_CHANGES
from durable_retry.rules.circuit.reporters import name_of
from durable_retry.rules.circuit.retry_budget import HEARD_SECONDS, RetryBudgetSettings, budget_snapshot
from durable_retry.rules.circuit.snapshot import Permitted, Refused, Snapshot, frozen
from durable_retry.rules.circuit.states import CircuitSettings, CircuitState
from durable_retry.rules.circuit.transitions import ProbeRequest, apply_report, probe_requested, probes_free
from durable_retry.rules.circuit.trips import is_near_trip


@dataclass(frozen=True, slots=True)
class ReportMessage(JsonShape):
    """Signal `report`: the results of a worker."""

    report: Report
    settings: CircuitSettings
    budget_settings: RetryBudgetSettings
    limit_key: str | None = None  # whose circuit it is for; None for that of the dependency

    def apply(self, breaker: Breaker, received_at: datetime) -> Breaker:
        """Return the state after it; `received_at` is the present by the circuit's clock."""
        return apply_report(
            replace(breaker, limit_key=self.limit_key),
            self.report,
            received_at,
            settings=self.settings,
            budget_settings=self.budget_settings,
        )

    def alerts(self, before: Breaker, after: Breaker, now: datetime) -> bool:
        """Whether it paused the circuit or brought it near a trip, which all workers must see soon."""
        return self._is_calm(before, now) and not self._is_calm(after, now)

    def _is_calm(self, breaker: Breaker, now: datetime) -> bool:
        counts = breaker.window.totals(now)
        is_near = is_near_trip(counts, breaker.failures_in_a_row, self.settings)
        return breaker.state is CircuitState.CLOSED and not (is_near or breaker.is_throttled(now))


@dataclass(frozen=True, slots=True)
class PermitMessage(JsonShape):
    """Call `permit`: an orchestration requests a probe and waits for the answer."""

    request: ProbeRequest
    settings: CircuitSettings

    def apply(self, breaker: Breaker, received_at: datetime) -> tuple[Breaker, Permitted | Refused]:
        """Return the state after it, and the answer; `received_at` is the present by the circuit's clock."""
        return probe_requested(breaker, self.request, self.settings, received_at)


type PermitAnswer = Permitted | Refused
"""The answer of `permit`."""


def snapshot_of(
    breaker: Breaker,
    now: datetime,
    *,
    settings: CircuitSettings,
    budget_settings: RetryBudgetSettings,
    reader: str | None = None,
) -> Snapshot:
    """Return a worker's copy of the circuit; `reader` is its name in its reports, None without reports."""
    current = advanced(breaker, now)
    clock = current.clock or now
    heard = _Sharing.since(current, clock - timedelta(seconds=HEARD_SECONDS), reader)
    window_seconds = max(settings.window_seconds, HEARD_SECONDS)
    sharing = _Sharing.since(current, clock - timedelta(seconds=window_seconds), reader)
    is_held = current.state is CircuitState.FORCED_OPEN
    reopened_at = _reopened_at(current, clock)
    counts = current.window.totals(clock)
    snapshot = Snapshot(
        taken_at=now,
        state=current.state,
        epoch=current.epoch,
        retry_at=current.expires_at if is_held else current.retry_at,
        throttled_until=current.throttled_until if current.is_throttled(clock) else None,
        probes_free=probes_free(current, settings),
        waiting=max(0, current.waiting),
        reopened_at=reopened_at,
        reopened_by_pause=reopened_at is not None and reopened_at == current.throttled_until,
        counts=counts,
        failures_in_a_row=current.failures_in_a_row,
        near_trip=is_near_trip(counts, current.failures_in_a_row, settings),
        reason=current.reason_of_wait,
        failure=current.failing,
        throttled_by=current.throttled_by,
        holds_deadlines=current.holds_deadlines,
        budget=budget_snapshot(
            current.budget,
            now=now,
            settings=budget_settings,
            reporters=heard.workers,
            heard_at=current.reporters.heard_at(reader) if reader and heard.has_reader else None,
            workers=sharing.workers,
            is_known=sharing.has_reader,
            rank=sharing.rank,
        ),
        key_changes=current.key_changes or NO_KEY_CHANGES,
    )
    return frozen(snapshot, current.freeze) if current.freeze and current.is_frozen(clock) else snapshot


@dataclass(frozen=True, slots=True)
class _Sharing:
    """Workers that share something, the reader among them, and whether the others can know of the reader."""

    workers: int
    has_reader: bool
    rank: int  # of the reader among them, from 0

    @classmethod
    def since(cls, breaker: Breaker, since: datetime, reader: str | None) -> Self:
        """Return those that reported since an instant."""
        active, name = breaker.reporters.active(since), name_of(reader or "")
        has_reader = reader is None or name in active
        rank = sum(other < name for other in active)
        return cls(len(active) if has_reader else len(active) + 1, has_reader, rank)


def _reopened_at(breaker: Breaker, now: datetime) -> datetime | None:
    if breaker.state not in FREE or breaker.is_throttled(now):
        return None
    ends = [end for end in (breaker.reopened_at, breaker.throttled_until) if end is not None]
    return max(ends, default=None)


BY_SETTINGS: Final = "settings"
"""`changed_by` of a circuit that the settings switch off."""


class CallBucket(Answer):
    """Calls that ended in one part of a circuit's window."""

    begins_at: Instant = Field(alias="from")
    calls: int
    failures: int
    slow_calls: int


class CallWindow(Answer):
    """The last seconds of a dependency in ten equal parts, the oldest first."""

    bucket_seconds: float
    buckets: tuple[CallBucket, ...]


class CircuitFigures(Answer):
    """Where the circuit of a dependency stands."""

    dependency: str
    state: CircuitState
    calls: int
    failures: int
    failure_ratio: float | None = Field(description="null while the window is empty")
    slow_calls: int
    opened_at: Instant | None = Field(description="Start of the latest break.")
    first_opened_at: Instant | None = Field(
        description="Start of the first break since it was last closed: probes failed in between."
    )
    failed_probes: int = Field(description="Since `first_opened_at`.")
    last_error: str | None = Field(
        description="What the latest failed call got, such as `503: no backend`; null while closed."
    )
    retry_at: Instant | None
    throttled_until: Instant | None
    throttled_by: str | None = Field(
        default=None, description="What asked for the pause, such as `429 (Retry-After 1800 s)`."
    )
    why: str | None = left_out(
        "Why calls do not go now, with instants and the latest error. Left out while they go."
    )
    reason: str | None
    changed_by: str | None
    hold: FreezeFigures | None = left_out("How every dependency is held. Left out while they are not.")
    credential_refused_by: str | None = left_out(
        "What refuses the dependency's credential, such as `401`. Left out unless that keeps it open."
    )


class KeyFigures(CircuitFigures):
    """Where the circuit of a limit key stands."""

    limit_key: str = Field(description="Whose circuit it is.")


class CircuitDocument(CircuitFigures):
    """The shared breaker of one dependency, or of one of its limit keys."""

    limit_key: str | None = left_out("Whose circuit it is. Left out for the dependency's own.")
    limit_keys: tuple[KeyFigures, ...] | None = left_out(
        f"Circuits of limit keys whose calls do not go, up to {KEPT_KEYS}. Left out without any."
    )
    window: CallWindow
    tripped_by: CallWindow | None = Field(description="The window that last opened it; null when none did.")
    epoch: int
    waiting: int
    expires_at: Instant | None
    audit: tuple[AuditEntry, ...]
    stops_deadline: bool | None = left_out("true while it is held open and deadlines stop meanwhile")
    unreadable: Unreadable = Field(default=None, exclude_if=is_none)


def view_of(
    dependency: str, breaker: Breaker, now: datetime, settings: CircuitSettings, unreadable: str | None = None
) -> CircuitDocument:
    """Return the document of `GET /api/circuits/{dependency}`.

    `calls` counts what workers reported; while a dependency is healthy each holds back up to 20 calls.
    `failure_ratio` is null while the window is empty. `retry_at` is when the circuit probes by itself, or the
    end of a manual control; null for one without an end. `window` is what the counts add up from, and
    `tripped_by` what the window held when the circuit last opened; null when it never did.
    """
    current = advanced(breaker, now)
    clock = current.clock or now
    counts = current.window.totals(clock)
    # A circuit that the settings switch off is stored as closed.
    is_off = not settings.enabled and current.state is CircuitState.CLOSED
    blocks = current.state in {CircuitState.OPEN, CircuitState.FORCED_OPEN}
    ends_at = current.retry_at if current.state is CircuitState.OPEN else current.expires_at
    tripped_at = current.tripped_by.newest_at
    return CircuitDocument(
        dependency=dependency,
        limit_key=breaker.limit_key,
        state=CircuitState.DISABLED if is_off else current.state,
        calls=counts.calls,
        failures=counts.failures,
        failure_ratio=round(counts.failures / counts.calls, 4) if counts.calls else None,
        slow_calls=counts.slow,
        window=_window_view(current.window, clock),
        tripped_by=None if tripped_at is None else _window_view(current.tripped_by, tripped_at),
        opened_at=current.opened_at,
        first_opened_at=current.closed_to_calls_since,
        failed_probes=current.reopenings,
        last_error=None if current.state in FREE else current.last_error,
        retry_at=ends_at if blocks else None,
        throttled_until=current.throttled_until if current.is_throttled(clock) else None,
        throttled_by=current.throttled_by if current.is_throttled(clock) else None,
        why=why_held(current, clock),
        reason="circuit.enabled is false" if is_off else current.reason,
        changed_by=BY_SETTINGS if is_off else current.changed_by,
        hold=FreezeFigures.taken_from(current.freeze) if current.is_frozen(clock) else None,
        credential_refused_by=current.unauthorized_by,
        epoch=current.epoch,
        waiting=current.remaining_waiting(clock),
        expires_at=current.expires_at,
        audit=current.audit.entries[::-1],
        stops_deadline=current.holds_deadlines or None,
        unreadable=unreadable,
    )


def why_held(breaker: Breaker, now: datetime) -> str | None:
    """Return what holds calls up, the latest first: an old outage is no reason while a pause goes on."""
    if breaker.freeze is not None and breaker.is_frozen(now):
        return breaker.freeze.why
    since, until = breaker.closed_to_calls_since, breaker.throttled_until
    pause = None
    if until is not None and breaker.is_throttled(now):
        pause = paused_text(breaker.throttled_by or "the dependency", until)
    if since is None:
        return pause
    if breaker.state is CircuitState.FORCED_OPEN:
        held = f"held open by {breaker.changed_by} since {time_text(since)}: {breaker.reason}"
        return held if pause is None else f"{held}; {pause}"
    error = breaker.last_error
    if pause is not None:
        before = f"{pause}; open before that since {time_text(since)}"
        return before if error is None else f"{before} ({error})"
    if breaker.unauthorized_by is not None:
        refused = f"the credential is refused ({breaker.unauthorized_by}): set a new one"
        return f"{refused}; open since {time_text(since)}"
    probes = breaker.reopenings
    happened = f"{counted(probes, 'probe')} failed" if probes else breaker.reason
    last = "" if error is None else f", the last {'one' if probes else 'call'} got {error}"
    return f"open since {time_text(since)}: {happened}{last}"


def why_of_keys(keys: Sequence[KeyFigures]) -> str | None:
    """Return why calls of some limit keys do not go; None where those of every key do."""
    if len(keys) == 1:
        return f"for {keys[0].limit_key}: {keys[0].why}"
    by_kind: dict[str, list[str]] = {"the credential is refused": [], "paused": [], "open": []}
    for key in keys:
        by_kind[_kind_of(key)].append(key.limit_key)
    return (
        "; ".join(_kind_text(kind, limit_keys) for kind, limit_keys in by_kind.items() if limit_keys) or None
    )


def _kind_of(key: KeyFigures) -> str:
    if key.credential_refused_by is not None:
        return "the credential is refused"
    is_paused = key.throttled_until is not None and key.state is not CircuitState.FORCED_OPEN
    return "paused" if is_paused else "open"


def _kind_text(kind: str, limit_keys: Sequence[str]) -> str:
    return f"{kind} for {counted(len(limit_keys), 'limit key')}: {names_text(limit_keys, _KEYS_NAMED)}"


_KEYS_NAMED: Final = 5


def _window_view(window: SlidingWindow, at: datetime) -> CallWindow:
    buckets = tuple(
        CallBucket(begins_at=begins_at, calls=counts.calls, failures=counts.failures, slow_calls=counts.slow)
        for begins_at, counts in window.rows(at)
    )
    return CallWindow(bucket_seconds=window.bucket_ms / 1000, buckets=buckets)

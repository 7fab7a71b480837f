"""Messages to and from the entity `circuit_breaker`, and the views of its state for workers and for the API.

Each message carries the settings, so the entity stores none, and an edit of `dependencies.toml` takes effect
with the first message that was made after it.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from durable_retry.engine.base.json_forms import JsonShape
from durable_retry.engine.circuit.breaker import FREE, Breaker, advanced
from durable_retry.engine.circuit.report import Report
from durable_retry.engine.circuit.retry_budget import HEARD_SECONDS, RetryBudgetSettings, budget_snapshot
from durable_retry.engine.circuit.snapshot import Permitted, Refused, Snapshot
from durable_retry.engine.circuit.states import CircuitSettings, CircuitState
from durable_retry.engine.circuit.transitions import ProbeRequest, apply_report, probe_requested, probes_free


@dataclass(frozen=True, slots=True)
class ReportMessage(JsonShape):
    """Signal `report`: the results of a worker."""

    report: Report
    settings: CircuitSettings
    budget_settings: RetryBudgetSettings

    def apply(self, breaker: Breaker, received_at: datetime) -> Breaker:
        """Return the state after it; `received_at` is the present by the circuit's clock."""
        return apply_report(
            breaker,
            self.report,
            received_at,
            settings=self.settings,
            budget_settings=self.budget_settings,
        )


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
    return Snapshot(
        taken_at=now,
        state=current.state,
        epoch=current.epoch,
        retry_at=current.expires_at if is_held else current.retry_at,
        throttled_until=current.throttled_until if current.is_throttled(clock) else None,
        probes_free=probes_free(current, settings),
        waiting=current.waiting,
        reopened_at=reopened_at,
        reopened_by_pause=reopened_at is not None and reopened_at == current.throttled_until,
        troubled=current.window.totals(clock).failures > 0,
        reason=current.reason,
        failure=current.failing(clock),
        throttled_by=current.throttled_by,
        holds_deadlines=current.holds_deadlines,
        budget=budget_snapshot(
            current.budget,
            now=now,
            settings=budget_settings,
            reporters=heard.workers,
            is_counted=heard.has_reader,
            workers=sharing.workers,
            is_known=sharing.has_reader,
        ),
        quota=current.quota,
    )


@dataclass(frozen=True, slots=True)
class _Sharing:
    """Workers that share something, the reader among them, and whether the others can know of the reader."""

    workers: int
    has_reader: bool

    @classmethod
    def since(cls, breaker: Breaker, since: datetime, reader: str | None) -> Self:
        """Return those that reported since an instant."""
        active = breaker.reporters.active(since)
        has_reader = reader is None or breaker.reporters.is_active(reader, since)
        return cls(active if has_reader else active + 1, has_reader)


def _reopened_at(breaker: Breaker, now: datetime) -> datetime | None:
    if breaker.state not in FREE or breaker.is_throttled(now):
        return None
    ends = [end for end in (breaker.reopened_at, breaker.throttled_until) if end is not None]
    return max(ends, default=None)

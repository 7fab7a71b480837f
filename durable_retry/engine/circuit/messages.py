"""Messages to and from the entity `circuit_breaker`, and the views of its state for workers and for the API.

Each message carries the settings, so the entity stores none, and an edit of `dependencies.toml` takes effect
with the first message that was made after it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from durable_retry.engine.adaptive import AdaptiveSettings
from durable_retry.engine.base.json_forms import Form, JsonRecord, optional_to_rfc3339, to_rfc3339
from durable_retry.engine.base.sliding_window import SlidingWindow
from durable_retry.engine.circuit.breaker import FREE, Breaker, advanced
from durable_retry.engine.circuit.report import Report
from durable_retry.engine.circuit.retry_budget import RetryBudgetSettings, budget_snapshot
from durable_retry.engine.circuit.snapshot import Permitted, Refused, Snapshot
from durable_retry.engine.circuit.states import CircuitSettings, CircuitState
from durable_retry.engine.circuit.transitions import (
    ManualAction,
    ProbeRequest,
    apply_manual_action,
    apply_report,
    probe_requested,
    probes_free,
)
from durable_retry.engine.pace import newest


@dataclass(frozen=True, slots=True)
class ReportMessage(JsonRecord):
    """Signal `report`: the results of a worker."""

    report: Report
    settings: Annotated[CircuitSettings, Form(name="circuit")]
    budget_settings: Annotated[RetryBudgetSettings, Form(name="retry_budget")]
    adaptive_settings: Annotated[AdaptiveSettings | None, Form(name="adaptive", omits_none=True)] = None

    def apply(self, breaker: Breaker, received_at: datetime) -> Breaker:
        """Return the state after it; `received_at` is the present by the circuit's clock."""
        return apply_report(
            breaker,
            self.report,
            received_at,
            settings=self.settings,
            budget_settings=self.budget_settings,
            adaptive_settings=self.adaptive_settings,
        )


@dataclass(frozen=True, slots=True)
class PermitMessage(JsonRecord):
    """Call `permit`: an orchestration requests a probe and waits for the answer."""

    request: ProbeRequest
    settings: Annotated[CircuitSettings, Form(name="circuit")]

    def apply(self, breaker: Breaker, received_at: datetime) -> tuple[Breaker, Permitted | Refused]:
        """Return the state after it, and the answer; `received_at` is the present by the circuit's clock."""
        return probe_requested(breaker, self.request, self.settings, received_at)


@dataclass(frozen=True, slots=True)
class ManualControlMessage:
    """Signal `hand`: a person opens, closes, disables or resets the circuit."""

    action: ManualAction

    def to_json(self) -> dict[str, Any]:
        """Return the signal's input."""
        return self.action.to_json()

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "ManualControlMessage":
        """Read what `to_json` returned."""
        return cls(ManualAction.from_json(document))

    def apply(self, breaker: Breaker, received_at: datetime) -> Breaker:
        """Return the state after it; `received_at` is the present by the circuit's clock."""
        return apply_manual_action(breaker, self.action, received_at)


def answer_to_json(answer: Permitted | Refused) -> dict[str, Any]:
    """Return the JSON form of the answer of `permit`."""
    return {"permitted": isinstance(answer, Permitted), **answer.to_json()}


def answer_from_json(document: Mapping[str, Any]) -> Permitted | Refused:
    """Read what `answer_to_json` wrote."""
    return Permitted.from_json(document) if document["permitted"] else Refused.from_json(document)


def snapshot_of(
    breaker: Breaker,
    now: datetime,
    *,
    settings: CircuitSettings,
    budget_settings: RetryBudgetSettings,
    ahead: timedelta = timedelta(0),
    reader: str | None = None,
) -> Snapshot:
    """Return a worker's copy of the circuit, as it is at this instant.

    Args:
        breaker: The stored state; `Breaker()` when nothing is stored yet.
        now: By the reader's clock, aware UTC.
        settings: Of the dependency's circuit.
        budget_settings: Of the dependency's retry budget.
        ahead: How far the reader's clock is ahead of the circuit's.
        reader: Name of the reader in its reports; None for one that makes none.
    """
    current = advanced(breaker, now - ahead)
    clock = current.clock or now
    # A worker without a report for a whole window takes no share of the retry budget.
    reported_since = clock - timedelta(seconds=settings.window_seconds)
    active = current.reporters.active(reported_since)
    is_counted = reader is None or current.reporters.is_active(reader, reported_since)
    is_held = current.state is CircuitState.FORCED_OPEN
    return Snapshot(
        taken_at=now,
        state=current.state,
        epoch=current.epoch,
        retry_at=current.expires_at if is_held else current.retry_at,
        throttled_until=current.throttled_until if current.is_throttled(clock) else None,
        probes_free=probes_free(current, settings),
        waiting=current.waiting,
        reopened_at=_reopened_at(current, clock),
        troubled=current.window.totals(clock).failures > 0,
        reason=current.reason,
        budget=budget_snapshot(
            current.budget,
            now=now - ahead,
            settings=budget_settings,
            reporters=active if is_counted else active + 1,
            is_counted=is_counted,
        ),
        quota=current.quota,
        concurrency=current.concurrency,
        ahead=ahead,
    )


def _reopened_at(breaker: Breaker, now: datetime) -> datetime | None:
    if breaker.state not in FREE or breaker.is_throttled(now):
        return None
    ends = [end for end in (breaker.reopened_at, breaker.throttled_until) if end is not None]
    return max(ends, default=None)


def view_of(dependency: str, breaker: Breaker, now: datetime, settings: CircuitSettings) -> dict[str, Any]:
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
    return {
        "dependency": dependency,
        "state": str(CircuitState.DISABLED if is_off else current.state),
        "calls": counts.calls,
        "failures": counts.failures,
        "failure_ratio": round(counts.failures / counts.calls, 4) if counts.calls else None,
        "slow_calls": counts.slow,
        "window": _window_view(current.window, clock),
        "tripped_by": _window_view(current.tripped_by, current.tripped_by.newest_at),
        "opened_at": optional_to_rfc3339(current.opened_at),
        "retry_at": optional_to_rfc3339(ends_at) if blocks else None,
        "throttled_until": optional_to_rfc3339(
            current.throttled_until if current.is_throttled(clock) else None
        ),
        "quota": None if (quota := newest(clock, current.quota)) is None else quota.to_view(),
        "reason": "circuit.enabled is false" if is_off else current.reason,
        "changed_by": "settings" if is_off else current.changed_by,
        "epoch": current.epoch,
        "waiting": current.remaining_waiting(clock),
        "expires_at": optional_to_rfc3339(current.expires_at),
        "audit": [entry.to_view() for entry in reversed(current.audit.entries)],
    }


def _window_view(window: SlidingWindow, at: datetime | None) -> dict[str, Any] | None:
    if at is None:
        return None
    buckets = [
        {
            "from": to_rfc3339(begins_at),
            "calls": held.calls,
            "failures": held.failures,
            "slow_calls": held.slow,
        }
        for begins_at, held in window.rows(at)
    ]
    return {"bucket_seconds": window.bucket_ms / 1000, "buckets": buckets}

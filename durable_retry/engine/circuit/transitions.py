"""How the report of a worker changes the shared circuit."""

from dataclasses import replace
from datetime import datetime, timedelta

from durable_retry.engine.base.instants import from_ms, to_ms
from durable_retry.engine.base.sliding_window import Counts, SlidingWindow
from durable_retry.engine.circuit.breaker import FREE, Breaker, advanced, freed, opened
from durable_retry.engine.circuit.report import CallHealth, ProbeResult, Report
from durable_retry.engine.circuit.retry_budget import RetryBudgetSettings, account
from durable_retry.engine.circuit.settings import CircuitSettings
from durable_retry.engine.circuit.states import CircuitMove, CircuitState

LONGEST_PAUSE = timedelta(days=1)
"""A throttling pause beyond this is taken for a mistake of the dependency, or of a clock."""


def apply_report(
    breaker: Breaker, report: Report, *, settings: CircuitSettings, budget_settings: RetryBudgetSettings
) -> Breaker:
    """Apply a report.

    A throttling pause, the waiting operations and the spent retries count in every epoch. Results of calls
    count only in the epoch in which the calls were permitted: a late success cannot close a circuit that
    opened after its call began, and a late failure cannot open one that was closed since.

    Args:
        breaker: The state so far.
        report: Of the worker; one that was counted before changes nothing.
        settings: Of the dependency's circuit.
        budget_settings: Of the dependency's retry budget.
    """
    breaker = advanced(breaker, report.at)
    # Signals are delivered at least once.
    if breaker.reporters.has_counted(report.reporter, report.sequence):
        return breaker
    now = _clock(breaker, report)
    budget = account(
        breaker.budget,
        at=now,
        first_attempts=report.first_attempts,
        retries=report.retries,
        settings=budget_settings,
    )
    breaker = replace(
        breaker,
        budget=budget,
        reporters=breaker.reporters.with_report(report.reporter, report.sequence, now),
    )
    breaker = _paused(breaker, report.throttled_until, now)
    breaker = replace(breaker, waiting=breaker.waiting + report.refused)
    for probe in report.probes:
        breaker = _probed(breaker, probe, now, settings)
    if report.epoch != breaker.epoch or breaker.state not in FREE:
        return breaker
    return _tripped_if_sick(_counted(breaker, report, now, settings), now, settings)


def _clock(breaker: Breaker, report: Report) -> datetime:
    return breaker.clock or report.at


def _paused(breaker: Breaker, until: datetime | None, now: datetime) -> Breaker:
    if until is None or until <= now:
        return breaker
    until = from_ms(to_ms(min(until, now + LONGEST_PAUSE)))
    if not breaker.is_throttled(now):
        # Operations that were released since no longer count as waiting.
        breaker = replace(breaker, waiting=breaker.remaining_waiting(now))
    return replace(breaker, throttled_until=max(until, breaker.throttled_until or until))


def _probed(breaker: Breaker, probe: ProbeResult, now: datetime, settings: CircuitSettings) -> Breaker:
    # A probe counts under its lease alone: after it expired, another operation may be probing.
    is_live = any(lease.lease_id == probe.lease_id for lease in breaker.leases)
    if breaker.state is not CircuitState.HALF_OPEN or probe.epoch != breaker.epoch or not is_live:
        return breaker
    others = tuple(lease for lease in breaker.leases if lease.lease_id != probe.lease_id)
    breaker = replace(breaker, leases=others)
    if probe.health is CallHealth.SILENT:
        return breaker
    if probe.health is CallHealth.FAILURE:
        return opened(breaker, CircuitMove.PROBE_FAILED, now, settings, reason="a probe failed")
    successes = breaker.probe_successes + 1
    if successes >= settings.half_open_calls:
        return freed(breaker, CircuitMove.PROBES_SUCCEEDED, now, reason=f"{successes} probes succeeded")
    return replace(breaker, probe_successes=successes)


def _counted(breaker: Breaker, report: Report, now: datetime, settings: CircuitSettings) -> Breaker:
    window = breaker.window
    empty = SlidingWindow.over(settings.window_seconds)
    if window.bucket_ms != empty.bucket_ms:
        window = empty.merge(window, now)  # the settings changed: the counts stay, their times are lost
    fresh = report.window.trimmed(now)  # the results of a report that was long under way are old
    calls = fresh.everything().calls
    succeeded_too = calls > report.trailing_failures
    # A success in this report ends the series that was counted before.
    in_a_row = report.trailing_failures if succeeded_too else breaker.failures_in_a_row + calls
    return replace(
        breaker,
        window=window.merge(fresh, now),
        failures_in_a_row=in_a_row if calls else breaker.failures_in_a_row,
    )


def _tripped_if_sick(breaker: Breaker, now: datetime, settings: CircuitSettings) -> Breaker:
    if breaker.state is not CircuitState.CLOSED or not settings.enabled:
        return breaker
    reason = trip_reason(breaker.window.totals(now), breaker.failures_in_a_row, settings)
    return breaker if reason is None else opened(breaker, CircuitMove.TRIP, now, settings, reason=reason)


def trip_reason(counts: Counts, failures_in_a_row: int, settings: CircuitSettings) -> str | None:
    """Return why these counts open a circuit, for a person; None when they do not."""
    if 0 < settings.consecutive_failures <= failures_in_a_row:
        return f"{failures_in_a_row} failures in a row"
    if counts.calls < settings.minimum_calls or counts.calls == 0:
        return None
    within = f"of {counts.calls} calls in {settings.window_seconds:g} s"
    if counts.failures and counts.failures >= settings.failure_ratio * counts.calls:
        return f"{counts.failures} {within} failed"
    watches_slow_calls = settings.slow_call_seconds > 0 and counts.slow > 0
    if watches_slow_calls and counts.slow >= settings.slow_call_ratio * counts.calls:
        return f"{counts.slow} {within} took {settings.slow_call_seconds:g} s or longer"
    return None

"""What a worker's report does to the shared circuit."""

from dataclasses import replace
from datetime import datetime, timedelta

from engine.budget import RetryBudgetSettings, account
from engine.circuit.breaker import FREE, Breaker, advanced, freed, opened
from engine.circuit.health import Verdict
from engine.circuit.report import ProbeResult, Report
from engine.circuit.settings import CircuitSettings
from engine.circuit.states import CircuitState, Move
from engine.sliding_window import Counts, SlidingWindow, from_ms, to_ms

LONGEST_PAUSE = timedelta(days=1)
"""A throttling pause beyond this is taken for a mistake of the dependency, or of a clock."""


def reported(
    breaker: Breaker, report: Report, *, settings: CircuitSettings, budget_settings: RetryBudgetSettings
) -> Breaker:
    """Take a report in.

    What is true whatever the epoch always counts: a throttling pause, the operations that wait, the retries
    spent. What speaks of an epoch counts in that epoch alone: a late success cannot close a circuit that
    opened after its call began, and a late failure cannot open one that closed.

    Args:
        breaker: the state so far.
        report: the news; one that was counted before changes nothing.
        settings: the dependency's circuit.
        budget_settings: the dependency's retry budget.
    """
    breaker = advanced(breaker, report.at)
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
        # Those who waited before and went are no longer there to be spread.
        breaker = replace(breaker, waiting=breaker.remaining_waiting(now))
    return replace(breaker, throttled_until=max(until, breaker.throttled_until or until))


def _probed(breaker: Breaker, probe: ProbeResult, now: datetime, settings: CircuitSettings) -> Breaker:
    is_live = any(lease.lease_id == probe.lease_id for lease in breaker.leases)
    if breaker.state is not CircuitState.HALF_OPEN or probe.epoch != breaker.epoch or not is_live:
        return breaker
    others = tuple(lease for lease in breaker.leases if lease.lease_id != probe.lease_id)
    breaker = replace(breaker, leases=others)
    if probe.verdict is Verdict.SILENT:
        return breaker
    if probe.verdict is Verdict.FAILURE:
        return opened(breaker, Move.PROBE_FAILED, now, settings, reason="a probe failed")
    successes = breaker.probe_successes + 1
    if successes >= settings.half_open_calls:
        return freed(breaker, Move.PROBES_SUCCEEDED, now, reason=f"{successes} probes succeeded")
    return replace(breaker, probe_successes=successes)


def _counted(breaker: Breaker, report: Report, now: datetime, settings: CircuitSettings) -> Breaker:
    window = breaker.window
    empty = SlidingWindow.over(settings.window_seconds)
    if window.bucket_ms != empty.bucket_ms:
        window = empty.merge(window, now)  # the settings changed: keep the counts, lose their times
    fresh = report.window.trimmed(now)  # a report that was long under way says little of the present
    calls = fresh.everything().calls
    succeeded_too = calls > report.trailing_failures
    in_a_row = report.trailing_failures if succeeded_too else breaker.failures_in_a_row + calls
    return replace(
        breaker,
        window=window.merge(fresh, now),
        failures_in_a_row=in_a_row if calls else breaker.failures_in_a_row,
    )


def _tripped_if_sick(breaker: Breaker, now: datetime, settings: CircuitSettings) -> Breaker:
    if breaker.state is not CircuitState.CLOSED or not settings.enabled:
        return breaker
    reason = sickness(breaker.window.totals(now), breaker.failures_in_a_row, settings)
    return breaker if reason is None else opened(breaker, Move.TRIP, now, settings, reason=reason)


def sickness(counts: Counts, failures_in_a_row: int, settings: CircuitSettings) -> str | None:
    """Why these counts open a circuit, for a person; None = they do not."""
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

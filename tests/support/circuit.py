from dataclasses import dataclass, field, replace
from typing import Self

from durable_retry.rules.circuit.breaker import Breaker, ManualControl
from durable_retry.rules.circuit.calls import CallHealth, Counts, ProbeResult, Report, SlidingWindow
from durable_retry.rules.circuit.messages import PermitMessage, ReportMessage, snapshot_of
from durable_retry.rules.circuit.retry_budget import RetryBudgetSettings
from durable_retry.rules.circuit.snapshot import Permitted, Refused, Snapshot
from durable_retry.rules.circuit.states import CircuitSettings
from durable_retry.rules.circuit.transitions import ManualAction, ProbeRequest
from tests.support.builders import after

SETTINGS = CircuitSettings()
BUDGET = RetryBudgetSettings()


@dataclass
class Desk:
    """A breaker, and short ways to send it messages, which can be chained; reports are numbered."""

    breaker: Breaker = field(default_factory=Breaker)
    settings: CircuitSettings = SETTINGS
    budget: RetryBudgetSettings = BUDGET
    sequence: int = 0

    def report(
        self,
        at: float,
        *,
        failures: int = 0,
        unauthorized: int = 0,
        successes: int = 0,
        slow: int = 0,
        epoch: int | None = None,
        refused: int = 0,
        throttled_until: float | None = None,
        probes: tuple[ProbeResult, ...] = (),
        reporter: str = "w1",
    ) -> Report:
        """Make a report of calls that ended at `at`, successes first; so many failures are refusals."""
        self.sequence += 1
        is_refused = unauthorized or any(probe.health is CallHealth.UNAUTHORIZED for probe in probes)
        counts = Counts(failures + successes, failures, slow)
        window = SlidingWindow.over(self.settings.window_seconds)
        return Report(
            reporter=reporter,
            sequence=self.sequence,
            at=after(at),
            epoch=self.breaker.epoch if epoch is None else epoch,
            window=window.add(after(at), counts) if counts.calls else window,
            trailing_failures=failures,
            unauthorized=unauthorized or None,
            unauthorized_by="401" if is_refused else None,
            refused=refused,
            throttled_until=None if throttled_until is None else after(throttled_until),
            probes=probes,
        )

    def hear(self, report: Report, at: float | None = None) -> Self:
        """Take a report in, by default when it was made, or when the last message came if that was later."""
        received_at = max(report.at, self.breaker.clock or report.at) if at is None else after(at)
        message = ReportMessage(report, self.settings, self.budget)
        self.breaker = message.apply(self.breaker, received_at)
        return self

    def fail(self, at: float, failures: int = 10, successes: int = 0) -> Self:
        return self.hear(self.report(at, failures=failures, successes=successes))

    def refuse(self, at: float, times: int = 1, successes: int = 0) -> Self:
        """Take in so many refusals of the dependency's own credential."""
        return self.hear(self.report(at, failures=times, unauthorized=times, successes=successes))

    def ask(self, at: float, operation_id: str = "op-1", lease_seconds: float = 10) -> Permitted | Refused:
        request = ProbeRequest(operation_id, 1, after(at), lease_seconds)
        self.breaker, answer = PermitMessage(request, self.settings).apply(self.breaker, after(at))
        return answer

    def conclude(
        self, at: float, health: CallHealth, operation_id: str = "op-1", epoch: int | None = None
    ) -> Self:
        lease_id = f"{operation_id}:1"
        expires_at = next((one.expires_at for one in self.breaker.leases if one.lease_id == lease_id), None)
        epoch = self.breaker.epoch if epoch is None else epoch
        result = ProbeResult(lease_id, epoch, health, expires_at)
        return self.hear(self.report(at, probes=(result,)))

    def control(
        self,
        at: float,
        control: ManualControl,
        for_seconds: float | None = None,
        reason: str = "drill",
        *,
        received_at: float | None = None,
        epoch: int | None = None,
        stops_deadline: bool | None = None,
    ) -> Self:
        """Send a manual control; it arrives at once unless `received_at` says when."""
        message = ManualAction(control, after(at), "ana", reason, for_seconds, epoch, stops_deadline)
        self.breaker = message.apply(self.breaker, after(at if received_at is None else received_at))
        return self

    def read(self, at: float, reader: str | None = None) -> Snapshot:
        """Read it as a worker does."""
        settings, budget = self.settings, self.budget
        return snapshot_of(self.breaker, after(at), settings=settings, budget_settings=budget, reader=reader)


def tripped(settings: CircuitSettings = SETTINGS) -> Desk:
    """A circuit that opened at noon."""
    return Desk(settings=settings).fail(0, failures=settings.minimum_calls)


def with_settings(**changes: float) -> CircuitSettings:
    """The defaults but for these."""
    return replace(SETTINGS, **changes)  # type: ignore[arg-type]  # the callers' keywords are field names

"""Send this process's buffered reports to the circuit entity."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from durable_retry import clock
from durable_retry.engine.circuit import CircuitSettings, Report, ReportBuffer, ReportMessage
from durable_retry.engine.circuit.retry_budget import RetryBudgetSettings
from durable_retry.stores.circuit.entity import SharedCircuit
from durable_retry.telemetry.attributes import DEPENDENCY

SEND_SECONDS: Final = 2.0
RETRY_DELAY: Final = timedelta(seconds=1)
"""Wait before a failed report is sent again."""
_DOUBLINGS: Final = 3
"""The wait doubles up to eight times the first: a task hub may be gone for good."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """Admission settings of one dependency.

    Attributes:
        dependency: Its name.
        circuit: `enabled = false` switches the circuit off; the retry budget stays on.
        budget: A ratio of 0 switches the retry budget off.
    """

    dependency: str
    circuit: CircuitSettings
    budget: RetryBudgetSettings

    @property
    def is_disabled(self) -> bool:
        """Whether neither the circuit nor the retry budget is on."""
        return not self.circuit.enabled and self.budget.ratio <= 0


@dataclass(slots=True)
class CircuitReporter:
    """Sends due reports, one at a time.

    Attributes:
        settings: The dependency's settings; sent along with each report.
        shared: The circuit entity.
        buffer: Reports not sent yet.
        now: Clock, aware UTC.
    """

    settings: AdmissionSettings
    shared: SharedCircuit
    buffer: ReportBuffer
    now: Callable[[], datetime] = clock.now
    _sending: bool = False
    _unsent: Report | None = None
    _send_again_at: datetime | None = None
    _failed_sends: int = 0
    _timer: asyncio.TimerHandle | None = None
    _timer_at: datetime | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def flush(self) -> None:
        """Send the reports that are due; set a timer for the next one."""
        if self._sending:
            return  # The running flush checks for more before it ends.
        self._sending = True
        try:
            while (due := self.next_report_at()) is not None and due <= self.now() and await self._send():
                pass
        finally:
            self._sending = False
            self._set_timer()

    def next_report_at(self) -> datetime | None:
        """Return when the next report is due; None when there is none."""
        return self._send_again_at if self._unsent is not None else self.buffer.due_at()

    def close(self) -> None:
        """Cancel the timer. For tests and benchmarks; a host just ends the process."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _send(self) -> bool:
        """Send one report; False when it failed. The same report is then sent again later."""
        report = self._unsent or self.buffer.take(self.now())
        self._unsent = report
        message = ReportMessage(report, self.settings.circuit, self.settings.budget)
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self.shared.report(message)
        except Exception as error:  # noqa: BLE001 - a failed report must not fail the attempt
            self._wait_to_send(error)
            return False
        self._unsent, self._failed_sends = None, 0
        return True

    def _wait_to_send(self, error: Exception) -> None:
        wait = RETRY_DELAY * 2 ** min(self._failed_sends, _DOUBLINGS)
        self._failed_sends += 1
        self._send_again_at = self.now() + wait
        _log.warning(
            "A report to the circuit of %s failed (%s: %s); it is sent again in %g s.",
            self.settings.dependency,
            type(error).__name__,
            error,
            wait.total_seconds(),
            extra={DEPENDENCY: self.settings.dependency},
        )

    def _set_timer(self) -> None:
        """Set a timer of the event loop for the next due report."""
        due = self.next_report_at()
        if due is None or (self._timer is not None and self._timer_at is not None and self._timer_at <= due):
            return
        self.close()
        self._timer_at = due
        delay_seconds = max(0.0, (due - self.now()).total_seconds())
        self._timer = asyncio.get_running_loop().call_later(delay_seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        task = asyncio.get_running_loop().create_task(self.flush())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

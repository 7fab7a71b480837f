"""Telling a circuit what this process saved up for it."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from engine.budget import RetryBudgetSettings
from engine.circuit import CircuitSettings, Report, ReportBuffer, ReportMessage
from stores import clock
from stores.circuit_entity import SharedCircuit
from telemetry.attributes import DEPENDENCY

SEND_SECONDS: Final = 2.0
AGAIN: Final = timedelta(seconds=1)
"""After a report failed, it is sent again no earlier than this."""
_DOUBLINGS: Final = 3
"""A report that fails again and again waits up to eight times as long: a task hub may be gone for good."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Gate:
    """The settings that one dependency's gate goes by.

    Attributes:
        dependency: Its name.
        circuit: `enabled = false` switches the circuit off wholly; the budget stays.
        budget: A ratio of 0 switches the retry budget off.
    """

    dependency: str
    circuit: CircuitSettings
    budget: RetryBudgetSettings

    @property
    def is_open(self) -> bool:
        """Whether nothing is asked and nothing is told at it."""
        return not self.circuit.enabled and self.budget.ratio <= 0


@dataclass(slots=True)
class Reporting:
    """Sends what is saved up when it is due, one report at a time.

    Attributes:
        gate: The dependency's settings; they travel with each report.
        shared: Where the circuit itself is.
        buffer: What is saved up.
        now: The present, aware UTC.
    """

    gate: Gate
    shared: SharedCircuit
    buffer: ReportBuffer
    now: Callable[[], datetime] = clock.now
    _sending: bool = False
    _unsent: Report | None = None
    _send_again_at: datetime | None = None
    _failed_sends: int = 0
    _alarm: asyncio.TimerHandle | None = None
    _alarm_at: datetime | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def flush(self) -> None:
        """Tell the circuit what is due; what is due later goes by itself."""
        if self._sending:
            return  # Whoever sends looks again when it has sent.
        self._sending = True
        try:
            while (due := self.next_report_at()) is not None and due <= self.now() and await self._send():
                pass
        finally:
            self._sending = False
            self._set_alarm()

    def next_report_at(self) -> datetime | None:
        """Tell when the next report is due; None when nothing is."""
        return self._send_again_at if self._unsent is not None else self.buffer.due_at()

    def close(self) -> None:
        """Forget the alarm; for tests and benchmarks, the host just ends the process."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def _send(self) -> bool:
        """Send one report; False when it failed, and then the same one is sent again later."""
        report = self._unsent or self.buffer.take(self.now())
        self._unsent = report
        message = ReportMessage(report, self.gate.circuit, self.gate.budget)
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self.shared.report(message)
        except Exception as error:  # noqa: BLE001 - what came of an attempt must not depend on this
            self._wait_to_send(error)
            return False
        self._unsent, self._failed_sends = None, 0
        return True

    def _wait_to_send(self, error: Exception) -> None:
        wait = AGAIN * 2 ** min(self._failed_sends, _DOUBLINGS)
        self._failed_sends += 1
        self._send_again_at = self.now() + wait
        _log.warning(
            "The circuit of %s could not be told (%s: %s); it is told again in %g s.",
            self.gate.dependency,
            type(error).__name__,
            error,
            wait.total_seconds(),
            extra={DEPENDENCY: self.gate.dependency},
        )

    def _set_alarm(self) -> None:
        """Wake once when the next report is due: a timer of the loop, neither a thread nor a poll."""
        due = self.next_report_at()
        if due is None or (self._alarm is not None and self._alarm_at is not None and self._alarm_at <= due):
            return
        self.close()
        self._alarm_at = due
        delay_seconds = max(0.0, (due - self.now()).total_seconds())
        self._alarm = asyncio.get_running_loop().call_later(delay_seconds, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        task = asyncio.get_running_loop().create_task(self.flush())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

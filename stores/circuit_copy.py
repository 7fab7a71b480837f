"""What this process knows of one dependency's circuit, and what it has yet to tell it.

A copy belongs to one event loop and is changed between two awaits only, so it needs no lock but the one that
lets a single caller read while the others wait for what it brings.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from engine.budget import BudgetPostponed, budget_allows
from engine.circuit import (
    AskForProbe,
    Permit,
    Permitted,
    Refused,
    ReportBuffer,
    Snapshot,
    Verdict,
    permit,
    snapshot_of,
)
from engine.gate import NeedsProbe, Stop, Ticket
from stores import clock
from stores.circuit_entity import SharedCircuit
from stores.circuit_reporting import Gate, Reporting
from telemetry.attributes import DEPENDENCY
from telemetry.happenings import called_blind, retry_postponed

READ_SECONDS: Final = 1.0
"""A read that takes longer counts as failed: calls go on without it rather than queue behind it."""
AGAIN: Final = timedelta(seconds=1)
"""After a read failed, the next one is tried no earlier than this."""
AFTER_TROUBLE: Final = timedelta(milliseconds=100)
"""A copy is good for a second, but only for this long once trouble was told that it does not show: what this
process has just seen fail, it stops calling about as soon as the circuit itself has made up its mind."""
_TELL_BLIND_EVERY: Final = timedelta(seconds=10)

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Blindness:
    """How many calls went without the circuit because it could not be read.

    Attributes:
        calls: In all, since this process started.
        told_at: When the log last said so; None = it can see.
    """

    calls: int = 0
    told_at: datetime | None = None


@dataclass(slots=True)
class CircuitCopy:
    """One dependency's circuit in this process.

    Attributes:
        gate: The dependency's settings.
        shared: Where the circuit itself is.
        buffer: What has yet to be told; named after this process and start.
        now: The present, aware UTC.
        snapshot: As last read; None = never yet.
        blindness: How often it could not be read.
        reporting: Sends what is in the buffer.
    """

    gate: Gate
    shared: SharedCircuit
    buffer: ReportBuffer
    now: Callable[[], datetime] = clock.now
    snapshot: Snapshot | None = None
    blindness: Blindness = field(default_factory=Blindness)
    reporting: Reporting = field(init=False)
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _read_again_at: datetime | None = None

    def __post_init__(self) -> None:
        self.reporting = Reporting(self.gate, self.shared, self.buffer, self.now)

    async def enter(self, operation_id: str, attempt: int, ticket: Ticket) -> Permitted | Stop:
        """Ask whether an attempt may be made now; if so, it counts as begun, and `leave` must follow.

        Args:
            operation_id: Who asks.
            attempt: Which one, from 1.
            ticket: What it brings.
        """
        await self._refresh()
        answer = self._answer(operation_id, attempt, ticket, self.now())
        await self.reporting.flush()
        return answer

    async def leave(
        self,
        permitted: Permitted,
        verdict: Verdict,
        *,
        duration_seconds: float,
        throttled_until: datetime | None = None,
    ) -> None:
        """Take note of how an attempt ended.

        Args:
            permitted: What `enter` gave.
            verdict: What it says of the dependency; SILENT for one that never left.
            duration_seconds: How long it took.
            throttled_until: Until when the dependency asked to be left alone; None = it did not.
        """
        is_on = self.gate.circuit.enabled
        self.buffer.ended(
            verdict if is_on else Verdict.SILENT,
            self.now(),
            epoch=permitted.epoch,
            duration_seconds=duration_seconds,
            throttled_until=throttled_until if is_on else None,
            lease_id=permitted.lease_id,
        )
        await self.reporting.flush()

    def _answer(self, operation_id: str, attempt: int, ticket: Ticket, now: datetime) -> Permitted | Stop:
        leased = ticket.valid_permit(now)
        if leased is None and (held := self._postponed(operation_id, attempt, ticket, now)) is not None:
            return held
        answer = leased or self._permit(operation_id, now, waiting=ticket.waiting)
        match answer:
            case Permitted():
                self.buffer.started(attempt, now, promised=ticket.promised)
                if answer.blind:
                    self.blindness.calls += 1
                    called_blind(self.gate.dependency)
            case Refused():
                if not ticket.waiting:
                    self.buffer.refused(now)
            case AskForProbe():
                self.buffer.asked()
                return NeedsProbe(self.gate.circuit)
        return answer

    def _postponed(
        self, operation_id: str, attempt: int, ticket: Ticket, now: datetime
    ) -> BudgetPostponed | None:
        seen = self.snapshot
        if attempt == 1 or ticket.promised or seen is None or seen.budget is None or not seen.is_valid(now):
            return None
        answer = budget_allows(
            seen.budget,
            now,
            settings=self.gate.budget,
            taken_here=self.buffer.here.retries,
            operation_id=operation_id,
        )
        if not isinstance(answer, BudgetPostponed):
            return None
        if answer.reserved:
            self.buffer.postponed(now)
        retry_postponed(self.gate.dependency)
        return answer

    def _permit(self, operation_id: str, now: datetime, *, waiting: bool) -> Permit:
        if not self.gate.circuit.enabled:
            return Permitted(0)
        return permit(
            self.snapshot,
            now,
            settings=self.gate.circuit,
            operation_id=operation_id,
            waiting=waiting,
            here=self.buffer.here,
        )

    async def _refresh(self) -> None:
        """Read the circuit if the copy is too old; one caller reads, the others wait for what it brings."""
        if self._is_fresh():
            return
        async with self._reading:
            if not self._is_fresh():
                await self._read()

    def _is_fresh(self) -> bool:
        now = self.now()
        if self._read_again_at is not None and now < self._read_again_at:
            return True  # It failed just now. Nobody waits for it to fail again.
        if self.snapshot is None or not self.snapshot.is_valid(now):
            return False
        return not self.buffer.awaits_verdict or now < self.snapshot.taken_at + AFTER_TROUBLE

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(READ_SECONDS):
                breaker = await self.shared.read()
            snapshot = snapshot_of(
                breaker, self.now(), settings=self.gate.circuit, budget_settings=self.gate.budget
            )
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the circuit, calls go on
            self._read_again_at = self.now() + AGAIN
            self._tell_blind(error)
            return
        self._read_again_at = None
        self._tell_sighted()
        self.snapshot = snapshot
        self.buffer.see(snapshot, heard=breaker.reporters.highest(self.buffer.reporter))

    def _tell_blind(self, error: Exception) -> None:
        now = self.now()
        if self.blindness.told_at is not None and now < self.blindness.told_at + _TELL_BLIND_EVERY:
            return
        self.blindness.told_at = now
        _log.warning(
            "The circuit of %s cannot be read (%s: %s); attempts go on without it, %d did so far.",
            self.gate.dependency,
            type(error).__name__,
            error,
            self.blindness.calls,
            extra={DEPENDENCY: self.gate.dependency},
        )

    def _tell_sighted(self) -> None:
        if self.blindness.told_at is None:
            return
        self.blindness.told_at = None
        _log.warning(
            "The circuit of %s can be read again; %d attempts went on without it.",
            self.gate.dependency,
            self.blindness.calls,
            extra={DEPENDENCY: self.gate.dependency},
        )

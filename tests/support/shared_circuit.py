"""A shared circuit in memory, and a clock to move by hand.

The fake is held to the same suite as the entity: tests/integration/stores/test_shared_circuit.py.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.circuit.cache import CircuitCache
from durable_retry.circuit.entity import AdmissionSettings
from durable_retry.rules.circuit.breaker import Breaker
from durable_retry.rules.circuit.key_changes import KeyChange
from durable_retry.rules.circuit.messages import ReportMessage
from durable_retry.rules.circuit.reporters import ReportBuffer
from durable_retry.rules.circuit.retry_budget import RetryBudgetSettings
from durable_retry.rules.circuit.states import CircuitSettings, CircuitState
from durable_retry.rules.config.dependency import Bounds
from tests.support.builders import NOON


@dataclass
class Moment:
    """A clock that stands still until `pass_`."""

    at: datetime = NOON

    def now(self) -> datetime:
        return self.at

    def pass_(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@dataclass
class CircuitInMemory:
    """A `SharedCircuit` that keeps its breaker here.

    Attributes:
        breaker: Its state.
        is_down: Whether nothing can be read or sent.
        delivers: Whether a report arrives at once; else it stays under way, as a signal may.
        reads: How often it was read, failed reads included.
        sent_reports: Every report that was sent, also those that did not arrive.
        whole: The circuit of the dependency, where this one is of a limit key.
        reads_may_go: While it is set to an event, reads wait for it.
        now: The clock of the machine that runs it.
    """

    breaker: Breaker = field(default_factory=Breaker)
    is_down: bool = False
    delivers: bool = True
    reads: int = 0
    sent_reports: list[ReportMessage] = field(default_factory=list)
    reads_may_go: asyncio.Event | None = None
    whole: "CircuitInMemory | None" = None
    now: Callable[[], datetime] = lambda: NOON

    async def read(self) -> Breaker:
        self.reads += 1
        if self.reads_may_go is not None:
            await self.reads_may_go.wait()
        if self.is_down:
            raise TaskHubUnavailableError("the task hub answered UNAVAILABLE")
        return self.breaker

    async def report(self, message: ReportMessage) -> None:
        self.sent_reports.append(message)
        if self.is_down:
            raise TaskHubUnavailableError("the task hub answered UNAVAILABLE")
        if self.delivers:
            before, self.breaker = self.breaker, message.apply(self.breaker, self.now())
            is_moved = before.state is not self.breaker.state
            if self.whole is not None and (is_moved or message.alerts(before, self.breaker, self.now())):
                is_closed = self.breaker.state is CircuitState.CLOSED
                change = KeyChange(self.breaker.limit_key or "", is_closed)
                self.whole.breaker = self.whole.breaker.with_key(change)


@dataclass
class Copies:
    """One copy of a circuit in memory, on a clock of its own."""

    circuit: CircuitSettings = field(default_factory=CircuitSettings)
    budget: RetryBudgetSettings = field(default_factory=lambda: RetryBudgetSettings(ratio=0))
    bounds: Bounds | None = None
    shared: CircuitInMemory = field(default_factory=CircuitInMemory)
    moment: Moment = field(default_factory=Moment)
    copy: CircuitCache = field(init=False)

    def __post_init__(self) -> None:
        self.shared.now = self.moment.now
        self.copy = self.another("w1")

    async def flush_after(self, seconds: float) -> None:
        """Let time pass, and send the reports that are due then."""
        self.moment.pass_(seconds)
        await self.copy.reporting.flush()

    def another(self, reporter: str) -> CircuitCache:
        """Returns the copy of another process."""
        admission = AdmissionSettings("payments", self.circuit, self.budget, self.bounds)
        return CircuitCache(
            admission,
            self.shared,
            ReportBuffer(reporter, self.circuit),
            self.moment.now,
        )

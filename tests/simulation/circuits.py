"""Watches every operation of circuits for what must never be seen in their state."""

from dataclasses import dataclass, field
from typing import Any

from durable_retry.engine.base.names import CIRCUIT_BREAKER
from durable_retry.engine.circuit.breaker import Breaker
from durable_retry.engine.circuit.messages import ReportMessage
from durable_retry.settings.configuration import find_dependency
from tests.simulation.entities import Operated
from tests.simulation.world import World


@dataclass
class CircuitWatch:
    """What was seen of circuits.

    Attributes:
        overfull: Circuits that let too many probe, as they did it.
        counted_twice: Reports that a circuit counted again when they came again.
    """

    world: World
    overfull: list[str] = field(default_factory=list)
    counted_twice: list[str] = field(default_factory=list)
    _reports: set[tuple[str, str, int]] = field(default_factory=set)

    def changed(self, operated: Operated) -> None:
        """Look at the state after an operation."""
        dependency = find_dependency(operated.key)
        if operated.name == CIRCUIT_BREAKER and dependency is not None:
            self._look_at_probes(operated.key, operated.after, dependency.circuit.half_open_calls)
            if operated.operation == "report":
                self._look_at_report(operated)

    def _look_at_probes(self, key: str, after: Any, most: int) -> None:
        breaker = Breaker.from_json(after or {})
        probing = len(breaker.leases) + breaker.probe_successes
        if probing > most:
            self.overfull.append(f"{key} lets {probing} probe at {self.world.now()}")

    def _look_at_report(self, operated: Operated) -> None:
        report = ReportMessage.from_json(operated.given).report
        seen = (operated.key, report.reporter, report.sequence)
        before, after = (Breaker.from_json(state or {}) for state in (operated.before, operated.after))
        if seen in self._reports and after.window.everything().calls > before.window.everything().calls:
            about = f"{operated.key} counts report {report.sequence} of {report.reporter} again"
            self.counted_twice.append(about)
        self._reports.add(seen)

"""Watches every operation of circuits for what must never be seen in their state."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from durable_retry.base.json_forms import from_rfc3339
from durable_retry.base.names import CIRCUIT_BREAKER, CIRCUIT_EVENT, OPERATION, OperationState
from durable_retry.hub.entity_ids import dependency_of
from durable_retry.rules.circuit.breaker import Breaker, ManualControl
from durable_retry.rules.circuit.messages import ReportMessage
from durable_retry.rules.circuit.states import CircuitState
from durable_retry.rules.operations.status import WAITS_FOR
from durable_retry.settings.configuration import find_dependency
from tests.simulation.entities import Operated
from tests.simulation.messages import Instance
from tests.simulation.world import START, World


@dataclass
class CircuitWatch:
    """What was seen of circuits.

    Attributes:
        overfull: Circuits that let too many probe, as they did it.
        counted_twice: Reports that a circuit counted again when they came again.
        breaks: Limit key, begin and end of each break, by the circuit and its epoch.
        not_woken: Operations that waited for a circuit which was closed by hand, and did not hear of it.
        freezes: From when to when a circuit let nobody through since everything was held, by its key and the
            instant at which that was said; None while it goes on.
    """

    world: World
    overfull: list[str] = field(default_factory=list)
    counted_twice: list[str] = field(default_factory=list)
    breaks: dict[tuple[str, int], tuple[str | None, datetime, datetime]] = field(default_factory=dict)
    not_woken: list[str] = field(default_factory=list)
    freezes: dict[tuple[str, datetime], tuple[datetime, datetime | None]] = field(default_factory=dict)
    _told_at: dict[str, datetime] = field(default_factory=dict)
    _reports: set[tuple[str, str, int]] = field(default_factory=set)

    def changed(self, operated: Operated) -> None:
        dependency = find_dependency(dependency_of(operated.key))
        # The circuit of a limit key that is forgotten has no state.
        if operated.name == CIRCUIT_BREAKER and dependency is not None and operated.after is not None:
            self._look_at_probes(operated.key, operated.after, dependency.circuit.half_open_calls)
            self._look_at_break(operated)
            self._look_at_freeze(operated)
            if operated.operation == "report":
                self._look_at_report(operated)

    def _look_at_break(self, operated: Operated) -> None:
        before, after = (Breaker.from_json(state or {}) for state in (operated.before, operated.after))
        now, was, name = self.world.now(), (operated.key, before.epoch), (operated.key, after.epoch)
        if was in self.breaks and was != name:
            limit_key, since, until = self.breaks[was]
            self.breaks[was] = limit_key, since, min(until, now)
        if after.state is CircuitState.OPEN and after.retry_at is not None:
            self.breaks.setdefault(name, (after.limit_key, now, after.retry_at))

    def _look_at_freeze(self, operated: Operated) -> None:
        before, after = (Breaker.from_json(state or {}).freeze for state in (operated.before, operated.after))
        now = self.world.now()
        if before is not None and before != after and (operated.key, before.at) in self.freezes:
            since, _ = self.freezes[operated.key, before.at]
            self.freezes[operated.key, before.at] = since, min(now, before.until or now)
        if after is not None and after != before and after.share is None:
            self.freezes[operated.key, after.at] = now, after.until

    def told(self, instance_id: str, event: str) -> None:
        """Take note of an event that was sent to an orchestration."""
        if event == CIRCUIT_EVENT:
            self._told_at[instance_id] = self.world.now()

    def released(self, release: Instance, instances: Iterable[Instance]) -> None:
        """Look at who waits for a circuit when the orchestration that wakes them ends."""
        given, since = json.loads(release.input), release.created_at
        if given["hand"]["control"] == ManualControl.OPEN:
            return  # It lets nobody go on.
        for instance in (each for each in instances if each.name == OPERATION and each.is_running):
            shown = json.loads(instance.custom_status or "{}")
            waits_for = shown.get(WAITS_FOR, shown.get("dependency"))
            if shown.get("status") != OperationState.WAITING_CIRCUIT or waits_for != given["dependency"]:
                continue
            is_of_key = given["hand"].get("limit_key") in {None, shown.get("limit_key")}
            waited = from_rfc3339(shown["updated_at"]) < since - self.world.clock_difference
            if is_of_key and waited and self._told_at.get(instance.instance_id, START) < since:
                self.not_woken.append(f"{instance.instance_id} was not woken by {release.instance_id}")

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

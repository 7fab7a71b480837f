"""Watches every operation of an entity for what must never be seen in its state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from durable_retry.engine.base.asks import KEPT_ASKS
from durable_retry.engine.base.names import CALL_LIMITER, CIRCUIT_BREAKER
from durable_retry.engine.circuit import breaker_from_json
from durable_retry.engine.circuit.messages import ReportMessage
from durable_retry.engine.limits.limiter import Limiter, Slot, SlotRequest
from durable_retry.settings.configuration import find_dependency
from tests.simulation.world import World

type Asked = tuple[str, datetime]
"""A lease and when the request for it was made."""


@dataclass
class EntityWatch:
    """What was seen of circuits and limiters.

    Attributes:
        overfull: Circuits that let too many probe, as they did it.
        counted_twice: Reports that a circuit counted again when they came again.
        overlent: Limiters that lent more slots than there are.
        lent_again: Slots that were lent when they had been given back, to a request that came again.
        leases: When each lease that was lent expires, by its name and request.
        forgotten: Leases whose answer went out and whose state was not stored.
    """

    world: World
    overfull: list[str] = field(default_factory=list)
    counted_twice: list[str] = field(default_factory=list)
    overlent: list[str] = field(default_factory=list)
    lent_again: list[str] = field(default_factory=list)
    leases: dict[Asked, datetime] = field(default_factory=dict)
    forgotten: set[Asked] = field(default_factory=set)
    _lent: dict[str, set[Asked]] = field(default_factory=dict)
    _reports: set[tuple[str, str, int]] = field(default_factory=set)
    _given_back: dict[Asked, int] = field(default_factory=dict)
    _messages: int = 0

    def changed(self, entity: str, operation: str, given: Any, before: Any, after: Any) -> None:
        """Look at the state after an operation."""
        _, name, key = entity.split("@", 2)
        dependency = find_dependency(key)
        if name == CIRCUIT_BREAKER and dependency is not None:
            self._look_at_probes(key, after, dependency.circuit.half_open_calls)
            if operation == "report":
                self._look_at_report(key, given, before, after)
        if name == CALL_LIMITER:
            self.forgotten |= self._lent.get(key, set()) - _lent_in(before)
            self._lent[key] = _lent_in(after)
            self._look_at_slots(key, operation, given, Limiter.from_json(after))

    def _look_at_probes(self, key: str, after: Any, most: int) -> None:
        breaker = breaker_from_json(after)
        probing = len(breaker.leases) + breaker.probe_successes
        if probing > most:
            self.overfull.append(f"{key} lets {probing} probe at {self.world.now()}")

    def _look_at_report(self, key: str, given: Mapping[str, Any], before: Any, after: Any) -> None:
        report = ReportMessage.from_json(given).report
        seen = (key, report.reporter, report.sequence)
        counted = breaker_from_json(after).window.everything().calls
        if seen in self._reports and counted > breaker_from_json(before).window.everything().calls:
            self.counted_twice.append(f"{key} counts report {report.sequence} of {report.reporter} again")
        self._reports.add(seen)

    def _look_at_slots(self, key: str, operation: str, given: Any, after: Limiter) -> None:
        self._messages += 1
        if operation == "give_back":
            slot = Slot.from_json(given)
            if slot.lease_id is not None and slot.asked_at is not None:
                self._given_back[slot.lease_id, slot.asked_at] = self._messages
        elif (settings := SlotRequest.from_json(given).settings).max_concurrency > 0:
            pool = settings.max_concurrency - settings.shared_concurrency
            if len(after.leases) > pool:
                self.overlent.append(f"{key} lends {len(after.leases)} slots of {pool} at {self.world.now()}")
        for lease in after.leases:
            if lease.asked_at is None:
                continue
            asked = (lease.lease_id, lease.asked_at)
            self.leases[asked] = lease.expires_at
            given_back = self._given_back.get(asked)
            # A limiter remembers so many requests.
            if given_back is not None and self._messages - given_back < KEPT_ASKS:
                self.lent_again.append(f"{key} lends {lease.lease_id} again at {self.world.now()}")


def _lent_in(state: Any) -> set[Asked]:
    leases = Limiter.from_json(state or {}).leases
    return {(lease.lease_id, lease.asked_at) for lease in leases if lease.asked_at is not None}

"""The cached circuit of a limit key.

With `circuit.by = "limit_key"` an operation that has a limit key passes the circuit of that key, which has
the pauses and the retry budget of the key too. The dependency's own circuit keeps what counts for all keys: a
hold by hand, and the limits.
"""

import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from durable_retry.circuit.cache import CircuitCache
from durable_retry.circuit.entity import CircuitEntity
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.reporters import ReportBuffer
from durable_retry.rules.circuit.snapshot import Permit, Permitted, Refused, held_by_hand
from durable_retry.rules.circuit.states import CircuitState
from durable_retry.rules.retry.admission import AdmissionState
from durable_retry.rules.retry.loop import Blocked

_COUNTS_FOR: Final = timedelta(seconds=30)
"""A circuit is read anew after this even if nothing says that it has changed: a signal may be lost."""


@dataclass(slots=True, kw_only=True)
class KeyCircuit(CircuitCache):
    """The cached circuit of one limit key of a dependency."""

    whole: CircuitCache  # the dependency's own circuit
    _changes_seen: int = 0  # by the dependency's own circuit, before the last read
    _counts_until: datetime | None = None  # how long that read counts while nothing changes

    def __post_init__(self) -> None:
        CircuitCache.__post_init__(self)
        # Limits bound the whole dependency, not one key.
        self.limits = self.whole.limits

    async def enter(
        self,
        operation_id: str,
        attempt: int,
        admission: AdmissionState,
        *,
        limit_key: str | None = None,
    ) -> Permitted | Blocked:
        """See `CircuitCache.enter`; a hold of the whole dependency comes first."""
        await self.whole.refresh_snapshot()
        # A retry needs the present budget, and an operation that waited the number of those that wait.
        if attempt == 1 and not admission.waiting:
            self._keep_snapshot()
        now = self.now()
        answer: Permitted | Blocked | None = self._held_by_hand(operation_id, now, waiting=admission.waiting)
        if answer is not None and not admission.waiting:
            self.whole.buffer.refused(now)
        if answer is None:
            answer = await CircuitCache.enter(self, operation_id, attempt, admission, limit_key=limit_key)
        await self.whole.reporting.flush()
        return answer

    async def read_snapshot(self) -> None:
        """See `CircuitCache.read_snapshot`."""
        whole, now = self.whole.snapshot, self.now()
        await CircuitCache.read_snapshot(self)
        self._counts_until = None
        if self._read_again_at is None and whole is not None and whole.is_valid(now):
            self._changes_seen, self._counts_until = whole.key_changes.count, now + _COUNTS_FOR

    def _keep_snapshot(self) -> None:
        """Let the snapshot count as new where the dependency's own circuit shows that nothing has changed."""
        whole, snapshot, now = self.whole.snapshot, self.snapshot, self.now()
        if (
            whole is not None
            and whole.is_valid(now)
            and snapshot is not None
            and snapshot.is_calm
            and not self.buffer.has_sent_trouble
            and self._counts_until is not None
            and now < self._counts_until
            and not whole.key_changes.concern(self.settings.limit_key or "", self._changes_seen)
        ):
            self.snapshot = replace(snapshot, taken_at=max(snapshot.taken_at, whole.taken_at))

    def _held_by_hand(self, operation_id: str, now: datetime, *, waiting: bool) -> Refused | None:
        return held_by_hand(
            self.whole.snapshot,
            now,
            settings=self.whole.settings.circuit,
            operation_id=operation_id,
            waiting=waiting,
            here=self.whole.buffer.here,
        )

    async def refresh_snapshot(self) -> None:
        """See `CircuitCache.refresh_snapshot`; a hold of the whole dependency is read, too."""
        await self.whole.refresh_snapshot()
        await CircuitCache.refresh_snapshot(self)

    def circuit_permit(self, operation_id: str, now: datetime, *, waiting: bool) -> Permit:
        whole = self.whole.snapshot
        if whole is not None and whole.state is CircuitState.DISABLED and whole.is_valid(now):
            epoch = 0 if self.snapshot is None else self.snapshot.epoch
            return self.pause(operation_id, now) or Permitted(epoch)
        if (held := self._held_by_hand(operation_id, now, waiting=waiting)) is not None:
            return held
        return CircuitCache.circuit_permit(self, operation_id, now, waiting=waiting)


_IN_USE: Final = timedelta(minutes=1)
"""The circuit of a key that was not used in this time may be replaced by that of another one."""


def key_circuit_of(hub: TaskHub, whole: CircuitCache, limit_key: str) -> CircuitCache:
    """Return the circuit of a limit key; the dependency's own where too many others are in use."""
    keys, now = whole.keys, whole.now()
    circuit, _ = keys.get(limit_key, (None, now))
    if circuit is None:
        settings = replace(whole.settings, limit_key=limit_key, bounds=None)
        if len(keys) >= settings.circuit.max_keys:
            _, used_at = next(iter(keys.values()))
            if used_at > now - _IN_USE:
                return whole
            keys.popitem(last=False)
        circuit = KeyCircuit(
            settings,
            CircuitEntity(hub, settings.dependency, limit_key),
            ReportBuffer(uuid.uuid4().hex, settings.circuit),
            whole.now,
            whole=whole,
        )
    keys[limit_key] = circuit, now
    keys.move_to_end(limit_key)
    return circuit

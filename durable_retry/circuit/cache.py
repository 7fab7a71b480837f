"""Cached circuit states of this process, one per event loop, task hub and dependency.

A cache holds the last snapshot of the circuit entity and the reports that were not sent yet. It belongs to
one event loop and is never changed across an await, so it needs no lock for its state; one lock makes
concurrent callers share a single read of the entity. Its `CircuitReporter` sends the reports.

When the entity cannot be read, a hold that was read before is valid until its end. Then the cache fails open:
attempts go on without the circuit and are counted.
"""

import asyncio
import logging
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from durable_retry.circuit.entity import AdmissionSettings, CircuitEntity, CircuitReporter, SharedCircuit
from durable_retry.hub.task_hub import TaskHub
from durable_retry.plugins import hook
from durable_retry.rules.circuit.calls import CallEnd
from durable_retry.rules.circuit.messages import snapshot_of
from durable_retry.rules.circuit.reporters import ReportBuffer
from durable_retry.rules.circuit.retry_budget import BudgetPostponed, budget_allows, is_kept
from durable_retry.rules.circuit.snapshot import (
    AskForProbe,
    Permit,
    Permitted,
    Refused,
    Snapshot,
    held_by_freeze,
    paused,
    permit,
)
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.facts import CircuitBypassed, RetryPostponed
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.retry.admission import AdmissionState
from durable_retry.rules.retry.loop import Blocked, NeedsProbe
from durable_retry.rules.retry.slots import NeedsSlot
from durable_retry.runtime import clock
from durable_retry.runtime.concurrency import LoopOwned
from durable_retry.runtime.deferred import imported
from durable_retry.telemetry.facts import report
from durable_retry.telemetry.spans import DEPENDENCY

_log = logging.getLogger(__name__)

READ_SECONDS: Final = 1.0
"""Timeout of a read. Attempts go on without the circuit rather than queue behind a slow read."""
READ_DELAY: Final = timedelta(seconds=1)
"""Wait after a failed read before the next one."""
_WARN_EVERY: Final = timedelta(seconds=10)


@dataclass(slots=True)
class FailOpenCount:
    """Calls that were made without the circuit because it could not be read."""

    calls: int = 0  # total since this process started
    warned_at: datetime | None = None  # when the last warning was logged; None while the circuit is readable


class WorkerLimits(Protocol):
    """What bounds the attempts at a dependency, as one worker keeps it."""

    async def wait(self, circuit: "CircuitCache", admission: AdmissionState) -> None:
        """Wait until an attempt has its turn, with its circuit read."""

    def admit(
        self, permitted: Permitted, admission: AdmissionState, now: datetime, limit_key: str | None
    ) -> Permitted | NeedsSlot:
        """Let an attempt start that its circuit permits, or return what it needs to ask for a slot."""

    def always_needed(self, now: datetime, limit_key: str | None) -> NeedsSlot | None:
        """Return what each attempt needs to ask for a slot where there are no shares; None for nothing."""

    async def begun(
        self,
        hub: TaskHub,
        operation: OperationInput,
        attempt: int,
        admission: AdmissionState,
        permitted: Permitted,
    ) -> Permitted:
        """Note that an attempt starts; return its permit, by which its slot may be back already."""

    def ended(self) -> None:
        """Note the end of an attempt that was `in_share`."""


@dataclass(slots=True)
class CircuitCache:
    """The cached circuit of one dependency."""

    settings: AdmissionSettings
    shared: SharedCircuit  # reads the circuit entity
    buffer: ReportBuffer  # reports not sent yet; its reporter id is unique to this process start
    now: Callable[[], datetime] = clock.now
    snapshot: Snapshot | None = None  # the last one read; None before the first read
    fail_open: FailOpenCount = field(default_factory=FailOpenCount)  # calls made without the circuit
    reporting: CircuitReporter = field(init=False)  # sends the buffer
    limits: WorkerLimits | None = field(init=False, default=None)  # None where nothing bounds its attempts
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _read_again_at: datetime | None = None
    # The circuits of limit keys and when an attempt last asked for each; the latest at the end.
    keys: "OrderedDict[str, tuple[CircuitCache, datetime]]" = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self.reporting = CircuitReporter(self.settings, self.shared, self.buffer, self.now)
        if (bounds := self.settings.bounds) is not None:
            self.limits = imported(f"{hook('limits')}:WorkerLimits")(self, bounds)

    async def enter(
        self,
        operation_id: str,
        attempt: int,
        admission: AdmissionState,
        *,
        limit_key: str | None = None,
    ) -> Permitted | Blocked:
        """Decide whether an attempt may be made now. After `Permitted` it counts as begun; call `leave`."""
        if self.limits is not None:
            await self.limits.wait(self, admission)
        await self.refresh_snapshot()
        answer = self._permit_or_refusal(operation_id, attempt, admission, self.now(), limit_key=limit_key)
        await self.reporting.flush()
        return answer

    async def leave(self, permitted: Permitted, end: CallEnd) -> None:
        """Record how an attempt ended that `enter` permitted."""
        if self.limits is not None and permitted.in_share:
            self.limits.ended()
        self.buffer.ended(permitted, end if self.settings.circuit.enabled else CallEnd(), self.now())
        await self.reporting.flush()

    def _permit_or_refusal(
        self,
        operation_id: str,
        attempt: int,
        admission: AdmissionState,
        now: datetime,
        *,
        limit_key: str | None,
    ) -> Permitted | Blocked:
        probe_permit = self._probe_permit(operation_id, admission, now)
        if probe_permit is None:
            postponed = self._budget_postponement(operation_id, attempt, admission, now)
            if postponed is not None:
                return postponed
        answer = probe_permit or self.circuit_permit(operation_id, now, waiting=admission.waiting)
        if isinstance(answer, Permitted) and self.limits is not None:
            limited = self.limits.admit(answer, admission, now, limit_key)
            if isinstance(limited, NeedsSlot):
                return limited
            answer = limited
        match answer:
            case Permitted():
                self.buffer.started(attempt, now, promised=is_kept(admission.promised_at, now))
                if answer.fail_open:
                    self.fail_open.calls += 1
                    report(CircuitBypassed(self.settings.dependency))
            case Refused():
                if not admission.waiting:
                    self.buffer.refused(now)
                return replace(answer, limit_key=self.settings.limit_key)
            case AskForProbe():
                self.buffer.asked()
                return NeedsProbe(self.settings.circuit, self.settings.limit_key)
        return answer

    def _budget_postponement(
        self,
        operation_id: str,
        attempt: int,
        admission: AdmissionState,
        now: datetime,
    ) -> BudgetPostponed | None:
        snapshot = self.snapshot
        if (
            attempt == 1
            or is_kept(admission.promised_at, now)
            or snapshot is None
            or snapshot.budget is None
            or not snapshot.is_valid(now)
        ):
            return None
        answer = budget_allows(
            snapshot.budget,
            now,
            settings=self.settings.budget,
            taken_here=self.buffer.here.retries,
            operation_id=operation_id,
            taken_as_newcomer=self.buffer.taken_as_newcomer(now),
            first_attempts_here=self.buffer.here.first_attempts,
            asking_again_here=self.buffer.here.asking_again,
        )
        if not isinstance(answer, BudgetPostponed):
            return None
        if answer.reserved:
            self.buffer.postponed(now)
        else:
            self.buffer.asks_again(now)
        report(RetryPostponed(self.settings.dependency))
        return replace(answer, limit_key=self.settings.limit_key)

    def _probe_permit(self, operation_id: str, admission: AdmissionState, now: datetime) -> Permitted | None:
        """Return the permit of a probe that may go; None without one."""
        if (probe := admission.permit) is None:
            return None
        is_held = self.pause(operation_id, now) or self.freeze(operation_id, now)
        if is_held is None and (self.snapshot is None or self.snapshot.epoch <= probe.epoch):
            return probe
        # The circuit granted it before the pause was reported, before the freeze, or before it went on.
        self._give_back(probe, now)
        return None

    def _give_back(self, probe: Permitted, now: datetime) -> None:
        self.buffer.ended(probe, CallEnd(), now)

    def at_begin(self, admission: AdmissionState, attempt_seconds: float) -> AdmissionState:
        """Return what is valid of the admission of an attempt that begins now; a late probe is given back."""
        now = self.now()
        valid = admission.at_begin(now, attempt_seconds)
        if admission.permit is not None and valid.permit is None:
            self._give_back(admission.permit, now)
        return valid

    def pause(self, operation_id: str, now: datetime) -> Refused | None:
        """Return the refusal by a pause that the dependency asked for, whatever else the circuit says."""
        if not self.settings.circuit.enabled:
            return None
        return paused(self.snapshot, now, operation_id=operation_id, here=self.buffer.here)

    def freeze(self, operation_id: str, now: datetime) -> Refused | None:
        """Return the refusal while every dependency is held."""
        settings, here = self.settings.circuit, self.buffer.here
        return held_by_freeze(self.snapshot, now, settings=settings, operation_id=operation_id, here=here)

    def circuit_permit(self, operation_id: str, now: datetime, *, waiting: bool) -> Permit:
        if not self.settings.circuit.enabled:
            return self.freeze(operation_id, now) or Permitted(0)
        return permit(
            self.snapshot,
            now,
            settings=self.settings.circuit,
            operation_id=operation_id,
            waiting=waiting,
            here=self.buffer.here,
        )

    async def refresh_snapshot(self) -> None:
        """Read the circuit if the snapshot is too old. Concurrent callers share one read."""
        if self.is_fresh():
            return
        async with self._reading:
            if not self.is_fresh():
                await self.read_snapshot()

    def is_fresh(self) -> bool:
        """Whether an attempt needs no read of the circuit now."""
        now = self.now()
        if self._read_again_at is not None and now < self._read_again_at:
            return True  # A read has just failed; do not make every caller wait for the next timeout.
        return self.snapshot is not None and self.buffer.is_fresh(self.snapshot, now)

    async def read_snapshot(self) -> None:
        """Read the circuit. Where that fails the snapshot stays as it is."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                breaker = await self.shared.read()
            snapshot = snapshot_of(
                breaker,
                self.now(),
                settings=self.settings.circuit,
                budget_settings=self.settings.budget,
                reader=self.buffer.reporter,
            )
        except Exception as error:  # noqa: BLE001 - fail open on any error
            self._read_again_at = self.now() + READ_DELAY
            self._warn_failing_open(error)
            return
        self._read_again_at = None
        self._note_readable()
        self.snapshot = snapshot
        self.buffer.see(snapshot, reporters=breaker.reporters)

    def _warn_failing_open(self, error: Exception) -> None:
        now = self.now()
        if self.fail_open.warned_at is not None and now < self.fail_open.warned_at + _WARN_EVERY:
            return
        self.fail_open.warned_at = now
        _log.warning(
            "The circuit of %s cannot be read (%s: %s); attempts go on without it, %d did so far.",
            self.settings.dependency,
            type(error).__name__,
            error,
            self.fail_open.calls,
            extra={DEPENDENCY: self.settings.dependency},
        )

    def _note_readable(self) -> None:
        if self.fail_open.warned_at is None:
            return
        self.fail_open.warned_at = None
        _log.warning(
            "The circuit of %s can be read again; %d attempts went on without it.",
            self.settings.dependency,
            self.fail_open.calls,
            extra={DEPENDENCY: self.settings.dependency},
        )


type _Caches = dict[tuple[TaskHub, str], CircuitCache]

_caches: Final = LoopOwned[_Caches](dict)


def circuit_of(hub: TaskHub, dependency: Dependency, limit_key: str | None = None) -> CircuitCache:
    """Return the running loop's circuit of a dependency; created on first use.

    It is the circuit of the limit key where the dependency has one for each key.
    """
    settings = AdmissionSettings(
        dependency.name, dependency.circuit, dependency.retry_budget, dependency.bounds
    )
    caches = _caches.get()
    cache = caches.get((hub, dependency.name))
    if cache is None or cache.settings != settings:
        entity, buffer = CircuitEntity(hub, dependency.name), ReportBuffer(uuid.uuid4().hex, settings.circuit)
        cache = CircuitCache(settings, entity, buffer)
        caches[hub, dependency.name] = cache
    if limit_key is None or not dependency.circuit.is_by_key:
        return cache
    key_circuit: Callable[[TaskHub, CircuitCache, str], CircuitCache] = imported(hook("key_circuits"))
    return key_circuit(hub, cache, limit_key)


async def enter_circuit(
    hub: TaskHub, dependency: Dependency, operation: OperationInput, attempt: int, admission: AdmissionState
) -> tuple[CircuitCache, Permitted | Blocked]:
    """Return an operation's circuit, and whether an attempt may be made now, see `CircuitCache.enter`."""
    key = operation.limit_key
    circuit = circuit_of(hub, dependency, key)
    if admission.permit is not None or admission.slot is not None:
        admission = circuit.at_begin(admission, operation.timeouts.attempt_seconds)
    answer = await circuit.enter(operation.operation_id, attempt, admission, limit_key=key)
    if isinstance(answer, Permitted) and circuit.limits is not None:
        answer = await circuit.limits.begun(hub, operation, attempt, admission, answer)
    return circuit, answer


def slot_needed_by(hub: TaskHub, dependency: Dependency, operation: OperationInput) -> NeedsSlot | None:
    """Return the slot to ask for before an operation's first attempt, which could only say so.

    None where its circuit may hold it up: its slot would stay free. A process does not know a circuit that it
    has not read lately, such as that of a limit key.
    """
    key, circuit = operation.limit_key, circuit_of(hub, dependency)
    is_of_key = key is not None and dependency.circuit.is_by_key
    if circuit.limits is None or is_of_key or not operation.begins_at_once:
        return None
    now = circuit.now()
    permit = circuit.circuit_permit(operation.operation_id, now, waiting=False)
    is_free = isinstance(permit, Permitted) and not permit.fail_open
    return circuit.limits.always_needed(now, key) if is_free else None


async def pause_of(hub: TaskHub, dependency: Dependency, operation: OperationInput) -> Refused | None:
    """Return the pause that holds up even an attempt which is let past its circuit; None without one."""
    circuit = circuit_of(hub, dependency, operation.limit_key)
    await circuit.refresh_snapshot()
    return circuit.pause(operation.operation_id, circuit.now())


async def freeze_of(hub: TaskHub, dependency: Dependency, operation: OperationInput) -> Refused | None:
    """Return the refusal at a dependency without circuit, budget and limits while everything is held."""
    circuit = circuit_of(hub, dependency)
    await circuit.refresh_snapshot()
    return circuit.freeze(operation.operation_id, circuit.now())


async def refusal_of(
    hub: TaskHub, dependency: Dependency, operation_id: str, limit_key: str | None
) -> Refused | None:
    """Return the refusal of a call that is made beside attempts, and not counted; None where it may go."""
    answer = await permit_of(hub, dependency, operation_id, limit_key)
    return answer if isinstance(answer, Refused) else None


async def permit_of(hub: TaskHub, dependency: Dependency, operation_id: str, limit_key: str | None) -> Permit:
    """Return whether the circuit would let a call go now; the call is not counted.

    A freeze of every dependency does not refuse it: such a call continues what began before the freeze.
    """
    if not dependency.circuit.enabled:
        return Permitted(0)
    circuit = circuit_of(hub, dependency, limit_key)
    await circuit.refresh_snapshot()
    now, snapshot = circuit.now(), circuit.snapshot
    if snapshot is None or snapshot.frozen is None:
        return circuit.circuit_permit(operation_id, now, waiting=False)
    below, here = snapshot.frozen.below, circuit.buffer.here
    return permit(below, now, settings=dependency.circuit, operation_id=operation_id, here=here)


def close_circuits() -> None:
    """Drop the running loop's caches. For tests and benchmarks; a host just ends the process."""
    for circuit in _caches.take().values():
        for cache in (circuit, *(key_circuit for key_circuit, _ in circuit.keys.values())):
            cache.reporting.close()

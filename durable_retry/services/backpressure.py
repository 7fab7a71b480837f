"""Slow the intake down while the task hub or a dependency is far behind.

Per dependency the monitor samples one started operation, the probe: it reads its status at most once a second
while more operations arrive. See `engine.intake` for how a status is judged.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from durable_retry import clock
from durable_retry.engine.intake import LagLimits, Pressure, look_at
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.stores.operations import document_of
from durable_retry.stores.task_hub import read_operation

SAMPLE_INTERVAL: Final = timedelta(seconds=1)

_log = logging.getLogger(__name__)


class BehindError(Exception):
    """Something is far behind; the arrival should be delivered again later."""

    def __init__(self, pressure: Pressure, dependency: str) -> None:
        what = "the task hub" if pressure is Pressure.TASK_HUB else f"the dependency {dependency}"
        super().__init__(f"{what} is far behind")


@dataclass(slots=True)
class BackpressureProbe:
    """One started operation whose status is sampled."""

    operation_id: str
    started_at: datetime
    sampled_at: datetime
    pressure: Pressure | None = None


@dataclass(slots=True)
class BackpressureMonitor:
    """How far the task hub and dependencies are behind, as this process sampled it.

    Attributes:
        limits: Above these lags something counts as far behind.
        pause_seconds: Maximum wait of `admit`.
        sleep: Async sleep in seconds.
        probes: By dependency.
    """

    limits: LagLimits
    pause_seconds: float
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    probes: dict[str, BackpressureProbe] = field(default_factory=dict)

    def note_start(self, operation: OperationInput) -> None:
        """Make a started operation the probe of its dependency, unless there is one."""
        now = clock.now()
        self.probes.setdefault(operation.dependency, BackpressureProbe(operation.operation_id, now, now))

    async def admit(self, hub: str, dependency: str, *, may_be_left: bool) -> None:
        """Wait until nothing is behind, at most `pause_seconds`.

        Args:
            hub: Configuration of the durable client.
            dependency: Of the operation to start.
            may_be_left: Whether the caller can give the arrival back to its source.

        Raises:
            BehindError: Something is still behind, and the arrival may be given back.
            stores.task_hub.TaskHubUnavailableError: The task hub did not answer.
        """
        until = clock.now() + timedelta(seconds=self.pause_seconds)
        while (pressure := await self.pressure(hub, dependency)) is not None:
            left_seconds = (until - clock.now()).total_seconds()
            if left_seconds > 0:
                await self.sleep(min(left_seconds, SAMPLE_INTERVAL.total_seconds()))
            elif may_be_left:
                raise BehindError(pressure, dependency)
            else:
                _log.warning("%s is far behind; an arrival is started all the same", pressure.value)
                return

    async def pressure(self, hub: str, dependency: str) -> Pressure | None:
        """Return what is behind for a dependency's operations; None when nothing is."""
        for name in tuple(self.probes):  # any dependency's probe can show that the task hub is behind
            await self._sample(hub, name)
        pressures = {name: probe.pressure for name, probe in self.probes.items()}
        if Pressure.TASK_HUB in pressures.values():
            return Pressure.TASK_HUB
        return pressures.get(dependency)

    async def _sample(self, hub: str, dependency: str) -> None:
        probe, now = self.probes.get(dependency), clock.now()
        if probe is None or now - probe.sampled_at < SAMPLE_INTERVAL:
            return
        probe.sampled_at = now  # before the read: concurrent callers use the last result
        instance = await read_operation(hub, probe.operation_id)
        state = None if instance is None else str(document_of(instance)["status"])
        look = look_at(state, (now - probe.started_at).total_seconds(), self.limits)
        probe.pressure = look.pressure
        if look.is_over and self.probes.get(dependency) is probe:
            del self.probes[dependency]

"""Slowing the intake down while the task hub or a dependency is far behind.

One canary for each dependency, in this process: an operation that the intake started and looks at once a
second while it takes more. See engine/pressure.py for what it tells.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from engine.operation import OperationInput
from engine.pressure import LagLimits, Pressure, look_at
from stores import clock
from stores.status import document_of
from stores.task_hub import read_operation

LOOK_EVERY: Final = timedelta(seconds=1)

_log = logging.getLogger(__name__)


class BehindError(Exception):
    """Something is far behind; the arrival should come again later."""

    def __init__(self, pressure: Pressure, dependency: str) -> None:
        what = "the task hub" if pressure is Pressure.TASK_HUB else f"the dependency {dependency}"
        super().__init__(f"{what} is far behind")


@dataclass(slots=True)
class Canary:
    """One started operation that is looked at."""

    operation_id: str
    started_at: datetime
    looked_at: datetime
    pressure: Pressure | None = None


@dataclass(slots=True)
class Gauge:
    """What this process knows of how far things are behind.

    Attributes:
        limits: From when on something counts as far behind.
        pause_seconds: The longest that `admit` waits.
        sleep: Waits for so many seconds.
    """

    limits: LagLimits
    pause_seconds: float
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    canaries: dict[str, Canary] = field(default_factory=dict)

    def note_start(self, operation: OperationInput) -> None:
        """Remember a start, unless an earlier one of the dependency is still looked at."""
        now = clock.now()
        self.canaries.setdefault(operation.dependency, Canary(operation.operation_id, now, now))

    async def admit(self, hub: str, dependency: str, *, may_be_left: bool) -> None:
        """Return once nothing is behind, or after the longest pause.

        Args:
            hub: Configuration of the durable client.
            dependency: Whose operation is to start.
            may_be_left: Whether the arrival may be given back instead.

        Raises:
            BehindError: Something still is behind, and the arrival may be given back.
            stores.task_hub.TaskHubUnavailableError: The task hub did not answer.
        """
        until = clock.now() + timedelta(seconds=self.pause_seconds)
        while (pressure := await self.pressure(hub, dependency)) is not None:
            left_seconds = (until - clock.now()).total_seconds()
            if left_seconds > 0:
                await self.sleep(min(left_seconds, LOOK_EVERY.total_seconds()))
            elif may_be_left:
                raise BehindError(pressure, dependency)
            else:
                _log.warning("%s is far behind; an arrival is started all the same", pressure.value)
                return

    async def pressure(self, hub: str, dependency: str) -> Pressure | None:
        """Tell what is behind that concerns a dependency's operations; None when nothing is."""
        for name in tuple(self.canaries):  # another dependency's may tell that the task hub is behind
            await self._look(hub, name)
        known = {name: canary.pressure for name, canary in self.canaries.items()}
        if Pressure.TASK_HUB in known.values():
            return Pressure.TASK_HUB
        return known.get(dependency)

    async def _look(self, hub: str, dependency: str) -> None:
        canary, now = self.canaries.get(dependency), clock.now()
        if canary is None or now - canary.looked_at < LOOK_EVERY:
            return
        canary.looked_at = now  # before the read: whoever asks meanwhile takes what is known
        instance = await read_operation(hub, canary.operation_id)
        state = None if instance is None else str(document_of(instance)["status"])
        look = look_at(state, (now - canary.started_at).total_seconds(), self.limits)
        canary.pressure = look.pressure
        if look.is_over and self.canaries.get(dependency) is canary:
            del self.canaries[dependency]

"""Who writes the index of operations in a simulated world: one writer for each worker, which dies with it."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, override

from azure.core.exceptions import ServiceResponseError

from durable_retry.storage.tables import Row
from durable_retry_console.index.notes import IndexWriter
from tests.simulation.world import World, acting

_SLOW_SECONDS = (0.1, 10.0)


@dataclass
class Writers:
    """Stands for the writer of the process: it is that of the acting worker."""

    world: World
    by_worker: dict[str, IndexWriter] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        worker = acting.get()
        key = "" if worker is None else worker.name
        if key not in self.by_worker:
            self.by_worker[key] = _Writer(self.world)
        return getattr(self.by_worker[key], name)

    async def run_in_pool[T](self, action: Callable[[], T]) -> T:
        """Stand in for the pool: a place to die before and after."""
        await self.world.point()
        if self.world.happens(self.world.chances.slow):
            await asyncio.sleep(self.world.rng.uniform(*_SLOW_SECONDS))
            await self.world.point()  # Its worker may have died meanwhile.
        done = action()
        await self.world.point()
        return done


class _Writer(IndexWriter):
    """Writes in a task what a thread writes elsewhere; between two requests it may die."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._noted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @override
    def wake(self) -> None:
        self._noted.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write_on())

    async def _write_on(self) -> None:
        in_pool = Writers(self._world).run_in_pool
        while self.held or self._idle_seconds is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if self.held else self._idle_seconds):
                    await self._noted.wait()
            wait_seconds = self._seconds_to_write()
            if wait_seconds > self._soon_seconds:
                await in_pool(lambda: self._attempt(self._announce))
            await asyncio.sleep(wait_seconds)
            self._noted.clear()
            if not await in_pool(self.flush):
                self._noted.set()

    @override
    def replace(self, table: str, rows: Iterable[Row]) -> None:
        worker, world = acting.get(), self._world
        if worker is not None and worker.alive and world.happens(world.chances.crash):
            world.kill(worker)
        fails = world.happens(world.chances.storage_fails)
        if (worker is not None and not worker.alive) or (fails and world.happens(0.5)):
            raise ServiceResponseError("the storage is away")
        super().replace(table, rows)
        if fails:
            raise ServiceResponseError("the storage's answer was lost")

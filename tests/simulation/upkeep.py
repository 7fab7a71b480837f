"""The timers of the app that tidy up, and what is left to them at the end of a world."""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from typing import Any, Final
from unittest.mock import patch

from azure.core.exceptions import AzureError

from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.features.order.lanes import look_at_lanes
from durable_retry.features.outbox.sending import sweep
from durable_retry.features.retention.histories import remove_record
from durable_retry.hub.task_hub import TaskHub
from durable_retry.runtime import clock
from durable_retry.settings.retention import Retention
from durable_retry.upkeep.failures import recover
from durable_retry.upkeep.rounds import finish_left_over
from durable_retry_console.index import reconcile
from durable_retry_console.index import store as operation_index
from durable_retry_console.index.notes import note_document
from durable_retry_console.index.reconcile import add_lost
from durable_retry_console.index.store import OperationList
from durable_retry_console.recovery.watch import follow_outages
from tests.simulation.people import People
from tests.simulation.world import Worker, acting

_HISTORY_KEPT: Final = timedelta(minutes=30)
_MENDING_SECONDS: Final = 25.0
_MENDED_SECONDS: Final = 600.0
"""So long after the storm: the first comparison of the index reaches back an hour; a blocked lane may last
longer."""


@dataclass
class Upkeep:
    """Runs the timers on some worker.

    Attributes:
        unnoted: Operations that upkeep added to the index, which had nothing of them.
    """

    people: People
    unnoted: set[str] = field(default_factory=set)

    async def janitor(self) -> None:
        """The app's timers: each minute outbox and outages, every five dead letters and records of keys."""
        minutes = 0
        while True:
            await asyncio.sleep(60)
            minutes += 1
            if self.people.world.is_losing:
                await self.people.on_some_worker(
                    lambda worker: tidied(recover(TaskHub(worker.name), clock.now()))
                )
            await self.people.on_some_worker(lambda worker: tidied(sweep(TaskHub(worker.name), clock.now())))
            await self.people.on_some_worker(
                lambda worker: tidied(follow_outages(TaskHub(worker.name), clock.now()))
            )
            if minutes % 5 == 0:
                await self.people.on_some_worker(
                    lambda worker: tidied(finish_left_over(TaskHub(worker.name), clock.now()))
                )
                await self.look_at_lanes()
                # What comes later is mended at the end.
                if self.people.world.seconds < self.people.world.storm_ends + _MENDED_SECONDS:
                    await self.mend_index()
                await self.retain(self.people.world.now() - _HISTORY_KEPT)

    async def look_at_lanes(self) -> None:
        """Let lanes go on whose front is gone."""
        await self.people.on_some_worker(lambda worker: tidied(look_at_lanes(TaskHub(worker.name), inf)))

    async def mend_index(self) -> None:
        """Add to the index what dead workers had not written, and compare it with what has ended."""
        kept = Retention(history_for=_HISTORY_KEPT)
        with patch.multiple(reconcile, note_document=self._note_lost, retention=lambda: kept):
            await self.people.on_some_worker(_mended)

    def _note_lost(self, document: Mapping[str, Any], error: str, **given: bool) -> None:
        rows = self.people.app.tables.rows(operation_index.TABLE)
        noted = (row for row in rows if row["PartitionKey"].startswith(OperationList.ALL))
        if not any(
            entry.operation_id == document["operation_id"]
            for row in noted
            for entry in operation_index._unpacked_entries(row, None)
        ):
            self.unnoted.add(document["operation_id"])
        note_document(document, error, **given)

    async def retain(self, ended_before: datetime) -> None:
        """Remove the records of operations that ended before an instant, and what the hub has of them."""
        for operation_id in self.people.app.hub.ended(ended_before):
            if await self._remove_record(operation_id):
                self.people.app.hub.purge(operation_id, ended_before)

    async def _remove_record(self, operation_id: str) -> bool:
        while True:
            may_go = await self.people.on_some_worker(
                lambda worker: _record_removed(operation_id, TaskHub(worker.name))
            )
            if may_go is not None:
                return may_go
            await asyncio.sleep(1)


async def _mended(worker: Worker) -> bool:
    return await tidied(add_lost(TaskHub(worker.name), clock.now(), _MENDING_SECONDS))


async def _record_removed(operation_id: str, hub: TaskHub) -> bool | None:
    try:
        instance = await hub.read_instance(operation_id)
        return await remove_record(hub, operation_id, instance, clock.now())
    except (TaskHubUnavailableError, AzureError):
        return None


async def tidied(work: Coroutine[Any, Any, object]) -> bool:
    """Whether some upkeep came to its end."""
    try:
        await work
    except Exception:  # noqa: BLE001 - the host logs it, and the next run does what is left
        assert acting.get() is not None
        return False
    return True

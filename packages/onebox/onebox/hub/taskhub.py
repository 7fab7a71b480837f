"""The task hub as plain Python: what the gRPC service and the HTTP management API both call.

Every call that changes something returns once it is on disk. Errors, the classes of `model`:

    start                       InstanceExistsError, InvalidRequestError
    raise_event, suspend,
    resume, terminate           InstanceNotFoundError, InstanceFinishedError
    restart, rewind             InstanceNotFoundError, WrongStatusError
    get, wait_*, query, list_*, purge*, entities: none; what is not there is None, or not counted

Times are aware UTC datetimes; payloads are JSON text as the SDK writes it (None: absent).
"""

import asyncio
import re
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

import durabletask.internal.orchestrator_service_pb2 as pb

from onebox.clock import Clock
from onebox.faults import FaultPoint, FaultPoints
from onebox.hub import entities, instances
from onebox.hub.database import Transaction, is_entity
from onebox.hub.engine import Engine
from onebox.hub.events import events_in
from onebox.hub.listing import EntityFilter, EntityState, InstanceFilter, InstanceState, Listing, Page
from onebox.hub.model import TERMINAL, InstanceNotFoundError, InvalidRequestError, Start, Status, to_us
from onebox.hub.settings import HubSettings

_PURGE_PAGE = 200
_LONGEST_ID = 256
_NOT_IN_IDS = re.compile(r"[/\\#?\x00-\x1f\x7f-\x9f]")  # the control characters are those of category Cc


class TaskHub:
    """Starts, watches and manages orchestrations and entities."""

    def __init__(
        self,
        engine: Engine,
        listing: Listing,
        clock: Clock,
        faults: FaultPoints,
        settings: HubSettings,
    ) -> None:
        self._engine = engine
        self._listing = listing
        self._clock = clock
        self._faults = faults
        self._settings = settings

    async def _change[T](self, work: Callable[[Transaction], T]) -> T:
        self._faults(FaultPoint.REQUEST_RECEIVED)
        result = await self._engine.writer.commit(work)
        self._faults(FaultPoint.REQUEST_ACCEPTED)
        return result

    async def start(self, asked: Start) -> str:
        """Create an instance; return its id (a new one when the request has none).

        Raises:
            InstanceExistsError: The id is taken by an instance in a status that may not be replaced.
            InvalidRequestError: The name is empty, or the id is none for an orchestration.
        """
        if not asked.name:
            raise InvalidRequestError("an orchestration needs a name")
        _check_id(asked.instance_id)
        wanted = replace(
            asked,
            instance_id=asked.instance_id or uuid.uuid4().hex,
            version=self._settings.versioning.default if asked.version is None else asked.version,
            replaceable=self._settings.replaceable if asked.replaceable is None else asked.replaceable,
        )
        await self._create(wanted)
        return wanted.instance_id

    async def _create(self, wanted: Start) -> None:
        await self._change(lambda tx: instances.start(tx, wanted))

    def get(self, instance_id: str) -> InstanceState | None:
        """Return an instance; None when there is none."""
        return self._listing.instance(instance_id)

    async def wait_started(self, instance_id: str) -> InstanceState:
        """Return an instance once it has run; waits also for one that does not exist yet."""
        return await self._wait(instance_id, lambda status: status is not Status.PENDING)

    async def wait_finished(self, instance_id: str) -> InstanceState:
        """Return an instance once it has ended; waits also for one that does not exist yet."""
        return await self._wait(instance_id, lambda status: status.is_terminal)

    async def _wait(self, instance_id: str, reached: Callable[[Status], bool]) -> InstanceState:
        changed = self._engine.waiters.watch(instance_id)
        try:
            while True:
                state = self.get(instance_id)
                if state is not None and reached(state.status):
                    return state
                changed.clear()
                await self._until_it_may_have_changed(changed)
        finally:
            self._engine.waiters.unwatch(instance_id, changed)

    async def _until_it_may_have_changed(self, changed: asyncio.Event) -> None:
        """Wait until an instance is worth another look; `changed` is set when its status has changed."""
        await changed.wait()

    async def raise_event(self, instance_id: str, name: str, data: str | None) -> None:
        """Hand an external event to an instance, whether or not it waits for one."""
        await self._change(lambda tx: instances.raise_event(tx, instance_id, name, data))

    async def suspend(self, instance_id: str, reason: str | None) -> None:
        """Pause an instance: what comes for it waits."""
        await self._change(lambda tx: instances.suspend(tx, instance_id, reason))

    async def resume(self, instance_id: str, reason: str | None) -> None:
        """Let a paused instance go on."""
        await self._change(lambda tx: instances.resume(tx, instance_id, reason))

    async def terminate(self, instance_id: str, output: str | None) -> None:
        """End an instance with an output."""
        await self._change(lambda tx: instances.terminate(tx, instance_id, output))

    async def restart(self, instance_id: str, *, with_new_id: bool) -> str:
        """Run a finished instance again with its input; return the id it runs under."""
        asked = instances.Restart(instance_id, uuid.uuid4().hex if with_new_id else None)
        return await self._change(lambda tx: instances.restart(tx, asked))

    async def rewind(self, instance_id: str, reason: str | None) -> None:
        """Take a failed instance, and its failed sub-orchestrations, back to before their failures."""
        await self._change(lambda tx: instances.rewind(tx, instance_id, reason))

    async def purge(self, ids: Iterable[str]) -> int:
        """Erase instances, and entities, by their ids; return how many there were.

        As on Azure Storage it does not look at the status: an instance that runs is erased, too.
        """
        return await self._erase(list(ids), finished_only=False)

    async def _erase(self, doomed: list[str], *, finished_only: bool) -> int:
        def work(tx: Transaction) -> int:
            erased = sum(
                entities.purge(tx, one)
                if is_entity(one)
                else instances.purge(tx, one, finished_only=finished_only)
                for one in doomed
            )
            tx.give_pages_back()
            return erased

        return await self._change(work)

    async def purge_where(self, wanted: InstanceFilter, *, within: timedelta | None) -> tuple[int, bool]:
        """Erase the finished instances that match; return how many, and whether that is all of them.

        Args:
            wanted: Which; statuses that are not final match nothing.
            within: Stop after so long; None erases all.
        """
        statuses = (wanted.statuses or TERMINAL) & TERMINAL
        if not statuses:
            return 0, True
        started, erased, token = self._clock.monotonic(), 0, None
        while True:
            page = self._listing.instances(
                replace(wanted, statuses=statuses), _PURGE_PAGE, token, with_payloads=False
            )
            doomed = [state.id for state in page.items]
            erased += await self._erase(doomed, finished_only=True)
            token = page.token
            if token is None:
                return erased, True
            if within is not None and self._clock.monotonic() - started >= within.total_seconds():
                return erased, False

    def query(
        self, wanted: InstanceFilter, limit: int | None, token: str | None, *, with_payloads: bool = True
    ) -> Page[InstanceState]:
        """Return a page of instances in order of creation; `limit` None: as many as fit one answer."""
        return self._listing.instances(wanted, limit, token, with_payloads=with_payloads)

    def list_finished_ids(
        self,
        statuses: frozenset[Status],
        completed_from: datetime | None,
        completed_to: datetime | None,
        limit: int,
        token: str | None,
    ) -> Page[str]:
        """Return a page of ids of finished instances in order of completion."""
        from_us = None if completed_from is None else to_us(completed_from)
        before_us = None if completed_to is None else to_us(completed_to)
        return self._listing.finished_ids(statuses, from_us, before_us, limit, token)

    def history(self, instance_id: str) -> list[pb.HistoryEvent]:
        """Return the events of an instance's present execution.

        Raises:
            InstanceNotFoundError: There is no such instance.
        """
        if self.get(instance_id) is None:
            raise InstanceNotFoundError(instance_id)
        return events_in(b"".join(self._listing.history(instance_id)))

    async def signal_entity(
        self,
        entity_id: str,
        operation: str,
        input_: str | None,
        *,
        request_id: str | None = None,
        at: datetime | None = None,
    ) -> None:
        """Send an entity a one-way operation, to run not before `at` (None: at once)."""
        if not is_entity(entity_id):
            raise InvalidRequestError(f"'{entity_id}' is not an entity id: it must look like '@name@key'")
        due_us = None if at is None else to_us(at)
        await self._change(
            lambda tx: entities.signal(tx, entity_id, operation, input_, request_id=request_id, due_us=due_us)
        )

    def get_entity(self, entity_id: str) -> EntityState | None:
        """Return an entity; None when it holds nothing."""
        return self._listing.entity(entity_id)

    def query_entities(self, wanted: EntityFilter, limit: int | None, token: str | None) -> Page[EntityState]:
        """Return a page of entities in order of their ids."""
        return self._listing.entities(wanted, limit, token)

    async def clean_entities(self, *, remove_empty: bool, release_orphans: bool) -> tuple[int, int]:
        """Remove entities that hold nothing, and locks whose owner is gone; return how many of each."""
        return await self._change(
            lambda tx: entities.clean(tx, remove_empty=remove_empty, release_orphans=release_orphans)
        )


def _check_id(instance_id: str) -> None:
    """Refuse what the Durable extension refuses in a client's start (`DurableClient.StartNewAsync`).

    Raises:
        InvalidRequestError: It does.
    """
    if is_entity(instance_id):
        raise InvalidRequestError("instance ids that begin with '@' are those of entities")
    if len(instance_id) > _LONGEST_ID:
        raise InvalidRequestError(f"instance ids must not be longer than {_LONGEST_ID} characters")
    if _NOT_IN_IDS.search(instance_id):
        raise InvalidRequestError("instance ids must not contain /, \\, #, ? or control characters")

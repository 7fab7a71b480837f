"""The limits of a dependency in one worker: which attempts start within its share, and which need a slot."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from durable_retry.base.errors import InstanceEndedError, TaskHubUnavailableError
from durable_retry.base.json_forms import JsonShape
from durable_retry.base.names import GIVE_BACK, LEAVE, SLOT_EVENT
from durable_retry.circuit.cache import CircuitCache
from durable_retry.features.limits.names import CHANGE
from durable_retry.features.limits.rules import limiter
from durable_retry.features.limits.rules.settings import LimitKeys, LimitSettings, ReadLimits
from durable_retry.features.limits.rules.share import ALONE, Part, WorkerShare
from durable_retry.features.limits.store import read_limiter
from durable_retry.hub.entity_ids import limiter_id
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.snapshot import Permitted
from durable_retry.rules.facts import LimitsRead
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.retry.admission import AdmissionState
from durable_retry.rules.retry.loop import lease_id_of
from durable_retry.rules.retry.slots import (
    Leaving,
    NeedsSlot,
    SlotAnswer,
    SlotRequest,
    is_valid,
)
from durable_retry.telemetry.facts import report


@dataclass(slots=True)
class WorkerLimits:
    """The limits of one dependency in this process, see `circuit.cache.WorkerLimits`."""

    circuit: CircuitCache  # the dependency's own
    keys: LimitKeys
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep  # until a turn
    share: WorkerShare = field(init=False)
    is_told: bool = False  # whether these limits were sent to the entity, with a request for a slot or alone
    known_at: datetime | None = None  # since when the others know of this worker; None while they do not
    longest_seconds: float = 0.0  # that an attempt may take, by those that began here

    def __post_init__(self) -> None:
        self.share = WorkerShare(self.keys.settings)
        self.circuit.buffer.holds_share = self.share.holds_slots

    async def wait(self, circuit: CircuitCache, admission: AdmissionState) -> None:
        """Wait for an attempt's turn; the circuit is read, too."""
        if admission.turn_at is not None:
            slot, has_waited = admission.slot, admission.slot is None or admission.has_place
            is_crowded = has_waited or (slot is not None and slot.is_crowded is True)
            await self._wait_for_turn(circuit, admission.turn_at, is_crowded=is_crowded)
        await circuit.refresh_snapshot()

    def admit(
        self, permitted: Permitted, admission: AdmissionState, now: datetime, limit_key: str | None
    ) -> Permitted | NeedsSlot:
        """Start an attempt within the limits of this moment, or return what it needs to ask for a slot.

        A probe needs no slot, since all other attempts wait meanwhile; but in the circuit of a limit key only
        those of its key do, so there it needs one. An attempt that has a slot starts in its turn.
        """
        limits, is_of_key = self.keys.settings.of_key(limit_key), self.circuit.settings.circuit.is_by_key
        is_alone = permitted.lease_id is not None and not (is_of_key and limit_key is not None)
        if is_alone or not limits.is_on:
            return permitted
        has_slot = admission.slot is not None or not limits.lends_slots
        if has_slot and self._has_turn(admission.turn_at, now, limit_key):
            self.share.note_start(now, limit_key)
            return permitted
        if admission.slot is not None and limits.rate_per_second <= 0:
            return permitted
        if self._take_share(limits, admission.ahead, now):
            self._report(limits)
            return replace(permitted, in_share=True)
        return self._needed(limits, now)

    def _has_turn(self, turn_at: datetime | None, now: datetime, limit_key: str | None) -> bool:
        if turn_at is None or is_valid(turn_at, now):
            return turn_at is not None
        part = self._known_part(now)
        return part is not None and self.share.may_start_late(now, part, limit_key)

    def always_needed(self, now: datetime, limit_key: str | None) -> NeedsSlot | None:
        """Return what every attempt needs to ask for a slot where nothing is shared out; None for nothing."""
        limits = self.keys.settings.of_key(limit_key)
        return self._needed(limits, now) if limits.is_on else None

    def _needed(self, limits: LimitSettings, now: datetime) -> NeedsSlot:
        self._report(limits)
        self.is_told = True
        return NeedsSlot(ReadLimits.of(limits, now).to_json())

    def _report(self, limits: LimitSettings) -> None:
        dependency = self.circuit.settings.dependency
        report(LimitsRead(dependency, limits.max_concurrency, limits.rate_per_second))

    async def begun(
        self,
        hub: TaskHub,
        operation: OperationInput,
        attempt: int,
        admission: AdmissionState,
        permitted: Permitted,
    ) -> Permitted:
        """Give up the place or the slot of an attempt that starts within the share; send changed limits."""
        self.longest_seconds = max(self.longest_seconds, operation.timeouts.attempt_seconds)
        if permitted.in_share and admission.has_place and admission.slot_since is not None:
            # Else the limiter would keep a slot for it. If the message is lost, it does so for three seconds.
            await self._signal(hub, LEAVE, Leaving(lease_id_of(operation, attempt)))
        elif admission.slot is not None and not self.is_told:
            # Attempts that wait ask with the limits of an earlier process, and only this corrects them.
            self.is_told = True
            limits = replace(self.keys.settings, weights=None)
            await self._signal(hub, CHANGE, ReadLimits.of(limits, self.circuit.now()))
        is_own = operation.dependency == self.circuit.settings.dependency
        slot = admission.slot if is_own else None  # that of a step is given back at its attempt's end
        if slot is None or not slot.calls or not self._take_share(self.keys.settings, 0, self.circuit.now()):
            return permitted
        # With its slot the next one comes, else the share would stay free while attempts wait.
        freed = replace(slot, calls=None)
        await self._signal(hub, GIVE_BACK, freed)
        event = {"dependency": operation.dependency, "freed": freed.to_json()}
        for waiter in slot.calls:
            with suppress(InstanceEndedError, TaskHubUnavailableError):
                await hub.raise_event(waiter, SLOT_EVENT, event)
        return replace(permitted, in_share=True, gave_slot_back=True)

    async def _signal(self, hub: TaskHub, operation: str, message: JsonShape) -> None:
        with suppress(TaskHubUnavailableError):
            await hub.signal_entity(
                limiter_id(self.circuit.settings.dependency), operation, message.to_json()
            )

    def ended(self) -> None:
        """Note the end of an attempt that started within the share."""
        self.share.ended()

    def _take_share(self, limits: LimitSettings, ahead: int | None, now: datetime) -> bool:
        """Start an attempt within this worker's share, once the others know of this worker."""
        part = self._known_part(now)
        if part is None:
            return False
        # Until then attempts may go on that the others began before they knew of this worker. That is not too
        # many where none wait.
        joins_at = (self.known_at or now) + timedelta(seconds=self.longest_seconds)
        if ahead is not None and part.workers > 1 and limits.lends_slots and now < joins_at:
            return False
        self.share.settings = limits
        return self.share.take(now, part, ahead=ahead)

    def _known_part(self, now: datetime) -> Part | None:
        """Return this worker's part of the limits; None until the others know of this worker."""
        buffer, snapshot = self.circuit.buffer, self.circuit.snapshot
        if snapshot is None or snapshot.budget is None or not snapshot.is_valid(now):
            return None
        if not buffer.is_known(now):
            buffer.announce(now)
            self.known_at = None
            return None
        self.known_at = self.known_at or now
        return _part_of(self.circuit)

    async def _wait_for_turn(self, circuit: CircuitCache, turn_at: datetime, *, is_crowded: bool) -> None:
        """Wait until an attempt has its turn, this worker may start one more, and the circuit is read.

        Several late attempts may wait for the same read, so each checks after it whether it still may start.
        """
        while is_valid(turn_at, now := circuit.now()):
            if (seconds := self.share.seconds_until(turn_at, now, is_crowded=is_crowded)) > 0:
                await self.sleep(seconds)
            elif circuit.is_fresh():
                return
            else:
                await circuit.refresh_snapshot()


def _part_of(circuit: CircuitCache) -> Part:
    budget = None if circuit.snapshot is None else circuit.snapshot.budget
    return ALONE if budget is None else Part(budget.workers, budget.rank)


async def answer_to(hub: TaskHub, dependency: str, request: SlotRequest, now: datetime) -> SlotAnswer | None:
    """Return the answer to a request that was signalled; None while there is none."""
    return limiter.answer_to(await read_limiter(hub, dependency), request, now)

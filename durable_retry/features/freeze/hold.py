"""Holding every dependency, and showing the state of that.

The freeze is stored in the circuits of the dependencies, where workers read it, and so do the functions here.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from durabletask.client import OrchestrationStatus
from durabletask.internal.orchestrator_service_pb2 import OrchestrationState

from durable_retry.base.answers import read_or
from durable_retry.base.documents import json_object
from durable_retry.base.errors import InstanceEndedError
from durable_retry.base.json_forms import optional_from_rfc3339
from durable_retry.base.names import WAITING, OperationState
from durable_retry.circuit.circuits import held_keys
from durable_retry.circuit.entity import CircuitEntity, calling_page, circuits_waited_for, wake
from durable_retry.features.freeze.names import FREEZE, THAW_EVENT
from durable_retry.features.freeze.rules import (
    Crowd,
    Due,
    DuePreview,
    FreezeBody,
    HoldDocument,
    HoldFigures,
    HoldState,
    HoldWave,
    Seen,
    StartedThaw,
    Thaw,
    ThawBody,
    Wave,
    instance_id_of,
    joined,
    opened_during,
    preview_of,
)
from durable_retry.hub.task_hub import ID_PREFIX, TaskHub
from durable_retry.rules.circuit.breaker import Breaker
from durable_retry.rules.circuit.freeze import Freeze
from durable_retry.runtime import clock
from durable_retry.settings.configuration import dependencies, present_name

PAGES_PER_STEP: Final = 10
"""Pages of 200 instances that an activity reads, or a preview."""

_HOUR: Final = timedelta(hours=1)
_RUNNING: Final = frozenset({OrchestrationStatus.RUNNING, OrchestrationStatus.PENDING})


class NothingHeldError(Exception):
    """Nothing is held, so nothing can be thawed."""


class ThawUnderWayError(Exception):
    """A thaw goes on already."""


async def _circuits(hub: TaskHub) -> dict[str, Breaker]:
    names = sorted(dependencies().dependencies)
    read = await asyncio.gather(*(CircuitEntity(hub, name).readable() for name in names))
    return {name: breaker for name, (breaker, _) in zip(names, read, strict=True)}


def _latest(circuits: Mapping[str, Breaker]) -> Freeze | None:
    """Return the latest freeze, as it was changed last; None where no circuit has one."""
    freezes = (breaker.freeze for breaker in circuits.values() if breaker.freeze is not None)
    return max(freezes, key=lambda freeze: (freeze.since, freeze.at), default=None)


async def _send_freeze(hub: TaskHub, freeze: Freeze, names: list[str], crowds: Mapping[str, Crowd]) -> None:
    """Send a freeze to circuits; in a thaw, to each the share of its own wave."""

    def freeze_for(name: str) -> Freeze:
        crowd = crowds.get(name)
        if freeze.share is None or crowd is None:
            return freeze
        return replace(freeze, share=crowd.share(freeze.share))

    await asyncio.gather(*(CircuitEntity(hub, name).freeze(freeze_for(name)) for name in names))


async def hold_everything(hub: TaskHub, body: FreezeBody, by: str) -> HoldFigures:
    """Let nothing start any more, at any dependency, until the freeze ends or is thawed.

    It replaces a freeze that goes on, and its thaw.
    """
    freeze = body.freeze(clock.now(), by, _latest(await _circuits(hub)))
    # The orchestration sends it again, where this worker dies or a circuit does not take it.
    await hub.start_instance(FREEZE, instance_id_of(freeze), {"freeze": freeze.to_json()}, again=False)
    await _send_freeze(hub, freeze, sorted(dependencies().dependencies), {})
    return _figures(freeze)


def _figures(freeze: Freeze) -> HoldFigures:
    return HoldFigures.taken_from(freeze, stops_deadline=freeze.stops_deadline is True)


async def thaw(hub: TaskHub, body: ThawBody, by: str) -> StartedThaw:
    """Let what waits go in waves.

    Raises:
        NothingHeldError: Nothing is held.
        ThawUnderWayError: A thaw goes on.
    """
    now, freeze = clock.now(), _latest(await _circuits(hub))
    if freeze is None or freeze.ended_at(now) is not None:
        raise NothingHeldError("nothing is held")
    instance_id = instance_id_of(freeze)
    instance = await hub.read_instance(instance_id)
    is_running = instance is not None and instance.runtime_status in _RUNNING
    # The orchestration has a thaw some seconds before the circuits show its first wave.
    has_thaw = instance is not None and "thaw" in instance.input
    if is_running and (has_thaw or freeze.share is not None):
        raise ThawUnderWayError("a thaw goes on already")
    document = Thaw(by, freeze.then(now).at, tuple(body.waves), body.wave_seconds).to_json()
    if is_running:
        try:
            await hub.raise_event(instance_id, THAW_EVENT, document)
        except InstanceEndedError:
            is_running = False
    if not is_running:
        # Somebody terminated the orchestration.
        input_ = {"freeze": freeze.to_json(), "thaw": document}
        if not await hub.start_instance(FREEZE, instance_id, input_, again=True):
            raise ThawUnderWayError("another thaw has begun meanwhile")
    return StartedThaw(since=freeze.since, waves=tuple(body.waves), wave_seconds=body.wave_seconds)


async def hold_document(hub: TaskHub) -> HoldDocument:
    """Return whether operations start, and what would run within the hour."""
    now, freeze = clock.now(), _latest(await _circuits(hub))
    preview = await _preview(hub, now)
    if freeze is None or freeze.ended_at(now) is not None:
        nothing: dict[str, Any] = dict.fromkeys(("reason", "by", "since", "until"))
        return HoldDocument(**nothing, stops_deadline=False, status=HoldState.FREE, preview=preview)
    wave = None if freeze.share is None else await _wave(hub, freeze)
    status = HoldState.HELD if freeze.share is None else HoldState.THAWING
    return HoldDocument(**dict(_figures(freeze)), status=status, wave=wave, preview=preview)


async def _wave(hub: TaskHub, freeze: Freeze) -> HoldWave | None:
    instance = await hub.read_instance(instance_id_of(freeze))
    wave = None if instance is None else (instance.custom_status or {}).get("wave")
    return read_or(lambda: HoldWave.taken_from(Wave.from_json(wave or {})), lambda _: None)


async def _pages(
    hub: TaskHub, position: str | None
) -> AsyncIterator[tuple[list[OrchestrationState], str | None]]:
    """Yield the next pages of instances that call dependencies, each with the position behind it."""
    for _ in range(PAGES_PER_STEP):
        instances, position = await calling_page(hub, position)
        yield instances, position
        if position is None:
            return


async def _preview(hub: TaskHub, now: datetime) -> DuePreview:
    until, due, position = now + _HOUR, list[Due](), None
    async for instances, following in _pages(hub, None):
        position = following
        due += (found for instance in instances if (found := _due(instance, until)) is not None)
    return preview_of(due, until, is_complete=position is None)


def _due(instance: OrchestrationState, until: datetime) -> Due | None:
    """Return an operation that would run by then; None for others, and for those without a status yet."""
    status = json_object(instance.customStatus.value) or {}
    if not instance.instanceId.startswith(ID_PREFIX) or status.get("status") not in WAITING:
        return None

    def read() -> Due | None:
        at = optional_from_rfc3339(status["next_attempt_at"])
        is_held = status["status"] == OperationState.WAITING_CIRCUIT
        return Due(present_name(status["dependency"]), at, is_held) if at is None or at <= until else None

    return read_or(read, lambda _: None)


async def spread_freeze(hub: TaskHub, freeze: Freeze, crowds: Mapping[str, Crowd], thaw: Thaw | None) -> Seen:
    """Send a freeze to the circuits that do not have it, such as that of a new dependency.

    Args:
        crowds: Who waits for which dependency, in a thaw.
        thaw: The one that is under way; None for none.
    """
    now, circuits = clock.now(), await _circuits(hub)
    latest = _latest(circuits)
    if latest is not None and latest.since > freeze.since:
        return Seen(is_latest=False)
    behind = [
        name
        for name, breaker in circuits.items()
        if (freeze.ended_at(now) is None if breaker.freeze is None else breaker.freeze.is_before(freeze))
    ]
    await _send_freeze(hub, freeze, behind, crowds)
    if thaw is None:
        return Seen(told=len(behind))
    for name, breaker in circuits.items():
        keys = await held_keys(hub, dependencies().dependencies[name], breaker)
        for circuit in (breaker, *keys):
            title = name if circuit.limit_key is None else f"{name} for {circuit.limit_key}"
            if (opened := opened_during(circuit, title, thaw.began_at, now)) is not None:
                return Seen(told=len(behind), opened=opened)
    return Seen(told=len(behind))


async def count_waiting(
    hub: TaskHub, freeze: Freeze, now: datetime, position: str | None
) -> tuple[dict[str, Crowd], str | None]:
    """Count the operations on the next pages that wait, by dependency; return where the next step begins."""
    crowds: dict[str, Crowd] = {}
    async for instances, following in _pages(hub, position):
        position = following
        for instance in instances:
            crowd = Crowd(1, freeze.place_of(instance.instanceId))
            crowds = joined(crowds, dict.fromkeys(circuits_waited_for(instance, now), crowd))
    return crowds, position


async def wake_wave(
    hub: TaskHub, freeze: Freeze, crowds: Mapping[str, Crowd], changed_at: datetime, position: str | None
) -> tuple[int, str | None]:
    """Wake what waits on the next pages and may go with a wave; waking one twice is harmless.

    Args:
        changed_at: From when on every worker sees the wave.

    Returns:
        How many were woken, and where the next step begins; None after the last.
    """
    woken, share = 0, freeze.share or 0.0
    async for instances, following in _pages(hub, position):
        position = following
        going: dict[str, list[str]] = {}
        for instance in instances:
            for name in circuits_waited_for(instance, changed_at):
                wave_share = crowds[name].share(share) if name in crowds else share
                # One orchestration sends many events: it is woken, and those that may not go wait again.
                is_operation = instance.instanceId.startswith(ID_PREFIX)
                if not is_operation or freeze.place_of(instance.instanceId) <= wave_share:
                    going.setdefault(name, []).append(instance.instanceId)
        for name, instance_ids in going.items():
            await wake(hub, name, instance_ids, changed_at)
            woken += len(instance_ids)
    return woken, position

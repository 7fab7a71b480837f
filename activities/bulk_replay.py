"""The activities of a bulk replay: listing the next dead letters, and replaying a few of them."""

import asyncio
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import azure.durable_functions as df

from durable_retry import clock
from durable_retry.engine.base.json_forms import optional_to_rfc3339
from durable_retry.engine.base.names import REPLAY_BATCH, REPLAY_PAGE
from durable_retry.engine.base.validation import InvalidInputError
from durable_retry.engine.dead_letters.record import DeadLetterRecord, Status, WrongStatusError
from durable_retry.engine.dead_letters.replay import DeadLetterFilter, ReplayBody
from durable_retry.services.replay import (
    KeyTakenError,
    StillRunningError,
    finish_changes,
    held_until,
    replay_dead_letter,
)
from durable_retry.stores.dead_letters.list import list_dead_letters
from durable_retry.stores.dead_letters.records import (
    ContendedError,
    NoSuchDeadLetterError,
    find_dead_letter,
    find_dead_letters,
)
from durable_retry.stores.outbox import NoSuchEventError

blueprint = df.Blueprint()

_AT_ONCE: Final = 8

_REFUSALS: Final = (
    InvalidInputError,
    KeyTakenError,
    StillRunningError,
    NoSuchEventError,
    ContendedError,
)
"""Errors of one dead letter, which do not stop the others."""


class _Result(StrEnum):
    REPLAYED = "replayed"
    SKIPPED = "skipped"


async def replay_page(request: dict) -> dict:  # type: ignore[type-arg] # the worker refuses parameterised annotations
    """Look up the dead letters to replay next.

    Args:
        request: `filter`, `limit` and `cursor`.

    Returns:
        `ids`, and `cursor`: None at the end.
    """
    wanted = DeadLetterFilter.from_json(request["filter"])
    page = await list_dead_letters(wanted, limit=request["limit"], cursor=request["cursor"])
    return {"ids": [record.id for record in page.records], "cursor": page.cursor}


async def replay_batch(request: dict, hub: str) -> dict:  # type: ignore[type-arg] # as above
    """Replay some dead letters, unless their circuits are open.

    Idempotent: a dead letter names the bulk replay that replayed it, so a repeated run finds what an earlier
    one did, and finishes what that one began.

    Args:
        request: `replay_id`, `ids` and `note`.
        hub: Configuration of the durable client.

    Returns:
        `replayed`, `skipped`, `failures` (`id` and `detail` of each), `left` (ids that have to wait for a
        circuit) and `held_until` (for how long, None when nothing is left).

    Raises:
        TaskHubUnavailableError: The rest could not be started.
    """
    records = await find_dead_letters(request["ids"])
    until = await _held(hub, records)
    free: list[str] = []
    left: list[str] = []
    for dead_letter_id, record in zip(request["ids"], records, strict=True):
        is_held = record is not None and record.status is Status.OPEN and record.dependency in until
        (left if is_held else free).append(dead_letter_id)
    body = ReplayBody() if request["note"] is None else ReplayBody(note=request["note"])
    results = await _all_of(hub, free, body, request["replay_id"])
    return {
        "replayed": results.count(_Result.REPLAYED),
        "skipped": results.count(_Result.SKIPPED),
        "failures": [result for result in results if isinstance(result, dict)],
        "left": left,
        "held_until": optional_to_rfc3339(min(until.values())) if left else None,
    }


async def _held(hub: str, records: Iterable[DeadLetterRecord | None]) -> dict[str, datetime]:
    """Return until when each dependency's circuit holds replays back; the others are left out."""
    names = {record.dependency for record in records if record is not None} - {None}
    found = {name: await held_until(hub, name) for name in sorted(name for name in names if name is not None)}
    return {name: until for name, until in found.items() if until is not None}


async def _all_of(hub: str, ids: Iterable[str], body: ReplayBody, replay_id: str) -> list[Any]:
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(dead_letter_id: str) -> Any:
        async with limit:
            return await _replay(hub, dead_letter_id, body, replay_id)

    return list(await asyncio.gather(*(one(dead_letter_id) for dead_letter_id in ids)))


async def _replay(hub: str, dead_letter_id: str, body: ReplayBody, replay_id: str) -> Any:
    try:
        await replay_dead_letter(hub, dead_letter_id, body, clock.now(), replay_id=replay_id)
    except (NoSuchDeadLetterError, WrongStatusError):
        return await _done_before(hub, dead_letter_id, replay_id)
    except _REFUSALS as error:
        return {"id": dead_letter_id, "detail": str(error) or type(error).__name__}
    return _Result.REPLAYED


async def _done_before(hub: str, dead_letter_id: str, replay_id: str) -> Any:
    """Return the result for a dead letter that is not open: this bulk replay or somebody else replayed it.

    An execution that was cut short may have marked the dead letter and not started its operation. The start
    is made here: `triggers.timers` would make it minutes later, after the bulk replay ended.
    """
    if not await _is_part_of(replay_id, dead_letter_id):
        return _Result.SKIPPED
    await finish_changes(hub, dead_letter_id)
    if not await _is_part_of(replay_id, dead_letter_id):
        return {"id": dead_letter_id, "detail": "it could not be started and is open again"}
    return _Result.REPLAYED


async def _is_part_of(replay_id: str, dead_letter_id: str) -> bool:
    record = await find_dead_letter(dead_letter_id)
    return record is not None and any(replay.replay_id == replay_id for replay in record.replays)


blueprint.activity_trigger(input_name="request", activity=REPLAY_PAGE)(replay_page)
blueprint.activity_trigger(input_name="request", activity=REPLAY_BATCH)(
    blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)(
        replay_batch
    )
)

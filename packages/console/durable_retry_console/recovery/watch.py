"""Following outages: each minute the circuits of dependencies that have a `recovery` are looked at.

Table `Upkeep`: PK `recovery`   RK <name of the dependency>   `outages`, by limit key, "" for its own circuit

The bulk action has an id that follows from the outage, so that two workers, or one after a crash, start it
once. It proves itself, waits while the circuit is open, and is cancelled as any other.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from durable_retry.base.answers import read_or
from durable_retry.base.text import time_text
from durable_retry.base.validation import Problem
from durable_retry.circuit.entity import CircuitEntity
from durable_retry.features.dead_letter_lists.pages import count_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.breaker import Breaker
from durable_retry.rules.circuit.key_changes import NO_KEY_CHANGES
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.dead_letters.record import Status
from durable_retry.rules.facts import PersonActed, TargetType
from durable_retry.runtime.concurrency import map_bounded, raise_first, settle_all
from durable_retry.settings.configuration import dependencies
from durable_retry.storage import tables
from durable_retry.storage.rounds import TABLE
from durable_retry.telemetry.facts import report
from durable_retry_console.bulk.actions import start_bulk_action
from durable_retry_console.bulk.bodies import BulkActionBody, BulkFilter
from durable_retry_console.bulk.replay import AT_MOST, RECOVERY
from durable_retry_console.keys import Recovery, recovery_of
from durable_retry_console.recovery.rules import Outage, Outages, seen_outage

_PARTITION: Final = "recovery"
_AT_ONCE: Final = 8
_MOST_KEYS: Final = 100
"""Limit keys that are looked at, and fit a property of a row."""


def problems_of(dependency: Dependency) -> Iterator[Problem]:
    """List what is wrong with the recovery of a dependency where the app runs."""
    if recovery_of(dependency) is not None and not dependency.circuit.enabled:
        yield Problem("/recovery", "follows the circuit, which is switched off")


async def follow_outages(hub: TaskHub, now: datetime) -> None:
    """Begin the bulk actions that are to follow outages by now."""

    async def follow(dependency: Dependency) -> None:
        if (recovery := recovery_of(dependency)) is not None:
            await _follow(hub, dependency, recovery, now)

    raise_first((await settle_all(follow, dependencies().dependencies.values(), _AT_ONCE))[1])


async def _follow(hub: TaskHub, dependency: Dependency, recovery: Recovery, now: datetime) -> None:
    breaker, unreadable = await CircuitEntity(hub, dependency.name).readable()
    if unreadable is not None:
        return
    known, outages = await _read_outages(dependency.name), dict[str, Outages]()
    for limit_key, circuit in {
        "": breaker,
        **await _circuits_of_keys(hub, dependency, breaker, known),
    }.items():
        outages[limit_key], outage = seen_outage(
            known.get(limit_key), circuit, dependency.circuit.window_seconds, recovery, now
        )
        if outage is not None:
            await _replay_letters(hub, dependency.name, limit_key, outage, recovery, now)
    if outages != known:
        row = {"PartitionKey": _PARTITION, "RowKey": dependency.name}
        text = json.dumps({limit_key: each.to_json() for limit_key, each in outages.items()})
        await tables.merge(TABLE, row | {"outages": text})


async def _circuits_of_keys(
    hub: TaskHub, dependency: Dependency, breaker: Breaker, known: Mapping[str, Outages]
) -> dict[str, Breaker]:
    """Return the circuits of limit keys that changed lately, or whose outage goes on as far as is known."""
    if not dependency.circuit.is_by_key:
        return {}
    changed = (*(breaker.keys or ()), *(breaker.key_changes or NO_KEY_CHANGES).latest)
    going_on = (limit_key for limit_key, each in known.items() if limit_key and each.began_at is not None)
    limit_keys = list(dict.fromkeys((*changed, *going_on)))[:_MOST_KEYS]
    read = await map_bounded(
        lambda limit_key: CircuitEntity(hub, dependency.name, limit_key).readable(), limit_keys, _AT_ONCE
    )
    # One that was forgotten, or that nobody can read, is that of no key.
    return {key: each for key, (each, _) in zip(limit_keys, read, strict=True) if each.limit_key is not None}


async def _read_outages(dependency: str) -> dict[str, Outages]:
    row = await tables.read(TABLE, _PARTITION, dependency)
    if row is None:
        return {}
    return read_or(
        lambda: {key: Outages.from_json(each) for key, each in json.loads(row["outages"]).items()},
        lambda _: {},
    )


async def _replay_letters(  # noqa: PLR0917 - which outage, and what follows it
    hub: TaskHub, dependency: str, limit_key: str, outage: Outage, recovery: Recovery, now: datetime
) -> None:
    action_id, of_key = outage.action_id(dependency, limit_key), limit_key or None
    wanted = DeadLetterFilter(
        status=Status.OPEN,
        dependency=dependency,
        limit_key=of_key,
        reasons=tuple(recovery.replay),
        created_after=outage.began_at,
        created_before=now,
    )
    matched = await count_dead_letters(wanted)
    if matched == 0 or await hub.read_instance(action_id) is not None:
        return
    since, until = time_text(outage.began_at), time_text(outage.ended_at)
    name = f"{dependency} for {limit_key}" if limit_key else dependency
    note = f"the circuit of {name} closed at {until}: its dead letters since {since}"
    of_outage = BulkFilter(dependency=dependency, limit_key=of_key)
    body, own = BulkActionBody(action="replay", filter=of_outage, note=note), {AT_MOST: recovery.at_most}
    # The list has it under its instant, which two workers must give alike.
    due_at = outage.ended_at + timedelta(seconds=recovery.after_closed_seconds)
    await start_bulk_action(
        hub, body, wanted, matched=matched, now=due_at, by=RECOVERY, action_id=action_id, more=own
    )
    report(
        PersonActed(
            who=RECOVERY,
            what="began to replay the dead letters of an outage",
            target=TargetType.BULK_ACTION,
            target_id=action_id,
            reason=note,
            dependency=dependency,
        )
    )

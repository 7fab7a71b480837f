"""What people do with root causes: look at them, acknowledge, note, resolve.

What they did is in rows of the table that lists dead letters, `DeadLetterIndex`: PK `cause`   RK <group>
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from durable_retry.base.answers import Page
from durable_retry.base.json_forms import microseconds
from durable_retry.dead_letters.actions import shown_letter
from durable_retry.dead_letters.index import TABLE
from durable_retry.dead_letters.records import find_dead_letter, find_dead_letters
from durable_retry.features.dead_letter_lists.counts import Tally, count_group, open_counts
from durable_retry.features.dead_letter_lists.pages import list_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.runtime import clock
from durable_retry.storage import contents, tables
from durable_retry_console.causes.shapes import (
    Cause,
    CauseDocument,
    CauseStatus,
    DeadLetterGroup,
    DeadLetterSample,
    LargestGroups,
    OtherGroups,
)
from durable_retry_console.limit_keys import LimitKeyCounts

_PARTITION: Final = "cause"


class NoSuchCauseError(Exception):
    """No dead letter has this root cause."""


type GroupPosition = tuple[int, int, str]
"""The place of a cause in their order: its count, negative; since when, in microseconds; its name."""


async def list_groups(
    limit: int, after: GroupPosition | None = None, status: CauseStatus | None = None
) -> Page[DeadLetterGroup]:
    """Return the root causes of open dead letters: the one with the most first, of equals the oldest.

    Args:
        after: The last group of the page before; None to begin.
        status: Only causes with this status; None for all.
    """
    counts, causes = await asyncio.gather(open_counts(), _read_causes())
    tallies = {
        group: tally
        for group, tally in counts.of_kind("group").items()
        if status in (None, causes.get(group, Cause(group=group)).status(tally.latest_at))
    }
    left = [position for position in _ordered(tallies) if after is None or position > after]
    shown, rest = left[:limit], left[limit:]
    following = "{}|{}|{}".format(-shown[-1][0], *shown[-1][1:]) if rest else None
    groups = await _groups({group: tallies[group] for *_, group in shown}, causes)
    return Page[DeadLetterGroup](items=groups, next_cursor=following)


async def largest_groups(limit: int) -> LargestGroups:
    """Return the root causes with the most open dead letters, and how much the others have."""
    counts, causes = await asyncio.gather(open_counts(), _read_causes())
    tallies = counts.of_kind("group")
    positions = _ordered(tallies)
    others = positions[limit:]
    return LargestGroups(
        groups=await _groups({group: tallies[group] for *_, group in positions[:limit]}, causes),
        others=OtherGroups(causes=len(others), open=-sum(count for count, *_ in others)),
    )


def _ordered(tallies: Mapping[str, Tally]) -> list[GroupPosition]:
    return sorted((-tally.count, microseconds(tally.first_at), group) for group, tally in tallies.items())


async def find_cause(group: str) -> CauseDocument:
    """Return a root cause with its latest dead letter, also one without open ones."""
    existing = await _existing_group(group)
    latest = await find_dead_letter(existing.sample.id)
    return CauseDocument(**dict(existing), latest=None if latest is None else shown_letter(latest))


async def change(
    group: str,
    by: str | None,
    note: str | None,
    rule: Callable[[Cause, datetime, str | None], Cause] | None = None,
) -> DeadLetterGroup:
    """Say what somebody did about a cause, with a note or by one alone, and return it.

    Args:
        rule: Takes the cause, the present and who it was.
    """
    existing, now = await _existing_group(group), clock.now()

    def changed(cause: Cause) -> Cause:
        cause = cause if rule is None else rule(cause, now, by)
        return cause if note is None else cause.noted(note, now, by)

    return existing.with_cause(await change_cause(group, changed))


async def _existing_group(group: str) -> DeadLetterGroup:
    """Return a group, also one without open dead letters: then with the latest of those that are closed."""
    tally = await count_group(group)
    if tally is None:
        page = await list_dead_letters(DeadLetterFilter(group=group), limit=1, cursor=None)
        if not page.records:
            raise NoSuchCauseError(group)
        (closed,) = page.records
        tally = Tally(0, closed.created_at, closed.created_at, closed.id)
    groups = await _groups({group: tally}, await _read_causes())
    if not groups:
        raise NoSuchCauseError(group)
    return groups[0]


async def _groups(tallies: Mapping[str, Tally], causes: Mapping[str, Cause]) -> tuple[DeadLetterGroup, ...]:
    samples = await find_dead_letters(tally.latest_id for tally in tallies.values())
    return tuple(
        DeadLetterGroup(
            group=group,
            count=tally.count,
            first_seen_at=tally.first_at,
            last_seen_at=tally.latest_at,
            sample=DeadLetterSample.of(sample),
            limit_keys=LimitKeyCounts.of(tally.limit_keys),
        ).with_cause(causes.get(group))
        for (group, tally), sample in zip(tallies.items(), samples, strict=True)
        if sample is not None
    )


async def _read_causes() -> dict[str, Cause]:
    """Return what people did about causes, by group."""
    page = await tables.rows_between(TABLE, _PARTITION)
    return {cause.group: cause for cause in contents.readable(TABLE, page.rows, _cause_of_row)}


async def change_cause(group: str, rule: Callable[[Cause], Cause]) -> Cause:
    """Change what is known of a cause by a rule, and return it."""
    keys = {"PartitionKey": _PARTITION, "RowKey": group}
    return await tables.change_row(
        TABLE,
        keys,
        lambda cause: rule(cause or Cause(group=group)),
        read=_cause_of_row,
        write=lambda cause: contents.packed("cause", json.dumps(cause.to_json())),
    )


def _cause_of_row(row: tables.Row) -> Cause:
    return Cause.from_json_text(contents.unpacked("cause", row))

"""What people do with root causes: look at them, acknowledge, note, resolve.

What they did is in rows of the table that lists dead letters, `DeadLetterIndex`: PK `cause`   RK <group>
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from durable_retry.base.answers import Page
from durable_retry.base.json_forms import oldest_first
from durable_retry.dead_letters.actions import shown_letter
from durable_retry.dead_letters.index import TABLE
from durable_retry.dead_letters.records import find_dead_letter, find_dead_letters
from durable_retry.features.dead_letter_lists.counts import (
    MOST_COUNTED,
    OpenCounts,
    Tally,
    count_group,
    open_counts,
)
from durable_retry.features.dead_letter_lists.pages import list_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.rules.dead_letters.record import KeptDeadLetter
from durable_retry.runtime import clock
from durable_retry.storage import contents, tables
from durable_retry_console.causes.shapes import (
    Cause,
    CauseDocument,
    CauseStatus,
    DeadLetterGroup,
    LargestGroups,
    OtherGroups,
)

_PARTITION: Final = "cause"


class NoSuchCauseError(Exception):
    """No dead letter has this root cause."""


async def list_groups(
    limit: int, cursor: str | None = None, status: CauseStatus | None = None
) -> Page[DeadLetterGroup]:
    """Return the root causes of open dead letters: the one with the most first, of equals the oldest.

    Args:
        status: Only causes with this status; None for all.
    """
    counts, causes = await asyncio.gather(open_counts(), _read_causes())
    left = [
        (position, group, tally)
        for position, group, tally in _ordered(counts)
        if position > (cursor or "")
        and status in (None, causes.get(group, Cause(group=group)).status(tally.latest_at))
    ]
    following = left[limit - 1][0] if len(left) > limit else None
    return Page[DeadLetterGroup](items=await _groups(left[:limit], causes), next_cursor=following)


async def largest_groups(limit: int) -> LargestGroups:
    """Return the root causes with the most open dead letters, and how much the others have."""
    counts, causes = await asyncio.gather(open_counts(), _read_causes())
    ordered = _ordered(counts)
    others = ordered[limit:]
    return LargestGroups(
        groups=await _groups(ordered[:limit], causes),
        others=OtherGroups(causes=len(others), open=sum(tally.count for *_, tally in others)),
    )


def _ordered(counts: OpenCounts) -> list[tuple[str, str, Tally]]:
    """Return the groups in their order, each behind its place, which sorts as a text."""
    return sorted(
        (f"{MOST_COUNTED - tally.count:05d}|{oldest_first(tally.first_at)}|{group}", group, tally)
        for group, tally in counts.of_kind("group").items()
    )


async def find_cause(group: str) -> CauseDocument:
    """Return a root cause with its latest dead letter, also one without open ones."""
    tally, latest = await _existing(group)
    cause = (await _read_causes()).get(group, Cause(group=group))
    shown = DeadLetterGroup.of(cause, tally, latest)
    return CauseDocument(**dict(shown), latest=shown_letter(latest))


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
    (tally, latest), now = await _existing(group), clock.now()

    def changed(cause: Cause) -> Cause:
        cause = cause if rule is None else rule(cause, now, by)
        return cause if note is None else cause.noted(note, now, by)

    return DeadLetterGroup.of(await change_cause(group, changed), tally, latest)


async def _existing(group: str) -> tuple[Tally, KeptDeadLetter]:
    """Return a group with its latest dead letter: of the open ones, or else of those that are closed."""
    tally = await count_group(group)
    if tally is None:
        page = await list_dead_letters(DeadLetterFilter(group=group), limit=1, cursor=None)
        for closed in page.records:
            return Tally(0, closed.created_at, closed.created_at, closed.id), closed
    elif (latest := await find_dead_letter(tally.latest_id)) is not None:
        return tally, latest
    raise NoSuchCauseError(group)


async def _groups(
    ordered: Sequence[tuple[str, str, Tally]], causes: Mapping[str, Cause]
) -> tuple[DeadLetterGroup, ...]:
    samples = await find_dead_letters(tally.latest_id for *_, tally in ordered)
    return tuple(
        DeadLetterGroup.of(causes.get(group, Cause(group=group)), tally, sample)
        for (_, group, tally), sample in zip(ordered, samples, strict=True)
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

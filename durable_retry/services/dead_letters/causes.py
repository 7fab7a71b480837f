"""What people do about a root cause: look at it, acknowledge, assign and resolve it, write a note."""

import asyncio
from collections.abc import Callable

from durable_retry import clock
from durable_retry.engine.base.answers import Page
from durable_retry.engine.dead_letters.cause import Cause, CauseStatus
from durable_retry.engine.dead_letters.document import CauseDocument
from durable_retry.engine.dead_letters.filters import DeadLetterFilter
from durable_retry.engine.dead_letters.numbers import DeadLetterGroup
from durable_retry.errors import NoSuchCauseError
from durable_retry.services.dead_letters.records import list_letters
from durable_retry.stores.dead_letters.causes import change_cause, read_causes
from durable_retry.stores.dead_letters.index import find_group, read_groups


async def list_groups(
    limit: int, after: tuple[int, str] | None = None, status: CauseStatus | None = None
) -> Page[DeadLetterGroup]:
    """Return the root causes of open dead letters, the one with the most of them first.

    Args:
        after: The count, negative, and the name of the last group of the page before; None to begin.
        status: Only causes with this status; None for all.
    """
    groups = sorted(await _groups_with_causes(), key=_position_of_group)
    groups = [group for group in groups if status in (None, group.status)]
    left = [group for group in groups if after is None or _position_of_group(group) > after]
    shown, rest = left[:limit], left[limit:]
    following = f"{shown[-1].count}|{shown[-1].group}" if rest else None
    return Page[DeadLetterGroup](items=tuple(shown), next_cursor=following)


async def latest_groups(limit: int) -> list[DeadLetterGroup]:
    """Return the root causes of open dead letters, the one that was last seen first."""
    return (await _groups_with_causes())[:limit]


async def find_cause(group: str) -> CauseDocument:
    """Return a root cause with its latest dead letter, also one without open ones.

    Raises:
        NoSuchCauseError: No dead letter ever had it.
    """
    found, causes, letters = await asyncio.gather(
        find_group(group), read_causes(), list_letters(DeadLetterFilter(group=group), limit=1)
    )
    if found is None:
        raise NoSuchCauseError(group)
    shown = found.with_cause(causes.get(group))
    return CauseDocument(**dict(shown), latest=next(iter(letters.items), None))


async def change(group: str, rule: Callable[[Cause], Cause]) -> DeadLetterGroup:
    """Change what people did about a cause, and return it.

    Raises:
        NoSuchCauseError: No dead letter ever had it.
        FullError: It takes no more notes.
        ContendedError: Others are changing it at this moment.
    """
    found = await find_group(group)
    if found is None:
        raise NoSuchCauseError(group)
    return found.with_cause(await change_cause(group, rule))


async def acknowledge(group: str, by: str | None, note: str | None = None) -> DeadLetterGroup:
    """Say that somebody looks into a cause; errors as `change`."""
    now = clock.now()
    return await change(group, lambda cause: _noted(cause.acknowledged(now, by), note, by))


async def assign(group: str, to: str | None, by: str | None, note: str | None = None) -> DeadLetterGroup:
    """Say who looks into a cause, None for nobody; errors as `change`."""
    return await change(group, lambda cause: _noted(cause.assigned(to), note, by))


async def resolve(group: str, by: str | None, note: str | None = None) -> DeadLetterGroup:
    """Say that a cause is mended; errors as `change`."""
    now = clock.now()
    return await change(group, lambda cause: _noted(cause.resolved(now, by), note, by))


async def annotate_cause(group: str, text: str, by: str | None) -> DeadLetterGroup:
    """Add a note to a cause; errors as `change`."""
    return await change(group, lambda cause: _noted(cause, text, by))


def _noted(cause: Cause, note: str | None, by: str | None) -> Cause:
    return cause if note is None else cause.noted(note, clock.now(), by)


async def _groups_with_causes() -> list[DeadLetterGroup]:
    groups, causes = await asyncio.gather(read_groups(), read_causes())
    return [group.with_cause(causes.get(group.group)) for group in groups]


def _position_of_group(group: DeadLetterGroup) -> tuple[int, str]:
    return -group.count, group.group

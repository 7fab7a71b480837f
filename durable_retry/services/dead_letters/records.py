"""What people do with dead letters and their root causes: look at them, archive, restore, note, resolve."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from durable_retry import clock
from durable_retry.deferred import imported
from durable_retry.engine.base.answers import LimitKeyCounts, Page, read_or
from durable_retry.engine.base.errors import NoSuchCauseError, NoSuchDeadLetterError
from durable_retry.engine.base.json_forms import microseconds, to_rfc3339
from durable_retry.engine.base.masking import MASKED
from durable_retry.engine.base.names import OperationState
from durable_retry.engine.dead_letters.document import (
    Cause,
    CauseDocument,
    CauseStatus,
    DeadLetterDocument,
    DeadLetterGroup,
    DeadLetterSample,
    DeadLetterSummary,
    LargestGroups,
    OtherGroups,
)
from durable_retry.engine.dead_letters.filters import EVERY, DeadLetterFilter, DeadLetterSearch
from durable_retry.engine.dead_letters.record import (
    KeptDeadLetter,
    archived,
    noted,
    restored,
    unreadable_record,
)
from durable_retry.engine.operations.status import OperationReplay
from durable_retry.plugins import features_of
from durable_retry.settings.configuration import masking_of
from durable_retry.stores.dead_letters.index import (
    Tally,
    change_cause,
    count_group,
    open_counts,
    read_causes,
    read_summary,
)
from durable_retry.stores.dead_letters.list import count_dead_letters, list_dead_letters
from durable_retry.stores.dead_letters.records import (
    change_dead_letter,
    find_dead_letter,
    find_dead_letters,
    move_dead_letter,
)
from durable_retry.stores.task_hub import TaskHub

_MOST_SHOWN: Final = 20


async def find_letter(dead_letter_id: str) -> DeadLetterDocument:
    """Return a dead letter as people see it."""
    record = await find_dead_letter(dead_letter_id)
    if record is None:
        raise NoSuchDeadLetterError(dead_letter_id)
    return shown_letter(record)


async def list_letters(
    filter_: DeadLetterFilter,
    *,
    limit: int,
    cursor: str | None = None,
    search: DeadLetterSearch = EVERY,
) -> Page[DeadLetterDocument]:
    """Return dead letters that match, the newest first."""
    page = await list_dead_letters(filter_, limit=limit, cursor=cursor, search=search)
    return Page[DeadLetterDocument](items=tuple(map(shown_letter, page.records)), next_cursor=page.cursor)


async def count_letters(filter_: DeadLetterFilter) -> int:
    """Count dead letters that match, however many there are."""
    return await count_dead_letters(filter_)


async def summarize() -> DeadLetterSummary:
    """Return open dead letters in numbers."""
    return await read_summary(clock.now())


async def archive(hub: TaskHub, dead_letter_id: str, by: str | None) -> DeadLetterDocument:
    """Put a dead letter away, and let those behind it go on; `by` is None when nobody said who asks."""
    now = clock.now()
    letter = await move_dead_letter(dead_letter_id, lambda record: archived(record, now, by))
    for feature in features_of((letter.operation or {}).get("parts")):
        if feature.archived:
            await imported(feature.archived)(hub, letter)
    return shown_letter(letter)


async def restore(dead_letter_id: str) -> DeadLetterDocument:
    """Bring an archived dead letter back; errors as `archive`."""
    return shown_letter(await move_dead_letter(dead_letter_id, restored))


async def annotate(dead_letter_id: str, text: str, by: str | None) -> DeadLetterDocument:
    """Add a note to a dead letter; errors as `archive`, or `FullError` when it has no room for one more."""
    now = clock.now()
    return shown_letter(await change_dead_letter(dead_letter_id, lambda record: noted(record, text, now, by)))


def shown_letter(record: KeptDeadLetter) -> DeadLetterDocument:
    """Return a dead letter as people see it, with what stands for it where nobody can read it."""

    def unreadable(why: str) -> DeadLetterDocument:
        at = to_rfc3339(record.created_at)
        stand_in = unreadable_record(
            record.id, why, status=record.status, reason=record.reason, created_at=at
        )
        return DeadLetterDocument.of(stand_in, MASKED)

    return read_or(lambda: DeadLetterDocument.of(record, masking_of(record.dependency)), unreadable)


async def replays_of(document: Mapping[str, Any]) -> list[OperationReplay]:
    """Return the replays of an operation's dead letters, the latest first, of the latest `_MOST_SHOWN`.

    Each dead letter names the one whose replay it ended, so one row is read for each.

    Args:
        document: Its status document; of one whose history was purged only the last dead letter is known.
    """
    dead_letter_id = (document["dead_letter"] or {}).get("id") or document.get("replay_of")
    replays: list[OperationReplay] = []
    for _ in range(_MOST_SHOWN):
        record = None if dead_letter_id is None else await find_dead_letter(dead_letter_id)
        if record is None:
            break
        for replay in reversed(record.replays):
            # The latest replay has the operation's present status.
            status = None if replays else OperationState(document["status"])
            shown = OperationReplay.taken_from(
                replay,
                dead_letter_id=record.id,
                reason=record.reason,
                status=status if replay.dead_letter_id is None else OperationState.DEAD_LETTERED,
                failed_again=replay.dead_letter_id,
            )
            replays.append(shown)
        dead_letter_id = record.replay_of
    return replays


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
    counts, causes = await asyncio.gather(open_counts(), read_causes())
    tallies = {
        group: tally
        for group, tally in counts.of_kind("group").items()
        if status in (None, causes.get(group, Cause(group=group)).status(tally.latest_at))
    }
    left = [position for position in _ordered(tallies) if after is None or position > after]
    shown, rest = left[:limit], left[limit:]
    following = "{}|{}|{}".format(-shown[-1][0], *shown[-1][1:]) if rest else None
    return Page[DeadLetterGroup](items=await _groups_at(shown, tallies, causes), next_cursor=following)


async def largest_groups(limit: int) -> LargestGroups:
    """Return the root causes with the most open dead letters, and how much the others have."""
    counts, causes = await asyncio.gather(open_counts(), read_causes())
    tallies = counts.of_kind("group")
    positions = _ordered(tallies)
    others = positions[limit:]
    return LargestGroups(
        groups=await _groups_at(positions[:limit], tallies, causes),
        others=OtherGroups(causes=len(others), open=-sum(count for count, *_ in others)),
    )


def _ordered(tallies: Mapping[str, Tally]) -> list[GroupPosition]:
    return sorted((-tally.count, microseconds(tally.first_at), group) for group, tally in tallies.items())


async def _groups_at(
    positions: Iterable[GroupPosition], tallies: Mapping[str, Tally], causes: Mapping[str, Cause]
) -> tuple[DeadLetterGroup, ...]:
    return await _groups({group: tallies[group] for *_, group in positions}, causes)


async def find_cause(group: str) -> CauseDocument:
    """Return a root cause with its latest dead letter, also one without open ones."""
    existing = await _existing_group(group)
    latest = await find_dead_letter(existing.sample.id)
    return CauseDocument(**dict(existing), latest=None if latest is None else shown_letter(latest))


async def change(group: str, rule: Callable[[Cause], Cause]) -> DeadLetterGroup:
    """Change what people did about a cause, and return it."""
    existing = await _existing_group(group)
    return existing.with_cause(await change_cause(group, rule))


async def acknowledge(group: str, by: str | None, note: str | None = None) -> DeadLetterGroup:
    """Say that somebody looks into a cause; errors as `change`."""
    now = clock.now()
    return await change(group, lambda cause: _noted(cause.acknowledged(now, by), note, by))


async def resolve(group: str, by: str | None, note: str | None = None) -> DeadLetterGroup:
    """Say that a cause is mended; errors as `change`."""
    now = clock.now()
    return await change(group, lambda cause: _noted(cause.resolved(now, by), note, by))


async def annotate_cause(group: str, text: str, by: str | None) -> DeadLetterGroup:
    """Add a note to a cause; errors as `change`."""
    return await change(group, lambda cause: _noted(cause, text, by))


def _noted(cause: Cause, note: str | None, by: str | None) -> Cause:
    return cause if note is None else cause.noted(note, clock.now(), by)


async def _existing_group(group: str) -> DeadLetterGroup:
    """Return a group, also one without open dead letters: then with the latest of those that are closed."""
    tally = await count_group(group)
    if tally is None:
        page = await list_dead_letters(DeadLetterFilter(group=group), limit=1, cursor=None)
        if not page.records:
            raise NoSuchCauseError(group)
        (closed,) = page.records
        tally = Tally(0, closed.created_at, closed.created_at, closed.id)
    groups = await _groups({group: tally}, await read_causes())
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

"""HTTP: the root causes of dead letters; acknowledge, note, resolve one."""

from functools import partial
from typing import Final

from pydantic import Field

from durable_retry.base.answers import Page
from durable_retry.base.validation import Strict, with_example
from durable_retry.dead_letters.routes import NoteBody, changed, refused_changes
from durable_retry.http.answers import NotFoundError
from durable_retry.http.callers import Caller
from durable_retry.http.parameters import LIMIT, one_of, row_cursor
from durable_retry.http.routes import Query, Routes
from durable_retry.rules.dead_letters.record import NoteText
from durable_retry.rules.facts import TargetType
from durable_retry_console.causes.groups import NoSuchCauseError, change, find_cause, list_groups
from durable_retry_console.causes.shapes import Cause, CauseDocument, CauseStatus, DeadLetterGroup

routes = Routes(
    "dead letters",
    {NoSuchCauseError: lambda _: NotFoundError("cause of this name"), **refused_changes("cause")},
)

CAUSE_STATUS: Final = one_of("status", CauseStatus, "Only causes with this status.")
GROUP_CURSOR: Final = row_cursor(r"[0-9]{5}\|[0-9]{17}\|g-[0-9a-f]{16}")


@routes.get("dead-letters/groups", parameters=(CAUSE_STATUS, LIMIT, GROUP_CURSOR))
async def get_dead_letter_groups(query: Query) -> Page[DeadLetterGroup]:
    """List the root causes of open dead letters: the one with the most first, of equals the oldest.

    A cause whose count changes between two pages may be on both of them, or on none.
    """
    return await list_groups(query[LIMIT], query[GROUP_CURSOR], query[CAUSE_STATUS])


_changed: Final = partial(changed, target=TargetType.CAUSE, model=DeadLetterGroup)


class CauseBody(Strict):
    """The body of a change of a cause; it may be left out."""

    model_config = with_example(note="The vendor changed the field's name.")

    note: NoteText | None = Field(default=None, description="Why, for whoever looks later.")


@routes.get("dead-letters/groups/{group}")
async def get_dead_letter_group(group: str) -> CauseDocument:
    """Show a cause, also one without open dead letters, with its latest dead letter."""
    return await find_cause(group)


@routes.post("dead-letters/groups/{group}/acknowledge", **_changed("acknowledged", CauseBody))
async def acknowledge_cause(group: str, body: CauseBody, who: Caller) -> DeadLetterGroup:
    """Say that somebody looks into a cause."""
    return await change(group, who.known_name, body.note, Cause.acknowledged)


@routes.post("dead-letters/groups/{group}/resolve", **_changed("resolved", CauseBody))
async def resolve_cause(group: str, body: CauseBody, who: Caller) -> DeadLetterGroup:
    """Say that a cause is mended; its open dead letters stay open.

    A dead letter that is made later shows that it came back.
    """
    return await change(group, who.known_name, body.note, Cause.resolved)


@routes.post(
    "dead-letters/groups/{group}/notes", **_changed("noted something on", NoteBody, body_required=True)
)
async def note_cause(group: str, body: NoteBody, who: Caller) -> DeadLetterGroup:
    """Add a note to a cause."""
    return await change(group, who.known_name, body.words)

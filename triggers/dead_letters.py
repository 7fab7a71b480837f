"""HTTP: see dead letters, in lists, groups and numbers, and one by one."""

import re
from datetime import datetime
from typing import Any, Final

import azure.functions as func

from engine.dead_letter import Status
from engine.dead_letter_filter import Filter
from engine.instants import from_rfc3339, optional_to_rfc3339, to_rfc3339
from engine.problem import InvalidInputError, Problem
from engine.vocabulary import Category, DeadLetterReason
from stores import clock
from stores.dead_letter_list import list_dead_letters
from stores.dead_letter_tally import Group, Waiting, read_groups, read_summary
from stores.dead_letters import find_dead_letter
from triggers.http_blueprint import HttpBlueprint
from triggers.problems import json_answer, not_found
from triggers.queries import Query

blueprint = HttpBlueprint()

WITHOUT_DEPENDENCY: Final = "(none)"
"""Stands for a dependency where a message names none that is known."""

_REASONS: Final = frozenset(reason.value for reason in DeadLetterReason)
_CATEGORIES: Final = frozenset(category.value for category in Category)
_STATUSES: Final = frozenset(status.value for status in Status)
_CURSOR: Final = re.compile(r"[0-9]{17}dl-[0-9a-f]{32}")
_GROUP_CURSOR: Final = re.compile(r"(.{20,32})\|(g-[0-9a-f]{16})")


@blueprint.route(route="dead-letters", methods=["GET"])
async def get_dead_letters(req: func.HttpRequest) -> func.HttpResponse:
    """List dead letters, filtered, the newest first, a page at a time."""
    query = Query(req.params)
    wanted = _filter(query)
    limit, cursor = query.limit(), query.text("cursor")
    query.check()
    if cursor is not None and not _CURSOR.fullmatch(cursor):
        raise _bad_cursor()
    page = await list_dead_letters(wanted, limit=limit, cursor=cursor)
    return json_answer({"items": [record.shown() for record in page.records], "next_cursor": page.cursor})


@blueprint.route(route="dead-letters/groups", methods=["GET"])
async def get_dead_letter_groups(req: func.HttpRequest) -> func.HttpResponse:
    """List the root causes of open dead letters, the one seen last first."""
    query = Query(req.params)
    limit, cursor = query.limit(), query.text("cursor")
    query.check()
    after = None if cursor is None else _group_position(cursor)
    groups = [group for group in await read_groups() if after is None or _position(group) < after]
    page = groups[:limit]
    following = _cursor_of(page[-1]) if len(groups) > limit else None
    return json_answer({"items": [_shown_group(group) for group in page], "next_cursor": following})


@blueprint.route(route="dead-letters/summary", methods=["GET"])
async def get_dead_letter_summary(req: func.HttpRequest) -> func.HttpResponse:  # noqa: ARG001 - the trigger's own
    """Show how many dead letters are open and how old the oldest is."""
    summary, now = await read_summary(), clock.now()
    by_dependency = {
        name or WITHOUT_DEPENDENCY: _shown_waiting(waiting, now)
        for name, waiting in summary.by_dependency.items()
    }
    by_reason = {name: _shown_waiting(waiting, now) for name, waiting in summary.by_reason.items()}
    document = _shown_waiting(summary.total, now)
    return json_answer({**document, "by_reason": by_reason, "by_dependency": by_dependency})


@blueprint.route(route="dead-letters/{dead_letter_id}", methods=["GET"])
async def get_dead_letter(req: func.HttpRequest) -> func.HttpResponse:
    """Show one dead letter."""
    record = await find_dead_letter(req.route_params["dead_letter_id"])
    return not_found("dead letter of this id") if record is None else json_answer(record.shown())


def _filter(query: Query) -> Filter:
    status = query.one_of("status", _STATUSES)
    return Filter(
        status=Status(status) if status in _STATUSES else None,
        reason=query.one_of("reason", _REASONS),
        category=query.one_of("category", _CATEGORIES),
        dependency=_dependency(query.text("dependency")),
        group=query.text("group"),
        created_after=query.instant("created_after"),
        created_before=query.instant("created_before"),
    )


def _dependency(name: str | None) -> str | None:
    return "" if name == WITHOUT_DEPENDENCY else name


def _shown_waiting(waiting: Waiting, now: datetime) -> dict[str, Any]:
    oldest_at = waiting.oldest_at
    age_seconds = None if oldest_at is None else max(0.0, (now - oldest_at).total_seconds())
    return {
        "open": waiting.count,
        "oldest_at": optional_to_rfc3339(oldest_at),
        "oldest_age_seconds": age_seconds,
    }


def _shown_group(group: Group) -> dict[str, Any]:
    return {
        "group": group.group,
        "count": group.count,
        "first_seen_at": to_rfc3339(group.first_seen_at),
        "last_seen_at": to_rfc3339(group.last_seen_at),
        "sample": dict(group.sample),
    }


def _position(group: Group) -> tuple[datetime, str]:
    return group.last_seen_at, group.group


def _cursor_of(group: Group) -> str:
    return f"{to_rfc3339(group.last_seen_at)}|{group.group}"


def _group_position(cursor: str) -> tuple[datetime, str]:
    found = _GROUP_CURSOR.fullmatch(cursor)
    try:
        if found is not None:
            return from_rfc3339(found[1]), found[2]
    except ValueError:
        pass
    raise _bad_cursor()


def _bad_cursor() -> InvalidInputError:
    return InvalidInputError([Problem("/cursor", "this cursor was not given out here")])

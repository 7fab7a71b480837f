"""Bulk actions: archive or replay many dead letters; cancel, retry now, pause or resume many operations.

The last functions also show bulk replays, whose documents have the same form.
"""

import json
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from retryctl import errors, watching
from retryctl.api import Api
from retryctl.documents import given_options, pause_options, replay_options
from retryctl.errors import UsageError
from retryctl.layout import cell, cells, state, table
from retryctl.screen import Screen, bar, span

_PATH: Final = "bulk-actions"
_FINISHED: Final = frozenset({"completed", "cancelled", "failed"})

ENDS: Final = ("succeeded", "failed_again", "under_way", "refused")
ENDS_HEADERS: Final = ("SUCCEEDED", "FAILED AGAIN", "UNDER WAY", "REFUSED")
"""How what was started has ended; the first three are null where an older version started it."""

ACTIONS: Final = ("replay", "archive", "cancel", "retry-now", "pause", "resume")
FILTERS: Final = ("reason", "category", "dependency", "group", "created_after", "created_before")
"""Options that choose dead letters."""


def start(api: Api, args: Namespace, screen: Screen) -> int:
    """Start a bulk action on what matches the filters, the given ids or a batch; `--dry-run` only counts.

    Raises:
        UsageError: Not exactly one of filters, ids, `--batch` and `--all` is given.
    """
    # The reason of a pause is why it is made; elsewhere dead letters are chosen by theirs.
    names = FILTERS[1:] if args.action == "pause" else FILTERS
    filter_ = given_options(args, "status", *names)
    if sum((bool(filter_), bool(args.ids), args.batch is not None, args.all)) != 1:
        raise UsageError("give filters, or ids, or --batch, or --all")
    body: dict[str, Any] = {"action": args.action.replace("-", "_"), "dry_run": args.dry_run}
    selected = {"ids": args.ids or None, "batch_id": args.batch}
    body |= {name: value for name, value in selected.items() if value} or {"filter": filter_}
    if args.rate is not None:
        body["rate_per_second"] = args.rate
    body |= replay_options(args) | _pause_options(args)
    document = api.post(_PATH, body=body)
    if args.dry_run:
        least = "" if document["complete"] else "at least "
        count = f"{args.action} would meet {least}{document['matched']}"
        screen.show(document, "\n".join([count, *preview_lines(document)]))
        return errors.OK
    if args.watch:
        return follow_progress(api, (_PATH, document["action_id"]), screen, _text)
    screen.show(document, f"{document['action_id']}  {args.action} of {document['matched']}")
    return errors.OK


def _pause_options(args: Namespace) -> dict[str, Any]:
    if args.action == "pause":
        return pause_options(args)
    if args.for_seconds is not None or args.stop_deadline:
        raise UsageError("--for-seconds and --stop-deadline are of a pause")
    return {}


def list_actions(api: Api, args: Namespace, screen: Screen) -> int:
    """List bulk actions, newest first."""
    document = api.pages(_PATH, limit=args.limit)
    names = ("action_id", "action", "status", "matched", *ENDS, "remaining", "created_at", "by")
    rows = [cells(each, *names) for each in document["items"]]
    headers = ("ID", "ACTION", "STATUS", "MATCHED", *ENDS_HEADERS, "REMAINING", "CREATED", "BY")
    screen.show_list(document, "action_id", table(headers, rows))
    return errors.OK


def show(api: Api, args: Namespace, screen: Screen) -> int:
    """Show the progress of a bulk action."""
    document = api.get(_PATH, args.id)
    screen.show(document, _text(document))
    return errors.OK


def watch(api: Api, args: Namespace, screen: Screen) -> int:
    """Follow a bulk action until it ends."""
    return follow_progress(api, (_PATH, args.id), screen, _text)


def cancel(api: Api, args: Namespace, screen: Screen) -> int:
    """Cancel a bulk action."""
    document = api.call("DELETE", _PATH, args.id)
    screen.show(document, f"{document['action_id']}  cancel requested; what was done stays done")
    return errors.OK


def items(api: Api, args: Namespace, screen: Screen) -> int:
    """List the items of a bulk action with their outcomes, the latest first."""
    return show_items(api, (_PATH, args.id, "items"), args.limit, screen)


def show_items(api: Api, path: tuple[str, ...], limit: int, screen: Screen) -> int:
    """List the items of a bulk action or a bulk replay, with the outcome of each.

    Args:
        api: Has the list.
        path: Segments of the list's path.
        limit: Most items.
        screen: Shows the list.
    """
    document = api.pages(*path, limit=limit)
    rows = [
        [
            *cells(each, "id", "outcome"),
            each["event_id"] or each["operation_id"],
            *cells(each, "status", "failed_again", "at", "detail"),
        ]
        for each in document["items"]
    ]
    headers = ("ID", "OUTCOME", "OPERATION", "NOW", "FAILED AGAIN AS", "AT", "WHY")
    screen.show_list(document, "id", table(headers, rows))
    return errors.OK


def preview_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a change would do to the first ones, or why it does not fit; nothing without a change."""
    for each in document.get("preview", ()):
        yield each["id"]
        yield from (f"  {change_text(change)}" for change in each["changes"])
        yield from (
            f"  refused {error['pointer'] or '/'}: {cell(error['detail'])}" for error in each["errors"]
        )
        if not (each["changes"] or each["errors"]):
            yield "  nothing changes"


def change_text(change: Mapping[str, Any]) -> str:
    """Return what an edit changed at one place."""
    before, after = (
        json.dumps(change[side]) if side in change else "nothing" for side in ("before", "after")
    )
    return f"{change['pointer']}: {before} to {after}"


def follow_progress(
    api: Api, path: tuple[str, ...], screen: Screen, text: Callable[[Mapping[str, Any]], str]
) -> int:
    """Follow a bulk action or a bulk replay until it ends.

    Args:
        api: Has its document.
        path: Segments of the document's path.
        screen: Shows a progress bar, and the document at the end.
        text: Makes the text of the document.

    Returns:
        `OK` when all was done and nothing failed, or failed again.
    """
    document: dict[str, Any] = {}
    for document in watching.follow(lambda: api.get(*path), _FINISHED, screen, _progress):
        screen.show_change(document, text(document) if document["status"] in _FINISHED else "")
    has_failed = document["failed"] or document["failed_again"]
    is_complete = document["status"] == "completed" and not has_failed
    return errors.OK if is_complete else errors.FAILED


def _progress(document: Mapping[str, Any]) -> str:
    done = document["matched"] - document["remaining"]
    line = f"{bar(done, document['matched'])}  {done} of {document['matched']}  {document['status']}"
    if document["under_way"]:
        line += f", {document['under_way']} under way"
    if document["waiting_until"] is None:
        return line
    return f"{line}, looks again in {span(round(watching.seconds_until(document['waiting_until']), 1))}"


def counts_text(document: Mapping[str, Any], head: str, done: str) -> str:
    """Return the counts and the failures of a bulk action or a bulk replay.

    Args:
        document: Its document.
        head: Begins the first line.
        done: Key of the count of finished items.
    """
    names = ("matched", done, *ENDS[:-1], "skipped", "failed", "remaining")
    known = [name for name in names if document[name] is not None]
    counts = ", ".join(f"{document[name]} {name.replace('_', ' ')}" for name in known)
    failures = [f"  {each['id']}: {cell(each['detail'])}" for each in document["failures"]]
    return "\n".join([f"{head}: {counts}", *failures])


def _text(document: Mapping[str, Any]) -> str:
    return counts_text(
        document, f"{document['action_id']}  {document['action']} {state(document['status'])}", "done"
    )

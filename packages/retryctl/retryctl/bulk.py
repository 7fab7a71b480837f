"""Bulk actions: archive or replay many dead letters; cancel, retry now, pause or resume many operations.

Bulk replays are listed, shown and followed by the same commands: their documents have the same form.
"""

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from retryctl import errors, watching
from retryctl.api import Api
from retryctl.documents import given_options, pause_options, replay_options
from retryctl.errors import UsageError
from retryctl.layout import cell, cells, state, table
from retryctl.options import TURN_NAMES
from retryctl.screen import Screen, bar, span

_FINISHED: Final = frozenset({"completed", "cancelled", "failed"})

_ENDS: Final = ("succeeded", "failed_again", "under_way", "refused")
"""How what was started has ended; the first three are null where an older version started it."""

ACTIONS: Final = ("replay", "archive", "cancel", "retry-now", "pause", "resume")
FILTERS: Final = (
    *("reason", "category", "dependency", "group", *TURN_NAMES),
    *("created_after", "created_before"),
)
"""Options that choose dead letters."""


@dataclass(frozen=True, slots=True)
class BulkCommands:
    """The commands about bulk actions that were started, or about bulk replays.

    Attributes:
        path: Segments of the list's path.
        id_name: Member with the id.
        done: Member with the count of items that are done; the word for it.
        columns: Members that a list shows, in capitals but for the id.
    """

    path: tuple[str, ...]
    id_name: str
    done: str
    columns: tuple[str, ...]

    def list(self, api: Api, args: Namespace, screen: Screen) -> int:
        """List them, newest first."""
        document = api.pages(*self.path, limit=args.limit)
        rows = [cells(each, self.id_name, *self.columns) for each in document["items"]]
        names = (_HEADERS.get(name, name.upper().replace("_", " ")) for name in (self.id_name, *self.columns))
        screen.show_list(document, self.id_name, table(tuple(names), rows))
        return errors.OK

    def show(self, api: Api, args: Namespace, screen: Screen) -> int:
        """Show the progress of one."""
        document = api.get(*self.path, args.id)
        screen.show(document, self._text(document))
        return errors.OK

    def watch(self, api: Api, args: Namespace, screen: Screen) -> int:
        """Follow one until it ends."""
        return self.follow(api, args.id, screen)

    def cancel(self, api: Api, args: Namespace, screen: Screen) -> int:
        """Cancel one."""
        document = api.call("DELETE", *self.path, args.id)
        stays = f"what was {self.done} stays {self.done}"
        screen.show(document, f"{document[self.id_name]}  cancel requested; {stays}")
        return errors.OK

    def items(self, api: Api, args: Namespace, screen: Screen) -> int:
        """List its items with the outcome of each, the latest first."""
        document = api.pages(*self.path, args.id, "items", limit=args.limit)
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

    def follow(self, api: Api, id_: str, screen: Screen) -> int:
        """Follow one until it ends; `OK` when all was done and nothing failed, or failed again."""
        document: dict[str, Any] = {}
        for document in watching.follow(lambda: api.get(*self.path, id_), _FINISHED, screen, _progress):
            screen.show_change(document, self._text(document) if document["status"] in _FINISHED else "")
        has_failed = document["failed"] or document["failed_again"]
        is_complete = document["status"] == "completed" and not has_failed
        return errors.OK if is_complete else errors.FAILED

    def _text(self, document: Mapping[str, Any]) -> str:
        names = ("matched", self.done, *_ENDS[:-1], "skipped", "failed", "remaining")
        known = [name for name in names if document[name] is not None]
        counts = ", ".join(f"{document[name]} {name.replace('_', ' ')}" for name in known)
        failures = [f"  {each['id']}: {cell(each['detail'])}" for each in document["failures"]]
        action = f"{document['action']} " if "action" in document else ""
        head = f"{document[self.id_name]}  {action}{state(document['status'])}: {counts}"
        return "\n".join([head, *failures])


_HEADERS: Final = {"action_id": "ID", "replay_id": "REPLAY", "created_at": "CREATED"}

STARTED: Final = BulkCommands(
    ("bulk-actions",),
    "action_id",
    "done",
    ("action", "status", "matched", *_ENDS, "remaining", "created_at", "by"),
)
REPLAYS: Final = BulkCommands(
    ("dead-letters", "replays"),
    "replay_id",
    "replayed",
    ("status", "matched", *_ENDS, "remaining", "created_at", "by", "note"),
)


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
    document = api.post(*STARTED.path, body=body)
    if args.dry_run:
        least = "" if document["complete"] else "at least "
        count = f"{args.action} would meet {least}{document['matched']}"
        screen.show(document, "\n".join([count, *preview_lines(document)]))
        return errors.OK
    if args.watch:
        return STARTED.follow(api, document["action_id"], screen)
    screen.show(document, f"{document['action_id']}  {args.action} of {document['matched']}")
    return errors.OK


def _pause_options(args: Namespace) -> dict[str, Any]:
    if args.action == "pause":
        return pause_options(args)
    if args.for_seconds is not None or args.stop_deadline:
        raise UsageError("--for-seconds and --stop-deadline are of a pause")
    return {}


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


def _progress(document: Mapping[str, Any]) -> str:
    done = document["matched"] - document["remaining"]
    line = f"{bar(done, document['matched'])}  {done} of {document['matched']}  {document['status']}"
    if document["under_way"]:
        line += f", {document['under_way']} under way"
    if document["waiting_until"] is None:
        return line
    return f"{line}, looks again in {span(round(watching.seconds_until(document['waiting_until']), 1))}"

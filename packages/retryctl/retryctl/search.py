"""The search over operations, dead letters, events, batches, sagas and replays."""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any, Final

from retryctl import errors, watching
from retryctl.api import MOST_PAGES, Api
from retryctl.documents import given_options
from retryctl.layout import cells, table
from retryctl.operations import operation_text
from retryctl.options import EXACT_IDS, TURN_NAMES
from retryctl.screen import Screen, span

_FILTERS: Final = (
    *("type", "status", "dependency", "handler", "source", *EXACT_IDS, *TURN_NAMES),
    *("created_after", "created_before"),
)


def find(api: Api, args: Namespace, screen: Screen) -> int:
    """Find what matches words or filters, and show the state of each and the reason for it."""
    pages = None if args.limit is None else MOST_PAGES
    query = given_options(args, *_FILTERS)
    found = api.pages("search", limit=args.limit, most_pages=pages, q=" ".join(args.words) or None, **query)
    items = found["items"]
    screen.show(found, _text(api, items))
    if found["next_cursor"]:
        screen.note("there may be more, and older: --all looks at everything")
    return errors.OK if items else errors.FAILED


def _text(api: Api, items: list[dict[str, Any]]) -> str:
    parts = []
    operations = [each for each in items if each["type"] == "operation"]
    if len(operations) == 1:
        (only,) = operations
        parts.append(f"{operation_text(api.get('operations', only['id']))}\n{_why(only)}")
    if items != operations or len(items) > 1:
        rows = [
            (*cells(each, "type", "id", "status"), each["key"] or each["name"], _why(each)) for each in items
        ]
        parts.append(table(("TYPE", "ID", "STATUS", "KEY", "WHY"), rows))
    letters = [each for each in items if each["type"] == "dead_letter"]
    if [each["status"] for each in letters] == ["open"]:
        parts.append(f"to run it again: retryctl dead-letters replay {letters[0]['id']}")
    return "\n\n".join(parts) or "nothing found"


def _why(item: Mapping[str, Any]) -> str:
    """Return one line: the state of what was found, and the next attempt or the error."""
    if item["next_attempt_at"] is not None:
        left = span(round(max(0.0, watching.seconds_until(item["next_attempt_at"])), 1))
        last = f": {item['error']}" if item["error"] else ""
        return f"{item['status'].replace('_', ' ')}, next attempt in {left}{last}"
    if item["error"]:
        return str(item["error"])
    if item["type"] == "operation" and item["status"] == "succeeded":
        return f"succeeded at attempt {item['attempt_count']}"
    return str(item["status"]).replace("_", " ")

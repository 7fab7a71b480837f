"""The command `find`: operations and dead letters by key, correlation id, id, or a word of their error."""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any, Final

from retryctl import errors, watching
from retryctl.api import Api
from retryctl.dead_letters import dead_letter_table
from retryctl.operations import operation_text
from retryctl.screen import Screen, span, table

_MOST_PAGES: Final = 10
"""A search of a task hub looks at 10,000 operations per page, and pages may be empty."""


def find(api: Api, args: Namespace, screen: Screen) -> int:
    """Find operations and dead letters, and say why each is where it is."""
    words = " ".join(args.words)
    pages = None if args.limit is None else _MOST_PAGES
    operations, dead_letters = (
        api.pages(path, limit=args.limit, most_pages=pages, q=words)
        for path in ("operations", "dead-letters")
    )
    found = operations["items"], dead_letters["items"]
    screen.show({"operations": operations, "dead_letters": dead_letters}, _text(*found))
    if operations["next_cursor"] or dead_letters["next_cursor"]:
        screen.note("there may be more, and older: --all looks at everything")
    return errors.OK if any(found) else errors.FAILED


def _text(operations: list[dict[str, Any]], dead_letters: list[dict[str, Any]]) -> str:
    parts = []
    if len(operations) == 1:
        parts.append(f"{operation_text(operations[0])}\n{why(operations[0])}")
    elif operations:
        rows = [
            (each["operation_id"], each["status"], each["attempt_count"], each["key"], why(each))
            for each in operations
        ]
        parts.append(table(("OPERATION", "STATUS", "ATTEMPTS", "KEY", "WHY"), rows))
    if dead_letters:
        parts.append(dead_letter_table(dead_letters))
    is_one = [each["status"] for each in dead_letters] == ["open"]
    if is_one:
        parts.append(f"to run it again: retryctl dead-letters replay {dead_letters[0]['id']}")
    return "\n\n".join(parts) or "nothing found"


def why(operation: Mapping[str, Any]) -> str:
    """Return in one line why an operation is where it is."""
    errors_ = [each["error"] for each in operation["attempts"] if each["error"]]
    last = f": {errors_[-1]}" if errors_ else ""
    dead_letter = operation["dead_letter"]
    if dead_letter is not None:
        return f"{dead_letter['reason']}: {dead_letter.get('detail') or last.removeprefix(': ')}"
    status = operation["status"].replace("_", " ")
    if operation["next_attempt_at"] is not None:
        left = span(round(max(0.0, watching.seconds_until(operation["next_attempt_at"])), 1))
        return f"{status}, next attempt in {left}{last}"
    if operation["status"] == "succeeded":
        return f"succeeded at attempt {operation['attempt_count']}"
    return f"{status}{last}"

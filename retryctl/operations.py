"""Commands about operations: submit, get, watch, list, cancel, retry-now."""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any, Final

from retryctl import clock, exit_codes
from retryctl.api import Api
from retryctl.documents import operation_body, read_document
from retryctl.screen import Screen
from retryctl.tables import cell, facts, span, table, until
from retryctl.watching import follow

FINISHED: Final = frozenset({"succeeded", "dead_lettered", "cancelled"})


def submit(api: Api, args: Namespace, screen: Screen) -> int:
    """Hand an operation in; with `--watch` stay until it ends."""
    body = read_document(args.file) if args.file else operation_body(args)
    headers = {"Prefer": f"wait={args.wait}"} if args.wait else None
    document = api.post("operations", body=body, headers=headers)
    if args.watch:
        return _watch(api, document["operation_id"], screen)
    is_whole = "attempts" in document
    text = operation_text(document) if is_whole else f"{document['operation_id']}  {document['status']}"
    screen.show(document, text)
    return ending_code(document["status"]) if is_whole else exit_codes.OK


def get(api: Api, args: Namespace, screen: Screen) -> int:
    """Show an operation."""
    document = api.get("operations", args.id)
    screen.show(document, operation_text(document))
    return exit_codes.OK


def watch(api: Api, args: Namespace, screen: Screen) -> int:
    """Follow an operation to its end."""
    return _watch(api, args.id, screen)


def list_all(api: Api, args: Namespace, screen: Screen) -> int:
    """List operations."""
    document = api.pages(
        "operations",
        limit=args.limit,
        status=args.status,
        dependency=args.dependency,
        created_after=args.created_after,
    )
    rows = [
        (each["operation_id"], each["status"], each["dependency"], each["attempt_count"], each["key"])
        for each in document["items"]
    ]
    screen.listed(
        document, "operation_id", table(("OPERATION", "STATUS", "DEPENDENCY", "ATTEMPTS", "KEY"), rows)
    )
    return exit_codes.OK


def cancel(api: Api, args: Namespace, screen: Screen) -> int:
    """Cancel an operation."""
    document = api.post("operations", args.id, "cancel")
    screen.show(document, f"{document['operation_id']}  told to cancel")
    return exit_codes.OK


def retry_now(api: Api, args: Namespace, screen: Screen) -> int:
    """End an operation's present wait."""
    document = api.post("operations", args.id, "retry-now")
    screen.show(document, f"{document['operation_id']}  told to go on")
    return exit_codes.OK


def ending_code(status: str) -> int:
    """Return the exit code for how something stands: only what ended otherwise than well is bad."""
    return exit_codes.BADLY if status in {"dead_lettered", "cancelled"} else exit_codes.OK


def operation_text(document: Mapping[str, Any]) -> str:
    """Tell an operation: what it is, each attempt, how it ended."""
    lines = [
        facts(
            (
                ("operation", document["operation_id"]),
                ("status", document["status"]),
                ("key", cell(document["key"])),
                ("dependency", document["dependency"]),
                ("correlation", _said(document["correlation_id"])),
                ("deadline", document["deadline_at"]),
                ("next attempt", document["next_attempt_at"]),
            )
        ),
        *(attempt_text(attempt) for attempt in document["attempts"]),
    ]
    return "\n".join([*lines, *_ending_lines(document)])


def attempt_text(attempt: Mapping[str, Any]) -> str:
    """Tell one attempt in a line, and the reasons of the wait that follows in another."""
    what = attempt["category"] or "success"
    told = [f"attempt {attempt['number']}", str(attempt["status_code"] or "no answer")]
    line = "  ".join([*told, span(attempt["duration_ms"] / 1000), what])
    if attempt["error"]:
        line += f": {cell(attempt['error'])}"
    if attempt["next_delay_seconds"] is None:
        return line
    reasons = ", ".join(cell(reason) for reason in attempt["delay_reasons"])
    return f"{line}\n  waits {span(attempt['next_delay_seconds'])} ({reasons})"


def _ending_lines(document: Mapping[str, Any]) -> list[str]:
    lines = []
    if (dead_letter := document["dead_letter"]) is not None:
        lines.append(f"dead letter {dead_letter['id']}  {dead_letter['category']}, {dead_letter['reason']}")
    lines += [
        f"event {event['event_id']}  {cell(event['type'])}  {event['state']}" for event in document["events"]
    ]
    return lines


def _watch(api: Api, operation_id: str, screen: Screen) -> int:
    """Write each attempt as it ends, and between them the countdown to the next."""
    told = _Told()
    for document in follow(lambda: api.get("operations", operation_id), FINISHED, screen, waiting_text):
        screen.change(document, told.news(document))
    return ending_code(document["status"])


class _Told:
    """What was already written of an operation."""

    def __init__(self) -> None:
        self._attempts = 0
        self._status = ""

    def news(self, document: Mapping[str, Any]) -> str:
        """Return lines for what is new."""
        fresh = [each for each in document["attempts"] if each["number"] > self._attempts]
        lines = [attempt_text(attempt) for attempt in fresh]
        if document["status"] != self._status:
            lines.append(f"{document['operation_id']}  {document['status']}")
        if document["status"] in FINISHED:
            lines += _ending_lines(document)
        self._attempts, self._status = document["attempt_count"], document["status"]
        return "\n".join(lines)


def waiting_text(document: Mapping[str, Any]) -> str:
    """Return the line that stands while an operation is not finished: what comes next, when, and why."""
    at = document["next_attempt_at"]
    if at is None:
        return f"{document['status']}: attempt {document['attempt_count'] + 1}"
    left = span(round(until(at, clock.now()), 1))
    return f"{document['status']}: attempt {document['attempt_count'] + 1} in {left} ({_why(document)})"


def _why(document: Mapping[str, Any]) -> str:
    waits = document.get("waits", [])
    holds_up = waits and waits[-1]["before_attempt"] > document["attempt_count"]
    latest = waits[-1] if holds_up else document["attempts"][-1]
    return ", ".join(cell(reason) for reason in latest["delay_reasons"])


def _said(text: str | None) -> str | None:
    return None if text is None else cell(text)

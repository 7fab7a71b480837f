"""Commands about operations."""

import json
import os
from argparse import Namespace
from collections.abc import Mapping
from typing import Any, Final

from retryctl import errors, watching
from retryctl.api import Api
from retryctl.documents import (
    given_options,
    parse_json,
    parse_pair,
    pause_options,
    read_document,
    retry_table,
)
from retryctl.errors import UsageError
from retryctl.layout import cell, cells, facts, instant, state, table
from retryctl.options import EXACT_IDS, TURN_NAMES
from retryctl.screen import Screen, span

FINISHED: Final = frozenset({"succeeded", "dead_lettered", "cancelled"})

_FILTERS: Final = (
    *("status", "dependency", "handler", "source", *EXACT_IDS, *TURN_NAMES, "q"),
    *("created_after", "created_before"),
)
_OPTIONS: Final = (
    *("correlation_id", "deadline_seconds", "start_at", "delay_seconds", "order_key", "order_on_failure"),
    *("priority", "debounce_key", "debounce_seconds", "debounce_max_seconds"),
)


def submit(api: Api, args: Namespace, screen: Screen) -> int:
    """Submit an operation; with `--watch` follow it until it ends."""
    body = _body_of(args)
    body["key"] = _key_of(body, args.key) or generated_key(screen)
    headers = {"Prefer": f"wait={args.wait}"} if args.wait else None
    document = api.post("operations", body=body, headers=headers)
    if args.watch:
        return _watch(api, document["operation_id"], screen)
    is_status = "attempts" in document
    text = (
        operation_text(document) if is_status else f"{document['operation_id']}  {state(document['status'])}"
    )
    screen.show(document, text)
    return _exit_code(document["status"]) if is_status else errors.OK


def get(api: Api, args: Namespace, screen: Screen) -> int:
    """Show an operation."""
    document = api.get("operations", args.id)
    screen.show(document, operation_text(document))
    return errors.OK


def watch(api: Api, args: Namespace, screen: Screen) -> int:
    """Follow an operation until it ends."""
    return _watch(api, args.id, screen)


def list_operations(api: Api, args: Namespace, screen: Screen) -> int:
    """List operations, newest first."""
    document = api.pages("operations", limit=args.limit, **given_options(args, *_FILTERS))
    rows = [
        cells(each, "operation_id", "status", "dependency", "attempt_count", "key")
        for each in document["items"]
    ]
    headers = ("OPERATION", "STATUS", "DEPENDENCY", "ATTEMPTS", "KEY")
    screen.show_list(document, "operation_id", table(headers, rows))
    return errors.OK


def act(api: Api, args: Namespace, screen: Screen) -> int:
    """Cancel an operation, end its present wait, pause it or let it go on."""
    body = pause_options(args) if args.action == "pause" else None
    document = api.post("operations", args.id, args.action, body=body)
    screen.show(document, f"{document['operation_id']}  {args.action.removesuffix('-now')} requested")
    return errors.OK


def operation_text(document: Mapping[str, Any]) -> str:
    """Return the lines that describe an operation, its attempts, its steps and its end."""
    head = facts(
        (
            ("operation", document["operation_id"]),
            ("status", state(document["status"])),
            ("key", cell(document["key"])),
            ("dependency", document["dependency"]),
            ("correlation", _cell_or_none(document["correlation_id"])),
            ("submitted by", _cell_or_none(document.get("submitted_by"))),
            ("deadline", instant(document["deadline_at"])),
            ("next attempt", instant(document["next_attempt_at"])),
            ("priority", document.get("priority")),
            ("debounce key", _cell_or_none(document.get("debounce_key"))),
            ("replaced by", document.get("replaced_by")),
        )
    )
    steps = map(_step_text, document.get("steps", ()))
    manual = [
        *map(_action_text, document.get("actions", ())),
        *map(_replay_text, document.get("replays", ())),
    ]
    attempts = map(attempt_text, document["attempts"])
    return "\n".join([head, *attempts, *steps, *manual, *_end_lines(document)])


def _cell_or_none(text: str | None) -> str | None:
    return None if text is None else cell(text)


def _action_text(action: Mapping[str, Any]) -> str:
    """Return one line for a manual action on an operation."""
    by = "" if action["by"] is None else f" by {cell(action['by'])}"
    reason = f": {cell(action['reason'])}" if action.get("reason") else ""
    return f"{action['action']}  {instant(action['at'])}{by}{reason}"


def _replay_text(replay: Mapping[str, Any]) -> str:
    """Return one line for a replay of one of its dead letters."""
    by = "" if replay["by"] is None else f" by {cell(replay['by'])}"
    status = state(replay["status"] or "not known")
    return f"replay of {replay['dead_letter_id']}  {instant(replay['requested_at'])}{by}: {status}"


def _step_text(step: Mapping[str, Any]) -> str:
    """Return one line for a remembered step of a handler."""
    line = f"step {cell(step['name'])}  {state(step['status'])}  attempts: {step['attempts']}"
    return line if step["result"] is None else f"{line}  {cell(json.dumps(step['result']))}"


def attempt_text(attempt: Mapping[str, Any]) -> str:
    """Return one line for an attempt, and one for the wait after it with its reasons."""
    category = attempt["category"] or "success"
    status = str(attempt["status_code"] or "no answer")
    line = "  ".join((f"attempt {attempt['number']}", status, span(attempt["duration_ms"] / 1000), category))
    if attempt["error"]:
        line += f": {cell(attempt['error'])}"
    if attempt["next_delay_seconds"] is None:
        return line
    return f"{line}\n  waits {span(attempt['next_delay_seconds'])} ({_reasons(attempt)})"


def _body_of(args: Namespace) -> dict[str, Any]:
    """Return the operation in the file, or the one that the options describe.

    Raises:
        UsageError: There is neither, or both.
    """
    if args.file:
        if args.dependency or args.handler:
            raise UsageError("give a file, or --dependency, or --handler")
        document = read_document(args.file)
        if not isinstance(document, dict):
            raise UsageError(f"{args.file}: must be a JSON object")
        return document
    if (args.dependency is None) == (args.handler is None):
        raise UsageError("give a file, or --dependency with --method and --path, or --handler with --input")
    if args.handler is not None:
        body: dict[str, Any] = {"handler": args.handler, "input": parse_json(args.input, "--input")}
    else:
        body = {"dependency": args.dependency, "request": _request(args)}
    retry = retry_table(args.retry)
    return body | given_options(args, *_OPTIONS) | ({"retry": retry} if retry else {})


def _request(args: Namespace) -> dict[str, Any]:
    request: dict[str, Any] = {
        "method": args.method,
        "path": args.path,
        "query": dict(parse_pair(text, "=", "--query") for text in args.query),
        "headers": dict(parse_pair(text, ":", "--header") for text in args.header),
    }
    if args.body is not None:
        request["json"] = parse_json(args.body, "--body")
    return request


def generated_key(screen: Screen) -> str:
    """Make a key and show it before anything is sent: if no answer comes, only this key repeats safely."""
    key = f"cli-{os.urandom(16).hex()}"
    screen.note(f"no --key given, so one was made; to repeat this submission, add --key {key}")
    return key


def _key_of(body: Mapping[str, Any], given: str | None) -> str | None:
    """Return the key that the body or `--key` gives; None when neither does.

    Raises:
        UsageError: Both give one, and they differ.
    """
    key: str | None = body.get("key")
    if key is not None and given not in (None, key):
        raise UsageError(f"the file's key is {key!r}, --key is {given!r}")
    return given if key is None else key


def _exit_code(status: str) -> int:
    return errors.FAILED if status in {"dead_lettered", "cancelled"} else errors.OK


def _end_lines(document: Mapping[str, Any]) -> list[str]:
    lines = []
    if (dead_letter := document["dead_letter"]) is not None:
        lines.append(f"dead letter {dead_letter['id']}  {dead_letter['category']}, {dead_letter['reason']}")
    lines += [
        f"event {event['event_id']}  {cell(event['type'])}  {state(event['state'])}"
        for event in document["events"]
    ]
    return lines


def _watch(api: Api, operation_id: str, screen: Screen) -> int:
    """Write each attempt when it ends; the live line counts down to the next."""
    progress = _Progress()
    document: dict[str, Any] = {}
    for document in watching.follow(
        lambda: api.get("operations", operation_id), FINISHED, screen, _waiting_text
    ):
        screen.show_change(document, progress.advance(document))
    return _exit_code(document["status"])


class _Progress:
    """The attempts and the status that were already written."""

    def __init__(self) -> None:
        self._attempts = 0
        self._status = ""

    def advance(self, document: Mapping[str, Any]) -> str:
        """Return the lines that are new in a document."""
        lines = [attempt_text(each) for each in document["attempts"] if each["number"] > self._attempts]
        if document["status"] != self._status:
            lines.append(f"{document['operation_id']}  {state(document['status'])}")
        if document["status"] in FINISHED:
            lines += _end_lines(document)
        self._attempts, self._status = document["attempt_count"], document["status"]
        return "\n".join(lines)


def _waiting_text(document: Mapping[str, Any]) -> str:
    """Return the live line: the next attempt, the time until it, and why it waits."""
    text = f"{document['status']}: attempt {document['attempt_count'] + 1}"
    if document["next_attempt_at"] is None:
        return text
    left = span(round(watching.seconds_until(document["next_attempt_at"]), 1))
    return f"{text} in {left} ({_reasons(_present_wait(document))})"


def _present_wait(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the wait that is going on: an entry of `waits`, or the last attempt's delay."""
    waits = document.get("waits", [])
    is_waiting = waits and waits[-1]["before_attempt"] > document["attempt_count"]
    found: Mapping[str, Any] = waits[-1] if is_waiting else document["attempts"][-1]
    return found


def _reasons(wait: Mapping[str, Any]) -> str:
    return ", ".join(map(cell, wait["delay_reasons"]))

"""Commands about operations, and the search over everything."""

import json
import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from rich.text import Text

from retryctl import clock, errors
from retryctl.api import Api
from retryctl.commands import Ask, Command, Given, Listing, Watch
from retryctl.errors import UsageError
from retryctl.options import read_document
from retryctl.output import Lines, Rows, Screen, facts, fill, filled, said, spaced

_FINISHED: Final = frozenset({"succeeded", "dead_lettered", "cancelled"})
_REQUEST: Final = ("method", "path", "query", "headers", "json")
"""Options that describe a request."""

_HEAD: Final = (
    "operation_id status key dependency correlation_id submitted_by deadline_at next_attempt_at "
    "priority limit_key debounce_key replaced_by"
)
_ATTEMPT: Final = (
    "attempt {number}[ at {dependency}][  {status_code}]  {duration_ms}  {category:success}[: {error}]"
)
ATTEMPT: Final = f"{_ATTEMPT}[\n  waits {{next_delay_seconds}} ({{delay_reasons}})]"
"""An attempt, and the wait after it."""


def operation_view(document: Any) -> Lines:
    """Yield an operation, its attempts and waits, its steps, what people did, and its end."""
    yield facts(document, _HEAD)
    lines = [(one["started_at"], fill(_ATTEMPT, one)) for one in document["attempts"]]
    lines += [(one["began_at"], _wait_line(document, one)) for one in document.get("waits", ())]
    yield from (line for _, line in sorted(lines, key=lambda line: datetime.fromisoformat(line[0])))
    yield from filled("step {name}  {status}  attempts: {attempts}[  {result}]", document.get("steps", ()))
    acts = "{action}  {at}[ by {by}][: {reason}][  {before} to {after}]"
    yield from filled(acts, document.get("actions", ()))
    replays = "replay of {dead_letter_id}  {requested_at}[ by {by}]: {status:not known}"
    yield from filled(replays, document.get("replays", ()))
    yield from _end(document)


_WAITS: Final = {
    "circuit": " for the circuit",
    "freeze": " for a thaw",
    "throttle": " for the end of a pause",
    "retry_budget": " for the retry budget",
    "limit": " for a slot",
    "order": " for its turn",
    "start": " to begin",
    "pause": " for somebody to resume it",
}


def _wait_line(document: Mapping[str, Any], wait: Mapping[str, Any]) -> Text:
    """Return one line for a wait: how long, what for, and why; of the present one, when it ends."""
    what = _WAITS.get(wait["kind"], "")
    if wait is document["waits"][-1] and document["status"] in _WAITING:
        return fill(f"  waits{what}: {{delay_reasons}}[; {{next}}]", {**wait, "next": next_text(document)})
    ends = [wait["until"]]
    # Somebody may have ended the wait before its time.
    ends += [one["started_at"] for one in document["attempts"] if one["number"] == wait["before_attempt"]]
    length = min(map(datetime.fromisoformat, ends)) - datetime.fromisoformat(wait["began_at"])
    return fill(f"  waited {{seconds}}{what}: {{delay_reasons}}", {**wait, "seconds": length.total_seconds()})


_WAITING: Final = frozenset(
    {"waiting_retry", "waiting_throttle", "waiting_circuit", "waiting_order", "scheduled", "paused"}
)


def next_text(found: Mapping[str, Any]) -> str | None:
    """Return when what waits goes on, `next probe in 18 s`; None where nobody can say."""
    if found["next_attempt_at"] is None:
        return None
    what = "next probe" if found["status"] == "waiting_circuit" else "next attempt"
    if [wait["kind"] for wait in found.get("waits", ())][-1:] == ["freeze"]:
        what = "asks again"  # nothing is probed while everything is held
    return f"{what} in {clock.left(found['next_attempt_at'])}"


def _end(document: Any) -> Lines:
    if document["dead_letter"] is not None:
        yield fill("dead letter {id}  {category}, {reason}", document["dead_letter"])
    if document["status"] == "succeeded" and document["result"]:
        yield _result(document["result"])
    yield from filled("event {event_id}  {type}  {state}", document["events"])


def _result(result: Mapping[str, Any]) -> Text:
    """Return what a success brought: a handler's value, or status and body of an answer."""
    if "value" in result:
        return Text(f"result {json.dumps(result['value'])}")
    body = json.dumps(result["json"]) if "json" in result else result.get("body", "")
    return Text(f"result {result['status_code']}  {body}".rstrip())


def _live(document: Any) -> str:
    """Return the next attempt, the time until it, and why it waits."""
    number = document["attempt_count"] + 1
    if document["next_attempt_at"] is None:
        return f"{document['status']}: attempt {number}"
    # What begins later has no entry in `waits`.
    waits = [wait for wait in document.get("waits", ()) if wait["before_attempt"] >= number]
    made = {
        "number": number,
        "left": clock.left(document["next_attempt_at"]),
        "wait": (waits or [None])[-1],
    }
    return fill("{status}: attempt {number} in {left}[ ({wait.delay_reasons})]", document | made).plain


def _change(before: Any, document: Any) -> Lines:
    """Yield the attempts and the status that are new, and the end."""
    known = before.get("attempt_count", 0)
    yield from filled(ATTEMPT, (attempt for attempt in document["attempts"] if attempt["number"] > known))
    if document["status"] != before.get("status"):
        yield fill("{operation_id}  {status}", document)
    if document["status"] in _FINISHED:
        yield from _end(document)


_WATCHED: Final = Watch("operations", "operation_id", _FINISHED, _live, _change)


def _submitted(document: Any) -> Lines:
    """Return the operation where it ended while the API waited, and otherwise that it was accepted."""
    return (
        operation_view(document) if "attempts" in document else [fill("{operation_id}  {status}", document)]
    )


def _body_of(given: Given, screen: Screen) -> Given:
    """Return the operation in the file, or the one that the options describe.

    Raises:
        UsageError: There is neither, or both.
    """
    ways = [name for name in ("file", "dependency", "handler") if name in given]
    if len(ways) != 1:
        raise UsageError("give a file, or --dependency with --method and --path, or --handler with --input")
    if ways == ["file"]:
        if not isinstance(document := read_document(given["file"]), dict):
            raise UsageError(f"{given['file']}: must be a JSON object")
        return with_key(document, given, screen)
    request = {name: given.pop(name) for name in _REQUEST if name in given}
    if ways == ["dependency"]:
        given["request"] = {"method": "POST", "path": "", "query": {}, "headers": {}} | request
    else:
        given.setdefault("input", None)
    return with_key(given, given, screen)


def with_key(body: Given, given: Given, screen: Screen) -> Given:
    """Return a body with the idempotency key of it or of `--key`; without one, a key is made.

    It is shown before anything is sent: if no answer comes, only this key repeats safely.

    Raises:
        UsageError: Both give one, and they differ.
    """
    key, own = given.get("key"), body.get("key")
    if key is not None and own not in (None, key):
        raise UsageError(f"the file's key is {own!r}, --key is {key!r}")
    if (key := key or own) is None:
        key = f"cli-{os.urandom(16).hex()}"
        screen.note(f"no --key given, so one was made; to repeat this submission, add --key {key}")
    return body | {"key": key}


def _find(api: Api, given: Given, screen: Screen) -> int:
    if words := given.pop("words", ()):
        given["q"] = " ".join(words)
    found = api.pages("search", given, given.pop("limit", 20))
    screen.show(found, lambda shown: spaced(_found(api, shown["items"])))
    if found["next_cursor"]:
        screen.note("there may be more, and older: --all looks at everything")
    return errors.OK if found["items"] else errors.FAILED


def _found(api: Api, items: list[Any]) -> Iterator[Lines]:
    operations = [item for item in items if item["type"] == "operation"]
    if len(operations) == 1:
        document = api.ask("GET operations/{id}", {"id": operations[0]["id"]})
        yield [*operation_view(document), _why(operations[0])]
    if items != operations or len(items) != 1:
        rows = [item | {"why": _why(item), "key": item["key"] or item["name"]} for item in items]
        yield [Rows(rows, "type id status key why", empty="nothing found")]
    letters = [item for item in items if item["type"] == "dead_letter"]
    if [letter["status"] for letter in letters] == ["open"]:
        yield [f"to run it again: retryctl dead-letters replay {letters[0]['id']}"]


def _why(item: Mapping[str, Any]) -> str:
    """Return the state of what was found, and the next attempt or the error."""
    why = said(item["why"] or item["error"] or item["status"].replace("_", " "))
    if next_attempt := next_text(item):
        # First, because a column cuts a long error.
        return f"{next_attempt}; {why}"
    if item["type"] == "operation" and item["status"] == "succeeded" and not item["error"]:
        return f"succeeded at attempt {item['attempt_count']}"
    return why


COMMANDS: Final = (
    Command(
        "find",
        "find anything by key, correlation id, id, or words of the error",
        _find,
        "words type any_status origin exact limit20",
    ),
    Command(
        "submit",
        "submit an operation",
        Ask(
            "POST operations",
            "operation_id",
            _submitted,
            _WATCHED,
            body=_body_of,
            went_well=lambda document: document["status"] not in _FINISHED - {"succeeded"},
        ),
        "operation request run input own_key own_correlation_id retry deadline begin order wait watch",
    ),
    Command("get", "show an operation", Ask("GET operations/{id}", "operation_id", operation_view), "id"),
    Command("watch", "follow an operation until it ends", _WATCHED, "id"),
    Command(
        "list",
        "list operations, newest first",
        Listing(
            "operations",
            "operation_id status dependency limit_key? attempt_count:attempts key",
            "operation_id",
        ),
        "operation_status origin exact q list",
    ),
    *(
        Command(
            act,
            words,
            Ask(f"POST operations/{{id}}/{act}", "operation_id", f"{{operation_id}}  {act} requested"),
            takes,
        )
        for act, words, takes in (
            ("cancel", "cancel an operation", "id"),
            ("retry-now", "make the next attempt of a waiting operation now", "id"),
            ("try", "send one attempt past an open circuit, which does not count it", "id reason"),
            ("lookup", "ask whether an ambiguous operation happened, and send nothing", "id"),
            ("pause", "pause an operation", "id reason pause"),
            ("resume", "let a paused operation go on, changed or not", "id reason change priority"),
        )
    ),
)

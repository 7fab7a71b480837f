"""Commands about dead letters and their root causes."""

import json
from collections.abc import Mapping
from typing import Any, Final

from rich.text import Text

from retryctl import errors
from retryctl.api import Api
from retryctl.commands import Ask, Command, Given, Listing
from retryctl.operations import ATTEMPT
from retryctl.output import Lines, Rows, Screen, facts, fill, filled, plural, said, state, whose

_LISTED: Final = Listing(
    "dead-letters", "id:dead_letter status dependency limit_key? reason created_at detail", "id"
)
_HEAD: Final = (
    "id status operation_id:operation_id key source dependency handler category reason group correlation_id "
    "order_key priority limit_key debounce_key app_version first_failed_at created_at archived_at "
    "archived_by message"
)
_REPLAY: Final = (
    "replayed {requested_at}[ by {by}] as {operation_id}[, which became {dead_letter_id}]"
    "[\n  from step {from_step}][\n  note  {note}]"
)


def _list(api: Api, given: Given, screen: Screen) -> int:
    document = _LISTED.show(api, given, screen)
    # The API takes no exact key and no words where it only counts.
    is_counted = given.keys().isdisjoint(("key", "correlation_id", "q"))
    if document["next_cursor"] and screen.form != "json" and is_counted:
        count = api.ask("GET dead-letters/count", given)["count"]
        screen.note(f"{len(document['items'])} of {count}; --all lists every one")
    return errors.OK


def _summary(document: Any) -> Lines:
    count = document["open"] if document["complete"] else f"at least {document['open']}"
    rows = [document | {"by": "all", "name": "", "open": count}]
    for kind in ("reason", "dependency"):
        counts = sorted(document[f"by_{kind}"].items())
        rows += [count | {"by": kind, "name": name} for name, count in counts]
    yield Rows(rows, "by name open oldest_age_seconds:oldest")


def _view(document: Any) -> Lines:
    yield facts(document, _HEAD)
    yield f"detail {said(' '.join(document['detail'].split()))}"
    yield from (f"{name} {json.dumps(document[name])}" for name in ("request", "input") if name in document)
    yield from filled(ATTEMPT, document["attempts"])
    yield from _failure(document.get("failure") or {})
    for replay in document["replays"]:
        yield fill(_REPLAY, replay)
        yield from (f"  changed {change_text(change)}" for change in replay["changes"])
    yield from _notes(document)


def change_text(change: Mapping[str, Any]) -> str:
    """Return what an edit changed at one place."""
    before, after = (
        json.dumps(change[side]) if side in change else "nothing" for side in ("before", "after")
    )
    return f"{change['pointer']}: {before} to {after}"


def _notes(document: Any) -> Lines:
    return (fill("note {at}[ by {by}]  ", note).append(note["text"]) for note in document["notes"])


def _failure(failure: Mapping[str, Any]) -> Lines:
    """Yield what is known of a failure beside its line: the step, the answer's body, the traceback."""
    if failure.get("step"):
        yield f"step {failure['step']}"
    for name in ("body", "traceback"):
        if failure.get(name):
            yield name
            yield from (f"  {text}" for text in failure[name].splitlines())


def _short(document: Any) -> Lines:
    yield fill("{id}  {status}, ", document).append(plural(len(document["notes"]), "note"))


def standing(cause: Mapping[str, Any]) -> Text:
    """Return where a root cause stands with people."""
    return state(cause["status"], ", came back" if cause["came_back"] else "")


def _cause(document: Any) -> Lines:
    acts = {
        act: fill(f"{{{act}_at}}[ by {{{act}_by}}]", document)
        for act in ("acknowledged", "resolved")
        if document[f"{act}_at"]
    }
    yield facts(
        document | acts | {"standing": standing(document)},
        "group:cause count:open standing:status acknowledged resolved first_seen_at last_seen_at "
        "latest.id:latest sample.detail",
    )
    yield from _failure((document["latest"] or {}).get("failure") or {})
    yield from _notes(document)


def _short_cause(document: Any) -> Lines:
    yield Text.assemble(f"{document['group']}  ", standing(document))


def _change(act: str, *, of_cause: bool) -> Ask:
    if of_cause:
        return Ask(f"POST dead-letters/groups/{{id}}/{act}", "group", _short_cause)
    return Ask(f"POST dead-letters/{{id}}/{act}", "id", _short)


def _note(api: Api, given: Given, screen: Screen) -> int:
    return _change("notes", of_cause=given["id"].startswith("g-"))(api, given, screen)


COMMANDS: Final = (
    Command(
        "dead-letters list", "list dead letters, newest first", _list, "letter_status letters exact q list"
    ),
    Command(
        "dead-letters groups",
        "list root causes of open dead letters",
        Listing(
            "dead-letters/groups",
            "count group standing:status sample.dependency whose?:limit_key sample.reason last_seen_at "
            "sample.detail:sample",
            "group",
            {"standing": standing, "whose": lambda cause: whose(cause.get("limit_keys"), cause["count"])},
        ),
        "cause_status list",
    ),
    Command(
        "dead-letters summary", "count open dead letters", Ask("GET dead-letters/summary", "open", _summary)
    ),
    Command("dead-letters show", "show a dead letter", Ask("GET dead-letters/{id}", "id", _view), "id"),
    Command(
        "dead-letters cause",
        "show a root cause and its latest dead letter",
        Ask("GET dead-letters/groups/{id}", "group", _cause),
        "id",
    ),
    *(
        Command(f"dead-letters {act}", words, _change(act, of_cause=of_cause), takes)
        for act, words, of_cause, takes in (
            ("acknowledge", "say that you look into a root cause", True, "id note"),
            ("resolve", "say that a root cause is mended", True, "id note"),
            ("archive", "put away a dead letter that will not be replayed", False, "id"),
            ("restore", "open an archived dead letter again", False, "id"),
        )
    ),
    Command(
        "dead-letters replay",
        "start its operation again, as it was or edited",
        Ask("POST dead-letters/{id}/replay", "operation_id", "{given.id}  replayed as {operation_id}"),
        "id new_request new_input message edit",
    ),
    Command("dead-letters note", "add a note to a dead letter or a root cause", _note, "id text"),
)

"""Commands about root causes of dead letters: who looks into one, whether it is mended, what people wrote."""

from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from retryctl import errors
from retryctl.api import Api
from retryctl.documents import given_options
from retryctl.layout import Painted, cell, facts, instant, printable, state, table
from retryctl.screen import Screen

_PATH: Final = ("dead-letters", "groups")

STATUSES: Final = ("new", "acknowledged", "resolved")


def list_groups(api: Api, args: Namespace, screen: Screen) -> int:
    """List the root causes of open dead letters, and where each stands with people."""
    document = api.pages(*_PATH, limit=args.limit, status=args.status)
    rows = [
        (
            each["count"],
            each["group"],
            standing(each),
            each["assigned_to"],
            each["sample"]["dependency"],
            each["sample"]["reason"],
            instant(each["last_seen_at"]),
            each["sample"]["detail"],
        )
        for each in document["items"]
    ]
    headers = ("COUNT", "GROUP", "STATUS", "ASSIGNED TO", "DEPENDENCY", "REASON", "LAST SEEN", "SAMPLE")
    screen.show_list(document, "group", table(headers, rows))
    return errors.OK


def show(api: Api, args: Namespace, screen: Screen) -> int:
    """Show a root cause with all that is known of its latest dead letter's failure."""
    document = api.get(*_PATH, args.id)
    latest = document["latest"] or {}
    pairs = [
        ("cause", document["group"]),
        ("open", document["count"]),
        ("status", standing(document)),
        ("assigned to", document["assigned_to"]),
        ("acknowledged", _act(document, "acknowledged")),
        ("resolved", _act(document, "resolved")),
        ("first seen", instant(document["first_seen_at"])),
        ("last seen", instant(document["last_seen_at"])),
        ("latest", latest.get("id")),
        ("detail", cell(document["sample"]["detail"])),
    ]
    failure = failure_lines(latest.get("failure") or {})
    screen.show(document, "\n".join([facts(pairs), *failure, *note_lines(document["notes"])]))
    return errors.OK


def change(api: Api, args: Namespace, screen: Screen) -> int:
    """Acknowledge, assign or resolve a root cause."""
    body = given_options(args, "note")
    if args.action == "assign":
        body |= {"to": args.to}
    return _show_cause(api.post(*_PATH, args.id, args.action, body=body), screen)


def note(api: Api, args: Namespace, screen: Screen) -> int:
    """Add a note to a root cause."""
    return _show_cause(api.post(*_PATH, args.id, "notes", body={"text": args.text}), screen)


def _show_cause(document: Mapping[str, Any], screen: Screen) -> int:
    to = "" if document["assigned_to"] is None else f", assigned to {printable(document['assigned_to'])}"
    screen.show(document, f"{document['group']}  {standing(document)}{to}")
    return errors.OK


def standing(document: Mapping[str, Any]) -> Painted:
    """Return where a root cause stands with people."""
    return state(document["status"], ", came back" if document["came_back"] else "")


def _act(document: Mapping[str, Any], what: str) -> str | None:
    if document[f"{what}_at"] is None:
        return None
    return f"{instant(document[f'{what}_at'])}{act_by({'by': document[f'{what}_by']})}"


def act_by(act: Mapping[str, Any]) -> str:
    """Return who did something, to stand behind when; nothing where that is not known."""
    return f" by {printable(act['by'])}" if act["by"] else ""


def note_lines(notes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each note."""
    return [f"note {instant(each['at'])}{act_by(each)}  {printable(each['text'])}" for each in notes]


def failure_lines(failure: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is known of a failure beside its line: the step, the answer's body, the traceback."""
    if failure.get("step"):
        yield f"step {printable(failure['step'])}"
    for name in ("body", "traceback"):
        if failure.get(name):
            yield name
            yield from (f"  {printable(line)}" for line in failure[name].splitlines())

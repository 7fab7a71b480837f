"""Commands about dead letters: see them, replay one, put it away, bring it back, write a note."""

import json
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from retryctl import exit_codes
from retryctl.api import Api
from retryctl.documents import parse_json
from retryctl.operations import attempt_text
from retryctl.screen import Screen
from retryctl.tables import cell, facts, span, table

_PATH = "dead-letters"


def filters(args: Namespace) -> dict[str, Any]:
    """Return the filters that were given."""
    names = ("reason", "category", "dependency", "group", "created_after", "created_before")
    return {name: value for name in names if (value := getattr(args, name)) is not None}


def list_all(api: Api, args: Namespace, screen: Screen) -> int:
    """List dead letters, the newest first."""
    document = api.pages(_PATH, limit=args.limit, status=args.status, **filters(args))
    rows = [
        (each["id"], each["status"], each["dependency"], each["reason"], each["created_at"], each["detail"])
        for each in document["items"]
    ]
    screen.listed(
        document, "id", table(("DEAD LETTER", "STATUS", "DEPENDENCY", "REASON", "CREATED", "DETAIL"), rows)
    )
    return exit_codes.OK


def groups(api: Api, args: Namespace, screen: Screen) -> int:
    """List root causes."""
    document = api.pages(_PATH, "groups", limit=args.limit)
    rows = [
        (
            each["count"],
            each["group"],
            each["sample"]["dependency"],
            each["sample"]["reason"],
            each["last_seen_at"],
            each["sample"]["detail"],
        )
        for each in document["items"]
    ]
    screen.listed(
        document, "group", table(("COUNT", "GROUP", "DEPENDENCY", "REASON", "LAST SEEN", "SAMPLE"), rows)
    )
    return exit_codes.OK


def summary(api: Api, _: Namespace, screen: Screen) -> int:
    """Count open dead letters by reason and dependency."""
    document = api.get(_PATH, "summary")
    rows = [("all", "", document["open"], _age(document))]
    for kind in ("reason", "dependency"):
        rows += [
            (kind, name, each["open"], _age(each)) for name, each in sorted(document[f"by_{kind}"].items())
        ]
    screen.show(document, table(("BY", "NAME", "OPEN", "OLDEST"), rows))
    return exit_codes.OK


def show(api: Api, args: Namespace, screen: Screen) -> int:
    """Show a dead letter."""
    document = api.get(_PATH, args.id)
    screen.show(document, _text(document))
    return exit_codes.OK


def replay(api: Api, args: Namespace, screen: Screen) -> int:
    """Start a dead letter's operation again."""
    body: dict[str, Any] = {}
    for name in ("request", "input"):
        if (text := getattr(args, name)) is not None:
            body[name] = parse_json(text, f"--{name}")
    if args.note is not None:
        body["note"] = args.note
    document = api.post(_PATH, args.id, "replay", body=body)
    screen.show(document, f"{args.id}  replayed as {document['operation_id']}")
    return exit_codes.OK


def archive(api: Api, args: Namespace, screen: Screen) -> int:
    """Put a dead letter away."""
    return _changed(api.post(_PATH, args.id, "archive"), screen)


def restore(api: Api, args: Namespace, screen: Screen) -> int:
    """Bring an archived dead letter back."""
    return _changed(api.post(_PATH, args.id, "restore"), screen)


def note(api: Api, args: Namespace, screen: Screen) -> int:
    """Add a note to a dead letter."""
    return _changed(api.post(_PATH, args.id, "notes", body={"text": args.text}), screen)


def _changed(document: Mapping[str, Any], screen: Screen) -> int:
    screen.show(document, f"{document['id']}  {document['status']}, {len(document['notes'])} notes")
    return exit_codes.OK


def _age(waiting: Mapping[str, Any]) -> str | None:
    age_seconds = waiting["oldest_age_seconds"]
    return None if age_seconds is None else span(age_seconds)


def _text(document: Mapping[str, Any]) -> str:
    names = ("id", "status", "operation_id", "key", "source", "dependency", "category", "reason", "detail")
    more = ("group", "correlation_id", "first_failed_at", "created_at", "message")
    pairs = [(name, None if document.get(name) is None else cell(document[name])) for name in (*names, *more)]
    lines = [facts(pairs)]
    if "request" in document:
        lines.append(f"request {json.dumps(document['request'])}")
    lines += [attempt_text(attempt) for attempt in document["attempts"]]
    lines += [f"replayed {each['requested_at']} as {each['operation_id']}" for each in document["replays"]]
    lines += [f"note {each['at']}  {cell(each['text'])}" for each in document["notes"]]
    return "\n".join(lines)

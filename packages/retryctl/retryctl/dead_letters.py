"""Commands about dead letters and their replays, one by one or in bulk."""

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any, Final

from retryctl import causes, errors
from retryctl.api import Api
from retryctl.bulk import FILTERS, REPLAYS, change_text, preview_lines
from retryctl.causes import act_by, failure_lines, note_lines
from retryctl.documents import given_options, parse_json, replay_options
from retryctl.layout import cell, cells, facts, instant, printable, state, table
from retryctl.operations import attempt_text
from retryctl.options import EXACT_IDS
from retryctl.screen import Screen, span

_PATH: Final = "dead-letters"


def list_dead_letters(api: Api, args: Namespace, screen: Screen) -> int:
    """List dead letters, newest first."""
    filters, names = given_options(args, "status", *FILTERS), given_options(args, *EXACT_IDS, "q")
    document = api.pages(_PATH, limit=args.limit, **filters, **names)
    screen.show_list(document, "id", _dead_letter_table(document["items"]))
    if document["next_cursor"] and not args.json and not names:
        count = api.get(_PATH, "count", **filters)["count"]
        screen.note(f"{len(document['items'])} of {count}; --all lists every one")
    return errors.OK


def _dead_letter_table(items: Sequence[Mapping[str, Any]]) -> str:
    """Lay dead letters out, one per line."""
    rows = [cells(each, "id", "status", "dependency", "reason", "created_at", "detail") for each in items]
    return table(("DEAD LETTER", "STATUS", "DEPENDENCY", "REASON", "CREATED", "DETAIL"), rows)


def summary(api: Api, _: Namespace, screen: Screen) -> int:
    """Count open dead letters by reason and by dependency."""
    document = api.get(_PATH, "summary")
    rows = [("all", "", document["open"], _age(document))]
    for kind in ("reason", "dependency"):
        rows += [
            (kind, name, each["open"], _age(each)) for name, each in sorted(document[f"by_{kind}"].items())
        ]
    screen.show(document, table(("BY", "NAME", "OPEN", "OLDEST"), rows))
    return errors.OK


def show(api: Api, args: Namespace, screen: Screen) -> int:
    """Show a dead letter."""
    document = api.get(_PATH, args.id)
    screen.show(document, _text(document))
    return errors.OK


def replay(api: Api, args: Namespace, screen: Screen) -> int:
    """Start a dead letter's operation again, as it was or edited."""
    body = replay_options(args)
    for name, text in given_options(args, "request", "input").items():
        body[name] = parse_json(text, f"--{name}")
    body |= given_options(args, "message")
    document = api.post(_PATH, args.id, "replay", body=body)
    screen.show(document, f"{args.id}  replayed as {document['operation_id']}")
    return errors.OK


def archive(api: Api, args: Namespace, screen: Screen) -> int:
    """Archive a dead letter."""
    return _show_state(api.post(_PATH, args.id, "archive"), screen)


def restore(api: Api, args: Namespace, screen: Screen) -> int:
    """Open an archived dead letter again."""
    return _show_state(api.post(_PATH, args.id, "restore"), screen)


def note(api: Api, args: Namespace, screen: Screen) -> int:
    """Add a note to a dead letter or a root cause."""
    if args.id.startswith("g-"):
        return causes.note(api, args, screen)
    return _show_state(api.post(_PATH, args.id, "notes", body={"text": args.text}), screen)


def start_replay(api: Api, args: Namespace, screen: Screen) -> int:
    """Replay every open dead letter that matches the filters; with `--dry-run` count them."""
    body = {"filter": given_options(args, *FILTERS), "dry_run": args.dry_run} | replay_options(args)
    if args.rate is not None:
        body["rate_per_second"] = args.rate
    document = api.post(*REPLAYS.path, body=body)
    if args.dry_run:
        count = f"{document['matched']} open dead letters would be replayed"
        screen.show(document, "\n".join([count, *preview_lines(document)]))
        return errors.OK
    if args.watch:
        return REPLAYS.follow(api, document["replay_id"], screen)
    screen.show(document, f"{document['replay_id']}  replays {document['matched']} dead letters")
    return errors.OK


def _show_state(document: Mapping[str, Any], screen: Screen) -> int:
    notes = len(document["notes"])
    screen.show(
        document, f"{document['id']}  {state(document['status'])}, {notes} note{'' if notes == 1 else 's'}"
    )
    return errors.OK


def _age(counts: Mapping[str, Any]) -> str | None:
    age_seconds = counts["oldest_age_seconds"]
    return None if age_seconds is None else span(age_seconds)


def _text(document: Mapping[str, Any]) -> str:
    names = ("id", "status", "operation_id", "key", "source", "dependency", "handler", "category", "reason")
    more = (
        "group",
        "correlation_id",
        "order_key",
        "priority",
        "debounce_key",
        "first_failed_at",
        "created_at",
        "archived_at",
        "archived_by",
        "message",
    )
    known = zip((*names, *more), cells(document, *names, *more), strict=True)
    pairs = [(name, None if value is None else cell(value)) for name, value in known]
    lines = [facts(pairs), f"detail {printable(document['detail'])}"]
    lines += [f"{name} {json.dumps(document[name])}" for name in ("request", "input") if name in document]
    lines += [attempt_text(attempt) for attempt in document["attempts"]]
    lines += failure_lines(document.get("failure") or {})
    for each in document["replays"]:
        lines.append(
            f"replayed {instant(each['requested_at'])}{act_by(each)} as {each['operation_id']}{_became(each)}"
        )
        lines += [f"  from step {printable(each['from_step'])}"] if each.get("from_step") else []
        lines += [f"  note  {printable(each['note'])}"] if each["note"] else []
        lines += [f"  changed {change_text(change)}" for change in each["changes"]]
    lines += note_lines(document["notes"])
    return "\n".join(lines)


def _became(replay: Mapping[str, Any]) -> str:
    return f", which became {replay['dead_letter_id']}" if replay["dead_letter_id"] else ""

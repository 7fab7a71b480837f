"""Commands about bulk replays: start (or count), show, watch, cancel."""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any, Final

from retryctl import clock, exit_codes
from retryctl.api import Api
from retryctl.dead_letters import filters
from retryctl.screen import Screen
from retryctl.tables import bar, cell, span, until
from retryctl.watching import follow

FINISHED: Final = frozenset({"completed", "cancelled", "failed"})


def start(api: Api, args: Namespace, screen: Screen) -> int:
    """Replay every open dead letter that the filters find; with `--dry-run` count them."""
    body: dict[str, Any] = {"filter": filters(args), "dry_run": args.dry_run}
    if args.rate is not None:
        body["rate_per_second"] = args.rate
    if args.note is not None:
        body["note"] = args.note
    document = api.post("dead-letters", "replays", body=body)
    if args.dry_run:
        screen.show(document, f"{document['matched']} open dead letters would be replayed")
        return exit_codes.OK
    if args.watch:
        return _watch(api, document["replay_id"], screen)
    screen.show(document, f"{document['replay_id']}  replays {document['matched']} dead letters")
    return exit_codes.OK


def show(api: Api, args: Namespace, screen: Screen) -> int:
    """Show how far a bulk replay got."""
    document = api.get("dead-letters", "replays", args.id)
    screen.show(document, _text(document))
    return exit_codes.OK


def watch(api: Api, args: Namespace, screen: Screen) -> int:
    """Follow a bulk replay to its end."""
    return _watch(api, args.id, screen)


def cancel(api: Api, args: Namespace, screen: Screen) -> int:
    """Cancel a bulk replay."""
    document = api.call("DELETE", "dead-letters", "replays", args.id)
    screen.show(document, f"{document['replay_id']}  told to cancel; what was replayed stays so")
    return exit_codes.OK


def _watch(api: Api, replay_id: str, screen: Screen) -> int:
    document: dict[str, Any] = {}
    for document in follow(
        lambda: api.get("dead-letters", "replays", replay_id), FINISHED, screen, _progress
    ):
        screen.change(document, _text(document) if document["status"] in FINISHED else "")
    went_well = document["status"] == "completed" and not document["failed"]
    return exit_codes.OK if went_well else exit_codes.BADLY


def _progress(document: Mapping[str, Any]) -> str:
    done = document["matched"] - document["remaining"]
    line = f"{bar(done, document['matched'])}  {done} of {document['matched']}  {document['status']}"
    if document["waiting_until"] is None:
        return line
    return f"{line}, looks again in {span(round(until(document['waiting_until'], clock.now()), 1))}"


def _text(document: Mapping[str, Any]) -> str:
    counts = ", ".join(
        f"{document[name]} {name}" for name in ("matched", "replayed", "skipped", "failed", "remaining")
    )
    lines = [f"{document['replay_id']}  {document['status']}: {counts}"]
    return "\n".join(lines + [f"  {each['id']}: {cell(each['detail'])}" for each in document["failures"]])

"""Commands about events, which the app sends from an outbox after an operation succeeded."""

import json
from argparse import Namespace
from typing import Final

from retryctl import errors
from retryctl.api import MOST_PAGES, Api
from retryctl.documents import given_options
from retryctl.layout import cell, cells, facts, instant, state, table
from retryctl.operations import attempt_text
from retryctl.screen import Screen

_FILTERS: Final = ("status", "dependency", "key", "created_after", "created_before")


def list_events(api: Api, args: Namespace, screen: Screen) -> int:
    """List the events in one state."""
    query = given_options(args, *_FILTERS)
    pages = None if args.limit is None else MOST_PAGES
    document = api.pages("outbox", limit=args.limit, most_pages=pages, **query)
    rows = [
        [
            *cells(each, "event_id", "state", "type"),
            each["queue"] or f"{each['dependency']} {each['path']}",
            *cells(each, "pending_since", "detail"),
        ]
        for each in document["items"]
    ]
    headers = ("EVENT", "STATE", "TYPE", "TO", "PENDING SINCE", "DETAIL")
    screen.show_list(document, "event_id", table(headers, rows))
    return errors.OK


def show_event(api: Api, args: Namespace, screen: Screen) -> int:
    """Show an event with its data and its attempts."""
    document = api.get("outbox", args.id)
    head = facts(
        (
            ("event", document["event_id"]),
            ("state", state(document["state"])),
            ("type", cell(document["type"])),
            ("to", document["queue"] or f"{document['dependency']} {document['path']}"),
            ("data", cell(json.dumps(document["data"]))),
            ("next attempt", instant(document["next_attempt_at"])),
            ("detail", None if document["detail"] is None else cell(document["detail"])),
            ("dead letter", document["dead_letter_id"]),
        )
    )
    screen.show(document, "\n".join([head, *map(attempt_text, document["attempts"])]))
    return errors.OK


def resend_event(api: Api, args: Namespace, screen: Screen) -> int:
    """Send an event again."""
    document = api.post("outbox", args.id, "resend")
    screen.show(document, f"{document['event_id']}  {state(document['state'])}")
    return errors.OK

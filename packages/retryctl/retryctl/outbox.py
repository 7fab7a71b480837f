"""Commands about outbox events: list, resend."""

from argparse import Namespace

from retryctl import errors
from retryctl.api import Api
from retryctl.screen import Screen
from retryctl.tables import table


def list_events(api: Api, args: Namespace, screen: Screen) -> int:
    """List the events in one state."""
    document = api.pages("outbox", limit=args.limit, state=args.state)
    rows = [
        (
            each["event_id"],
            each["state"],
            each["type"],
            each["queue"] or f"{each['dependency']} {each['path']}",
            each["pending_since"],
            each["detail"],
        )
        for each in document["items"]
    ]
    headers = ("EVENT", "STATE", "TYPE", "TO", "PENDING SINCE", "DETAIL")
    screen.show_list(document, "event_id", table(headers, rows))
    return errors.OK


def resend(api: Api, args: Namespace, screen: Screen) -> int:
    """Send an event again."""
    document = api.post("outbox", args.id, "resend")
    screen.show(document, f"{document['event_id']}  {document['state']}")
    return errors.OK

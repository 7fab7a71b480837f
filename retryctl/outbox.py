"""Commands about the outbox: list, resend."""

from argparse import Namespace

from retryctl import exit_codes
from retryctl.api import Api
from retryctl.screen import Screen
from retryctl.tables import table


def list_all(api: Api, args: Namespace, screen: Screen) -> int:
    """List events of one state."""
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
    screen.listed(
        document, "event_id", table(("EVENT", "STATE", "TYPE", "TO", "PENDING SINCE", "DETAIL"), rows)
    )
    return exit_codes.OK


def resend(api: Api, args: Namespace, screen: Screen) -> int:
    """Send an event once more."""
    document = api.post("outbox", args.id, "resend")
    screen.show(document, f"{document['event_id']}  {document['state']}")
    return exit_codes.OK

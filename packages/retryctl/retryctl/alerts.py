"""Commands about alerts: what is raised, silences, and a test of the receivers."""

from argparse import Namespace

from retryctl import errors
from retryctl.api import Api
from retryctl.layout import cells, instant, table
from retryctl.screen import Screen

_PATH = "alerts"


def show(api: Api, _: Namespace, screen: Screen) -> int:
    """Show what is raised, what holds its messages back, and who gets them."""
    document = api.get(_PATH)
    raised = [cells(each, "condition", "state", "raised_at", "text") for each in document["items"]]
    silences = [
        cells(each, "id", "condition", "receiver", "until", "by", "reason") for each in document["silences"]
    ]
    receivers = [(each["receiver"], each["format"], each["host"]) for each in document["receivers"]]
    parts = [
        table(("CONDITION", "STATE", "RAISED", "TEXT"), raised, empty="nothing is raised"),
        table(
            ("SILENCE", "CONDITION", "ONLY TO", "UNTIL", "BY", "REASON"), silences, empty="no silence holds"
        ),
        table(("RECEIVER", "FORMAT", "HOST"), receivers, empty="nobody gets messages"),
    ]
    parts += ["it is a quiet hour: messages wait for its end"] if document["is_quiet"] else []
    screen.show(document, "\n\n".join(parts))
    return errors.OK


def silence(api: Api, args: Namespace, screen: Screen) -> int:
    """Keep messages about a condition back for some time."""
    end = {"until": args.until} if args.until else {"for_minutes": args.for_minutes}
    receiver = {"receiver": args.receiver} if args.receiver else {}
    body = {"condition": args.condition, "reason": args.reason, **end, **receiver}
    document = api.post(_PATH, "silences", body=body)
    whom = f" for {document['receiver']}" if args.receiver else ""
    until = instant(document["until"])
    screen.show(document, f"{document['id']}  {document['condition']}{whom} until {until}")
    return errors.OK


def end_silence(api: Api, args: Namespace, screen: Screen) -> int:
    """End a silence early."""
    document = api.call("DELETE", _PATH, "silences", args.id)
    screen.show(document, f"{document['id']}  ended")
    return errors.OK


def test(api: Api, _: Namespace, screen: Screen) -> int:
    """Send a message to every receiver that says that it is a test; exit with 1 where one did not arrive."""
    document = api.post(_PATH, "test")
    rows = [cells(each, "receiver", "state", "detail") for each in document["items"]]
    screen.show(document, table(("RECEIVER", "STATE", "WHY"), rows, empty="nobody gets messages"))
    failed = [each for each in document["items"] if each["state"] != "sent"]
    return errors.FAILED if failed else errors.OK

"""Commands about circuits: list, show, open, close, disable, reset."""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from retryctl import exit_codes
from retryctl.api import Api
from retryctl.screen import Screen
from retryctl.tables import cell, facts, span, table


def list_all(api: Api, _: Namespace, screen: Screen) -> int:
    """List every circuit."""
    document = api.get("circuits")
    rows = [
        (
            each["dependency"],
            each["state"],
            each["calls"],
            each["failures"],
            _share(each["failure_ratio"]),
            each["retry_at"] or each["throttled_until"],
            each["reason"],
        )
        for each in document["items"]
    ]
    screen.show(
        document, table(("DEPENDENCY", "STATE", "CALLS", "FAILURES", "RATIO", "UNTIL", "REASON"), rows)
    )
    return exit_codes.OK


def show(api: Api, args: Namespace, screen: Screen) -> int:
    """Show one circuit and what was done to it by hand."""
    document = api.get("circuits", args.dependency)
    screen.show(document, _text(document))
    return exit_codes.OK


def by_hand(api: Api, args: Namespace, screen: Screen) -> int:
    """Open, close, disable or reset a circuit."""
    body = {"reason": args.reason}
    if args.for_seconds is not None:
        body["for_seconds"] = args.for_seconds
    document = api.post("circuits", args.dependency, args.act, body=body)
    for_how_long = "" if args.for_seconds is None else f" for {span(args.for_seconds)}"
    screen.show(document, f"{args.dependency}  {args.act}{for_how_long}: {cell(args.reason)}")
    return exit_codes.OK


def _text(document: Mapping[str, Any]) -> str:
    told = facts(
        (
            ("dependency", document["dependency"]),
            ("state", document["state"]),
            ("calls", f"{document['calls']}, {document['failures']} failed, {document['slow_calls']} slow"),
            ("ratio", _share(document["failure_ratio"])),
            ("opened", document["opened_at"]),
            ("tries again", document["retry_at"]),
            ("paused until", document["throttled_until"]),
            ("waiting", document["waiting"]),
            ("reason", document["reason"]),
            ("changed by", document["changed_by"]),
        )
    )
    acts = [(each["at"], each["action"], each["by"], each["reason"]) for each in document["audit"]]
    return told if not acts else f"{told}\n\n{table(('WHEN', 'DONE', 'BY', 'WHY'), acts)}"


def _share(ratio: float | None) -> str | None:
    return None if ratio is None else f"{ratio:.0%}"

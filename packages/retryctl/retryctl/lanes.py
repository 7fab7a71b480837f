"""Commands about lanes: operations of one order key run one after the other."""

from argparse import Namespace
from typing import Any

from retryctl import errors
from retryctl.api import Api
from retryctl.layout import cell, cells, facts, instant, state, table
from retryctl.screen import Screen


def list_lanes(api: Api, args: Namespace, screen: Screen) -> int:
    """List the lanes in which somebody waits or that a dead letter blocks: those first."""
    document = api.pages("order-lanes", limit=args.limit, blocked="true" if args.blocked else None)
    rows = [
        [
            *cells(each, "order_key"),
            _standing(each),
            *cells(each, "waiting"),
            *cells(each["front"] or {}, "operation_id", "dead_letter_id"),
            instant(each["front_since"]),
        ]
        for each in document["items"]
    ]
    headers = ("ORDER KEY", "STATE", "WAITING", "IN FRONT", "DEAD LETTER", "SINCE")
    screen.show_list(document, "order_key", table(headers, rows))
    return errors.OK


def show_lane(api: Api, args: Namespace, screen: Screen) -> int:
    """Show who is in front of a lane, and who waits."""
    # On Azure a path takes no key with a slash.
    (document,) = api.get("order-lanes", order_key=args.order_key)["items"]
    front = document["front"] or {}
    head = facts(
        (
            ("order key", cell(document["order_key"])),
            ("state", _standing(document)),
            ("in front", front.get("operation_id")),
            ("dead letter", front.get("dead_letter_id")),
            ("since", instant(document["front_since"])),
            ("waiting", document["waiting"]),
            ("unreadable", document.get("unreadable")),
        )
    )
    rows = [
        (number, *cells(each, "operation_id", "accepted_at"))
        for number, each in enumerate(document["queue"], 1)
    ]
    more = document["waiting"] - len(rows)
    tail = [f"and {more} more"] if more > 0 else []
    screen.show(document, "\n".join([head, table(("PLACE", "OPERATION", "ACCEPTED"), rows), *tail]))
    return errors.OK


def _standing(lane: dict[str, Any]) -> str:
    if lane["front"] is None:
        return "empty"
    return state("blocked" if lane["blocked"] else "running")

"""Commands about lanes: operations of one order key run one after the other."""

from typing import Any, Final

from retryctl.commands import Ask, Command, Listing
from retryctl.output import Lines, Rows, facts

_COLUMNS: Final = (
    "order_key state {}front.operation_id:in_front front.dead_letter_id:dead_letter front_since:since"
)


def _state(lane: Any) -> str:
    return "empty" if lane["front"] is None else "blocked" if lane["blocked"] else "running"


def _view(document: Any) -> Lines:
    (lane,) = document["items"]
    yield facts(lane | {"state": _state(lane)}, f"{_COLUMNS.format('')} waiting unreadable")
    queue = [{"place": place, **waits} for place, waits in enumerate(lane["queue"], 1)]
    yield Rows(queue, "place operation_id accepted_at")
    if (more := lane["waiting"] - len(queue)) > 0:
        yield f"and {more} more"


COMMANDS: Final = (
    Command(
        "lanes list",
        "list where somebody waits or a dead letter blocks",
        Listing("order-lanes", _COLUMNS.format("waiting "), "order_key", {"state": _state}),
        "blocked list",
    ),
    # By the query: on Azure a path takes no key with a slash.
    Command(
        "lanes show",
        "show who is in front of a lane, and who waits",
        Ask("GET order-lanes", "items", _view),
        "lane",
    ),
)

"""HTTP: the lanes of order keys: who is in front, and who waits."""

from typing import Final

from durable_retry.base.answers import Page
from durable_retry.base.text import plain_number
from durable_retry.features.order.lanes import find_lane, list_lanes
from durable_retry.features.order.rules.document import ListedOrderLane, OrderLane
from durable_retry.http.parameters import LIMIT, cursor, flag, text
from durable_retry.http.routes import AWAY, Query, Routes
from durable_retry.hub.binding import TaskHub

routes = Routes("order lanes")


def _place(value: str) -> int:
    number = plain_number(value)
    if number < 1:
        raise ValueError(value)
    return number


BLOCKED: Final = flag("blocked", "`true`: only those that a dead letter blocks; `false`: only others.")
ORDER_KEY: Final = text(
    "order_key",
    "The lane of this order key alone, with its queue, also where nobody is in it. Takes every key; the path "
    "takes none with a slash on Azure.",
)
CURSOR: Final = cursor(_place)


@routes.get(
    "order-lanes",
    parameters=(BLOCKED, ORDER_KEY, LIMIT, CURSOR),
)
async def list_order_lanes(query: Query, hub: TaskHub) -> Page[ListedOrderLane]:
    """List the lanes in which somebody waits or which a dead letter blocks: those first, then the longest."""
    lanes = await list_lanes(
        hub, query[ORDER_KEY], blocked=query[BLOCKED], limit=query[LIMIT], after=query[CURSOR] or 0
    )
    return lanes


@routes.get("order-lanes/{order_key}", errors=(AWAY,))
async def get_order_lane(order_key: str, hub: TaskHub) -> OrderLane:
    """Show who is in front of the lane of an order key, and who waits; nobody where nobody is in it."""
    return await find_lane(hub, order_key)

import json
from typing import Any, Final

import azure.functions as func
import pytest

from durable_retry.http.parameters import CURSOR, Parameter
from durable_retry.routing import table

ROUTES: Final = table()
INSTANT: Final = "97764422399999999-"
CURSORS: Final = {
    "list_all_batches": f"{INSTANT}batch-4xqyim",
    "list_all_sagas": f"{INSTANT}saga-4xqyim",
    "list_actions_on_many": f"{INSTANT}bulk-00ff",
    "list_items_of_action": f"{INSTANT}07",
    "get_activity": f"{INSTANT}0123abcd",
    "list_outbox": f"{INSTANT}op-4xqyim.7.1",
    "get_dead_letters": f"{INSTANT[:17]}dl-{'0' * 32}",
    "get_dead_letter_groups": "49997|02235577600000000|g-0123456789abcdef",
    "list_order_lanes": "12",
    "nothing": "made-up",
}


def reads(parameter: Parameter[object], text: str) -> bool:
    try:
        parameter.read(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("name", CURSORS)
def test_no_list_takes_the_cursor_of_another(name: str) -> None:
    """The three that take any text here read it where they search."""
    lists = {
        route.function: parameter
        for route in ROUTES
        for parameter in route.parameters
        if parameter.name == "cursor" and parameter is not CURSOR
    }
    assert {list_ for list_, cursor in lists.items() if reads(cursor, CURSORS[name])} == {name} - {"nothing"}
    assert lists.keys() == CURSORS.keys() - {"nothing"}
    assert sum(CURSOR in route.parameters for route in ROUTES) == 3


@pytest.mark.parametrize("text", ["٣", "1_0", "+3", " 3", "0", "-1"])
def test_the_cursor_of_the_lanes_is_a_number_in_plain_digits(text: str) -> None:
    (cursor,) = (
        parameter
        for route in ROUTES
        if route.function == "list_order_lanes"
        for parameter in route.parameters
        if parameter.name == "cursor"
    )
    assert not reads(cursor, text)


@pytest.mark.parametrize(
    ("status", "cursor"),
    [("pending", CURSORS["list_outbox"]), ("sent", "op-4xqyim.7.1"), ("failed", "op-4xqyim.7.1")],
)
async def test_the_events_of_another_order_do_not_take_the_cursor(status: str, cursor: str) -> None:
    (route,) = (route for route in ROUTES if route.function == "list_outbox")
    sent = {"status": status, "cursor": cursor}
    request = func.HttpRequest("GET", "http://localhost/api/outbox", params=sent, body=b"")
    hub: Any = None
    answer = await route.respond(request, hub, {})
    assert answer.status_code == 400
    assert [error["pointer"] for error in json.loads(answer.get_body())["errors"]] == ["/cursor"]

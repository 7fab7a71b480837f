"""The lanes of order keys on a terminal."""

from collections.abc import Mapping
from typing import Any, Final

from tests.support.retryctl import Responder, Run, answers

AT: Final = "2026-11-21T09:00:00Z"
BLOCKED: Final[dict[str, Any]] = {
    "order_key": "customer-7",
    "blocked": True,
    "front": {"operation_id": "op-1", "accepted_at": AT, "dead_letter_id": "dl-1"},
    "front_since": AT,
    "waiting": 2,
}
EMPTY: Final = {
    "order_key": "customer-8",
    "blocked": False,
    "front": None,
    "front_since": None,
    "waiting": 0,
    "queue": [],
}


def one_lane(lane: Mapping[str, Any]) -> Responder:
    return answers({"items": [lane], "next_cursor": None})


def test_lanes_are_listed_with_who_blocks_them() -> None:
    front = {"operation_id": "op-5", "accepted_at": AT}
    runs = BLOCKED | {"order_key": "c-9", "blocked": False, "front": front, "waiting": 1}
    answer = answers({"items": [BLOCKED, runs], "next_cursor": None})
    run = Run(answer, "lanes", "list")
    assert run.requests[0].url.path == "/api/order-lanes"
    assert "blocked" not in run.requests[0].url.params
    assert run.out.splitlines() == [
        "ORDER KEY   STATE    WAITING  IN FRONT  DEAD LETTER  SINCE",
        f"customer-7  blocked  2        op-1      dl-1         {AT}",
        f"c-9         running  1        op-5      -            {AT}",
    ]
    assert Run(answer, "lanes", "list", "--ids").out.split() == ["customer-7", "c-9"]
    assert Run(answer, "lanes", "list", "--blocked").requests[0].url.params["blocked"] == "true"


def test_a_lane_shows_its_queue_in_order() -> None:
    queue = [{"operation_id": "op-2", "accepted_at": AT}]
    run = Run(one_lane(BLOCKED | {"queue": queue}), "lanes", "show", "customer/7")
    assert run.requests[0].url.path == "/api/order-lanes"
    assert run.requests[0].url.params["order_key"] == "customer/7"
    assert run.out.splitlines() == [
        "order key    customer-7",
        "state        blocked",
        "in front     op-1",
        "dead letter  dl-1",
        f"since        {AT}",
        "waiting      2",
        "PLACE  OPERATION  ACCEPTED",
        f"1      op-2       {AT}",
        "and 1 more",
    ]


def test_nobody_is_in_an_empty_lane() -> None:
    run = Run(one_lane(EMPTY), "lanes", "show", "customer-8")
    assert run.out.splitlines() == ["order key  customer-8", "state      empty", "waiting    0", "(none)"]


def test_a_lane_that_nobody_can_read_says_so() -> None:
    run = Run(one_lane(EMPTY | {"unreadable": "it lacks 'order_key'"}), "lanes", "show", "customer-8")
    assert "unreadable  it lacks 'order_key'" in run.out

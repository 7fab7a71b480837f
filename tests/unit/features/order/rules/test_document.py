from durable_retry.base.json_forms import to_ms
from durable_retry.features.order.rules.document import SHOWN_PLACES, ListedOrderLane, OrderLane
from durable_retry.features.order.rules.lane import Lane, Place, joined, left
from tests.support.builders import NOON, after
from tests.support.narrowing import existing


def test_a_lane_shows_its_front_and_the_next_ones() -> None:
    lane = Lane(order_key="customer-7")
    for number in range(SHOWN_PLACES + 5):
        lane = joined(lane, Place(f"op-{number}", to_ms(after(number)), 0))
    lane = left(lane, Place("op-0", to_ms(NOON), to_ms(NOON)), "dl-0").since(lane, NOON)
    shown = OrderLane.with_queue(lane)
    assert (shown.blocked, shown.waiting, len(shown.queue)) == (True, SHOWN_PLACES + 4, SHOWN_PLACES)
    assert existing(shown.front).dead_letter_id == "dl-0"
    assert shown.queue[0].to_json() == {"operation_id": "op-1", "accepted_at": "2026-11-21T12:00:01Z"}


def test_nobody_is_in_an_empty_lane() -> None:
    listed = ListedOrderLane.of(Lane(order_key="customer-7"))
    assert (listed.blocked, listed.front, listed.front_since, listed.waiting) == (False, None, None, 0)


def test_a_lane_that_nobody_can_read_has_nobody_in_it_and_says_why() -> None:
    shown = OrderLane.that_nobody_can_read("order-7", "its state is no JSON")
    assert (shown.order_key, shown.front, shown.waiting, shown.queue) == ("order-7", None, 0, ())
    assert shown.unreadable == "its state is no JSON"

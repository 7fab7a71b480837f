from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from durable_retry.features.outbox.rules.event import MAX_QUEUE_DATA_BYTES, MAX_WEBHOOK_DATA_BYTES, Event
from tests.support.mistakes import pointers_of


def test_an_event_is_made_with_its_target() -> None:
    to_queue = Event.to_queue("order-events", "order.placed", {"at": datetime(2026, 11, 22, tzinfo=UTC)})
    assert to_queue.to_json() == {
        "type": "order.placed",
        "queue": "order-events",
        "data": {"at": "2026-11-22T00:00:00Z"},
    }
    webhook = Event.to_webhook("crm", "/hooks", "order.placed")
    assert webhook.to_json() == {"type": "order.placed", "dependency": "crm", "path": "/hooks", "data": None}


@pytest.mark.parametrize(
    ("make", "pointers"),
    [
        (lambda: Event.to_queue("Orders", ""), {"/queue", "/type"}),
        (lambda: Event.to_queue("orders", "placed", object()), {"/data"}),
        (lambda: Event.to_queue("orders", "placed", b"\xff"), {"/data"}),
        (lambda: Event.to_queue("orders", "placed", {"name": ["\ud800"]}), {"/data/name/0"}),
        (lambda: Event.to_queue("orders", "placed", "x" * MAX_QUEUE_DATA_BYTES), {"/data"}),
        (lambda: Event.to_webhook("crm", "/hooks", "placed", "x" * MAX_WEBHOOK_DATA_BYTES), {"/data"}),
        (lambda: Event.to_webhook("no/name", "../up", "placed"), {"/dependency", "/path"}),
    ],
)
def test_an_event_that_cannot_be_sent_is_refused_where_it_is_made(
    make: Callable[[], Event], pointers: set[str]
) -> None:
    assert set(pointers_of(make)) == pointers

"""Which event to send next, under which name, by whose policy."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from durable_retry.engine.base.trace_context import TraceContext
from durable_retry.engine.outbox.cloud_event import envelope_of, envelope_text
from durable_retry.engine.outbox.delivery import (
    Delivery,
    EventState,
    StoredEvent,
    due_of,
    event_id_for,
    heads_of,
    next_due_at,
    number_of,
    operation_id_of,
)
from durable_retry.engine.retry.loop import RetryState
from durable_retry.engine.retry.policy import PRESETS
from tests.support.builders import NOON, PAYMENTS, after


def an_event(number: int = 1, **target: Any) -> StoredEvent:
    event = {"type": "charge.completed", "data": {"order": 42}, **(target or {"queue": "events"})}
    return StoredEvent(
        event_id=event_id_for("op-sample", number),
        event=event,
        state=EventState.PENDING,
        created_at=NOON,
        pending_since=NOON,
    )


def a_delivery(number: int = 1, *, due_in: float = 0, **target: Any) -> Delivery:
    return replace(an_event(number, **target).to_delivery(None), state=RetryState(due_at=after(due_in)))


def test_an_event_is_named_after_its_operation_and_its_place() -> None:
    assert event_id_for("op-sample", 3) == "op-sample.3"
    assert (operation_id_of("op-sample.3"), number_of("op-sample.3")) == ("op-sample", 3)


@pytest.mark.parametrize("text", ["op-sample", ".1", "op-sample.", "op-sample.x", "op-sample.²", ""])
def test_what_is_no_events_name_names_no_operation(text: str) -> None:
    assert (operation_id_of(text), number_of(text)) == (None, 0)


def test_an_envelope_has_what_cloud_events_ask_for() -> None:
    event = replace(an_event(2), correlation_id="order-42")
    assert envelope_of(event) == {
        "specversion": "1.0",
        "id": "op-sample.2",
        "source": "/api/operations/op-sample",
        "type": "charge.completed",
        "time": "2026-11-21T12:00:00Z",
        "datacontenttype": "application/json",
        "sequence": "0002",
        "correlationid": "order-42",
        "data": {"order": 42},
    }


def test_an_envelope_stays_the_same_when_it_is_sent_again() -> None:
    event = an_event()
    again = replace(event, state=EventState.FAILED, pending_since=after(60), detail="no")
    assert envelope_text(again) == envelope_text(event)


def test_events_of_one_destination_follow_each_other_and_lanes_go_side_by_side() -> None:
    deliveries = [
        a_delivery(1, queue="a"),
        a_delivery(2, dependency="payments", path="/hooks"),
        a_delivery(3, queue="a"),
        a_delivery(4, dependency="payments", path="/other"),
    ]
    assert [head.event_id for head in heads_of(deliveries)] == ["op-sample.1", "op-sample.2"]


def test_a_queue_and_a_dependency_of_one_name_are_two_destinations() -> None:
    deliveries = [a_delivery(1, queue="payments"), a_delivery(2, dependency="payments", path="/")]
    assert len(heads_of(deliveries)) == 2


def test_a_later_event_does_not_overtake_one_that_waits() -> None:
    deliveries = [a_delivery(1, due_in=60, queue="a"), a_delivery(2, queue="a"), a_delivery(3, queue="b")]
    assert [each.event_id for each in due_of(deliveries, NOON)] == ["op-sample.3"]
    assert next_due_at(deliveries[:2]) == after(60)


def test_a_webhook_goes_by_its_dependencys_policy_and_deadline() -> None:
    delivery = an_event(dependency="payments", path="/hooks").to_delivery(PAYMENTS)
    assert delivery.operation.policy == PAYMENTS.retry
    assert delivery.operation.deadline_at == NOON + timedelta(seconds=PAYMENTS.timeouts.deadline_seconds)
    assert delivery.operation.key == "op-sample.1"


def test_a_message_to_a_queue_goes_by_the_critical_preset_without_a_deadline() -> None:
    operation = an_event(queue="events").to_delivery(None).operation
    assert (operation.policy, operation.deadline_at) == (PRESETS["critical"].policy, None)


def test_a_webhook_whose_dependency_is_gone_still_has_a_deadline() -> None:
    assert an_event(dependency="gone", path="/").to_delivery(None).operation.deadline_at is not None


def test_a_resend_begins_anew() -> None:
    again = replace(an_event(dependency="payments", path="/"), pending_since=after(7200))
    assert again.to_delivery(PAYMENTS).operation.deadline_at == after(7200 + 3600)


def test_a_delivery_travels_as_json() -> None:
    delivery = a_delivery(2, due_in=5, dependency="payments", path="/hooks")
    assert Delivery.from_json(delivery.to_json()) == delivery


def test_the_list_shows_an_event_without_its_data() -> None:
    shown = an_event(queue="events").to_json()
    assert (shown["event_id"], shown["operation_id"], shown["queue"]) == (
        "op-sample.1",
        "op-sample",
        "events",
    )
    assert (shown["state"], shown["dependency"], shown["sent_at"], shown["detail"]) == (
        "pending",
        None,
        None,
        None,
    )
    assert "data" not in shown


def test_an_event_goes_on_with_the_trace_of_its_operation() -> None:
    place = TraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1")
    event = replace(an_event(), trace=place)
    assert place.to_json().items() <= envelope_of(event).items()
    delivery = event.to_delivery(None)
    assert Delivery.from_json(delivery.to_json()).operation.trace == place


def test_a_delivery_whose_circuit_changed_is_due_now() -> None:
    assert a_delivery(due_in=600).released(NOON).due_at == NOON

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from durable_retry.base.names import EventState
from durable_retry.base.trace_context import TraceContext
from durable_retry.features.outbox.rules.outbox import (
    MEMBERS,
    Delivery,
    EventFilter,
    OutboxEvent,
    StoredEvent,
    due_of,
    envelope_of,
    envelope_text,
    event_id_for,
    event_id_in,
    events_in,
    heads_of,
    next_due_at,
    notes_of_events,
    number_of,
    operation_id_of,
    unreadable_event,
    with_dead_letter,
)
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.config.dependency import Dependency, Targets
from durable_retry.rules.dead_letters.record import of_operation
from durable_retry.rules.operations.envelope import parse_envelope
from durable_retry.rules.operations.keys import ScopedKey
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.operations.submission import Naming, read_operation
from durable_retry.rules.retry.admission import AdmissionState
from durable_retry.rules.retry.history import History, PastWait, WaitKind
from durable_retry.rules.retry.loop import RetryState
from durable_retry.rules.retry.policy import PRESETS
from tests.support.builders import NOON, PAYMENTS, a_success, after, an_entry
from tests.support.mistakes import pointers_of


@pytest.mark.parametrize(
    ("conditions", "does"),
    [
        ({}, True),
        ({"dependencies": frozenset({"payments", "till"})}, True),
        ({"dependencies": frozenset({"cards"})}, False),
        ({"operation_ids": frozenset({"op-1", "op-2"})}, True),
        ({"operation_ids": frozenset({"op-2"})}, False),
        ({"created_after": NOON}, True),
        ({"created_after": NOON + timedelta(seconds=1)}, False),
        ({"created_before": NOON + timedelta(seconds=1)}, True),
        ({"created_before": NOON}, False),
    ],
)
def test_a_filter_means_all_of_its_conditions(conditions: dict[str, Any], does: bool) -> None:  # noqa: FBT001 # the outcome
    event = {"type": "t", "dependency": "payments", "path": "/hook"}
    stored = StoredEvent(
        event_id="op-1.1", event=event, state=EventState.SENT, created_at=NOON, pending_since=NOON
    )
    assert EventFilter(**conditions).matches(stored.listed()) is does


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


def test_a_status_document_shows_the_events_of_a_commit_as_pending_ones() -> None:
    assert notes_of_events("op-sample.7", [{"type": "paid"}, {"type": "shipped"}]) == (
        {"event_id": "op-sample.7.1", "type": "paid", "state": "pending"},
        {"event_id": "op-sample.7.2", "type": "shipped", "state": "pending"},
    )


@pytest.mark.parametrize("text", ["op-sample", ".1", "op-sample.", "op-sample.x", "op-sample.²", ""])
def test_what_is_no_events_name_names_no_operation(text: str) -> None:
    assert (operation_id_of(text), number_of(text)) == (None, 0)


def test_a_webhook_has_the_limit_key_of_its_operation_and_a_message_to_a_queue_has_none() -> None:
    webhook = an_event(dependency="crm", path="/hooks")
    keys = [replace(each, limit_key="customer-17").to_delivery(None) for each in (webhook, an_event())]
    assert [each.operation.limit_key for each in keys] == ["customer-17", None]


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
    shown = an_event(queue="events").listed().to_json()
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


@pytest.mark.parametrize(("before_attempt", "since"), [(1, NOON), (2, None)])
def test_a_circuit_holds_a_delivery_until_its_next_attempt(
    before_attempt: int, since: datetime | None
) -> None:
    wait = PastWait(before_attempt=before_attempt, kind=WaitKind.CIRCUIT, began_at=NOON, until=after(1))
    state = RetryState(history=History(waits=(wait,)), admission=AdmissionState(waiting=True))
    assert replace(a_delivery(), state=state).blocked_since == since


def test_a_delivery_keeps_its_waits_but_those_for_our_own_side() -> None:
    waits = [
        PastWait(before_attempt=1, kind=kind, began_at=NOON, until=after(1), delay_reasons=())
        for kind in (WaitKind.CIRCUIT, WaitKind.OWN_FAILURE, WaitKind.RETRY_BUDGET)
    ]
    moved = a_delivery().moved(RetryState(history=History(waits=tuple(waits)), due_at=after(2)))
    assert moved.due_at == after(2)
    assert moved.state.history.waits == (waits[0], waits[2])


def test_an_event_that_cannot_be_read_is_shown_with_its_id_and_why() -> None:
    shown = unreadable_event("e-1", EventState.PENDING, NOON, "no JSON")
    assert (shown.event_id, shown.state, shown.created_at) == ("e-1", EventState.PENDING, NOON)
    assert shown.unreadable == "no JSON"
    assert shown.detail == "This event cannot be read: no JSON"


LISTED = {
    "event_id": "e-1",
    "operation_id": None,
    "type": "a",
    "state": "pending",
    "queue": "q",
    "dependency": None,
    "path": None,
    "detail": None,
    "created_at": "2026-11-21T09:00:00Z",
    "pending_since": "2026-11-21T09:00:00Z",
}


def test_a_listed_event_is_one_or_an_error() -> None:
    assert OutboxEvent.read(LISTED).to_json().items() >= LISTED.items()
    with pytest.raises(ValueError, match="state"):
        OutboxEvent.read(LISTED | {"state": "gone"})


def test_a_dead_letter_of_an_event_names_it_and_a_replay_keeps_its_events() -> None:
    entry = an_entry("op-1", request={"event": {"id": "op-1.0.2"}})
    assert event_id_in(of_operation(entry, NOON)) == "op-1.0.2"
    events = {"on_success": [{"type": "paid"}]}
    assert MEMBERS.part_of_replay(events) == events


def request_of(dependency: Dependency, **members: Any) -> OperationInput:
    body = {"dependency": dependency.name, "request": {"path": "/charges"}, "key": "k", **members}
    targets = Targets({dependency.name: dependency}, {}, ("azure-webjobs-",))
    return read_operation(
        parse_envelope(body), Naming(own=ScopedKey("explicit", "k")), targets, source="http", now=NOON
    )


FAILED = {"type": "charge.failed", "queue": "events", "data": {"order": 42}}


def test_an_operation_keeps_the_events_of_its_failure_then_those_of_its_dependency() -> None:
    toml = """
        [dependencies.payments]
        base_url = "http://payments.test"
        on_failure = [{ type = "payments.failed", queue = "alarm" }]
    """
    dependency = parse_config(toml, {}).dependencies["payments"]
    part = (request_of(dependency, on_failure=[FAILED]).parts or {})["outbox"]
    assert [event["type"] for event in part["on_failure"]] == ["charge.failed", "payments.failed"]
    assert (request_of(dependency).parts or {})["outbox"].keys() == {"on_failure"}
    assert request_of(PAYMENTS).parts is None


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        ({"on_failure": [FAILED, FAILED | {"data": 5}]}, "/on_failure/1"),
        ({"on_failure": [{"type": "t", "dependency": "gone", "path": "/"}]}, "/on_failure/0/dependency"),
        ({"on_recovered": [FAILED | {"queue": "azure-webjobs-x"}]}, "/on_recovered/0/queue"),
        ({"on_success": [FAILED] * 11, "on_recovered": [FAILED] * 10}, "/on_recovered"),
    ],
)
def test_events_that_could_not_be_sent_are_refused(members: dict[str, Any], pointer: str) -> None:
    assert pointers_of(request_of, PAYMENTS, **members) == [pointer]


def test_a_success_commits_what_it_sends_and_nothing_of_a_failure() -> None:
    operation = request_of(PAYMENTS, on_failure=[FAILED], on_recovered=[FAILED])
    assert operation.parts_to_commit() == {}
    assert operation.parts_to_commit(is_recovered=True).keys() == {"outbox"}
    assert operation.without_commit().parts is None
    assert request_of(PAYMENTS, on_success=[FAILED]).parts_to_commit().keys() == {"outbox"}


def test_a_recovered_success_has_its_events_behind_the_others() -> None:
    recovered = FAILED | {"type": "charge.recovered"}
    parts = {"outbox": {"on_success": [FAILED], "on_recovered": [recovered]}}
    plain = replace(a_success(), parts=parts)
    assert events_in(plain) == [FAILED]
    assert events_in(replace(plain, is_recovered=True)) == [FAILED, recovered]


@pytest.mark.parametrize("data", [None, {"order": 42}])
def test_an_event_of_a_failure_says_which_dead_letter_it_is(data: dict[str, int] | None) -> None:
    record = replace(of_operation(an_entry("op-1"), NOON), detail="x" * 600)
    said = with_dead_letter(FAILED | {"data": data}, record, "/api/dead-letters/dl-1")
    letter = said["data"].pop("dead_letter")
    assert said == FAILED | {"data": data or {}}
    assert letter.keys() == {"id", "reason", "category", "detail", "url"}
    assert (letter["id"], len(letter["detail"])) == (record.id, 500)

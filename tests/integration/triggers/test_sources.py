import json
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import azure.functions as func
import pytest
from azure.functions.meta import Datum
from azure.functions.servicebus import ServiceBusMessageInConverter

from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.base.names import DeadLetterReason
from durable_retry.dead_letters.records import keep_message
from durable_retry.features.dead_letter_lists.pages import list_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.features.sources.triggers import (
    dead_letters_service_bus,
    dead_letters_service_bus_topic,
)
from durable_retry.hub import task_hub
from durable_retry.hub.task_hub import Selection, TaskHub
from durable_retry.intake import intake as intake_module
from durable_retry.intake.intake import (
    SAMPLE_INTERVAL,
    BackpressureMonitor,
    Intake,
    NotAcceptedError,
    Refusal,
    accept_batch,
)
from durable_retry.operations.actions import submit
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.dead_letters.record import KeptDeadLetter
from durable_retry.rules.intake import Arrival, Backpressure, LagThresholds, host_instant, id_of_body
from durable_retry.rules.operations.keys import (
    EXPLICIT_SCOPE,
    EnvelopeName,
    envelope_key,
    operation_id_for,
)
from durable_retry.runtime import clock
from durable_retry.settings.configuration import using
from durable_retry.settings.intake import IntakeSettings
from scripts.processes import free_port
from tests.support.builders import NOON
from tests.support.hub import TaskHubStage, binding_for

CONFIG = parse_config('[dependencies.payments]\nbase_url = "http://127.0.0.1:9"', {})
CALL: dict[str, Any] = {
    "dependency": "payments",
    "request": {"method": "POST", "path": "/charges", "json": {"order": 1}},
}
EVENT: dict[str, Any] = {
    "specversion": "1.0",
    "id": "e-1",
    "source": "/shop",
    "type": "order.placed",
    "data": CALL,
}


def make(**changes: Any) -> Intake:
    return Intake(
        IntakeSettings().model_copy(update=changes), BackpressureMonitor(LagThresholds(), pause_seconds=0)
    )


def arrival(document: Any, native_id: str = "m-1", **more: Any) -> Arrival:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Arrival(**{"source": "queue", "place": "operations", "body": body, "native_id": native_id, **more})


async def started(hub: TaskHubStage) -> dict[str, str]:
    page, _ = await hub.binding.instance_page(Selection(), None)
    instances = [await hub.binding.read_instance(each.instanceId) for each in page]
    inputs = [each.input["operation"] for each in instances if each is not None]
    return {each["key"]: each["source"] for each in inputs}


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Reason and text of each dead letter that was written."""
    letters: list[tuple[str, str]] = []

    async def keep_and_signal(letter: KeptDeadLetter) -> str:
        letters.append((letter.reason.value, letter.message or ""))
        return await keep_message(letter)

    monkeypatch.setattr(intake_module, "keep_message", keep_and_signal)
    return letters


@pytest.mark.shows("C7")
async def test_an_arrival_that_comes_twice_is_one_operation(hub: TaskHubStage) -> None:
    for _ in range(2):
        await make().accept(hub.binding, arrival(CALL | {"key": "k"}))
    assert await started(hub) == {"k": "queue"}


async def test_the_first_name_that_is_there_is_taken(hub: TaskHubStage) -> None:
    fields = make(key_pointers={"kafka": ("/request/json/order",)})
    await make().accept(hub.binding, arrival(CALL))
    await make().accept(hub.binding, arrival(EVENT, "m-2"))
    await fields.accept(hub.binding, arrival(EVENT, "m-3", source="kafka"))
    await fields.accept(hub.binding, arrival(CALL | {"key": "mine"}, "m-4", source="kafka"))
    found = await started(hub)
    assert {key: found[key] for key in ("m-1", "/shop#e-1", "mine")} == {
        "m-1": "queue",
        "/shop#e-1": "queue",
        "mine": "kafka",
    }
    assert len(found) == 4


async def test_an_event_is_one_operation_whatever_brings_it(hub: TaskHubStage) -> None:
    for number, source in enumerate(("queue", "service_bus", "event_grid", "event_hubs", "kafka")):
        await make().accept(hub.binding, arrival(EVENT, f"id-{number}", source=source, place=source))
    assert await started(hub) == {"/shop#e-1": "queue"}
    assert envelope_key(EnvelopeName("/shop", "e-1")).key == "/shop#e-1"


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"not json", "MalformedJson"),
        (b"", "MalformedJson"),
        (b"[]", "ValidationFailed"),
        (b"[" * 100_000, "ValidationFailed"),
        (b"[" * 50_000, "MalformedJson"),
        (b'{"a":1,"a":' * 5_000 + b"1" + b"}" * 5_000, "ValidationFailed"),
        (b"[" + b'{"a":1,"a":2},' * 4_000 + b"1]", "ValidationFailed"),
        (json.dumps(dict.fromkeys(map(str, range(6_000)), 1)).encode(), "ValidationFailed"),
        (json.dumps(CALL).replace(": 1", ": 0.1000000000000000055").encode(), "ValidationFailed"),
        (json.dumps(CALL | {"dependency": "nobody"}).encode(), "UnknownDependency"),
        (json.dumps(EVENT | {"data": CALL | {"dependency": "nobody"}}).encode(), "UnknownDependency"),
        (json.dumps(EVENT | {"id": 5}).encode(), "ValidationFailed"),
        (json.dumps(CALL | {"retry": {"max_attempts": 99}}).encode(), "ValidationFailed"),
    ],
)
@pytest.mark.shows("C5")
async def test_what_is_no_operation_is_kept_and_done(
    hub: TaskHubStage, kept: list[tuple[str, str]], body: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        await make().accept(hub.binding, arrival(body))
    assert kept == [(reason, body.decode())]
    assert all(record.exc_info is None for record in caplog.records)


@pytest.mark.usefixtures("storage")
async def test_bytes_that_are_no_text_are_kept_in_base64(
    hub: TaskHubStage, kept: list[tuple[str, str]]
) -> None:
    await make().accept(hub.binding, arrival(b"\xff\x00"))
    assert kept == [("MalformedJson", "data:application/octet-stream;base64,/wA=")]


@pytest.mark.usefixtures("storage")
async def test_a_key_that_stands_for_another_request_is_kept(
    hub: TaskHubStage, kept: list[tuple[str, str]]
) -> None:
    other = CALL | {"key": "k", "request": {"method": "GET", "path": "/"}}
    await make().accept(hub.binding, arrival(CALL | {"key": "k"}, "m-1"))
    await make().accept(hub.binding, arrival(other, "m-2"))
    assert [reason for reason, _ in kept] == ["ValidationFailed"]


@pytest.mark.usefixtures("storage")
async def test_a_mistake_of_ours_does_not_hold_up_the_source(
    hub: TaskHubStage, kept: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake_module, "read_operation", Mock(side_effect=KeyError("a bug")))
    await make().accept(hub.binding, arrival(CALL))
    assert [reason for reason, _ in kept] == ["PoisonMessage"]


async def test_trouble_of_our_own_leaves_the_arrival_to_its_source() -> None:
    with using(CONFIG), pytest.raises(NotAcceptedError):
        await make().accept(binding_for(free_port()), arrival(CALL))
    await task_hub.close_clients()


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize("order", ["partition", "none"])
async def test_a_bad_arrival_neither_fails_nor_blocks_its_neighbours(
    hub: TaskHubStage, kept: list[tuple[str, str]], *, order: str
) -> None:
    batch = [arrival(CALL, f"m-{number}", partition="0") for number in range(5)]
    batch[2] = arrival(b"{", "m-2", partition="0")
    for _ in range(2):
        assert await make(intake_order=order).accept_all(hub.binding, batch) == []
    assert sorted(await started(hub)) == ["m-0", "m-1", "m-3", "m-4"]
    assert {reason for reason, _ in kept} == {"MalformedJson"}


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize(
    ("source", "place", "partition"),
    [("event_hubs", "orders", "3"), ("kafka", "orders", "0"), ("service_bus", "orders", "customer-7")],
)
async def test_messages_of_a_partition_or_session_run_in_its_order_and_fail_as_the_dependency_says(
    hub: TaskHubStage, source: str, place: str, partition: str
) -> None:
    toml = '[dependencies.payments]\nbase_url = "http://127.0.0.1:9"\norder_on_failure = "skip"'
    more = {"source": source, "place": place, "partition": partition}
    own = CALL | {"order_key": "own", "order_on_failure": "block"}
    with using(parse_config(toml, {})):
        intake = make(intake_order="order_key")
        left = await intake.accept_all(
            hub.binding, [arrival(CALL, "m-1", **more), arrival(own, "m-2", **more)]
        )
    assert left == []
    page, _ = await hub.binding.instance_page(Selection(), None)
    read = [await hub.binding.read_instance(each.instanceId) for each in page]
    found = {each.input["operation"]["key"]: each.input["operation"] for each in read if each is not None}
    parts = {key: one["parts"]["order"] for key, one in found.items()}
    orders = {key: (part["key"], part["on_failure"]) for key, part in parts.items()}
    assert orders == {"m-1": (f"{source}:{place}:{partition}", "skip"), "m-2": ("own", "block")}


@pytest.mark.parametrize("order", ["partition", "none"])
async def test_what_could_not_start_is_left_and_in_order_holds_up_its_partition_only(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch, *, order: str
) -> None:
    refused = operation_id_for(EXPLICIT_SCOPE, "a-1")
    start = TaskHub.start_operation

    async def start_unless_refused(binding: TaskHub, operation: Any, start_id: str, *_: Any) -> bool:
        if operation.operation_id == refused:
            raise TaskHubUnavailableError("the hub is away, as this test wants it")
        return await start(binding, operation, start_id)

    monkeypatch.setattr(TaskHub, "start_operation", start_unless_refused)
    keys = ["a-0", "b-0", "a-1", "b-1", "a-2"]
    batch = [arrival(CALL | {"key": key}, key, partition=key[0]) for key in keys]
    left = await make(intake_order=order).accept_all(hub.binding, batch)
    assert [each.native_id for each in left] == (["a-1", "a-2"] if order == "partition" else ["a-1"])
    assert sorted(await started(hub)) == sorted(set(keys) - {each.native_id for each in left})


async def test_what_is_far_behind_is_left_to_a_source_that_brings_it_again(hub: TaskHubStage) -> None:
    behind = make()
    await behind.accept(hub.binding, arrival(CALL | {"key": "first"}))
    (probe,) = behind.backpressure.probes.values()
    probe.backpressure = Backpressure.DEPENDENCY
    probe.sampled_at += SAMPLE_INTERVAL * 1000  # it is not looked at again while the test lasts
    with pytest.raises(NotAcceptedError, match="the dependency payments is far behind"):
        await behind.accept(hub.binding, arrival(CALL | {"key": "second"}, may_be_left=True))
    await behind.accept(hub.binding, arrival(CALL | {"key": "third"}, may_be_left=False))
    assert await started(hub) == {"first": "queue", "third": "queue"}


async def test_no_more_starts_are_under_way_than_the_setting_allows(
    hub: TaskHubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way: list[int] = [0]
    seen: list[int] = []

    async def counted(*given: Any) -> Any:
        under_way[0] += 1
        seen.append(under_way[0])
        try:
            return await submit(*given)
        finally:
            under_way[0] -= 1

    monkeypatch.setattr(intake_module, "submit", counted)
    batch = [arrival(CALL | {"key": f"k-{number}"}) for number in range(20)]
    assert await make(intake_concurrency=3).accept_all(hub.binding, batch) == []
    assert max(seen) == 3
    assert len(await started(hub)) == 20


async def letters() -> list[KeptDeadLetter]:
    return list((await list_dead_letters(DeadLetterFilter(), limit=10, cursor=None)).records)


POISON = Refusal(DeadLetterReason.POISON_MESSAGE, "given up")


@pytest.mark.usefixtures("own_tables")
async def test_a_message_that_is_given_up_says_when_it_was_first_left_and_how_often_delivered() -> None:
    intake, away = make(), binding_for(free_port())
    with using(CONFIG), clock.reading(lambda: NOON), pytest.raises(NotAcceptedError):
        await intake.accept(away, arrival(CALL))
    await intake.keep_refused(arrival(CALL, deliveries=4), POISON, NOON + timedelta(seconds=30))
    await task_hub.close_clients()
    (letter,) = await letters()
    assert letter.detail == (
        "given up; deliveries: 4, the first at 2026-11-21T12:00:00Z, the last at 2026-11-21T12:00:30Z"
    )
    assert letter.first_failed_at == NOON
    assert intake.left_since == {}


async def test_a_message_that_is_accepted_later_was_left_no_more(hub: TaskHubStage) -> None:
    intake = make()
    intake.left_since[id_of_body(arrival(CALL).body)] = NOON
    await intake.accept(hub.binding, arrival(CALL))
    assert intake.left_since == {}


async def test_the_latest_that_were_left_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "_MOST_LEFT", 2)
    intake, away, bodies = make(), binding_for(free_port()), [CALL | {"key": f"k-{n}"} for n in range(3)]
    with using(CONFIG):
        await intake.accept_all(away, [arrival(body) for body in bodies])
    await task_hub.close_clients()
    assert len(intake.left_since) == 2


@pytest.mark.usefixtures("own_tables")
async def test_deliveries_that_differ_make_no_group_of_their_own() -> None:
    intake = make()
    for deliveries in (1, 4):
        await intake.keep_refused(arrival(CALL, f"m-{deliveries}", deliveries=deliveries), POISON)
    first, second = await letters()
    assert (first.group, first.detail != second.detail) == (second.group, True)


@pytest.mark.usefixtures("own_tables")
@pytest.mark.parametrize("keep", [dead_letters_service_bus, dead_letters_service_bus_topic])
async def test_what_service_bus_gave_up_is_a_dead_letter_with_its_reason(
    keep: Callable[[func.ServiceBusMessage], Awaitable[None]],
) -> None:
    values = {
        "MessageId": "m-7",
        "DeliveryCount": 11,
        "DeadLetterReason": "MaxDeliveryCountExceeded",
        "DeadLetterErrorDescription": "Message could not be consumed after 10 delivery attempts.",
        "EnqueuedTimeUtc": "2026-11-21T12:00:00Z",
        "UserProperties": {},
    }
    metadata = {name: Datum(json.dumps(value), "json") for name, value in values.items()}
    body = Datum(json.dumps(CALL).encode(), "bytes")
    message: Any = ServiceBusMessageInConverter.decode(body, trigger_metadata=metadata)
    await keep(message)
    (letter,) = await letters()
    assert (letter.key, letter.message, letter.reason) == ("m-7", json.dumps(CALL), "PoisonMessage")
    assert letter.source == keep.__name__.removeprefix("dead_letters_")
    assert letter.detail == (
        "Service Bus gave it up: MaxDeliveryCountExceeded: Message could not be consumed after 10 delivery "
        "attempts.; deliveries: 10, the first at 2026-11-21T12:00:00Z"
    )


@pytest.mark.usefixtures("own_tables")
async def test_the_last_run_of_a_batch_says_how_many_there_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "intake", make)
    retry = SimpleNamespace(retry_count=3, max_retry_count=3, rpc_exception=None)
    context: Any = SimpleNamespace(function_name="f", retry_context=retry)
    with using(CONFIG):
        await accept_batch(binding_for(free_port()), [arrival(CALL)], context)
    await task_hub.close_clients()
    (letter,) = await letters()
    assert "; deliveries: 4, the last at " in letter.detail


def test_an_instant_of_a_binding_without_an_offset_is_utc() -> None:
    naive = datetime(2026, 11, 21, 12)  # noqa: DTZ001 - as the SDK makes it
    assert [host_instant(instant) for instant in (naive, NOON, None)] == [NOON, NOON, None]

"""Whatever a source delivers ends as an operation or as a dead letter: nothing raises, nothing is lost.

The bytes go the whole way: the binding's own converter, the function, the intake. Only the two ends are ours:
starting, which may fail as a task hub that is away does, and keeping.
"""

import base64
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import pytest
from azure.functions.eventhub import EventHubTriggerConverter
from azure.functions.kafka import KafkaTriggerConverter
from azure.functions.queue import QueueMessageInConverter
from azure.functions.servicebus import ServiceBusMessageInConverter
from azure_functions_runtime.bindings.datumdef import Datum
from azure_functions_runtime.bindings.generic import GenericBinding
from hypothesis import example, given, settings
from hypothesis import strategies as st

from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.features.sources import triggers
from durable_retry.features.sources.settings import SourceSettings
from durable_retry.features.sources.triggers import (
    operations_cosmos_db,
    operations_event_grid,
    operations_event_hubs,
    operations_kafka,
    operations_service_bus,
)
from durable_retry.hub.task_hub import TaskHub
from durable_retry.intake import intake as intake_module
from durable_retry.intake.intake import NotAcceptedError, intake
from durable_retry.intake.queue_triggers import operations_queue
from durable_retry.operations.actions import Started, SubmitResult
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.dead_letters.record import KeptDeadLetter
from durable_retry.rules.intake import LagThresholds
from durable_retry.rules.operations.keys import visible
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.settings.configuration import using
from durable_retry.settings.intake import IntakeSettings

CONFIG = parse_config('[dependencies.payments]\nbase_url = "https://payments.example.com"', {})
CALL: dict[str, Any] = {
    "dependency": "payments",
    "request": {"method": "POST", "path": "/charges", "json": {"amount": 5}},
}
EVENT: dict[str, Any] = {"specversion": "1.0", "id": "e", "source": "/s", "type": "t", "data": CALL}
GOOD = json.dumps(CALL).encode()

NO_LAG = LagThresholds(task_hub_seconds=0, dependency_seconds=0)


@dataclass
class Ends:
    """What became of what was delivered."""

    hub_is_away: bool = False
    started: list[OperationInput] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    async def submit(self, _hub: str, operation: OperationInput) -> SubmitResult:
        if self.hub_is_away:
            raise TaskHubUnavailableError("away, as this test wants it")
        json.dumps(operation.to_json()).encode()  # whatever is started can be stored
        self.started.append(operation)
        return Started()

    async def keep(self, letter: KeptDeadLetter) -> str:
        json.dumps(letter.to_json()).encode()
        self.kept.append(letter.message or "")
        return "dl-1"


@contextmanager
def ends(*, hub_is_away: bool = False, order: str = "none", **sources: Any) -> Iterator[Ends]:
    found = Ends(hub_is_away)
    intake.cache_clear()
    with (
        using(CONFIG),
        patch.object(
            intake_module,
            "intake_settings",
            lambda: IntakeSettings(
                intake_task_hub_lag_seconds=0, intake_dependency_lag_seconds=0, intake_order=order
            ),
        ),
        patch.object(triggers, "source_settings", lambda: SourceSettings(**sources)),
        patch.object(intake_module, "submit", found.submit),
        patch.object(intake_module, "keep_message", found.keep),
    ):
        yield found
    intake.cache_clear()


def context(*, is_last_run: bool) -> Any:
    retry = SimpleNamespace(retry_count=1, max_retry_count=1 if is_last_run else -1, rpc_exception=None)
    return SimpleNamespace(function_name="f", retry_context=retry)


def metadata_of(**values: Any) -> dict[str, Any]:
    return {name: Datum(json.dumps(value), "json") for name, value in values.items()}


def batch(bodies: list[bytes]) -> Any:
    return Datum(SimpleNamespace(bytes=bodies), "collection_bytes")


def by_queue(body: bytes, _: Any) -> Awaitable[None]:
    try:
        datum = Datum(body.decode(), "string")
    except UnicodeDecodeError:
        datum = Datum(body, "bytes")
    message = QueueMessageInConverter.decode(datum, trigger_metadata=metadata_of(Id="m", DequeueCount=1))
    run: Any = operations_queue
    return run._function._func(message, hub="hub")  # type: ignore[no-any-return] # the SDK's builder has no types


def by_service_bus(body: bytes, _: Any) -> Awaitable[None]:
    metadata = metadata_of(UserProperties={}, MessageId="m", DeliveryCount=1)
    message: Any = ServiceBusMessageInConverter.decode(Datum(body, "bytes"), trigger_metadata=metadata)
    return operations_service_bus(message, TaskHub("hub"))


def by_event_grid(body: bytes, _: Any) -> Awaitable[None]:
    event = GenericBinding.decode(Datum(body.decode(errors="replace"), "json"), trigger_metadata={})
    run: Any = operations_event_grid
    return run._function._func(event, hub="hub")  # type: ignore[no-any-return] # as above


def by_event_hubs(body: bytes, run_context: Any) -> Awaitable[None]:
    systems = [{"SequenceNumber": number} for number in range(2)]
    metadata = metadata_of(PartitionContext={"PartitionId": "0"}, SystemPropertiesArray=systems)
    events: Any = EventHubTriggerConverter.decode(batch([body, GOOD]), trigger_metadata=metadata)
    return operations_event_hubs(events, run_context, TaskHub("hub"))


def by_kafka(body: bytes, run_context: Any) -> Awaitable[None]:
    metadata = metadata_of(
        PartitionArray=[0, 0], KeyArray=[None, None], HeadersArray=[[], []], TimestampArray=["", ""]
    ) | {
        "OffsetArray": Datum(SimpleNamespace(sint64=[1, 2]), "collection_sint64"),
        "TopicArray": Datum(SimpleNamespace(string=["t", "t"]), "collection_string"),
    }
    events: Any = KafkaTriggerConverter.decode(batch([body, GOOD]), trigger_metadata=metadata)
    return operations_kafka(events, run_context, TaskHub("hub"))


def by_cosmos_db(body: bytes, run_context: Any) -> Awaitable[None]:
    """A document is JSON always; what is none comes as the batch's whole text, with no neighbour in it."""
    neighbour = CALL | {"id": "good", "_etag": '"1"'}
    try:
        text = json.dumps([json.loads(body), neighbour])
    except (ValueError, RecursionError):
        text = body.decode(errors="replace")
    documents = GenericBinding.decode(Datum(text, "json"), trigger_metadata={})
    return operations_cosmos_db(documents, run_context, TaskHub("hub"))


SINGLE: dict[str, Callable[[bytes, Any], Awaitable[None]]] = {
    "queue": by_queue,
    "service_bus": by_service_bus,
    "event_grid": by_event_grid,
}
BATCHES: dict[str, Callable[[bytes, Any], Awaitable[None]]] = {
    "event_hubs": by_event_hubs,
    "kafka": by_kafka,
    "cosmos_db": by_cosmos_db,
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = (
    *CALL,
    *EVENT,
    "handler",
    "input",
    "key",
    "retry",
    "on_success",
    "eventType",
    "subject",
    "topic",
    "x",
)


def twisted(base: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An operation or an event with some of its parts replaced by anything."""
    return st.dictionaries(st.sampled_from(NAMES), JSON, max_size=3).map(lambda changes: base | changes)


def in_any_coding(text: str) -> st.SearchStrategy[bytes]:
    codings = ("utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252", "utf-7")
    plain = st.sampled_from(codings).map(lambda coding: text.encode(coding, errors="replace"))
    return plain | st.just(base64.b64encode(text.encode(errors="replace")))


DOCUMENTS = JSON | twisted(CALL) | twisted(EVENT)
BODIES = st.binary(max_size=100) | DOCUMENTS.map(json.dumps).flatmap(in_any_coding)

DEEP = b"[" * 200_000
DEEPER_THAN_ALLOWED = json.dumps(CALL | {"input": json.loads("[" * 400 + "]" * 400)}).encode()
HUGE = json.dumps(CALL | {"correlation_id": "x" * 2_000_000}).encode()
DIGITS = b'{"dependency": ' + b"9" * 50_000 + b"}"
EDGES = (DEEP, DEEPER_THAN_ALLOWED, HUGE, DIGITS, b"", b"null", b"\xef\xbb\xbf" + GOOD, b"\x00", b"[]")


def with_edges(test: Any) -> Any:
    for edge in EDGES:
        test = example(body=edge)(test)
    return test


@pytest.mark.parametrize("source", SINGLE)
@settings(max_examples=60)
@given(body=BODIES)
@with_edges
async def test_a_single_message_ends_as_an_operation_or_a_dead_letter(source: str, body: bytes) -> None:
    with ends() as found:
        await SINGLE[source](body, None)
    assert len(found.started) + len(found.kept) == 1


@pytest.mark.parametrize("source", BATCHES)
@settings(max_examples=60)
@given(body=BODIES)
@with_edges
async def test_a_neighbour_of_anything_is_started(source: str, body: bytes) -> None:
    with ends() as found:
        await BATCHES[source](body, context(is_last_run=False))
    if source == "cosmos_db" and len(found.started) + len(found.kept) == 1:
        assert found.kept  # the text was no list of documents, and was kept whole
        return
    assert len(found.started) + len(found.kept) == 2
    assert {"amount": 5} in [(started.request or {}).get("json") for started in found.started]


@pytest.mark.parametrize("source", [*SINGLE, *BATCHES])
@settings(max_examples=30)
@given(body=BODIES)
@with_edges
async def test_while_the_hub_is_away_all_is_kept_or_left_to_the_source(source: str, body: bytes) -> None:
    with ends(hub_is_away=True) as found:
        try:
            await (SINGLE | BATCHES)[source](body, context(is_last_run=False))
        except NotAcceptedError:
            return
    assert len(found.kept) >= 1
    assert source in SINGLE or source == "cosmos_db"


@pytest.mark.parametrize("source", BATCHES)
@settings(max_examples=30)
@given(body=BODIES)
@with_edges
async def test_the_last_run_keeps_what_no_delivery_will_bring_again(source: str, body: bytes) -> None:
    with ends(hub_is_away=True) as found:
        await BATCHES[source](body, context(is_last_run=True))
    assert len(found.kept) == 2 or (source == "cosmos_db" and len(found.kept) == 1)


def of_session(number: int, session_id: str | None) -> Awaitable[None]:
    # The host sends texts as such, and no value for what a message has not.
    session = None if session_id is None else Datum(session_id, "string")
    metadata = metadata_of(UserProperties={}, DeliveryCount=1) | {
        "MessageId": Datum(f"m-{number}", "string"),
        "SessionId": session,
    }
    message: Any = ServiceBusMessageInConverter.decode(Datum(GOOD, "bytes"), trigger_metadata=metadata)
    return operations_service_bus(message, TaskHub("hub"))


LONG: Final = "\u00e9" * 128
"""A session id as long as Service Bus takes one; escaped, it is longer than an order key may be."""


@pytest.mark.parametrize(
    ("session_id", "order_key"),
    [
        ("basket 7", "service_bus:orders/x:basket%207"),
        ("0", "service_bus:orders/x:0"),
        ("", None),
        (None, None),
        (LONG, visible(f"service_bus:orders/x:{LONG}")),
    ],
)
async def test_messages_of_a_session_have_one_order_key(
    session_id: str | None, order_key: str | None
) -> None:
    place: dict[str, Any] = {"service_bus_queue": "orders/x", "service_bus_connection": "c"}
    with ends(order="order_key", **place) as found:
        for number in range(2):
            await of_session(number, session_id)
    assert [each.order_key for each in found.started] == [order_key] * 2


ORDER_KEYS: Final = {"event_hubs": "event_hubs:clicks:0", "kafka": "kafka:t:0"}


@pytest.mark.parametrize("source", ORDER_KEYS)
async def test_events_of_a_partition_have_one_order_key(source: str) -> None:
    place: dict[str, Any] = {"event_hub": "clicks", "event_hub_connection": "c"}
    with ends(order="order_key", **place) as found:
        await BATCHES[source](GOOD, context(is_last_run=False))
    assert [each.order_key for each in found.started] == [ORDER_KEYS[source]] * 2


@pytest.mark.parametrize("source", [*SINGLE, *BATCHES])
async def test_without_the_setting_nothing_has_an_order_key(source: str) -> None:
    with ends(order="partition") as found:
        await (SINGLE | BATCHES)[source](GOOD, context(is_last_run=False))
    assert {each.order_key for each in found.started} == {None}

"""Every other way in, fired as its service's host would: payloads in the shapes of the extensions' own code.

Event Hubs: `EventHubTriggerBindingStrategy`; Kafka: `KafkaTriggerBindingStrategy`; Service Bus and Cosmos DB:
their trigger references on Microsoft Learn; Event Grid: its webhook, in both schemas.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from durable_retry.rules.operations.keys import (
    EXPLICIT_SCOPE,
    EnvelopeName,
    ScopedKey,
    envelope_key,
    fields_name,
    operation_id_for,
    source_name,
)
from scripts.processes import ROOT, ServerDidNotStartError, eventually
from tests.support.app import System, operation
from tests.support.azurite import Account
from tests.support.semantics import Calls
from tests.support.target import Target

SETTINGS = {
    "SERVICE_BUS_QUEUE": "orders",
    "SERVICE_BUS_CONNECTION": "Endpoint=sb://shop.example/;SharedAccessKeyName=n;SharedAccessKey=k",
    "EVENT_HUB": "clicks",
    "EVENT_HUB_CONNECTION": "Endpoint=sb://shop.example/;SharedAccessKeyName=n;SharedAccessKey=k",
    "COSMOS_DATABASE": "shop",
    "COSMOS_CONTAINER": "orders",
    "COSMOS_CONNECTION": "AccountEndpoint=https://shop.example/;AccountKey=k",
    "KAFKA_BROKERS": "shop.example:9092",
    "KAFKA_TOPIC": "orders",
    "KEY_POINTERS_KAFKA": "/request/json/order, /dependency",
    "SCHEDULED_OPERATIONS": """
        [operations.daily]
        schedule = "0 30 3 * * *"
        dependency = "flaky"
        request = { method = "POST", path = "/echo", json = { report = "daily" } }
    """
    + "".join(
        f"""
        [operations.hourly-{catch_up}]
        schedule = "0 0 * * * *"
        catch_up = "{catch_up}"
        dependency = "flaky"
        request = {{ method = "POST", path = "/echo" }}
        """
        for catch_up in ("all", "last", "none")
    ),
}
MISSED_HOURS = 3


@dataclass
class Sources:
    """The app with every source, and how each is fired.

    Attributes:
        missed: The due times of the hourly timers that passed while the app was away.
    """

    system: System
    storage: Account
    missed: list[str]

    def fire(self, function: str, given: Any, **metadata: Any) -> None:
        body = {"input": given, "metadata": metadata}
        answer = self.system.client.post(f"/admin/functions/{function}", json=body)
        assert answer.status_code == 202, answer.text

    def put(self, document: Any) -> None:
        with self.storage.queue("operations") as queue:
            queue.send_message(json.dumps(document))

    def event_grid(self, *events: Any) -> int:
        path = "/runtime/webhooks/eventgrid?functionName=operations_event_grid"
        return self.system.client.post(path, json=list(events)).status_code

    def event_hubs(self, bodies: list[Any], numbers: list[int], partition: str = "1") -> None:
        systems = [
            {
                "SequenceNumber": number,
                "Offset": str(number * 100),
                "PartitionKey": None,
                "EnqueuedTimeUtc": "",
            }
            for number in numbers
        ]
        self.fire(
            "operations_event_hubs",
            bodies,
            PartitionContext={
                "FullyQualifiedNamespace": "shop.example",
                "EventHubName": "clicks",
                "ConsumerGroup": "$Default",
                "PartitionId": partition,
            },
            SequenceNumberArray=numbers,
            SystemPropertiesArray=systems,
        )

    def kafka(self, bodies: list[Any], offsets: list[int], partition: int = 2) -> None:
        count = len(bodies)
        self.fire(
            "operations_kafka",
            bodies,
            TopicArray=["orders"] * count,
            PartitionArray=[partition] * count,
            OffsetArray=offsets,
            KeyArray=[None] * count,
            HeadersArray=[[]] * count,
            TimestampArray=["2026-11-21T09:30:00Z"] * count,
        )

    def ends(self, name: ScopedKey) -> dict[str, Any]:
        operation_id = operation_id_for(name.scope, name.key)

        def found() -> dict[str, Any] | None:
            answer = self.system.client.get(f"/api/operations/{operation_id}")
            return answer.json() if answer.status_code == 200 else None

        eventually(found, f"the operation {name} is there")
        return self.system.until(operation_id, "succeeded")

    def tries(self, key: str) -> int:
        return self.system.target.totals().get(key, 0)

    def kept(self, source: str, reason: str) -> list[dict[str, Any]]:
        """Returns the dead letters of one source and reason, once there are any."""

        def found() -> list[dict[str, Any]] | None:
            answer = self.system.client.get("/api/dead-letters", params={"reason": reason, "limit": "200"})
            assert answer.status_code == 200, answer.text
            return [item for item in answer.json()["items"] if item["source"] == source] or None

        return eventually(found, f"there is a dead letter {reason} from {source}")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory, target: Target) -> Iterator[Sources]:
    folder: Path = tmp_path_factory.mktemp("sources")
    system = System(folder, target, app=ROOT, **SETTINGS)
    missed = away_for_hours(folder / "data")
    with system.running():
        yield Sources(system, system.storage, missed)


def away_for_hours(data: Path) -> list[str]:
    """Leaves the host's record of the hourly timers as an app does that then was away for three hours.

    Returns:
        The due times that it missed.
    """
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    last, *missed = (now - timedelta(hours=hours) for hours in range(MISSED_HOURS, -1, -1))
    status = {"last": last.isoformat(), "next_due": missed[0].isoformat(), "updated": last.isoformat()}
    data.mkdir()
    names = [f"scheduled_hourly-{catch_up}" for catch_up in ("all", "last", "none")]
    (data / "timers.json").write_text(json.dumps(dict.fromkeys(names, status)))
    return [due.strftime("%Y-%m-%dT%H:%M:%SZ") for due in missed]


def call(path: str = "/echo", **fields: Any) -> dict[str, Any]:
    body = operation("", path, request={"json": fields} if fields else {})
    del body["key"]
    return body


def cloud_event(event_id: str, data: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": event_id, "source": "/shop", "type": "order.placed", "data": data}


def event_grid_event(event_id: str, data: Any) -> dict[str, Any]:
    return {
        "id": event_id,
        "topic": "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventGrid/topics/shop",
        "subject": "orders/1",
        "eventType": "order.placed",
        "eventTime": "2026-11-21T09:30:00Z",
        "data": data,
        "dataVersion": "1.0",
        "metadataVersion": "1",
    }


def test_a_service_bus_message_is_named_by_its_message_id(sources: Sources) -> None:
    for _ in range(2):
        sources.fire("operations_service_bus", call("/fail/1"), MessageId="m 1", DeliveryCount=1)
    document = sources.ends(source_name("service_bus", "orders", "m 1"))
    assert (document["source"], document["key"], document["attempt_count"]) == ("service_bus", "m%201", 2)
    assert sources.tries("m%201") == 2


def test_event_grid_events_of_both_schemas_are_named_by_source_and_id(sources: Sources) -> None:
    placed = event_grid_event("g-1", call())
    assert sources.event_grid(cloud_event("c-1", call()), placed) == 202
    assert sources.ends(envelope_key(EnvelopeName("/shop", "c-1")))["key"] == "/shop#c-1"
    assert sources.ends(envelope_key(EnvelopeName(placed["topic"], "g-1")))["source"] == "event_grid"


@pytest.mark.shows("C6")
def test_an_event_hubs_batch_is_named_event_by_event_and_a_bad_one_is_kept_alone(sources: Sources) -> None:
    for _ in range(2):
        sources.event_hubs([call(), "{", cloud_event("hub", call())], [41, 42, 43])
    assert sources.ends(source_name("event_hubs", "clicks", "1-41"))["key"] == "1-41"
    assert sources.ends(envelope_key(EnvelopeName("/shop", "hub")))["source"] == "event_hubs"
    kept = sources.kept("event_hubs", "MalformedJson")
    assert [(letter["key"], letter["message"]) for letter in kept] == [("1-42", "{")]
    assert sources.tries("1-41") == Calls(1)


def test_a_batch_of_one_is_a_batch(sources: Sources) -> None:
    sources.event_hubs([call()], [7], partition="0")
    assert sources.ends(source_name("event_hubs", "clicks", "0-7"))["source"] == "event_hubs"


def test_a_change_is_named_by_id_and_etag_so_that_the_next_one_is_new(sources: Sources) -> None:
    def changed(etag: str) -> dict[str, Any]:
        return {
            **call(),
            "id": "order-1",
            "_rid": "r",
            "_self": "s",
            "_etag": f'"{etag}"',
            "_attachments": "attachments/",
            "_ts": 1763717400,
            "_lsn": 5,
        }

    for batch in (
        [changed("e1")],
        [changed("e1"), {"id": "bad", "_etag": '"x"', "colour": 1}, changed("e2")],
    ):
        sources.fire("operations_cosmos_db", batch)
    assert sources.ends(source_name("cosmos_db", "shop/orders", "order-1-e1"))["key"] == "order-1-e1"
    assert sources.ends(source_name("cosmos_db", "shop/orders", "order-1-e2"))["source"] == "cosmos_db"
    assert sources.tries("order-1-e1") == Calls(1)
    assert [letter["key"] for letter in sources.kept("cosmos_db", "ValidationFailed")] == ["bad-x"]


def test_a_key_made_of_fields_does_not_mind_their_order_nor_the_offset(sources: Sources) -> None:
    first = call(order=1, note="a")
    again = dict(reversed(first.items())) | {
        "request": dict(reversed(first["request"].items())) | {"json": {"note": "a", "order": 1.0}}
    }
    sources.kafka([first, again], [10, 11])
    sources.kafka([again, "nonsense"], [11, 12])
    name = fields_name(first, ["/request/json/order", "/dependency"])
    assert sources.ends(name)["source"] == "kafka"
    assert sources.tries(name.key) == Calls(1)
    assert [letter["key"] for letter in sources.kept("kafka", "MalformedJson")] == ["orders-2-12"]


def test_two_fires_for_one_due_time_are_one_run(sources: Sources) -> None:
    for _ in range(2):
        sources.fire("scheduled_daily", None)

    key = eventually(lambda: runs_of(sources, "daily") or None, "the run is there")[0]
    assert key[-10:] == "T03:30:00Z"
    sources.ends(source_name("timer", "", key))
    assert sources.tries(key) == Calls(1)
    assert len(runs_of(sources, "daily")) == 1


def test_what_timers_missed_while_the_app_was_away_is_made_good_as_each_says(sources: Sources) -> None:
    for due in sources.missed:
        assert sources.ends(source_name("timer", "", f"hourly-all@{due}"))["source"] == "timer"
    sources.ends(source_name("timer", "", f"hourly-last@{sources.missed[-1]}"))
    # An hour may end while this runs, and each timer then fires for it.
    assert made_good(sources, "hourly-all") == sources.missed
    assert made_good(sources, "hourly-last") == sources.missed[-1:]
    assert made_good(sources, "hourly-none") == []


def made_good(sources: Sources, name: str) -> list[str]:
    dues = (key.partition("@")[2] for key in runs_of(sources, name))
    return sorted(due for due in dues if due <= sources.missed[-1])


def runs_of(sources: Sources, name: str) -> list[str]:
    """The keys of a schedule's runs."""
    items = sources.system.client.get("/api/operations", params={"limit": "200"}).json()["items"]
    return [item["key"] for item in items if item["source"] == "timer" and item["key"].startswith(f"{name}@")]


def test_one_event_by_http_queue_and_event_grid_runs_once(sources: Sources, key: str) -> None:
    event = cloud_event(key, call("/fail/1"))
    assert sources.event_grid(event) == 202
    sources.put(event)
    headers = {"content-type": "application/cloudevents+json"}
    posted = sources.system.client.post("/api/operations", content=json.dumps(event), headers=headers)
    assert posted.status_code in {200, 202}
    sources.event_hubs([event], [99])
    name = envelope_key(EnvelopeName("/shop", key))
    assert sources.ends(name)["operation_id"] == posted.json()["operation_id"]
    sources.fire("operations_service_bus", event, MessageId="another")
    assert sources.event_grid(event) == 202
    assert sources.tries(name.key) == 2


def test_what_is_enqueued_runs_under_the_id_of_the_answer(sources: Sources, key: str) -> None:
    answer = sources.system.client.post("/api/operations/enqueue", json=operation(key, "/echo"))
    assert answer.status_code == 202, answer.text
    assert sources.ends(ScopedKey(EXPLICIT_SCOPE, key))["operation_id"] == answer.json()["operation_id"]


@pytest.mark.long
def test_half_configured_sources_stop_the_start_and_all_that_is_missing_is_logged(
    sources: Sources, tmp_path: Path, target: Target
) -> None:
    half = {
        "AzureWebJobsStorage": sources.storage.connection_string,  # none of its own has to start
        "SERVICE_BUS_QUEUE": "q",
        "KAFKA_TOPIC": "t",
        "SCHEDULED_OPERATIONS": "[operations.a]\nschedule = '* *'",
    }
    system = System(tmp_path, target, app=ROOT, **half)
    with pytest.raises(ServerDidNotStartError):
        system.server.start()
    log = system.log()
    missing = ("SERVICE_BUS_CONNECTION: is missing", "KAFKA_BROKERS: is missing", "/operations/a/schedule")
    assert [name for name in missing if name not in log] == []

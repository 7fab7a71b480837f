import json
from datetime import UTC, datetime
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from onebox.environment import AppSettings
from onebox.triggers.manual import ManualTriggers, event_data
from onebox.worker.functions import Binding, Function

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)


def function(kind: str, **properties: Any) -> Function:
    return Function("f", "id", Binding("events", kind, is_output=False, properties=properties))


def read(datum: Any) -> Any:
    match datum.type:
        case "json":
            return json.loads(datum.value)
        case "collection_sint64":
            return datum.value.sint64
        case "collection_string":
            return datum.value.string
        case "collection_bytes":
            return datum.value.bytes
    return datum.value


def test_a_batch_has_its_partition_once_and_the_rest_per_message() -> None:
    made = event_data(function("eventHubTrigger", cardinality="MANY"), '["a", "b"]', NOW, {})
    assert made is not None
    data, metadata = made
    assert read(data) == ["a", "b"]
    assert read(metadata["PartitionContext"]) == {"PartitionId": "0"}
    assert read(metadata["SequenceNumberArray"]) == [0, 1]
    assert "PartitionContextArray" not in metadata


def test_a_list_per_message_stands_in_place_of_what_is_made_up() -> None:
    metadata = {"OffsetArray": [7, 9], "Topic": "orders"}
    made = event_data(function("kafkaTrigger", cardinality="MANY"), '["a", "b"]', NOW, metadata)
    assert made is not None
    assert read(made[1]["OffsetArray"]) == [7, 9]
    assert read(made[1]["TopicArray"]) == ["orders", "orders"]
    assert "OffsetArrayArray" not in made[1]


async def test_messages_name_the_topic_that_an_app_setting_holds() -> None:
    retrying, inputs, clock = AsyncMock(), Mock(of=Mock(return_value=[])), Mock(now=Mock(return_value=NOW))
    triggers = ManualTriggers(retrying, inputs, clock, AppSettings({"KAFKA_TOPIC": "orders"}))
    run = triggers.prepare(function("kafkaTrigger", cardinality="MANY", topic="%KAFKA_TOPIC%"), ["a"], {})
    assert run is not None
    await run()
    metadata = retrying.run.call_args.args[2]
    assert read(metadata["TopicArray"]) == ["orders"]


@pytest.mark.parametrize(("kind", "many"), [("eventHubTrigger", True), ("serviceBusTrigger", False)])
def test_binary_data_travels_as_bytes(kind: str, many: bool) -> None:  # noqa: FBT001 - a parameter
    properties = {"cardinality": "MANY"} if many else {}
    made = event_data(function(kind, dataType="BINARY", **properties), "a", NOW, {})
    assert made is not None
    assert read(made[0]) == ([b"a"] if many else b"a")

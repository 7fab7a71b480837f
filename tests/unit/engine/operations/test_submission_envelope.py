"""What is around a submission: nothing, a CloudEvent or an Event Grid event."""

import base64
import json
from typing import Any

import pytest

from durable_retry.engine.base.trace_context import TraceContext
from durable_retry.engine.base.validation import InvalidInputError
from durable_retry.engine.operations.naming import EnvelopeName
from durable_retry.engine.operations.submission import parse_envelope

BODY = {"dependency": "payments", "request": {"method": "GET"}}
CLOUD = {"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "order.placed", "data": BODY}


GRID = {
    "id": "g-1",
    "topic": "/topics/shop",
    "subject": "s",
    "eventType": "t",
    "data": BODY,
    "dataVersion": "",
}


@pytest.mark.parametrize("document", [BODY, [], None, "text", 5, {}, [CLOUD]])
def test_what_has_no_envelope_is_the_payload(document: Any) -> None:
    inside = parse_envelope(document)
    assert (inside.payload, inside.name, inside.place) == (document, None, "")


@pytest.mark.parametrize(
    ("document", "event"),
    [(CLOUD, EnvelopeName("/shop", "e-1")), (GRID, EnvelopeName("/topics/shop", "g-1"))],
)
def test_an_event_gives_its_data_and_its_name(document: Any, event: EnvelopeName) -> None:
    inside = parse_envelope(document)
    assert (inside.payload, inside.name, inside.place) == (BODY, event, "/data")


def test_data_may_be_json_in_a_text_or_in_base64() -> None:
    text = json.dumps(BODY)
    coded = {name: value for name, value in CLOUD.items() if name != "data"}
    assert parse_envelope(CLOUD | {"data": text}).payload == BODY
    inside = parse_envelope(coded | {"data_base64": base64.b64encode(text.encode()).decode()})
    assert (inside.payload, inside.place) == (BODY, "/data_base64")


def test_the_events_correlation_id_is_the_operations_unless_it_has_its_own() -> None:
    event = CLOUD | {"correlationid": "c-1"}
    assert parse_envelope(event).payload["correlation_id"] == "c-1"
    assert (
        parse_envelope(event | {"data": BODY | {"correlation_id": "mine"}}).payload["correlation_id"]
        == "mine"
    )


@pytest.mark.parametrize(
    ("changes", "pointers"),
    [
        ({"id": ""}, ["/id"]),
        ({"id": 5, "source": None}, ["/id", "/source"]),
        ({"specversion": "0.3"}, ["/specversion"]),
        ({"specversion": {}}, ["/specversion"]),
        ({"data": "{"}, ["/data"]),
        ({"data_base64": "e30="}, ["/data_base64"]),
    ],
)
def test_an_event_that_is_none_is_pointed_at(changes: dict[str, Any], pointers: list[str]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_envelope(CLOUD | changes)
    assert [problem.pointer for problem in caught.value.problems] == pointers


@pytest.mark.parametrize("data", ["?", 5, None, "/////w=="])
def test_base64_that_is_none_is_pointed_at(data: Any) -> None:
    document = {name: value for name, value in CLOUD.items() if name != "data"} | {"data_base64": data}
    with pytest.raises(InvalidInputError) as caught:
        parse_envelope(document)
    assert [problem.pointer for problem in caught.value.problems] == ["/data_base64"]


def test_an_event_grid_event_needs_what_names_it() -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_envelope({name: value for name, value in GRID.items() if name != "topic"})
    assert [problem.pointer for problem in caught.value.problems] == ["/topic"]


def test_an_event_says_where_in_a_trace_it_was_made() -> None:
    place = TraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1")
    assert parse_envelope(CLOUD | place.to_json()).trace == place
    coded = {name: value for name, value in CLOUD.items() if name != "data"} | {"data_base64": "e30="}
    assert parse_envelope(coded | place.to_json()).trace == place
    assert parse_envelope(CLOUD | {"traceparent": "nowhere"}).trace is None

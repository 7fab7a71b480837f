import json
from dataclasses import replace
from typing import Any

import pytest

from engine.intake import Arrival, read_arrival
from engine.naming import fields_name
from engine.problem import InvalidInputError
from engine.trace_context import TraceContext

OPERATION = {
    "dependency": "payments",
    "request": {"method": "POST", "path": "/charges", "json": {"order": 7}},
}
EVENT = {"specversion": "1.0", "id": "e-1", "source": "/orders", "type": "charge", "data": OPERATION}


def arrival(document: Any) -> Arrival:
    body = json.dumps(document).encode()
    return Arrival(source="queue", place="operations", native_id="m-1", body=body)


def key_of(document: Any, *pointers: str) -> str:
    return read_arrival(arrival(document), max_bytes=10_000, key_pointers=pointers).name.key


def test_the_key_is_the_first_of_the_bodys_the_fields_the_events_and_the_sources() -> None:
    pointer = "/request/json/order"
    assert key_of({**OPERATION, "key": "own"}, pointer) == "own"
    assert key_of(EVENT, pointer) == fields_name(OPERATION, [pointer]).key
    assert key_of(EVENT) == "/orders#e-1"
    assert key_of(OPERATION) == "m-1"


def test_mistakes_inside_an_event_are_told_at_their_place() -> None:
    with pytest.raises(InvalidInputError) as caught:
        key_of({**EVENT, "data": {**OPERATION, "surprise": 1}})
    assert [problem.pointer for problem in caught.value.problems] == ["/data/surprise"]


def test_the_event_knows_better_than_its_message_where_in_a_trace_it_was_made() -> None:
    event, message = (TraceContext(f"00-{name * 32}-{name * 16}-01") for name in "ab")
    sent = replace(arrival(EVENT | event.to_json()), trace=message)
    assert read_arrival(sent, max_bytes=10_000).trace == event
    assert read_arrival(replace(arrival(EVENT), trace=message), max_bytes=10_000).trace == message
    assert read_arrival(arrival(EVENT), max_bytes=10_000).trace is None

from typing import Any

import pytest

from durable_retry.engine.base.validation import InvalidInputError
from durable_retry.engine.operations.naming import (
    EventName,
    event_name,
    explicit_scope,
    fields_name,
    source_name,
)
from durable_retry.engine.operations.request import parse_operation

BODY: dict[str, Any] = {
    "dependency": "payments",
    "request": {"method": "GET", "json": {"order": 1, "note": "a"}},
}


def is_a_key(key: str) -> bool:
    """Holds a key to what a caller may choose, and so to what the header downstream carries."""
    return parse_operation(BODY | {"key": key}).key == key


def test_what_joins_source_and_id_is_no_part_of_either() -> None:
    names = [EventName("a#b", "c"), EventName("a", "b#c"), EventName("a%23b", "c")]
    assert len({event_name(name).key for name in names}) == 3


def test_a_long_name_is_hashed() -> None:
    key = source_name("kafka", "orders", "x" * 300).key
    assert key.startswith("sha256-")
    assert is_a_key(key)


def test_names_of_different_kinds_never_meet() -> None:
    scopes = {
        explicit_scope(""),
        explicit_scope("tenant"),
        event_name(EventName("s", "i")).scope,
        event_name(EventName("s", "i"), "tenant").scope,
        source_name("queue", "operations", "i").scope,
        source_name("queue", "other", "i").scope,
        fields_name(BODY, ["/dependency"]).scope,
    }
    assert len(scopes) == 7


def test_fields_name_a_payload_whatever_their_order() -> None:
    again = {"request": {"json": {"note": "b", "order": 1.0}, "method": "GET"}, "dependency": "payments"}
    pointers = ["/request/json/order", "/dependency"]
    assert fields_name(BODY, pointers) == fields_name(again, reversed(pointers))
    assert fields_name(BODY, pointers) != fields_name(BODY, ["/request/json/order"])
    assert fields_name(BODY, ["/request/json/note"]) != fields_name(again, ["/request/json/note"])


def test_a_field_that_is_missing_is_told() -> None:
    with pytest.raises(InvalidInputError) as caught:
        fields_name(BODY, ["/request/json/order", "/request/json/nothing"])
    assert [problem.pointer for problem in caught.value.problems] == ["/request/json/nothing"]

from datetime import datetime

import pytest

from durable_retry.base.validation import InvalidInputError
from durable_retry.rules.intake import (
    Arrival,
    Backpressure,
    LagReading,
    LagThresholds,
    host_instant,
    lag_reading,
    read_message,
)
from tests.support.builders import NOON

LIMITS = LagThresholds(task_hub_seconds=30, dependency_seconds=60)


@pytest.mark.parametrize(
    ("state", "age_seconds", "look"),
    [
        ("pending", 30.0, LagReading(None, is_over=False)),
        ("pending", 30.1, LagReading(Backpressure.TASK_HUB, is_over=False)),
        ("waiting_circuit", 60.0, LagReading(None, is_over=False)),
        ("waiting_circuit", 60.1, LagReading(Backpressure.DEPENDENCY, is_over=False)),
        ("waiting_throttle", 60.0, LagReading(None, is_over=False)),
        ("waiting_throttle", 60.1, LagReading(Backpressure.DEPENDENCY, is_over=False)),
        ("running", 1e6, LagReading(None, is_over=True)),
        ("waiting_retry", 1e6, LagReading(None, is_over=True)),
        ("succeeded", 1e6, LagReading(None, is_over=True)),
        (None, 1e6, LagReading(None, is_over=True)),
    ],
)
def test_a_probe_shows_what_is_behind(state: str | None, age_seconds: float, look: LagReading) -> None:
    assert lag_reading(state, age_seconds, LIMITS) == look


@pytest.mark.parametrize("state", ["pending", "waiting_circuit"])
def test_a_limit_of_nothing_is_no_limit(state: str) -> None:
    limits = LagThresholds(task_hub_seconds=0, dependency_seconds=0)
    assert lag_reading(state, 1e6, limits) == LagReading(None, is_over=True)


@pytest.mark.parametrize(
    ("partition", "order_key"), [("3", "event_hubs:orders:3"), ("a b", "event_hubs:orders:a%20b"), ("", None)]
)
def test_the_order_key_of_a_partition_names_its_source_and_place(
    partition: str, order_key: str | None
) -> None:
    arrival = Arrival(source="event_hubs", body=b"{}", place="orders", partition=partition)
    assert arrival.order_key == order_key


@pytest.mark.parametrize("given", [NOON, NOON.replace(tzinfo=None)])
def test_an_instant_of_a_binding_is_utc(given: datetime) -> None:
    assert host_instant(given) == NOON
    assert host_instant(None) is None


def test_a_message_without_an_id_of_its_source_has_that_of_its_body() -> None:
    first, again, other = (Arrival(source="queue", body=body).message_id for body in (b"{}", b"{}", b"[]"))
    assert first == again != other
    assert Arrival(source="queue", body=b"{}", native_id="m-1").message_id == "m-1"


def test_a_message_is_read_up_to_its_size() -> None:
    assert read_message(b'{"a": 1}', dict, max_bytes=8) == {"a": 1}
    with pytest.raises(InvalidInputError, match="is larger than 7 bytes"):
        read_message(b'{"a": 1}', dict, max_bytes=7)

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from durable_retry.engine.base.enums import OperationState
from durable_retry.engine.operations.summary import UNFINISHED, WINDOW_PARTS, Counters, Window, by_status

NOW = datetime(2026, 11, 21, 12, 0, 7, tzinfo=UTC)
HOUR = 3_600.0


def test_a_window_holds_the_present_and_is_as_long_as_asked() -> None:
    window = Window.before(NOW, HOUR)
    assert window.ends_at - window.begins_at == timedelta(hours=1)
    assert window.begins_at < NOW < window.ends_at
    assert window.place(NOW) == WINDOW_PARTS - 1


def test_the_parts_of_a_window_stay_where_they_are_as_time_goes_on() -> None:
    edges = {Window.before(NOW + timedelta(seconds=s), HOUR).begins_at.timestamp() % 75 for s in range(200)}
    assert edges == {0.0}


@pytest.mark.parametrize(("offset_seconds", "place"), [(-5, 0), (0, 0), (74, 0), (75, 1), (9_000, 47)])
def test_an_instant_outside_counts_to_the_nearest_part(offset_seconds: float, place: int) -> None:
    window = Window.before(NOW, HOUR)
    assert window.place(window.begins_at + timedelta(seconds=offset_seconds)) == place


def test_a_tally_tells_states_times_and_how_often_each_dependency_was_tried() -> None:
    tally = Counters(Window.before(NOW, HOUR))
    tally.add(OperationState.SUCCEEDED, NOW, "payments", 1)
    tally.add(OperationState.WAITING_RETRY, NOW - timedelta(minutes=30), "payments", 2)
    tally.add(OperationState.WAITING_CIRCUIT, NOW, "mail", 0)
    tally.add(OperationState.PENDING, NOW, None, 0)
    told = tally.to_json()
    assert (told["operations"], told["attempts"], told["amplification"]) == (4, 3, 1.5)
    assert told["by_status"]["waiting_circuit"] == 1
    assert list(told["by_dependency"]) == ["mail", "payments"]
    assert told["by_dependency"]["mail"]["amplification"] is None
    assert told["by_dependency"]["payments"]["operations"] == 2
    held = [at for at, part in enumerate(told["buckets"]) if any(part["by_status"].values())]
    assert held == [23, 47]
    assert told["buckets"][0]["from"] == told["from"]
    assert told["bucket_seconds"] == 75


def test_states_without_operations_are_told_as_zero() -> None:
    assert by_status(Counter({OperationState.RUNNING: 2}), UNFINISHED) == {
        "pending": 0,
        "running": 2,
        "waiting_retry": 0,
        "waiting_circuit": 0,
    }

import json
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest

from bench import guard
from bench.cost import Cost

COUNTS = {"0 failed": {"turns": 3, "storage_requests": 36}}


@pytest.mark.parametrize(
    ("ratio", "is_dearer"), [(79.0, False), (100.0, False), (110.0, False), (110.2, True), (300.0, True)]
)
def test_a_tenth_over_the_recorded_ratio_is_allowed(ratio: float, is_dearer: bool) -> None:  # noqa: FBT001
    assert guard.is_dearer(ratio, 100.0) is is_dearer


@pytest.mark.parametrize(
    ("turns", "requests", "dearer"),
    [
        (3, 39, []),
        (2, 30, []),
        (3, 40, ["0 failed: 40 storage requests, recorded 36"]),
        (4, 36, ["0 failed: 4 turns, recorded 3"]),
    ],
)
def test_a_count_over_a_tenth_above_the_recorded_one_is_dearer(
    turns: int, requests: int, dearer: list[str]
) -> None:
    counts = {"0 failed": {"turns": turns, "storage_requests": requests}}
    assert list(guard.dearer_counts(counts, COUNTS)) == dearer


def test_what_was_never_recorded_is_dearer() -> None:
    assert list(guard.dearer_counts(COUNTS, {})) == [
        "0 failed: 3 turns, recorded None",
        "0 failed: 36 storage requests, recorded None",
    ]


def test_requests_to_storage_are_counted_as_the_sizing_counts_them() -> None:
    cost = Cost(turns=3, activities=1, entity_operations=2, table_requests=0, history_events=17)
    assert guard.counts_of(cost)["storage_requests"] == 36


@pytest.fixture
def measured_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record of 100 jobs per operation, in a file of its own."""
    record = tmp_path / "guard.json"
    record.write_text(json.dumps({"sdk_jobs_per_operation": 100.0, "counts": COUNTS}))
    monkeypatch.setattr(guard, "RECORD", record)
    return record


def measuring(
    monkeypatch: pytest.MonkeyPatch, *ratios: float, counts: guard.Counts = COUNTS
) -> Iterator[float]:
    """Let the runs measure these ratios one after the other, the last one for ever."""
    runs = chain(ratios, repeat(ratios[-1]))

    async def measure(_folder: Path, _operations: int) -> list[guard.Cost]:
        return [guard.Cost(next(runs) * 0.001, 0.001)]

    async def counted(_folder: Path) -> guard.Counts:
        return counts

    monkeypatch.setattr(guard, "measure", measure)
    monkeypatch.setattr(guard, "counted", counted)
    return runs


async def test_a_regression_ends_the_command_with_an_error(
    measured_elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dear = {"0 failed": {"turns": 4, "storage_requests": 36}}
    measuring(monkeypatch, 121.0, counts=dear)
    with pytest.raises(SystemExit, match=r"4 turns, recorded 3; healthy: 121\.00 .* 100\.00") as ended:
        await guard.compare(measured_elsewhere.parent, 1)
    assert isinstance(ended.value.code, str)  # a message, which the interpreter exits with 1 for


async def test_a_slow_run_is_measured_again(
    measured_elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = measuring(monkeypatch, 150.0, 130.0, 105.0, 7.0)
    _, table = await guard.compare(measured_elsewhere.parent, 1)
    assert [row.values for row in table.rows[2:]] == [("105.00",), ("100.00",)]
    assert next(runs) == 7.0


async def test_what_was_recorded_is_compared_with(
    measured_elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dear = {"0 failed": {"turns": 5, "storage_requests": 60}}
    measuring(monkeypatch, 190.0, 150.0, 140.0, 150.0, counts=dear)
    await guard.record(measured_elsewhere.parent, 1)
    counts, table = await guard.compare(measured_elsewhere.parent, 1)
    assert table.rows[3].values == ("150.00",)
    assert counts.rows[0].values == ("5",)


def test_one_slow_slice_does_not_change_the_ratio() -> None:
    costs = [guard.Cost(0.010, 0.0001), guard.Cost(0.090, 0.0001), guard.Cost(0.020, 0.0002)]
    assert guard.sdk_jobs_per_operation(costs) == pytest.approx(100.0)

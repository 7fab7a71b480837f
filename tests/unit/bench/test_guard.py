from pathlib import Path

import pytest

from bench import guard


@pytest.mark.parametrize(
    ("ratio", "is_regression"), [(79.0, False), (100.0, False), (120.0, False), (120.1, True), (300.0, True)]
)
def test_a_fifth_over_the_recorded_ratio_is_allowed(ratio: float, is_regression: bool) -> None:  # noqa: FBT001
    assert guard.is_regression(ratio, 100.0) is is_regression


@pytest.fixture
def measured_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record of 100 jobs per operation, in a file of its own."""
    (record := tmp_path / "guard.json").write_text('{"sdk_jobs_per_operation": 100.0}')
    monkeypatch.setattr(guard, "RECORD", record)
    return record


def measuring(monkeypatch: pytest.MonkeyPatch, ratio: float) -> None:
    async def measure(_folder: Path, _operations: int) -> list[guard.Cost]:
        return [guard.Cost(ratio * 0.001, 0.001)]

    monkeypatch.setattr(guard, "measure", measure)


async def test_a_regression_ends_the_command_with_an_error(
    measured_elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring(monkeypatch, 121.0)
    with pytest.raises(SystemExit, match=r"costs 121\.00 jobs .* recorded 100\.00") as ended:
        await guard.compare(measured_elsewhere.parent, 1)
    assert isinstance(ended.value.code, str)  # a message, which the interpreter exits with 1 for


async def test_a_run_within_the_tolerance_shows_both_numbers(
    measured_elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring(monkeypatch, 119.0)
    (table,) = await guard.compare(measured_elsewhere.parent, 1)
    assert [row.values for row in table.rows[2:]] == [("119.00",), ("100.00",)]


async def test_what_was_recorded_is_compared_with(
    measured_elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring(monkeypatch, 150.0)
    await guard.record(measured_elsewhere.parent, 1)
    (table,) = await guard.compare(measured_elsewhere.parent, 1)
    assert table.rows[3].values == ("150.00",)


def test_one_slow_slice_does_not_change_the_ratio() -> None:
    costs = [guard.Cost(0.010, 0.0001), guard.Cost(0.090, 0.0001), guard.Cost(0.020, 0.0002)]
    assert guard.sdk_jobs_per_operation(costs) == pytest.approx(100.0)

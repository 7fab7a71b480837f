import pytest

from bench.numbers import Row, Table, percentile


@pytest.mark.parametrize(("percent", "expected"), [(50, 50), (99, 99), (100, 100), (1, 1), (0.5, 1)])
def test_a_percentile_is_a_measured_value(percent: float, expected: float) -> None:
    assert percentile(list(range(100, 0, -1)), percent) == expected


def test_the_percentile_of_one_value_is_that_value() -> None:
    assert percentile([7.0], 99) == 7.0


def test_a_table_is_aligned_and_says_units_and_notes() -> None:
    table = Table("Speed", ("ours", "theirs"), (Row("rate", "1/s", ("10", "9")),), ("a note",))
    assert table.markdown().splitlines() == [
        "## Speed",
        "",
        "| measured | unit | ours | theirs |",
        "|----------|------|------|--------|",
        "| rate     | 1/s  | 10   | 9      |",
        "",
        "- a note",
    ]

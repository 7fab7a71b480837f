import pytest

from bench.numbers import Row, Table, percentile, with_tables


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


def a_table(rate: str) -> Table:
    return Table("Speed", ("ours",), (Row("rate", "1/s", (rate,)),), ("a note",))


def test_a_table_says_where_and_when_it_was_measured() -> None:
    assert a_table("10").markdown("a machine").splitlines()[:4] == [
        "## Speed",
        "",
        "a machine",
        "",
    ]


def test_a_new_table_takes_the_place_of_the_old_one_and_all_else_stays() -> None:
    others = "# All\n\nIntroduction.\n\n## Size\n\nsmall\n\n"
    before = (
        f"{others}{a_table('10').markdown('Python 3')}\n\nWhy so slow.\n\n- a reason\n\n## Weight\n\nlight\n"
    )
    after = with_tables(before, [a_table("20")], "Python 4")
    assert after == before.replace("| 10 ", "| 20 ").replace("Python 3", "Python 4")
    assert "Why so slow.\n\n- a reason" in after


def test_a_table_without_a_place_comes_last() -> None:
    written = with_tables("# All\n", [a_table("10")], "Python 4")
    assert written == f"# All\n\n{a_table('10').markdown('Python 4')}\n"
    assert with_tables(written, [a_table("10")], "Python 4") == written


def test_a_document_that_is_empty_gets_the_table_alone() -> None:
    assert with_tables("", [a_table("10")], "Python 4") == f"{a_table('10').markdown('Python 4')}\n"

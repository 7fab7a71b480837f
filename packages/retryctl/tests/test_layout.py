import io
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from retryctl.layout import CURRENT, Layout, cell, cells, columns_of, facts, instant, state, table
from tests.support.retryctl import Terminal

ID = "op-wyh2yqp2fnpxbog4nqpxnuxyn4xyjvtm"


@contextmanager
def laid_out(layout: Layout) -> Iterator[None]:
    token = CURRENT.set(layout)
    yield
    CURRENT.reset(token)


def wide(columns: int) -> Layout:
    return Layout(size=lambda: (columns, 24))


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert table(("A", "LONG"), [("wide", None), ("b", 1)]) == "A     LONG\nwide  -\nb     1"


def test_a_table_without_rows_says_so() -> None:
    assert table(("A",), []) == "(none)"


def test_facts_leave_out_what_is_not_known() -> None:
    assert facts([("key", "k"), ("deadline", None), ("status", "running")]) == "key     k\nstatus  running"


def test_a_cell_is_one_line_without_control_characters() -> None:
    assert cell("a\nb\x1b[2J") == "a b [2J"
    assert len(cell("x" * 500)) == 72


def test_a_wide_table_is_cut_where_it_is_free_text_and_keeps_ids_states_and_instants() -> None:
    row = (ID, state("waiting_retry"), "2026-11-21T09:00:00Z", "an error that goes on and on and on")
    with laid_out(wide(90)):
        head, line = table(("OPERATION", "STATUS", "AT", "ERROR"), [row]).splitlines()
    assert line == f"{ID}  waiting_retry  2026-11-21T09:00:00Z  an error that g…"
    assert len(line) == 90
    assert head.index("ERROR") == line.index("an error")


def test_without_a_terminal_nothing_is_cut_to_its_width() -> None:
    assert len(table(("A", "B", "C"), [("x" * 70, "y" * 70, "z" * 70)]).splitlines()[1]) == 214


def test_where_the_least_does_not_fit_each_row_has_lines_of_its_own() -> None:
    with laid_out(wide(40)):
        shown = table(("OPERATION", "STATUS"), [(ID, state("failed")), (ID, state("sent"))])
    assert shown == f"operation  {ID}\nstatus     failed\n\noperation  {ID}\nstatus     sent"


def test_a_wide_character_takes_two_columns_and_a_mark_none() -> None:
    assert [columns_of(text) for text in ("注文", "e\u0301", "\x1b[31mred\x1b[0m")] == [4, 1, 3]
    lines = table(("NAME", "N"), [("注文", 1), ("abcd", 2)]).splitlines()
    assert lines[1:] == ["注文  1", "abcd  2"]
    with laid_out(wide(11)):
        assert table(("A", "N"), [("注文注文注文注文", 1)]).splitlines()[-1] == "注文注…   1"


def test_colours_are_only_for_a_terminal_that_has_them() -> None:
    with laid_out(Layout.of(Terminal())):
        assert state("dead_lettered") == "\x1b[31mdead_lettered\x1b[0m"
        assert state("whatever") == "whatever"
        assert table(("STATUS",), [(state("sent"),)]) == "\x1b[1mSTATUS\x1b[0m\n\x1b[32msent\x1b[0m"
    for layout in (Layout.of(io.StringIO()), Layout.of(Terminal(), colours=False)):
        with laid_out(layout):
            assert state("dead_lettered") == "dead_lettered"


def test_the_width_is_that_of_columns_and_a_terminal_without_one_limits_nothing() -> None:
    assert Layout.of(Terminal(), columns="77").width == 77
    assert Layout.of(Terminal()).width is None
    assert Layout.of(io.StringIO(), columns="77").width is None


def test_instants_are_in_the_zone_of_the_machine_unless_utc_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    assert instant("2026-07-21T09:00:00.123456Z") == "2026-07-21T11:00:00+02:00"
    with laid_out(Layout(is_utc=True)):
        assert instant("2026-07-21T09:00:00.123456Z") == "2026-07-21T09:00:00Z"
        assert cells(
            {"at": "2026-07-21T09:00:00.5Z", "created_at": None, "n": 1}, "at", "created_at", "n"
        ) == [
            "2026-07-21T09:00:00Z",
            None,
            1,
        ]
    monkeypatch.undo()
    time.tzset()

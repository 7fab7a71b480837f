"""How documents are laid out, without an app."""

import io
import time
from collections.abc import Iterable
from typing import Any

import pytest
from rich.console import RenderableType
from rich.text import Text

from retryctl.dependencies import PLOT_WIDTH, plot_waits
from retryctl.output import IN_UTC, Rows, Screen, bar, facts, fill, instant, span, state, whose
from tests.support.retryctl import Terminal

ID = "op-wyh2yqp2fnpxbog4nqpxnuxyn4xyjvtm"
AT = "2026-11-21T09:00:00Z"


def laid_out(*lines: RenderableType, out: io.StringIO | None = None, **environ: str) -> str:
    """What a screen writes: on a terminal with this width, or else into a pipe."""
    out = out or (Terminal() if environ else io.StringIO())
    Screen(out, io.StringIO(), "text", environ).lines(lines)
    return out.getvalue().removesuffix("\n")


def plain(*lines: RenderableType, columns: int) -> str:
    return laid_out(*lines, COLUMNS=str(columns), NO_COLOR="1")


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    rows = [{"a": "wide", "long": None}, {"a": "b", "long": 1}]
    assert laid_out(Rows(rows, "a long")) == "A     LONG\nwide  -\nb     1"


def test_a_table_without_rows_says_so() -> None:
    assert laid_out(Rows([], "a")) == "(none)"


def test_facts_leave_out_what_is_not_known() -> None:
    document = {"key": "k", "deadline_at": None, "status": "running"}
    assert laid_out(facts(document, "key deadline_at status last")) == "key     k\nstatus  running"


def test_a_cell_is_one_line_without_control_characters() -> None:
    out = io.StringIO()
    Screen(out, io.StringIO(), "text", {}).show(
        {"items": [{"a": "a\nb\x1b[2J"}, {"a": "x" * 500}]}, lambda shown: [Rows(shown["items"], "a")]
    )
    assert out.getvalue().splitlines() == ["A", "a b [2J", "x" * 500]


def test_a_long_cell_is_cut_on_a_terminal_alone() -> None:
    assert plain(Rows([{"a": "x" * 500}], "a"), columns=600).splitlines()[1] == f"{'x' * 71}…"


def test_a_column_that_few_have_is_left_out_where_nobody_has_a_value() -> None:
    rows: list[dict[str, Any]] = [{"name": "a", "limit_key": None}, {"name": "b"}]
    assert plain(Rows(rows, "name limit_key?"), columns=60).splitlines()[0] == "NAME"
    rows[0]["limit_key"] = "initech"
    assert plain(Rows(rows, "name limit_key?"), columns=60).splitlines()[0] == "NAME  LIMIT KEY"


@pytest.mark.parametrize(
    ("most", "keys", "count", "shown"),
    [
        ({"initech": 15}, 1, 15, "initech"),
        ({"initech": 12}, 1, 15, "1 key: initech 12"),
        ({"initech": 9, "acme": 3}, 7, 20, "7 keys: initech 9, acme 3 and 5 more"),
    ],
)
def test_limit_keys_say_whose_things_are(most: dict[str, int], keys: int, count: int, shown: str) -> None:
    assert whose({"keys": keys, "most": most}, count) == shown
    assert whose(None, count) is None


def test_the_instants_of_a_sentence_are_in_the_zone_of_the_reader_and_those_of_a_key_stay() -> None:
    token = IN_UTC.set(True)
    try:
        row = {"why": "paused until 2026-11-21T09:00:00.5Z", "key": "nightly 2026-11-21T09:00:00.5Z"}
        line = plain(Rows([row], "key why"), columns=120).splitlines()[1]
    finally:
        IN_UTC.reset(token)
    assert line == "nightly 2026-11-21T09:00:00.5Z  paused until 2026-11-21T09:00:00Z"


ERRORS = {
    "operation_id": ID,
    "status": "waiting_retry",
    "at": AT,
    "error": "an error that goes on and on and on",
}


def test_a_wide_table_is_cut_where_it_is_free_text_and_keeps_ids_states_and_instants() -> None:
    head, line = plain(Rows([ERRORS], "operation_id status at:at error"), columns=90).splitlines()
    assert line == f"{ID}  waiting_retry  {AT}  an error that g…"
    assert len(line) == 90
    assert head.index("ERROR") == line.index("an error")


def test_without_a_terminal_nothing_is_cut_to_its_width() -> None:
    row = {"a": "x" * 70, "b": "y" * 70, "c": "z" * 70}
    assert len(laid_out(Rows([row], "a b c"), "w" * 300).splitlines()[1]) == 214


def test_where_the_least_does_not_fit_each_row_has_lines_of_its_own() -> None:
    rows = [{"operation_id": ID, "status": "failed"}, {"operation_id": ID, "status": "sent"}]
    shown = plain(Rows(rows, "operation_id status"), columns=40)
    assert shown == f"operation  {ID}\nstatus     failed\n\noperation  {ID}\nstatus     sent"


def test_a_wide_character_takes_two_columns_and_a_mark_none() -> None:
    rows = [{"name": "注文", "n": 1}, {"name": "e\u0301bcd", "n": 2}]
    assert laid_out(Rows(rows, "name n")).splitlines()[1:] == ["注文  1", "e\u0301bcd  2"]
    assert (
        plain(Rows([{"a": "注文注文注文注文", "n": 1}], "a n"), columns=11).splitlines()[-1] == "注文注 …  1"
    )


def test_a_long_line_is_left_to_the_terminal() -> None:
    assert plain("x" * 100, Text("y" * 100), columns=40) == f"{'x' * 100}\n{'y' * 100}"


def test_colours_are_only_for_a_terminal_that_has_them() -> None:
    assert laid_out(state("dead_lettered"), TERM="xterm") == "\x1b[31mdead_lettered\x1b[0m"
    assert laid_out(state("whatever"), TERM="xterm") == "whatever"
    shown = laid_out(Rows([{"status": "sent"}], "status"), TERM="xterm")
    assert shown == "\x1b[1mSTATUS\x1b[0m\n\x1b[32msent\x1b[0m"
    for out, environ in (
        (io.StringIO(), {}),
        (Terminal(), {"NO_COLOR": "1"}),
        (Terminal(), {"TERM": "dumb"}),
    ):
        assert laid_out(state("dead_lettered"), out=out, **environ) == "dead_lettered"


@pytest.mark.parametrize(
    ("path", "value", "shown"),
    [
        ("status", "sent", "sent"),
        ("front.operation_id", {"operation_id": "op-1"}, "op-1"),
        ("front.operation_id", None, None),
        ("created_at", "2026-07-21T11:00:00.5+02:00", "2026-07-21T09:00:00Z"),
        ("front_since", "2026-07-21T09:00:00Z", "2026-07-21T09:00:00Z"),
        ("break_seconds", 90, "1 min 30 s"),
        ("attempt_ms.p95", {"p95": 1500.0}, "1.5 s"),
        ("failure_ratio", 0.5, "50%"),
        ("amplification", 1.5, "1.50"),
        ("attempts", 0, "0"),
    ],
)
def test_the_name_of_a_member_says_how_it_is_shown(path: str, value: Any, shown: str | None) -> None:
    document = {path.partition(".")[0]: value}
    assert fill(f"<{{{path}}}>", document).plain == f"<{shown or '-'}>"


@pytest.mark.parametrize(
    ("document", "shown"),
    [
        ({"id": "a", "by": "ada", "status": "open"}, "a by ada: open"),
        ({"id": "a", "by": None}, "a: not known"),
        ({"by": ""}, "-: not known"),
    ],
)
def test_a_line_leaves_out_what_is_optional_and_says_what_is_not_known(
    document: dict[str, Any], shown: str
) -> None:
    assert fill("{id}[ by {by}]: {status:not known}", document).plain == shown


def test_a_member_with_words_in_its_place_keeps_its_brackets() -> None:
    assert fill("a[: {reason}; {effect:none yet}]", {"reason": "r"}).plain == "a: r; none yet"


def test_instants_are_in_the_zone_of_the_machine_unless_utc_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    assert instant("2026-07-21T09:00:00.123456Z") == "2026-07-21T11:00:00+02:00"
    token = IN_UTC.set(True)
    assert instant("2026-07-21T09:00:00.123456Z") == "2026-07-21T09:00:00Z"
    IN_UTC.reset(token)
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0412, "41.2 ms"),
        (1.368, "1.37 s"),
        (59.94, "59.9 s"),
        (60, "1 min"),
        (125.9, "2 min 5 s"),
        (3600, "1 h"),
        (5430, "1 h 30 min"),
        (90_061, "1 d 1 h"),
    ],
)
def test_spans_read_as_a_person_writes_them(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("done", "total", "share"), [(0, 4, "0%"), (1, 4, "25%"), (4, 4, "100%"), (9, 4, "100%"), (0, 0, "100%")]
)
def test_a_bar_shows_the_share(done: int, total: int, share: str) -> None:
    drawn = bar(done, total, width=8)
    assert drawn.endswith(share)
    assert drawn.count("#") == (min(8, 2 * done) if total else 8)


def wait(attempt: int, *seconds: float) -> dict[str, float]:
    names = ("least_seconds", "expected_seconds", "most_seconds")
    return {"after_attempt": attempt, **dict(zip(names, seconds, strict=True))}


def test_a_plot_is_drawn_to_scale() -> None:
    first, second, axis, scale = plot_waits([wait(1, 0, 1, 2), wait(2, 2, 3, 4)]).splitlines()
    assert first == "1 |" + "|" + "-" * 14 + "o" + "-" * 14 + "|"
    assert second == "2 |" + " " * 30 + "|" + "-" * 14 + "o" + "-" * 14 + "|"
    assert len(axis) == len(second) == PLOT_WIDTH + 4
    assert scale.endswith("4 s")


def plots(lines: Iterable[dict[str, float]]) -> list[str]:
    return plot_waits(list(lines)).splitlines()


def test_a_plot_of_no_wait_at_all_stays_at_zero() -> None:
    assert plots([wait(1, 0, 0, 0)])[0] == "1 |o"


def test_a_long_policy_is_cut() -> None:
    assert plots(wait(number, 1, 1, 1) for number in range(1, 31))[-1] == "(and 10 more)"

import pytest

from retryctl.screen import PLOT_WIDTH, bar, plot_waits, span


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
    ("done", "total", "share"), [(0, 4, "0%"), (1, 4, "25%"), (4, 4, "100%"), (9, 4, "100%")]
)
def test_a_bar_shows_the_share(done: int, total: int, share: str) -> None:
    drawn = bar(done, total, width=8)
    assert drawn.endswith(share)
    assert drawn.count("#") == min(8, 2 * done)


def test_nothing_to_do_is_all_done() -> None:
    assert bar(0, 0).endswith("100%")


def wait(attempt: int, least: float, expected: float, most: float) -> dict[str, float]:
    return {
        "after_attempt": attempt,
        "least_seconds": least,
        "expected_seconds": expected,
        "most_seconds": most,
    }


def test_a_plot_is_drawn_to_scale() -> None:
    first, second, axis, scale = plot_waits([wait(1, 0, 1, 2), wait(2, 2, 3, 4)]).splitlines()
    assert first == "1 |" + "|" + "-" * 14 + "o" + "-" * 14 + "|"
    assert second == "2 |" + " " * 30 + "|" + "-" * 14 + "o" + "-" * 14 + "|"
    assert len(axis) == len(second) == PLOT_WIDTH + 4
    assert scale.endswith("4 s")


def test_a_plot_of_no_wait_at_all_stays_at_zero() -> None:
    assert plot_waits([wait(1, 0, 0, 0)]).splitlines()[0] == "1 |o"


def test_a_long_policy_is_cut() -> None:
    assert plot_waits([wait(number, 1, 1, 1) for number in range(1, 31)]).endswith("(and 10 more)")

from xml.etree import ElementTree as ET

from bench.drill import Outage, chart, table
from bench.peers.target import RETRY_AFTER_SECONDS, Call


def outage() -> Outage:
    """Down from 10 to 70: one job of then succeeds later, one is given up, one comes after it."""
    calls = [
        Call("dead-1", 20.0, 20.1, 503),
        Call("neighbour-1", 20.0, 20.2, 200),
        Call("dead-2", 30.0, 30.1, 503),
        Call("dead-2", 31.0, 31.1, 503),
        Call("dead-1", 20.1 + RETRY_AFTER_SECONDS, 25.2, 503),
        Call("dead-1", 72.4, 72.5, 200),
        Call("dead-3", 80.0, 80.1, 200),
        Call("warm-0", 0.5, 0.6, 200),
    ]
    asked = {"dead-1": 19.9, "dead-2": 29.9, "dead-3": 79.9, "neighbour-1": 19.9}
    return Outage(10.0, 70.0, asked, {"dead-2"}, calls)


def test_calls_of_the_outage_and_those_before_their_retry_after_are_counted() -> None:
    assert (outage().to_the_dead, outage().early) == (4, 1)


def test_it_is_drained_once_what_was_submitted_before_the_recovery_has_succeeded() -> None:
    assert round(outage().drained_seconds, 3) == 2.5


def test_the_latency_of_the_neighbour_is_that_of_its_own_jobs() -> None:
    assert [round(seconds, 3) for seconds in outage().neighbour_seconds] == [0.3]


def test_the_table_has_a_column_for_each_system() -> None:
    made = table({"one": outage(), "other": outage()})
    assert {row.name: row.values for row in made.rows} == {
        "calls to the dead dependency": ("4", "4"),
        "jobs given up": ("1", "1"),
        "early retries": ("1", "1"),
        "recovery to drained": ("2.5", "2.5"),
        "healthy neighbour p50": ("300.0", "300.0"),
        "healthy neighbour p99": ("300.0", "300.0"),
    }


def test_the_chart_has_a_bar_for_each_second_with_calls() -> None:
    drawn = ET.fromstring(chart({"one": outage(), "other": outage()}))  # noqa: S314 - our own
    bars = [rect.get("class") for rect in drawn.iter("{http://www.w3.org/2000/svg}rect")]
    assert {kind: bars.count(kind) for kind in ("down", "ok", "failed")} == {"down": 2, "ok": 4, "failed": 8}

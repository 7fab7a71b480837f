import io
from typing import Any

import pytest

from examples.demo.__main__ import leave_time
from tests.support.retryctl import Terminal


class Person:
    """Sits at the terminal, and presses Enter or does not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, presses: bool) -> None:
        self.presses = presses
        self.typed, self.printed = Terminal("\nmore"), Terminal()
        self.waits: list[float | None] = []
        monkeypatch.setattr("sys.stdin", self.typed)
        monkeypatch.setattr("sys.stdout", self.printed)
        monkeypatch.setattr("select.select", self.wait)

    def wait(self, typed: list[Any], _: Any, __: Any, seconds: float | None) -> tuple[list[Any], ...]:
        self.waits.append(seconds)
        return (typed if self.presses else [], [], [])


def test_enter_ends_a_wait_and_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    person = Person(monkeypatch, presses=True)
    leave_time(None, "It still runs")
    assert person.printed.getvalue() == "\nIt still runs: press Enter to stop.\n"
    assert (person.waits, person.typed.read()) == ([None], "more")


def test_a_wait_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    person = Person(monkeypatch, presses=False)
    leave_time(10, "Time to look")
    assert person.printed.getvalue() == "\nTime to look: press Enter to go on, or wait 10 s.\n"
    assert (person.waits, person.typed.tell()) == ([10], 0)


def test_a_script_is_not_kept_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    person = Person(monkeypatch, presses=False)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    leave_time(None, "It still runs")
    assert person.waits == []

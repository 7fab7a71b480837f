from collections.abc import Generator
from datetime import datetime, timedelta
from typing import Any

import pytest
from durabletask import task

from durable_retry.base.names import NUDGE_EVENT
from durable_retry.hub.turns import EARLY_BY, InterruptibleTimer, Signals
from tests.support.builders import NOON

UNTIL = NOON + timedelta(seconds=60)


class Context:
    """An orchestration's context; a test says what completes, and when."""

    def __init__(self) -> None:
        self.current_utc_datetime = NOON.replace(tzinfo=None)
        self.timers: list[tuple[datetime, task.CompletableTask[Any]]] = []
        self.events: dict[str, task.CompletableTask[Any]] = {}

    def create_timer(self, fires_at: datetime) -> task.CompletableTask[Any]:
        timer = task.CompletableTask[Any]()
        self.timers.append((fires_at, timer))
        return timer

    def wait_for_external_event(self, name: str) -> task.CompletableTask[Any]:
        self.events[name] = task.CompletableTask[Any]()
        return self.events[name]


class Waiting:
    """One wait, turn by turn."""

    def __init__(self, until: datetime | None = UNTIL, *names: str) -> None:
        self.ctx = Context()
        signals: Any = Signals(self.ctx)  # type: ignore[arg-type]
        self.timer = InterruptibleTimer(signals, until)
        self._turns: Generator[Any, Any, str | None] = self.timer.event(*names)
        self._asked = next(self._turns)

    def fires(self, at: datetime) -> str | bool | None:
        return self._completes(self.ctx.timers[-1][1], at)

    def comes(self, name: str, at: datetime) -> str | bool | None:
        return self._completes(self.ctx.events[name], at)

    def _completes(self, done: task.CompletableTask[Any], at: datetime) -> str | bool | None:
        """What the wait returned; False while it goes on."""
        self.ctx.current_utc_datetime = at.replace(tzinfo=None)
        done.complete({})
        try:
            self._asked = self._turns.send(done)
        except StopIteration as ended:
            result: str | None = ended.value
            return result
        return False


def test_it_ends_at_the_instant() -> None:
    waiting = Waiting()
    assert [at for at, _ in waiting.ctx.timers] == [UNTIL]
    assert not waiting.timer.is_over
    assert waiting.fires(UNTIL) is None
    assert waiting.timer.is_over


def test_another_timer_follows_one_that_fired_early_but_not_for_ever() -> None:
    waiting, early = Waiting(), UNTIL - timedelta(milliseconds=300)
    assert [waiting.fires(early) for _ in range(4)] == [False, False, False, None]
    assert [at for at, _ in waiting.ctx.timers] == [UNTIL, *[UNTIL + EARLY_BY] * 3]


def test_a_clock_that_is_far_behind_is_not_waited_for() -> None:
    waiting = Waiting()
    waiting.fires(NOON)
    assert waiting.ctx.timers[-1][0] == NOON + 2 * EARLY_BY


@pytest.mark.parametrize(("seconds", "returned"), [(59, False), (60, None)])
def test_a_nudge_ends_it_where_the_timer_is_lost(seconds: int, returned: Any) -> None:
    waiting = Waiting()
    assert waiting.comes(NUDGE_EVENT, NOON + timedelta(seconds=seconds)) is returned
    assert len(waiting.ctx.timers) == 1


def test_an_event_ends_it_and_is_left_to_be_taken_and_the_timer_stays() -> None:
    waiting = Waiting(UNTIL, "stop", "go")
    assert waiting.comes("go", NOON) == "go"
    next(waiting.timer.event("stop"))
    assert len(waiting.ctx.timers) == 1


def test_without_an_instant_it_waits_for_events_alone() -> None:
    waiting = Waiting(None, "go")
    assert waiting.ctx.timers == []
    assert waiting.comes(NUDGE_EVENT, UNTIL) is False
    assert waiting.comes("go", UNTIL) == "go"
    assert not waiting.timer.is_over

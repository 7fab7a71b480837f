"""The ends of operations that a batch, a saga or a call waits for.

An operation reports its end; where no report can come, a look (a poll of its state) now and then finds it.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from durabletask import task

from durable_retry.base.json_forms import optional_to_rfc3339
from durable_retry.base.names import DUE_AT, ENDED_EVENT
from durable_retry.hub.turns import InterruptibleTimer, Signals, Turns
from durable_retry.rules.operations.completion import Completion

LOOKS_PER_HISTORY: Final = 20
"""Starts and looks after which the orchestration continues as new, so that its history stays short."""


_FIRST_LOOK: Final = timedelta(seconds=30)
LAST_LOOK: Final = timedelta(minutes=5)


@dataclass(slots=True)
class CompletionReports:
    """The reports of operations that ended.

    No report comes from an operation that was submitted elsewhere under the same key, or whose orchestration
    was terminated by hand: these are found by a look.

    Attributes:
        quiet_looks: Looks in a row that found nothing ended; they make the next wait longer.
        shown: The custom status, without the instant of the next look.
    """

    ctx: task.OrchestrationContext
    quiet_looks: int = 0
    shown: dict[str, Any] = field(default_factory=dict)
    signals: Signals = field(init=False)
    _look: InterruptibleTimer | None = None

    def __post_init__(self) -> None:
        self.signals = Signals(self.ctx)

    def wait(self) -> Turns[list[Completion]]:
        """Wait until ends are reported, and return them; none when it is time to look."""
        # One timer at a time: each abandoned one would cost a turn.
        look = self._look = self._look or InterruptibleTimer(self.signals, self._next_look_at)
        self.ctx.set_custom_status({**self.shown, DUE_AT: optional_to_rfc3339(look.until)})
        completions, is_due = list[Completion](), look.is_over
        while not completions and not is_due:
            is_due = (yield from look.event(ENDED_EVENT)) is None
            completions = self.arrived()
        self.ctx.set_custom_status(self.shown)
        if is_due or look.is_over:
            self._look = None
        self.quiet_looks = 0 if completions else self.quiet_looks + 1
        return completions

    @property
    def _next_look_at(self) -> datetime:
        wait: timedelta = min(_FIRST_LOOK * 2 ** min(self.quiet_looks, 10), LAST_LOOK)
        return self.signals.now + wait

    def arrived(self) -> list[Completion]:
        """Return the reports that arrived and were not returned yet.

        Call it before continuing as new: reports that were delivered already are not carried over.
        """
        arrived = []
        while self.signals.has_come(ENDED_EVENT):
            completion = _read_completion(self.signals.take(ENDED_EVENT))
            if completion is not None:
                arrived.append(completion)
        return arrived


def _read_completion(data: Any) -> Completion | None:
    try:
        return Completion.from_json(data)
    except (KeyError, TypeError, ValueError):
        return None

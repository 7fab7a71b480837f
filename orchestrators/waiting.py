"""Waiting for operations to end: they say so, and are looked at now and then in case they cannot."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from durabletask import task

from engine.ending import Ending
from orchestrators.run import Steps
from stores.task_hub import ENDED_EVENT

_FIRST_LOOK: Final = timedelta(seconds=30)
_LAST_LOOK: Final = timedelta(minutes=5)


@dataclass(slots=True)
class Reports:
    """What operations say when they end.

    An operation that was submitted elsewhere under the same key does not know who waits for it, and one whose
    orchestration was ended by hand says nothing: for these there is the look.

    Attributes:
        ctx: The durable context.
        quiet_looks: Looks in a row after which nothing had ended.
    """

    ctx: task.OrchestrationContext
    quiet_looks: int = 0
    _next: task.CancellableTask[Any] = field(init=False)
    _look: task.Task[Any] | None = None

    def __post_init__(self) -> None:
        self._next = self.ctx.wait_for_external_event(ENDED_EVENT)

    def wait(self) -> Steps[list[Ending]]:
        """Wait until something has ended, or until it is time to look.

        Returns:
            What has ended; empty when it is time to look.
        """
        if self._look is None:
            # One timer at a time: those that nobody waits for any more would each cost a turn.
            self._look = self.ctx.create_timer(min(_FIRST_LOOK * 2 ** min(self.quiet_looks, 10), _LAST_LOOK))
        endings: list[Ending] = []
        while not endings and not self._look.is_complete:
            yield task.when_any([self._look, self._next])
            endings = self.arrived()
        if self._look.is_complete:
            self._look = None
        self.quiet_looks = 0 if endings else self.quiet_looks + 1
        return endings

    def arrived(self) -> list[Ending]:
        """Return what has been said and not yet been heard.

        To be asked before continuing as new: what was said already does not travel on.
        """
        arrived = []
        while self._next.is_complete:
            ending = _ending(self._next.get_result())
            self._next = self.ctx.wait_for_external_event(ENDED_EVENT)
            if ending is not None:
                arrived.append(ending)
        return arrived


def _ending(data: Any) -> Ending | None:
    """Read a report; anyone may send an event, and in any form."""
    try:
        return Ending.from_json(data)
    except (KeyError, TypeError, ValueError):
        return None

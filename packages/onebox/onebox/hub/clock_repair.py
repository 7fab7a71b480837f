"""What is to be done at a start when the machine's clock was ahead and has been set right."""

import logging
from datetime import timedelta
from typing import Final

from onebox.hub.database import Transaction
from onebox.hub.events import events_in, microseconds, unpacked

_LOGGER = logging.getLogger(__name__)

TOLERATED_US: Final = 1_000_000
"""So much a clock may go back without a word: time services correct it by less."""


def repair(tx: Transaction, newest_us: int) -> None:
    """Let timers set while the clock was ahead come earlier, by as much as it is known to have been ahead.

    A timer then waits for what was left of it at the newest commit. One that was set before the clock went
    ahead keeps its instant, so it does not come early.

    Args:
        newest_us: The instant of the newest commit, later than now.
    """
    ahead_us = newest_us - tx.now_us
    tx.run("message.arrived", tx.now_us)
    count = 0
    for seq, target, due_us, frames in tx.run("timer.of_later_turns", tx.now_us).fetchall():
        if _set_at_us(tx, target, frames) > tx.now_us:
            tx.run("message.move", due_us - ahead_us, seq)
            count += 1
    _LOGGER.warning(
        "the newest commit is %s later than the clock, which was ahead: %d timers come earlier by that",
        timedelta(microseconds=ahead_us),
        count,
    )


def _set_at_us(tx: Transaction, instance_id: str, frames: bytes) -> int:
    """Return when a timer was set, by its event in the history; 0 when there is none."""
    (fired,) = events_in(frames)
    for (row,) in tx.run("history.read", instance_id):
        for event in events_in(unpacked(row)):
            if event.HasField("timerCreated") and event.eventId == fired.timerFired.timerId:
                return microseconds(event.timestamp)
    return 0

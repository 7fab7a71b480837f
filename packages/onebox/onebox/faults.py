"""The host's hand-overs, where a test may raise, delay or kill; the task hub's own are in `hub/faults.py`."""

from collections.abc import Callable
from enum import StrEnum


class HostPoint(StrEnum):
    """Named points, each between two things of which the first has happened and the second has not."""

    QUEUE_RECEIVED = "queue.received"  # a message is hidden, its function has not run
    QUEUE_RUN = "queue.run"  # its function has run and its outputs are sent, it is still in the queue
    QUEUE_DELETED = "queue.deleted"  # it is gone from the queue, the listener does not know
    QUEUE_POISONED = "queue.poisoned"  # its copy is in the poison queue, it is still in its own
    HTTP_RECEIVED = "http.received"  # a request has been read, its function has not run
    HTTP_RUN = "http.run"  # its function has run, the caller has no answer
    ACTIVITY_RUN = "activity.run"  # an activity has run, the task hub does not know
    TIMER_RUN = "timer.run"  # a timer's function has run, its next time is not written down


type HostFaults = Callable[[StrEnum], None]
"""Called at each point of the host and of the hub with its name; what it raises happens there."""


def no_faults(_: StrEnum) -> None:
    """Let everything pass: what runs outside of tests."""

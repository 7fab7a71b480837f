"""Named points at which tests raise, delay or kill: around every commit and hand-over of hub and host."""

from collections.abc import Callable
from enum import StrEnum


class FaultPoint(StrEnum):
    """Named points, in the order in which a piece of work passes them."""

    REQUEST_RECEIVED = "request.received"  # a client's request has come, nothing is stored
    REQUEST_ACCEPTED = "request.accepted"  # it is on disk, the client has no answer yet
    TURN_TAKEN = "turn.taken"  # an instance left the ready queue
    TURN_LOADED = "turn.loaded"  # its request is built, the orchestrator has not run
    TURN_ANSWERED = "turn.answered"  # the orchestrator has run, nothing is stored
    TURN_WRITTEN = "turn.written"  # the turn is written within a group that is not committed
    TURN_COMMITTED = "turn.committed"  # the turn is on disk, the cache does not know it
    BATCH_TAKEN = "batch.taken"  # an entity left the ready queue
    BATCH_ANSWERED = "batch.answered"  # its operations have run, nothing is stored
    BATCH_WRITTEN = "batch.written"  # the batch is written within a group that is not committed
    BATCH_COMMITTED = "batch.committed"  # the batch is on disk
    ACTIVITY_TAKEN = "activity.taken"  # an activity left the queue, it has not run
    ACTIVITY_ANSWERED = "activity.answered"  # it has run, its result is not stored
    ACTIVITY_COMMITTED = "activity.committed"  # its result is on disk
    GROUP_FILLED = "group.filled"  # a group of transactions is written, not committed
    GROUP_COMMITTED = "group.committed"  # the group is on disk, no caller has its answer
    GROUP_DRAINED = "group.drained"  # its effects are applied and its callers have their answers
    TIMER_DUE = "timer.due"  # a timer is due, its target has not been woken


type FaultPoints = Callable[[FaultPoint], None]
"""Called at each point with its name; what it raises happens there."""


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
    """Do nothing; used outside of tests."""

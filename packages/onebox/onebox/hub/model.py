"""What the task hub keeps and hands around, as plain values."""

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final


class Status(IntEnum):
    """The protocol's OrchestrationStatus."""

    RUNNING = 0
    COMPLETED = 1
    CONTINUED_AS_NEW = 2
    FAILED = 3
    CANCELED = 4
    TERMINATED = 5
    PENDING = 6
    SUSPENDED = 7

    @property
    def is_terminal(self) -> bool:
        """Whether an instance in this status takes no more turns."""
        return self in TERMINAL


TERMINAL: Final = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELED, Status.TERMINATED})


class Kind(StrEnum):
    """What a message asks of its target."""

    START = "start"
    EVENT = "event"
    RESULT = "result"
    SUSPEND = "suspend"
    RESUME = "resume"
    TERMINATE = "terminate"
    REWIND = "rewind"
    WAKE = "wake"
    OPERATION = "operation"
    LOCK = "lock"
    UNLOCK = "unlock"


class Lane(IntEnum):
    """Which queue a work item waits in; lower goes first, none starves (see dispatch)."""

    DUE = 0  # woken by a timer: a retry or a deadline
    GOING = 1  # belongs to something that has started
    NEW = 2  # a first turn


@dataclass(frozen=True, slots=True)
class Message:
    """One row of an inbox."""

    seq: int
    target: str
    kind: Kind
    due_us: int
    events: bytes
    execution_id: str | None = None


@dataclass(frozen=True, slots=True)
class Parent:
    """The orchestration and the task in it that wait for a sub-orchestration."""

    instance_id: str
    execution_id: str
    task_id: int


@dataclass(frozen=True, slots=True)
class Head:
    """What a turn needs to know of its instance, beside the history."""

    id: str
    execution_id: str
    turn: int
    name: str
    version: str | None
    status: Status
    input: str | None
    tags: str | None
    parent: Parent | None


@dataclass(frozen=True, slots=True)
class Start:
    """A request to create an instance.

    Attributes:
        tags: A JSON object; None means no tags.
        start_at_us: Not before; None means at once.
        replaceable: Statuses in which an instance of the same id gives way to this one; None leaves it to the
            hub for a client's start, and means those that are final for any other.
        trace: A serialised TraceContext of whoever asked; None when there is none.
    """

    instance_id: str
    name: str
    version: str | None = None
    input: str | None = None
    tags: str | None = None
    start_at_us: int | None = None
    replaceable: frozenset[Status] | None = None
    parent: Parent | None = None
    parent_name: str | None = None
    trace: bytes | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One activity to run."""

    seq: int
    instance_id: str
    execution_id: str
    task_id: int
    name: str
    input: str | None
    lane: Lane


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity's row."""

    id: str
    state: str | None = None
    lock_owner: str | None = None
    lock_section: str | None = None
    modified_us: int = 0


@dataclass(slots=True)
class Effects:
    """What must happen in memory once a transaction is on disk.

    Attributes:
        wake: Instances and entities with a visible message, and the lane to queue them in.
        timers: (due_us, target) of delayed messages.
        tasks: (seq, lane) of activities to run.
        changed: Instances whose status changed; somebody may wait for it.
        dropped: Instances whose cached history is void.
        followed: Instances and entities that worked within the group.
        failed: Instances whose orchestrator failed in it, with the serialised TaskFailureDetails.
    """

    wake: list[tuple[str, Lane]] = field(default_factory=list)
    timers: list[tuple[int, str]] = field(default_factory=list)
    tasks: list[tuple[int, Lane]] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    followed: list[str] = field(default_factory=list)
    failed: list[tuple[Head, bytes | None]] = field(default_factory=list)

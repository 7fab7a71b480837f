"""The task hub's plain values and its errors."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Final

from onebox.clock import Clock

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


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
    """The queue that a work item waits in; lower goes first, none starves (see `dispatch`)."""

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

    def after_turn(self, status: Status) -> "Head":
        """Return the head after one more turn of the same execution."""
        turn = self.turn + 1
        return Head(
            *(self.id, self.execution_id, turn, self.name, self.version),
            *(status, self.input, self.tags, self.parent),
        )


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


@dataclass(slots=True, init=False)
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

    wake: list[tuple[str, Lane]]
    timers: list[tuple[int, str]]
    tasks: list[tuple[int, Lane]]
    changed: list[str]
    dropped: list[str]
    followed: list[str]
    failed: list[tuple[Head, bytes | None]]

    def __init__(self, wake: Iterable[tuple[str, Lane]] = ()) -> None:
        # By hand: each transaction has one, and default factories take thrice the time.
        self.wake, self.timers, self.tasks = [*wake], [], []
        self.changed, self.dropped, self.followed, self.failed = [], [], [], []


def tags_from(stored: str | None) -> dict[str, str]:
    """Return stored tags."""
    tags: dict[str, str] = json.loads(stored) if stored else {}
    return tags


def tags_to(tags: Mapping[str, str]) -> str | None:
    """Return tags as they are stored; none at all is None."""
    return json.dumps(dict(tags)) if tags else None


def to_us(instant: datetime) -> int:
    """Return an aware instant as microseconds."""
    return (instant - _EPOCH) // _MICROSECOND


def to_datetime(instant_us: int) -> datetime:
    """Return microseconds as an aware UTC instant."""
    return _EPOCH + timedelta(microseconds=instant_us)


def now_us(clock: Clock) -> int:
    """Return the clock's present in microseconds."""
    return to_us(clock.now())


class HubError(Exception):
    """Anything that the task hub refuses.

    HubError
    ├── HubInUseError          another process serves this store
    ├── StoreUnusableError     a later version of onebox has written this store, or it cannot be opened
    ├── InstanceNotFoundError  no instance has this id
    ├── InstanceExistsError    the id is taken, and the request may not replace its instance
    ├── InstanceFinishedError  the instance takes no more messages
    ├── WrongStatusError       the instance is not in the status that the request needs
    ├── InvalidRequestError    the request itself makes no sense
    ├── StoreUnwritableError   the disk is full, or another process holds the store's lock
    └── FencedError            the work item was overtaken: its result belongs to a state that is gone
    """


class HubInUseError(HubError):
    """Another process serves this store."""


class StoreUnusableError(HubError):
    """A later version of onebox has written this store, or it cannot be opened."""


class InstanceNotFoundError(HubError):
    """No instance has this id."""

    def __init__(self, instance_id: str) -> None:
        super().__init__(f"Orchestration instance '{instance_id}' not found")
        self.instance_id = instance_id


class InstanceExistsError(HubError):
    """The id is taken by an instance that the request may not replace."""

    def __init__(self, instance_id: str, status: Status) -> None:
        super().__init__(f"Orchestration instance '{instance_id}' already exists ({status.name})")
        self.instance_id = instance_id
        self.status = status


class InstanceFinishedError(HubError):
    """The instance has ended and takes no more messages."""

    def __init__(self, instance_id: str, status: Status) -> None:
        super().__init__(f"Orchestration instance '{instance_id}' is finished ({status.name})")
        self.instance_id = instance_id
        self.status = status


class WrongStatusError(HubError):
    """The instance is not in the status that the request needs."""

    def __init__(self, instance_id: str, status: Status, needed: str) -> None:
        super().__init__(f"Orchestration instance '{instance_id}' is not in a {needed} state ({status.name})")
        self.instance_id = instance_id
        self.status = status


class InvalidRequestError(HubError):
    """The request itself makes no sense."""


class StoreUnwritableError(HubError):
    """Nothing can be committed for now; nothing of the request was stored."""


class FencedError(HubError):
    """The work item was overtaken; its result is dropped and nothing of it was stored."""

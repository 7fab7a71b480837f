"""A turn: which messages it takes, and all that it may change."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from onebox.hub.model import Head, Kind, Message, Start, Status


@dataclass(frozen=True, slots=True)
class Post:
    """A message to send; `due_us` as in `Transaction.post`."""

    target: str
    kind: Kind
    events: bytes
    execution_id: str | None = None
    due_us: int | None = None


@dataclass(frozen=True, slots=True)
class NewTask:
    """An activity to schedule."""

    task_id: int
    name: str
    input: str | None


@dataclass(frozen=True, slots=True)
class Ended:
    """The execution is over; with `recurse` all that it has started is to end as well."""

    output: str | None
    failure: bytes | None
    recurse: bool = False


@dataclass(frozen=True, slots=True)
class Renewed:
    """The execution continues as new; `begin` is its first message, with the events carried over."""

    execution_id: str
    version: str | None
    input: str | None
    begin: bytes


@dataclass(frozen=True, slots=True)
class Rewound:
    """The execution goes on from before its failure, with the rewritten history."""

    execution_id: str
    history: bytes
    children: tuple[Start, ...]
    finished_children: frozenset[int]
    reason: str | None


@dataclass(slots=True)
class Turn:
    """The changes of one turn.

    Attributes:
        status: The instance's status after it.
        history: Framed events to append (or the first of a rewound execution).
        outcome: None while the execution goes on.
        terminations: (instance, reason, recurse) that the orchestrator asked for.
    """

    status: Status
    custom_status: str | None = None
    history: bytes = b""
    outcome: Ended | Renewed | Rewound | None = None
    posts: list[Post] = field(default_factory=list)
    tasks: list[NewTask] = field(default_factory=list)
    children: list[Start] = field(default_factory=list)
    terminations: list[tuple[str, str | None, bool]] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        """Whether the orchestrator failed in this turn."""
        return self.status is Status.FAILED and isinstance(self.outcome, Ended)

    @property
    def failure(self) -> bytes | None:
        """The serialised TaskFailureDetails of its end."""
        return self.outcome.failure if isinstance(self.outcome, Ended) else None


def choose(head: Head, visible: Sequence[Message]) -> list[Message]:
    """Pick the messages that the next turn of an instance takes; empty means it has none to take.

    - An execution begins with its START message, whatever has arrived before that.
    - A rewind is a turn of its own: the SDK insists on it.
    - A suspended instance leaves everything where it is until it is resumed or terminated.
    """
    if head.status.is_terminal:
        return []
    if head.turn == 0:
        begin = [message for message in visible if message.kind is Kind.START]
        return begin + [message for message in visible if message.kind is not Kind.START] if begin else []
    rewind = [message for message in visible if message.kind is Kind.REWIND]
    if rewind:
        return rewind[:1]
    if head.status is Status.SUSPENDED and not any(
        message.kind in (Kind.RESUME, Kind.TERMINATE) for message in visible
    ):
        return []
    return list(visible)

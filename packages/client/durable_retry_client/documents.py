"""What the API answers with, as the client reads it, and what it takes.

States, kinds and reasons are texts: a later version may have more of them. Members that it adds are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, TypedDict, TypeVar

from pydantic import BaseModel, ConfigDict

FINISHED: Final = frozenset({"succeeded", "dead_lettered", "cancelled"})
"""The states in which an operation ends."""

T = TypeVar("T")


class Document(BaseModel):
    """Base of what the API answers with."""

    # Built at first use: a program uses few of them.
    model_config = ConfigDict(frozen=True, defer_build=True)


class Page(Document, Generic[T]):
    """A page of a list; `next_cursor` is None on the last one."""

    items: tuple[T, ...]
    next_cursor: str | None = None


class Mistake(Document):
    """What is wrong at a place of a request: `pointer` is a JSON pointer (RFC 6901), "" the whole of it."""

    pointer: str
    detail: str


class Problem(Document):
    """Why a request was refused (RFC 9457); `errors` has every mistake of an invalid one."""

    type: str = "about:blank"
    title: str = ""
    status: int | None = None
    detail: str = ""
    errors: tuple[Mistake, ...] = ()


class Attempt(Document):
    """An attempt of an operation; `category` is None for success."""

    number: int
    started_at: datetime
    duration_ms: float
    category: str | None = None
    status_code: int | None = None
    error: str | None = None
    next_delay_seconds: float | None = None
    delay_reasons: tuple[str, ...] = ()
    app_version: str | None = None
    dependency: str | None = None


class Wait(Document):
    """The waits of one kind in a row before an attempt: what blocked it, and until when.

    `until` is None for a pause until somebody resumes the operation.
    """

    before_attempt: int
    kind: str
    began_at: datetime
    until: datetime | None = None
    times: int = 1
    delay_reasons: tuple[str, ...] = ()


class Action(Document):
    """What a person did to an operation, such as `pause`."""

    action: str
    at: datetime
    by: str | None = None
    reason: str | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


class DeadLetterNote(Document):
    """The dead letter of an operation that did not succeed."""

    id: str | None
    category: str
    reason: str
    detail: str


class EventNote(Document):
    """A follow-up message of an operation."""

    event_id: str
    type: str
    state: str


class Step(Document):
    """A remembered step of a handler; `result` is None until it has succeeded."""

    name: str
    status: str
    attempts: int
    result: Any
    unreadable: str | None = None


class Heartbeat(Document):
    """The latest heartbeat of a handler."""

    at: datetime
    attempt: int
    progress: Any


class OperationReplay(Document):
    """A replay of one of an operation's dead letters; `failed_again` is the dead letter that it ended as."""

    dead_letter_id: str
    reason: str
    requested_at: datetime
    by: str | None
    note: str | None
    action_id: str | None
    status: str | None
    failed_again: str | None


class Operation(Document):
    """Where an operation stands, and what it is to do: `request`, or `handler` and `input`.

    Attributes:
        attempts: The latest 20, the oldest first.
        result: Of a call `status_code`, `headers`, `json` or `body`; of a handler `value`.
        unreadable: Why what is stored cannot be read; None where it can.
    """

    operation_id: str
    key: str
    dependency: str
    correlation_id: str | None
    source: str
    status: str
    attempt_count: int
    attempts: tuple[Attempt, ...]
    next_attempt_at: datetime | None
    deadline_at: datetime | None
    result: Any
    dead_letter: DeadLetterNote | None
    events: tuple[EventNote, ...]
    created_at: datetime
    updated_at: datetime
    request: dict[str, Any] | None = None
    handler: str | None = None
    input: Any = None
    may_have_acted: bool = False
    waits: tuple[Wait, ...] = ()
    waits_for: str | None = None
    actions: tuple[Action, ...] = ()
    steps: tuple[Step, ...] | None = None
    heartbeat: Heartbeat | None = None
    replays: tuple[OperationReplay, ...] = ()
    start_at: datetime | None = None
    order_key: str | None = None
    order_on_failure: str | None = None
    priority: str | None = None
    limit_key: str | None = None
    debounce_key: str | None = None
    replaced_by: str | None = None
    submitted_by: str | None = None
    replay_of: str | None = None
    trace_id: str | None = None
    trace_url: str | None = None
    unreadable: str | None = None

    @property
    def is_finished(self) -> bool:
        return self.status in FINISHED


class AcceptedOperation(Document):
    """An operation that was accepted, now or before."""

    operation_id: str
    key: str
    status: str
    status_url: str


class SteeredOperation(Document):
    """An operation that was cancelled, or whose wait was ended."""

    operation_id: str
    status: str
    dependency: str | None = None


class StartedReplay(Document):
    """The operation that replays a dead letter."""

    operation_id: str
    dependency: str | None = None


class Failure(Document):
    """More of a failure: the step, the beginning of the answer's body, or where the handler failed."""

    step: str | None = None
    body: str | None = None
    traceback: str | None = None


class Replay(Document):
    """A replay of a dead letter; a change has `pointer`, `before` and `after`."""

    operation_id: str
    requested_at: datetime
    note: str | None = None
    changes: tuple[dict[str, Any], ...] = ()
    action_id: str | None = None
    dead_letter_id: str | None = None
    by: str | None = None
    from_step: str | None = None


class Note(Document):
    """What a person wrote."""

    text: str
    at: datetime
    by: str | None = None


class DeadLetter(Document):
    """What will not succeed without a person: has `request`, `handler` and `input`, or `message`.

    Attributes:
        group: Stable for the same root cause.
        message_chars: Length of the whole message, of which `message` holds the first 100,000.
    """

    id: str
    operation_id: str | None
    key: str
    source: str
    dependency: str | None
    category: str
    reason: str
    detail: str
    group: str
    attempts: tuple[Attempt, ...]
    correlation_id: str | None
    first_failed_at: datetime
    created_at: datetime
    status: str
    archived_at: datetime | None
    archived_by: str | None
    replay_of: str | None
    replays: tuple[Replay, ...]
    notes: tuple[Note, ...]
    request: dict[str, Any] | None = None
    handler: str | None = None
    input: Any = None
    message: str | None = None
    message_chars: int | None = None
    failure: Failure | None = None
    order_key: str | None = None
    priority: str | None = None
    limit_key: str | None = None
    debounce_key: str | None = None
    app_version: str | None = None
    unreadable: str | None = None


@dataclass(frozen=True)
class Submitted:
    """What became of a submission.

    Attributes:
        operation_id: Derived from the key.
        key: The one that was given, or generated.
        is_replayed: Whether the same operation was submitted before, so that nothing was started.
        operation: Its last status document, when it had ended by then.
    """

    operation_id: str
    key: str
    status: str
    is_replayed: bool
    operation: Operation | None


class OperationFields(TypedDict, total=False):
    """The body of an operation; what is left out has the meaning of the API.

    Attributes:
        dependency: The one whose policy and circuit it uses; with `request`.
        request: `method` (POST when left out), `path`, `query`, `headers`, `json` or `body`.
        handler: In place of both, the name of a handler.
        input: For the handler, any JSON.
        key: The key of the operation, 1 to 255 visible ASCII characters.
        start_at: When it begins, as RFC 3339; or `delay_seconds` after it was accepted.
        order_key: Operations of one order key run one after the other.
        limit_key: Whose share of the dependency's limits it uses, such as a customer.
        debounce_key: A later operation with it replaces this one while it waits for `debounce_seconds`.
        retry: Changes of the dependency's policy.
        when_open: `wait` or `refuse`, where the circuit is open already.
        fallback: Another dependency, which is asked while the circuit of the first is open.
        poll: How a 202 is followed: changes of the dependency's.
        on_success: Events to send when it succeeds.
        on_failure: Events to send when it becomes a dead letter, which they describe.
        on_recovered: Events to send when it succeeds after trouble.
    """

    dependency: str
    request: Mapping[str, Any]
    handler: str
    input: Any
    key: str
    correlation_id: str
    deadline_seconds: float
    start_at: str
    delay_seconds: float
    order_key: str
    order_on_failure: str
    priority: str
    limit_key: str
    debounce_key: str
    debounce_seconds: float
    debounce_max_seconds: float
    retry: Mapping[str, Any]
    when_open: str
    fallback: str
    poll: Mapping[str, Any]
    on_success: Sequence[Mapping[str, Any]]
    on_failure: Sequence[Mapping[str, Any]]
    on_recovered: Sequence[Mapping[str, Any]]


class ReplayFields(TypedDict, total=False):
    """How a dead letter is replayed: as it was, unless an edited part or a patch changes it."""

    request: Mapping[str, Any]
    input: Any
    message: Any
    note: str
    patch: Sequence[Mapping[str, Any]]
    downstream_key: str
    from_step: str


class DeadLetterFilters(TypedDict, total=False):
    """The dead letters that a list has; what is left out does not matter. Instants are RFC 3339 texts."""

    status: str
    reason: str
    category: str
    dependency: str
    group: str
    order_key: str
    limit_key: str
    debounce_key: str
    priority: str
    key: str
    correlation_id: str
    created_after: str
    created_before: str
    app_version: str
    q: str

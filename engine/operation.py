"""One operation as data: what it starts with, what each attempt gave, and the document that clients see.

Every record has `to_json` and `from_json`: plain dicts, lists, strings, numbers and None, fit for an
orchestration's input, an activity's answer, an entity's state or a table row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Self

from engine.instants import from_rfc3339, optional_from_rfc3339, optional_to_rfc3339, to_rfc3339
from engine.policy import RetryPolicy, Timeouts
from engine.retry_after import RetryHint
from engine.trace_context import TraceContext
from engine.vocabulary import Category, OperationState
from engine.waits import WaitRecord, with_wait

KEPT_ATTEMPTS: Final = 20
"""How many of the latest attempts travel with an operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationInput:
    """What the `operation` orchestration starts with; holds no secret.

    Attributes:
        operation_id: `op-...`, derived from scope and key; also the orchestration's instance id.
        key: The caller's idempotency key, sent downstream on every attempt.
        source: Where it came from: `http`, `queue`, ...
        dependency: The name in `dependencies.toml`; of a handler, the one that it names.
        fingerprint: What makes two submissions under one key the same.
        policy: Resolved at submit, so that editing the file never changes a running operation.
        timeouts: As `policy`; `deadline_seconds` is the operation's own.
        created_at: When it was accepted.
        deadline_at: After this nothing more is tried; None means no deadline.
        ttl_seconds: How long the finished operation's record is kept.
        handler: The Python handler to run; None for an HTTP request.
        request: The JSON form of `engine.models.HttpCall`; None for a handler.
        input: What the handler gets; any JSON.
        correlation_id: The caller's name for the wider piece of work; None when not given.
        on_success: JSON forms of `engine.models.Event`, sent after success.
        replay_of: The dead letter that this operation replays; None for a first run.
        reports_to: The orchestration that waits for its end, a batch or a saga; None when none does.
        undoes: The saga whose step it compensates; None when it is no compensation.
        trace: Where in a trace it was submitted; None when nobody traces it.
    """

    operation_id: str
    key: str
    source: str
    dependency: str
    fingerprint: str
    policy: RetryPolicy
    timeouts: Timeouts
    created_at: datetime
    deadline_at: datetime | None = None
    ttl_seconds: float = 86_400.0
    handler: str | None = None
    request: Mapping[str, Any] | None = None
    input: Any = None
    correlation_id: str | None = None
    on_success: tuple[Mapping[str, Any], ...] = ()
    replay_of: str | None = None
    reports_to: str | None = None
    undoes: str | None = None
    trace: TraceContext | None = None

    @property
    def run_id(self) -> str:
        """Names one run: a replay, which a person asked for, may do again what an earlier run has done."""
        return self.operation_id if self.replay_of is None else f"{self.operation_id}.{self.replay_of}"

    def to_json(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {
            "operation_id": self.operation_id,
            "key": self.key,
            "source": self.source,
            "dependency": self.dependency,
            "fingerprint": self.fingerprint,
            "policy": self.policy.to_json(),
            "timeouts": self.timeouts.to_json(),
            "created_at": to_rfc3339(self.created_at),
            "deadline_at": optional_to_rfc3339(self.deadline_at),
            "ttl_seconds": self.ttl_seconds,
            "handler": self.handler,
            "request": None if self.request is None else dict(self.request),
            "input": self.input,
            "correlation_id": self.correlation_id,
            "on_success": [dict(event) for event in self.on_success],
            "replay_of": self.replay_of,
            "reports_to": self.reports_to,
            "undoes": self.undoes,
            "trace": None if self.trace is None else self.trace.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        values = dict(data)
        values["policy"] = RetryPolicy.from_json(data["policy"])
        values["timeouts"] = Timeouts.from_json(data["timeouts"])
        values["created_at"] = from_rfc3339(data["created_at"])
        values["deadline_at"] = optional_from_rfc3339(data["deadline_at"])
        values["on_success"] = tuple(data["on_success"])
        values["trace"] = TraceContext.from_json(data.get("trace"))
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptOutcome:
    """What one attempt gave, as the `attempt` activity returns it.

    Attributes:
        number: Which attempt it was, from 1.
        started_at: When the call began.
        duration_ms: How long it took.
        category: None for success.
        status_code: Of the answer; None when there was none.
        error: Exception or answer as one line for a person; never a secret; None for success.
        retry_hint: The dependency's or handler's wish for a wait; None when there was none.
        result: For success, `{"status_code", "headers", "json" | "body"}` or a handler's `{"value"}`.
        counted: False when the attempt never left this side (no connection free here, the worker failed):
            it is made again under the same number and costs no attempt.
    """

    number: int
    started_at: datetime
    duration_ms: float
    category: Category | None = None
    status_code: int | None = None
    error: str | None = None
    retry_hint: RetryHint | None = None
    result: Any = None
    counted: bool = True

    def to_json(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {
            "number": self.number,
            "started_at": to_rfc3339(self.started_at),
            "duration_ms": self.duration_ms,
            "category": None if self.category is None else self.category.value,
            "status_code": self.status_code,
            "error": self.error,
            "retry_hint": None if self.retry_hint is None else self.retry_hint.to_json(),
            "result": self.result,
            "counted": self.counted,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        values = dict(data)
        values["started_at"] = from_rfc3339(data["started_at"])
        values["category"] = None if data["category"] is None else Category(data["category"])
        hint = data["retry_hint"]
        values["retry_hint"] = None if hint is None else RetryHint.from_json(hint)
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One item of a status document's `attempts`.

    Attributes:
        number: From 1.
        started_at: When the call began.
        duration_ms: How long it took.
        category: None for success.
        status_code: Of the answer; None when there was none.
        error: One line for a person; None for success.
        next_delay_seconds: The wait decided after it; None when nothing follows.
        delay_reasons: Why that wait, in the order in which it was found.
    """

    number: int
    started_at: datetime
    duration_ms: float
    category: Category | None = None
    status_code: int | None = None
    error: str | None = None
    next_delay_seconds: float | None = None
    delay_reasons: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Give the form of contract `attempts[]`."""
        return {
            "number": self.number,
            "started_at": to_rfc3339(self.started_at),
            "duration_ms": self.duration_ms,
            "category": None if self.category is None else self.category.value,
            "status_code": self.status_code,
            "error": self.error,
            "next_delay_seconds": self.next_delay_seconds,
            "delay_reasons": list(self.delay_reasons),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        values = dict(data)
        values["started_at"] = from_rfc3339(data["started_at"])
        values["category"] = None if data["category"] is None else Category(data["category"])
        values["delay_reasons"] = tuple(data["delay_reasons"])
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What an operation has been through, bounded: it travels on when the orchestration continues as new.

    Attributes:
        attempts: The latest attempts, at most `KEPT_ATTEMPTS`, oldest first.
        attempt_count: Counted attempts in all.
        own_failures: Attempts that never left this side, in a row; they cost no attempt.
        circuit_waits: Waits for the circuit so far; they cost no attempt.
        waits: The latest waits for the circuit or the retry budget, at most `KEPT_WAITS`, oldest first.
    """

    attempts: tuple[AttemptRecord, ...] = ()
    attempt_count: int = 0
    own_failures: int = 0
    circuit_waits: int = 0
    waits: tuple[WaitRecord, ...] = ()

    @property
    def next_attempt(self) -> int:
        """The number of the attempt to make next, from 1."""
        return self.attempt_count + 1

    @property
    def previous_delay_seconds(self) -> float | None:
        """The wait before the latest attempt's predecessor's retry; None when none was decided yet."""
        return self.attempts[-1].next_delay_seconds if self.attempts else None

    def with_attempt(self, record: AttemptRecord) -> Self:
        """Add a counted attempt, letting the oldest kept one go when there are too many."""
        kept = (*self.attempts, record)[-KEPT_ATTEMPTS:]
        return replace(self, attempts=kept, attempt_count=record.number, own_failures=0)

    def with_own_failure(self) -> Self:
        """Add an attempt that never left this side."""
        return replace(self, own_failures=self.own_failures + 1)

    def with_circuit_wait(self) -> Self:
        """Add a wait for the circuit."""
        return replace(self, circuit_waits=self.circuit_waits + 1)

    def with_wait(self, wait: WaitRecord) -> Self:
        """Add what held an attempt up, and for how long."""
        return replace(self, waits=with_wait(self.waits, wait))

    def to_json(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {
            "attempts": [record.to_json() for record in self.attempts],
            "attempt_count": self.attempt_count,
            "own_failures": self.own_failures,
            "circuit_waits": self.circuit_waits,
            "waits": [wait.to_json() for wait in self.waits],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        records = tuple(AttemptRecord.from_json(item) for item in data["attempts"])
        waits = tuple(WaitRecord.from_json(item) for item in data.get("waits", ()))
        return cls(**(dict(data) | {"attempts": records, "waits": waits}))


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationStatus:
    """The status document of one operation.

    Attributes:
        operation: What it started with.
        state: Where it stands.
        history: Its attempts.
        updated_at: When it last changed.
        next_attempt_at: When the present wait ends; None when it does not wait.
        result: Of a success: `{"status_code", "headers", "json" | "body"}` or `{"value"}`.
        dead_letter: `{"id", "category", "reason"}`; None unless dead-lettered.
        events: `{"event_id", "type", "state"}` of each follow-up message.
    """

    operation: OperationInput
    state: OperationState
    history: History
    updated_at: datetime
    next_attempt_at: datetime | None = None
    result: Any = None
    dead_letter: Mapping[str, Any] | None = None
    events: tuple[Mapping[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Give the document of `GET /api/operations/{operation_id}`; `waits` once anything held it up."""
        operation = self.operation
        waits = [wait.to_json() for wait in self.history.waits]
        document = {
            "operation_id": operation.operation_id,
            "key": operation.key,
            "dependency": operation.dependency,
            "correlation_id": operation.correlation_id,
            "source": operation.source,
            "status": self.state.value,
            "attempt_count": self.history.attempt_count,
            "attempts": [record.to_json() for record in self.history.attempts],
            "next_attempt_at": optional_to_rfc3339(self.next_attempt_at),
            "deadline_at": optional_to_rfc3339(operation.deadline_at),
            "result": self.result,
            "dead_letter": None if self.dead_letter is None else dict(self.dead_letter),
            "events": [dict(event) for event in self.events],
            "created_at": to_rfc3339(operation.created_at),
            "updated_at": to_rfc3339(self.updated_at),
        }
        return document | ({"waits": waits} if waits else {})

"""One operation as data: its key and id, what it starts with, what it is to do.

A scope separates keys that are equal by accident. There are four kinds, each the same in every source:

    key:              keys that callers choose: the body's `key`, the header Idempotency-Key
    event:            envelopes: `source` and `id`
    fields:           keys made of named fields of the payload
    source:NAME/...   ids of a source: a message id, a partition with a sequence number

Credentials in the headers of a caller's request are sent, and neither shown nor stored with a dead letter:
`content_of` and `without_credentials` mask them. `base.validation` refuses the standard credential
headers; those masked are the ones that services invented.

`operation_from` makes the input of the orchestration of a validated request: here policies are resolved.

Every record has `to_json` and `from_json`: plain dicts, lists, strings, numbers and None, fit for an
orchestration's input, an activity's answer, an entity's state or a table row.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Self

from durable_retry.base.documents import is_longer_than
from durable_retry.base.json_forms import NOT_STORED, JsonShape, from_rfc3339, to_ms
from durable_retry.base.masking import Masking
from durable_retry.base.names import Priority
from durable_retry.base.text import MASK
from durable_retry.base.trace_context import TraceContext
from durable_retry.base.validation import MAX_SECONDS, Problem
from durable_retry.plugins import plugins
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.keys import (
    KeyCompletion,
    Life,
    ScopedKey,
    apart_ms,
    fingerprint,
    key_or_hash,
    operation_id_for,
)
from durable_retry.rules.operations.request import OperationRequest, Part, members_by_feature
from durable_retry.rules.retry.admission import AdmissionState, StepAdmission
from durable_retry.rules.retry.constraints import Retryable
from durable_retry.rules.retry.history import Conflict
from durable_retry.rules.retry.policy import RetryPolicy, Timeouts, overridden, override_problems
from durable_retry.rules.retry.slots import NeedsSlot

CREDENTIAL_HEADERS: Final = frozenset(
    {
        "x-api-key",
        "api-key",
        "apikey",
        "x-auth-token",
        "x-access-token",
        "x-functions-key",
        "ocp-apim-subscription-key",
        "x-amz-security-token",
    }
)


def deadline_of(begins_at: datetime, deadline_seconds: float) -> datetime | None:
    """Return the instant after which nothing is tried; 0 seconds means none."""
    return None if deadline_seconds == 0 else begins_at + timedelta(seconds=deadline_seconds)


def run_number(accepted_at: datetime, after: int = 0) -> int:
    """Return the number of a run that was accepted at an instant; above `after`, that of an earlier run.

    Milliseconds since 1970, and not a counter: it grows also when no record is left of earlier runs.
    """
    return max(after + 1, to_ms(accepted_at))


_AN_HOUR: Final = timedelta(hours=1)


def _is_long(lasted: timedelta, ttl_seconds: float) -> bool:
    """Whether a run is longer than an hour and than the time of its key."""
    return lasted > max(timedelta(seconds=ttl_seconds), _AN_HOUR)


def _may_outlive(ttl_seconds: float, history_for: timedelta | None) -> bool:
    """Whether a key may have to answer without the history, also after a run that is not long."""
    if history_for is None:
        return False
    return not _is_long(history_for - timedelta(seconds=ttl_seconds), ttl_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationInput(Retryable):
    """What the `operation` orchestration starts with; holds no secret."""

    NOT_COPIED: ClassVar = ("request", "input")

    key: str  # the caller's idempotency key, from which the id is derived; see `sent_key`
    source: str  # where it came from: `http`, `queue`, ...
    created_at: datetime
    # What makes two submissions under one key the same, see `fingerprint_of`; None for all of its present
    # request or input.
    fingerprint: str | None = None
    ttl_seconds: float = 86_400.0  # how long the finished operation's record is kept
    # The JSON form of `rules.operations.request.HttpCall`; None for a handler.
    request: Mapping[str, Any] | None = None
    input: Any = None  # what the handler gets; any JSON
    correlation_id: str | None = None  # the caller's name for the wider piece of work; None when not given
    replay_of: str | None = None  # the dead letter that this operation replays; None for a first run
    # The orchestration that waits for its end, a batch or a saga; None when none does.
    reports_to: str | None = None
    undoes: str | None = None  # the saga whose step it compensates; None when it is no compensation
    trace: TraceContext | None = None  # where in a trace it was submitted; None without a trace
    # Sent to the dependency in place of `key`, by an edited replay; else None.
    downstream_key: str | None = None
    # The run whose remembered steps this one continues; None means its own.
    steps_run: int | None = None
    # The person or the key that submitted or replayed it; None when not known.
    submitted_by: str | None = None
    # JSON pointers to the parts of its result that a saga needs; None when none does.
    wanted: tuple[str, ...] | None = None
    # When it begins, where that is later than it was accepted; None for at once.
    start_at: datetime | None = None
    # By the names of features, what each keeps of its members of the body; None where it uses no feature.
    parts: Mapping[str, Mapping[str, Any]] | None = None
    # Whether an earlier run of it, or one with its key, may have acted; None for not.
    acted_before: bool | None = None
    # Whether the app generated its key, so that nobody can send it again and no record is kept; None for not.
    key_is_generated: bool | None = None
    # Whether its end completes the record of its key, which may have to answer without the history; None
    # means only if the run is long.
    keeps_record: bool | None = None
    # Why an earlier success was not committed, as an attempt gets it; None where none was refused.
    conflict: Annotated[Conflict | None, NOT_STORED] = None
    # Whether each attempt at its dependency needs a slot; known where it is submitted.
    needs_slot: Annotated[bool, NOT_STORED] = False

    @property
    def remembered_run(self) -> int:
        """The run under whose number the steps of this one are stored."""
        return self.run if self.steps_run is None else self.steps_run

    def step_key(self, step: str) -> str:
        """Return the key that the dependency deduplicates a step's calls on."""
        return key_or_hash(f"{self.sent_key}~{step}")

    @property
    def sent_key(self) -> str:
        """The key that the dependency deduplicates on, the same for every attempt."""
        return self.key if self.downstream_key is None else self.downstream_key

    @property
    def owner(self) -> str:
        """The owner of its attempts: the operation and, for a replay, the dead letter behind a dot."""
        return self.operation_id if self.replay_of is None else f"{self.operation_id}.{self.replay_of}"

    @property
    def life(self) -> Life:
        """This run, to be compared with the runs whose markers it finds."""
        return Life(owner=self.owner, run=self.run, apart_ms=apart_ms(self.ttl_seconds))

    def _part(self, feature: str, member: str) -> str | None:
        return (self.parts or {}).get(feature, {}).get(member)

    @property
    def debounce_key(self) -> str | None:
        """The key with which a later operation replaces it while it waits; None when none does."""
        return self._part("debounce", "key")

    @property
    def order_key(self) -> str | None:
        """The key of those that run one after the other with it; None for in no order."""
        return self._part("order", "key")

    @property
    def order_on_failure(self) -> str | None:
        """What becomes of those behind it when it ends as a dead letter; None without an order key."""
        return self._part("order", "on_failure")

    @property
    def submitted_to(self) -> str:
        """The dependency that it was submitted to; `dependency` is the one that its attempts go to."""
        return self._part("fallback", "of") or self.dependency

    def needs_record(self, now: datetime) -> bool:
        """Whether its key may have to answer without its history, if it ends now."""
        if self.key_is_generated:
            return False
        return self.keeps_record is True or _is_long(now - self.created_at, self.ttl_seconds)

    @property
    def begins_at_once(self) -> bool:
        """Whether nothing can delay its first attempt but the admission of that."""
        return self.start_at is None and (self.parts or {}).keys() <= _beginning_at_once()

    def parts_to_commit(self, *, is_recovered: bool = False) -> Mapping[str, Mapping[str, Any]]:
        """Return the parts of features that commit something with its success, by their names.

        Args:
            is_recovered: Whether it succeeds after trouble, see `Success`.
        """
        return {
            name: part
            for name, part in (self.parts or {}).items()
            if name in _committing() and members_by_feature()[name].commits(part, is_recovered=is_recovered)
        }

    @property
    def read_at(self) -> tuple[str, ...]:
        """JSON pointers into the result of an attempt, to what features' orchestrations read of it."""
        known = members_by_feature() if self.parts else {}
        return tuple(
            pointer
            for name, part in (self.parts or {}).items()
            if name in known
            for pointer in known[name].read_at(part)
        )

    def without_commit(self) -> Self:
        """Return the operation as attempts get it: without what is committed after them."""
        if _committing().isdisjoint(self.parts or ()):
            return self
        parts = {name: part for name, part in (self.parts or {}).items() if name not in _committing()}
        return replace(self, parts=parts or None)

    def in_run(self, run: int) -> Self:
        """Return the operation with the run number of another start of the same life."""
        return self if run == self.run else replace(self, run=run)

    def to_attempt(
        self,
        now: datetime,
        *,
        is_owed: bool,
        acted_before: bool = False,
        conflict: Conflict | None = None,
        forgiven: int | None = None,
    ) -> Self:
        """Return the operation for an attempt; one that is owed after the deadline has its whole time.

        Args:
            forgiven: The number of attempts that its policy does not count; None for none.
        """
        operation = replace(self, acted_before=True, conflict=conflict) if acted_before else self
        if forgiven is not None:
            operation = replace(operation, policy=operation.policy.with_more_attempts(forgiven))
        is_late = self.deadline_at is not None and now >= self.deadline_at
        return replace(operation, deadline_at=None) if is_owed and is_late else operation

    def with_later_deadline(self, by: timedelta) -> Self:
        """Return the operation with so much more time."""
        return self if self.deadline_at is None else replace(self, deadline_at=self.deadline_at + by)

    def restarted(self, now: datetime) -> Self:
        """Return a later run of the operation: its deadline counts from now, or from its later start."""
        begins_at = now if self.start_at is None else max(now, self.start_at)
        later = replace(self, run=run_number(now, self.run), created_at=now)
        return later.with_time_from(begins_at)

    def with_time_from(self, instant: datetime) -> Self:
        """Return the operation with all its time from an instant."""
        return replace(self, deadline_at=deadline_of(instant, self.timeouts.deadline_seconds))

    def completion(self, document: Mapping[str, Any], now: datetime) -> KeyCompletion:
        """Return the end of this run, for the record of its key."""
        return KeyCompletion(
            run=self.run,
            fingerprint=fingerprint_of(self.to_json()),
            document=document,
            now=now,
            ttl_seconds=self.ttl_seconds,
        )


@cache
def _beginning_at_once() -> frozenset[str]:
    return frozenset(plugin.name for plugin in plugins() if not (plugin.gate or plugin.start))


@cache
def _committing() -> frozenset[str]:
    return frozenset(plugin.name for plugin in plugins() if plugin.commit)


CONTENT_BYTES: Final = 4096
"""A request or an input with more bytes of JSON than about this is not copied into every attempt's input."""


def start_input(
    operation: OperationInput, start_id: str, needed_slot: NeedsSlot | None = None
) -> dict[str, Any]:
    """Return the input of an operation's orchestration.

    A large request or input gives it an `input_id`: attempts read the operation from the input of its
    instance then, so that the history holds it once.

    Args:
        start_id: Unique to this start.
        needed_slot: What to ask for before its first attempt; None where that finds out.
    """
    content = operation.request or operation.input
    input_: dict[str, Any] = {"operation": operation.to_json(), "start_id": start_id}
    if needed_slot is not None:
        input_["needed_slot"] = needed_slot.to_json()
    return input_ | {"input_id": start_id} if is_longer_than(content, CONTENT_BYTES) else input_


def operation_from(
    request: OperationRequest,
    dependency: Dependency,
    name: ScopedKey,
    *,
    source: str,
    now: datetime,
    trace: TraceContext | None = None,
    key_is_generated: bool = False,
    history_for: timedelta | None = None,
) -> OperationInput:
    """Resolve what an operation starts with, by the dependency that it or its handler names.

    Args:
        request: Has none of `excess_problems`.
        history_for: How long histories are kept, from the start of an operation; None for ever.
    """
    parts = _parts_of_request(request, dependency, now)
    starts = (part.start_at for part in parts.values() if part.start_at is not None)
    start_at = next(starts, None) or _start_of_request(request, now)
    timeouts = _timeouts_of_request(request, dependency)
    call = None if request.request is None else request.request.to_json()
    ttl_seconds = dependency.idempotency.ttl_seconds
    return OperationInput(
        operation_id=operation_id_for(name.scope, name.key),
        key=name.key,
        run=run_number(now),
        source=source,
        dependency=dependency.name,
        fingerprint=_fingerprint_of_request(request, dependency),
        policy=_policy_of_request(request, dependency),
        timeouts=timeouts,
        created_at=now,
        deadline_at=deadline_of(start_at or now, timeouts.deadline_seconds),
        ttl_seconds=ttl_seconds,
        handler=request.handler,
        request=call,
        input=request.input,
        correlation_id=request.correlation_id,
        trace=trace,
        start_at=start_at,
        parts={name: part.document for name, part in parts.items()} or None,
        priority=_priority_of_request(request, dependency),
        limit_key=request.limit_key,
        key_is_generated=key_is_generated or None,
        keeps_record=(not key_is_generated and _may_outlive(ttl_seconds, history_for)) or None,
        needs_slot=dependency.bounds is not None and not dependency.bounds.has_shares,
    )


def fingerprint_of(operation: Mapping[str, Any]) -> str:
    """Return what makes two submissions under one key the same, of an operation's JSON form.

    Where all of the content counts it is hashed here: few keys are sent again, and it is half of the work of
    a large submission. Code that changes an operation's content or dependency must store it before.
    """
    if (stored := operation.get("fingerprint")) is not None:
        return str(stored)
    if (handler := operation.get("handler")) is not None:
        return fingerprint(f"handler {handler}", operation.get("input"))
    return fingerprint(f"dependency {operation.get('dependency')}", operation.get("request"))


def _fingerprint_of_request(request: OperationRequest, dependency: Dependency) -> str | None:
    pointers = dependency.idempotency.fingerprint
    if request.request is None or not (pointers or dependency.was):
        return None
    return fingerprint(request.target_at(dependency), request.request.to_json(), pointers)


def _priority_of_request(request: OperationRequest, dependency: Dependency) -> Priority | None:
    priority = Priority(request.priority or dependency.priority)
    return None if priority is Priority.NORMAL else priority


def _parts_of_request(request: OperationRequest, dependency: Dependency, now: datetime) -> dict[str, Part]:
    members_of_request, configured = request.of_features, dependency.of_features
    parts = {
        name: members.part_of(members_of_request.get(name), request.target_at(dependency), dependency, now)
        for name, members in (members_by_feature().items() if members_of_request or configured else ())
        if name in members_of_request or name in configured
    }
    return {name: part for name, part in parts.items() if part is not None}


def _start_of_request(request: OperationRequest, now: datetime) -> datetime | None:
    """Return when an operation begins; None for at once."""
    if request.start_at is None:
        return now + timedelta(seconds=request.delay_seconds) if request.delay_seconds else None
    start_at = from_rfc3339(request.start_at)
    return start_at if start_at > now else None


def _timeouts_of_request(request: OperationRequest, dependency: Dependency) -> Timeouts:
    if request.deadline_seconds is None:
        return dependency.timeouts
    return replace(dependency.timeouts, deadline_seconds=request.deadline_seconds)


def _policy_of_request(request: OperationRequest, dependency: Dependency) -> RetryPolicy:
    if request.retry is None:
        return dependency.retry
    return overridden(dependency.retry, request.retry.written())


def excess_problems(request: OperationRequest, dependency: Dependency, now: datetime) -> Iterator[Problem]:
    """List where a request begins too late, or asks for more than its dependency allows."""
    start_at = _start_of_request(request, now)
    if start_at is not None and start_at > now + timedelta(seconds=MAX_SECONDS):
        yield Problem("/start_at", "is more than a year ahead")
    yield from override_problems(dependency.retry, _policy_of_request(request, dependency))


def content_of(operation: Mapping[str, Any], masking: Masking) -> dict[str, Any]:
    """Return `request`, or `handler` and `input`, of an operation's JSON form, as people see it."""
    if operation.get("handler") is not None:
        return masking.shown({"handler": operation["handler"], "input": operation.get("input")})
    return masking.shown({"request": _without_values(operation["request"])})


def without_credentials(operation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON form of an operation with the values of credential headers masked.

    It has the fingerprint, which cannot be made from masked values.
    """
    form = {**operation, "fingerprint": fingerprint_of(operation)}
    # A handler has no headers.
    return form if form.get("request") is None else form | {"request": _without_values(form["request"])}


def _without_values(request: Mapping[str, Any]) -> dict[str, Any]:
    headers = {
        name: MASK if name.lower() in CREDENTIAL_HEADERS else value
        for name, value in request.get("headers", {}).items()
    }
    return {**request, "headers": headers}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCall(JsonShape):
    """The input of the activity `attempt`: an operation, or where to find a large one, see `start_input`."""

    NOT_COPIED: ClassVar = ("operation",)

    operation: Mapping[str, Any] | None = None  # the JSON form of an `OperationInput`
    operation_id: str | None = None  # in place of `operation`, with `input_id`
    input_id: str | None = None
    attempt: int  # from 1
    admission: AdmissionState = field(default_factory=AdmissionState)
    # Whether the attempt is made although the deadline has passed.
    is_owed: bool = False
    # Whether an earlier attempt of the same key ended without a clear refusal; None for not.
    acted_before: bool | None = None
    step: StepAdmission | None = None  # of a step at another dependency
    conflict: Conflict | None = None  # why an earlier success was not committed
    forgiven: int | None = None  # attempts that do not count for its policy, see `History`; None for none

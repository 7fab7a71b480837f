"""What holds an operation up: its pause, what is changed meanwhile, and `waits` of a status document.

An operation stores what held its attempts up. The pause after a failed attempt is in that attempt, and is
joined to the others, with the error behind it, when the document is shown.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Self

from pydantic import Field

from durable_retry.base.json_forms import JsonShape, from_rfc3339, instant_in
from durable_retry.base.names import PAUSE_EVENT, RESUME_EVENT, OperationState, Priority, PriorityName
from durable_retry.base.text import cut_text, failing_text, outcome_text, time_text
from durable_retry.base.validation import (
    InvalidInputError,
    PositiveSeconds,
    Seconds,
    Strict,
    validated,
    with_example,
)
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.retry.constraints import REASON_ERROR_CHARS
from durable_retry.rules.retry.history import PastAction, PastAttempt, PastWait, WaitKind, end_of, kind_after
from durable_retry.rules.retry.policy import RetryOverride, RetryPolicy, overridden, override_problems


class _Steering(Strict):
    """How one operation or many are steered."""

    @classmethod
    def of(cls, request: Any) -> Self:
        """Read the data of an external event, or a stored form; any other data gives the defaults."""
        members = request if isinstance(request, Mapping) else {}
        try:
            return validated(cls, {name: members[name] for name in cls.model_fields if name in members})
        except InvalidInputError:
            return cls()


class PauseOptions(_Steering):
    """How one operation or many are paused."""

    reason: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="Why, for whoever looks at it."
    )
    for_seconds: PositiveSeconds | None = Field(
        default=None, description="How long it lasts; null means until somebody resumes the operation."
    )
    stops_deadline: bool = Field(
        default=False, description="Whether the operation gets the time of the pause on top of its deadline."
    )


class Try(Strict):
    """The body of an attempt past the circuit, which ends the wait for it."""

    model_config = with_example(reason="The supplier says that it works again.")

    reason: Annotated[str, Field(min_length=1, max_length=200, description="Why, for whoever looks at it.")]


class Pause(PauseOptions):
    """The body of a pause."""

    model_config = with_example(reason="The supplier changes its API.", for_seconds=600.0)

    @staticmethod
    def is_at_once(request: Any) -> bool:
        """Whether an external event also ends the pause that it asks for, or the present one."""
        return isinstance(request, dict) and request.get("at_once") is True

    @staticmethod
    def is_over(request: Any, actions: Iterable[PastAction]) -> bool:
        """Whether this asks for a pause that has ended: a hub may deliver an external event twice."""
        ends = [action.at for action in actions if action.action == RESUME_EVENT]
        asked_at = instant_in(request, "asked_at")
        return bool(ends) and asked_at is not None and asked_at <= ends[-1]

    @staticmethod
    def is_ended_by(request: Any, began_at: datetime) -> bool:
        """Whether an external event resumes what was paused at an instant."""
        return instant_in(request, "paused_at") == began_at


class ResumeOptions(_Steering):
    """Changes to one operation or many before they go on; null changes nothing."""

    retry: RetryOverride | None = Field(
        default=None, description="Changes to its policy, within what the dependency allows."
    )
    deadline_seconds: Seconds | None = Field(
        default=None, description="For the rest of it, from when it goes on; 0 means no deadline."
    )
    priority: PriorityName | None = Field(default=None, description="Who goes first from then on.")
    at_once: bool = Field(
        default=False, description="Whether one that is not paused is paused, changed and resumed by this."
    )

    def change(self, limits: RetryPolicy, present: RetryPolicy) -> "Change":
        """Return the change, with its policy.

        Args:
            limits: The policy of the dependency, or of the handler.
            present: That of the operation.

        Raises:
            InvalidInputError: The policy is unusable, or exceeds the limits, and did not before.
        """
        written = {} if self.retry is None else self.retry.written()
        change = Change(
            retry=written or None,
            limits=limits if written else None,
            deadline_seconds=self.deadline_seconds,
            priority=self.priority,
        )
        earlier = override_problems(limits, present)
        problems = [
            problem
            for problem in override_problems(limits, change.policy(present))
            if problem not in earlier or problem.pointer.removeprefix("/retry/") in written
        ]
        if problems:
            raise InvalidInputError(problems)
        return change


class Resume(ResumeOptions):
    """The body of a resume."""

    model_config = with_example(reason="The supplier is back.", retry={"max_attempts": 3}, priority="high")

    reason: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="Why, for whoever looks at it."
    )


_SHOWN_WAITS: Final = 10
"""A schedule has up to a thousand waits, and a custom status little room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(JsonShape):
    """A change of an operation while it is paused; None leaves a member as it is.

    Attributes:
        retry: Keys of a `retry` table, as they were written.
        limits: The policy of the dependency, or of the handler, at that time.
        deadline_seconds: From the change on; 0 means none.
    """

    retry: Mapping[str, Any] | None = None
    limits: RetryPolicy | None = None
    deadline_seconds: float | None = None
    priority: PriorityName | None = None

    @classmethod
    def of(cls, request: Any) -> Self | None:
        """Read the data of an external event; None where it has no readable change."""
        try:
            change = cls.from_json(request["change"])
            return replace(change, retry=change.retry and validated(RetryOverride, change.retry).written())
        except (InvalidInputError, KeyError, TypeError, ValueError):
            return None

    def policy(self, present: RetryPolicy) -> RetryPolicy:
        """Return a policy as it is after the change."""
        return overridden(self.limits or present, self.retry or {}, present)

    def applied(self, operation: OperationInput, now: datetime) -> OperationInput:
        """Return an operation as it is after the change."""
        operation = replace(operation, policy=self.policy(operation.policy))
        if self.priority is not None:
            priority = Priority(self.priority)
            operation = replace(operation, priority=None if priority is Priority.NORMAL else priority)
        if self.deadline_seconds is None:
            return operation
        timeouts = replace(operation.timeouts, deadline_seconds=self.deadline_seconds)
        return replace(operation, timeouts=timeouts).with_time_from(now)

    def told(self, operation: OperationInput) -> dict[str, Any]:
        """Return the present values of what changes, for a person."""
        values: dict[str, Any] = {}
        if self.retry is not None:
            policy = RetryOverride.model_construct(**operation.policy.to_json()).model_dump(
                exclude={"preset"}
            )
            keys = policy if "preset" in self.retry else self.retry
            values["retry"] = {key: _brief(policy[key]) for key in keys}
        if self.deadline_seconds is not None:
            values["deadline_seconds"] = operation.timeouts.deadline_seconds
        if self.priority is not None:
            values["priority"] = operation.priority or Priority.NORMAL
        return values


def _brief(value: Any) -> Any:
    return f"{len(value)} waits" if isinstance(value, list) and len(value) > _SHOWN_WAITS else value


def waits_of(document: Mapping[str, Any]) -> tuple[PastWait, ...]:
    """Return every wait of a stored status document, oldest first; the first reason of each says why.

    The last is the present one. So a pause that is over is left to `actions`: it ends within another wait.
    """
    stored = (PastWait.from_json(wait) for wait in document.get("waits", ()))
    before = (*_start_of(document), *stored, *_pauses_of(document))
    return (*sorted(before, key=lambda wait: wait.began_at), *_present_pause(document))


def _start_of(document: Mapping[str, Any]) -> Iterator[PastWait]:
    name = "next_attempt_at" if document["status"] == OperationState.SCHEDULED else "start_at"
    until, began_at = instant_in(document, name), from_rfc3339(document["created_at"])
    if until is None or until <= began_at:
        return
    why = f"it begins at {time_text(until)}, as submitted"
    if document.get("debounce_key") is not None:
        why = f"a later one of its debounce key may replace it until {time_text(until)}"
    yield PastWait(
        before_attempt=1, kind=WaitKind.START, began_at=began_at, until=until, delay_reasons=(why,)
    )


def _present_pause(document: Mapping[str, Any]) -> Iterator[PastWait]:
    actions = map(PastAction.from_json, reversed(document.get("actions", ())))
    pause = next((action for action in actions if action.action == PAUSE_EVENT), None)
    if pause is None or document["status"] != OperationState.PAUSED:
        return
    why = "paused" if pause.by is None else f"paused by {pause.by}"
    yield PastWait(
        before_attempt=document["attempt_count"] + 1,
        kind=WaitKind.PAUSE,
        began_at=pause.at,
        until=instant_in(document, "next_attempt_at"),
        delay_reasons=(why if pause.reason is None else f"{why}: {pause.reason}",),
    )


def _pauses_of(document: Mapping[str, Any]) -> Iterator[PastWait]:
    before, since = None, ""
    for written in document["attempts"]:
        answer = (written["status_code"], written["category"])
        if answer != before:
            before, since = answer, written["started_at"]
        if written["next_delay_seconds"] is not None:
            yield _pause_after(PastAttempt.from_json(written), document, from_rfc3339(since))


def _pause_after(attempt: PastAttempt, document: Mapping[str, Any], since: datetime) -> PastWait:
    began_at, kind = end_of(attempt), kind_after(attempt.category)
    until = began_at + timedelta(seconds=attempt.next_delay_seconds or 0)
    error = None if attempt.error is None else cut_text(attempt.error, REASON_ERROR_CHARS)
    fails = attempt.dependency or document["dependency"]
    if attempt.status_code is None:
        fails = document.get("handler") or fails
    failing = failing_text(outcome_text(attempt.status_code, error))
    why = f"{fails} {failing}, since {time_text(since)}"
    if kind is WaitKind.THROTTLE:
        # The dependency itself may not be paused any more: somebody may have ended that by hand.
        why = f"{fails} {failing}, this operation waits until {time_text(until)}"
    return PastWait(
        before_attempt=attempt.number + 1,
        kind=kind,
        began_at=began_at,
        until=until,
        delay_reasons=(why, *attempt.delay_reasons),
    )

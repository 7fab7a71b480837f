"""Polling: a dependency that accepts a request with 202 is asked until the work behind it has ended.

    attempt ──202, place──> wait ──> poll ──202──> wait ──> poll ──200──> the outcome of the attempt

Until the end, `Run.unsettled` has the outcome of the 202, with the `Accepted` as its result; an orchestration
that continues as new takes it along. A poll that fails counts no attempt: it is repeated where the failure
may pass. The last poll is the outcome of the attempt, classified as any other answer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

from pydantic import Field

from durable_retry.base.json_forms import JsonShape
from durable_retry.base.names import Category
from durable_retry.base.text import counted, failing_text, outcome_text, time_text
from durable_retry.base.validation import Problem, Strict, checked, pointer_problem
from durable_retry.features.polling.names import POLLING
from durable_retry.rules.circuit.snapshot import Refused
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.completion import values_at
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.operations.request import Members, Part
from durable_retry.rules.retry.constraints import (
    DelayConstraint,
    circuit_constraint,
    latest_start,
    reasons_of,
    retry_after_constraint,
)
from durable_retry.rules.retry.history import AttemptOutcome, duration_until, end_of
from durable_retry.rules.retry.retry_after import parse_retry_after

ACCEPTED: Final = 202
SEE_OTHER: Final = frozenset({302, 303})
"""Answers of a poll that name where the result is: Azure's "Asynchronous Request-Reply pattern"."""

HEADER: Final = "header"
_PLACES: Final = ("operation-location", "azure-asyncoperation", "location")
"""Headers that name where to ask, the first that is there: those of Azure's services, then the standard's."""

_LOOKED_AGAIN: Final = timedelta(minutes=1)
"""A poll that a circuit holds up asks its worker again after so long: somebody may close it by hand."""


def _location_problem(location: str) -> str | None:
    if location == HEADER or (location.startswith("/") and pointer_problem(location) is None):
        return None
    return 'must be "header", or a JSON pointer into the body'


_State = str | int | bool


class Until(Strict):
    """`until`: a part of an answer that says whether the work has ended; without it any but 202 ends it.

    Attributes:
        pointer: JSON pointer of the part of the body. An answer without it ends the work, too.
        succeeded: Its values once the work has succeeded.
        failed: Its values once it has failed. With any other value it goes on.
    """

    pointer: Annotated[str, checked(pointer_problem)]
    succeeded: Annotated[list[_State], Field(min_length=1, max_length=20)]
    failed: Annotated[list[_State], Field(max_length=20)] = Field(default_factory=list)


class Poll(Strict):
    """`poll`: a 202 that names a place to ask is followed until the work behind it has ended.

    Attributes:
        location: Where the place is: `header` (`Operation-Location`, `Azure-AsyncOperation` or `Location`),
            or a JSON pointer into the body.
        every_seconds: The pause between two polls, unless the answer asks for a longer one.
        until: `{ pointer, succeeded, failed }`: a part of the body, and its values once the work has ended.
    """

    location: Annotated[str, checked(_location_problem)] = HEADER
    every_seconds: Annotated[float, Field(ge=1, le=86_400)] = 5.0
    until: Until | None = None

    @property
    def place_pointer(self) -> str | None:
        """JSON pointer into the result of an answer, to the place; None where a header names it."""
        return None if self.location == HEADER else f"/json{self.location}"

    @property
    def state_pointer(self) -> str | None:
        """JSON pointer into the result of an answer, to what says whether the work has ended."""
        return None if self.until is None else f"/json{self.until.pointer}"

    def place_in(self, result: Mapping[str, Any]) -> str | None:
        """Return the place that the result of an answer names; None where it names none."""
        if self.place_pointer is None:
            return next((result["headers"][name] for name in _PLACES if name in result["headers"]), None)
        value = _value_at(result, self.place_pointer)
        return value if isinstance(value, str) and value else None

    def has_failed(self, result: Mapping[str, Any]) -> bool:
        """Whether an answer says that the work has failed."""
        return self.until is not None and self._is_one(result, self.until.failed)

    def has_succeeded(self, status_code: int | None, result: Mapping[str, Any]) -> bool:
        """Whether an answer says that the work has succeeded."""
        if status_code == ACCEPTED or status_code in SEE_OTHER:
            return False
        state = _value_at(result, self.state_pointer)
        return self.until is None or state is None or self._is_one(result, self.until.succeeded)

    def _is_one(self, result: Mapping[str, Any], states: list[_State]) -> bool:
        state = _value_at(result, self.state_pointer)
        # True equals 1 in Python, and not in JSON.
        return any(type(known) is type(state) and known == state for known in states)


def _value_at(result: Mapping[str, Any], pointer: str | None) -> Any:
    return None if pointer is None else values_at(result, (pointer,)).get(pointer)


class PollKeys(Strict):
    """The keys that a dependency has of it.

    Attributes:
        poll: How a 202 that names a place to ask is followed, until the work behind it has ended; without it
            a 202 is a success.
    """

    poll: Poll | None = None


class PollMembers(Strict):
    """The members that a submission has of it."""

    poll: Poll | None = Field(
        default=None, description="How a 202 is followed; what is left out is that of the dependency."
    )


class _Polling(Members):
    model = PollMembers

    def problems(self, document: Mapping[str, Any]) -> Iterator[Problem]:
        if document.get("poll") is not None and document.get("handler") is not None:
            yield Problem("/poll", "belongs to a request: a handler asks for itself")

    def part_of(
        self, members: PollMembers | None, target: str, dependency: Dependency, _now: datetime
    ) -> Part | None:
        keys = dependency.keys_of(POLLING, PollKeys).poll
        tables = (keys, None if members is None else members.poll)
        written = [table.written() for table in tables if table is not None]
        if not written or target.startswith("handler"):
            return None
        merged = {key: value for table in written for key, value in table.items()}
        return Part(Poll.model_validate(merged).model_dump(exclude_none=True))

    def part_of_replay(self, part: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return part

    def read_at(self, part: Mapping[str, Any]) -> Iterator[str]:
        poll = Poll.model_validate(part)
        return filter(None, (poll.place_pointer, poll.state_pointer))

    def of_part(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"poll": part}


MEMBERS: Final = _Polling()


def poll_of(operation: OperationInput) -> Poll:
    """Return how an operation that has a part of this feature is polled."""
    return Poll.model_validate((operation.parts or {})[POLLING])


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted(JsonShape):
    """The state of the work behind a request that a dependency has accepted."""

    place: str  # where to ask, as the answer names it: relative to the request, or absolute
    due_at: datetime  # when it is asked next
    reasons: tuple[str, ...]  # why then, for a person
    polls: int = 0  # how many polls were made


@dataclass(frozen=True, slots=True, kw_only=True)
class PollCall(JsonShape):
    """The input of the activity `poll`."""

    call: Mapping[str, Any]  # the JSON form of an `AttemptCall`: which operation
    poll: Mapping[str, Any]  # that of a `Poll`
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled(JsonShape):
    """The answer of the activity `poll`."""

    place: str  # where to ask next
    is_over: bool = False  # whether the outcome is that of the attempt
    outcome: AttemptOutcome | None = None  # None where the circuit refused the poll
    refused: Refused | None = None


def is_over(poll: Poll, outcome: AttemptOutcome) -> bool:
    """Whether the outcome of a poll ends the polling: what may pass, and our own failures, do not."""
    if outcome.category is None:
        return poll.has_succeeded(outcome.status_code, outcome.result)
    may_pass = outcome.category in {Category.TRANSIENT, Category.THROTTLED} and not outcome.is_ruled
    return outcome.counted and not may_pass


def is_accepted(outcome: AttemptOutcome) -> bool:
    """Whether a dependency has accepted the request of an attempt, and works on it."""
    return outcome.category is None and outcome.status_code == ACCEPTED


def accepted_in(
    outcome: AttemptOutcome, poll: Poll, operation: OperationInput, now: datetime
) -> Accepted | AttemptOutcome:
    """Return the state of the work behind an accepted request, or the outcome that ends the attempt now.

    Args:
        outcome: As the attempt got it, or as `carried` returned it.
    """
    if "place" in outcome.result:
        return Accepted.from_json(outcome.result)
    place = poll.place_in(outcome.result)
    if place is None:
        where = "header" if poll.place_pointer is None else f"value at {poll.location}"
        return unknown_end(outcome, f"its answer has no {where} that names where to ask", now)
    polled = Polled(place=place, outcome=outcome)
    return next_poll(outcome, polled, poll, operation, now, polls=0)


def carried(outcome: AttemptOutcome, accepted: Accepted) -> AttemptOutcome:
    """Return the outcome that stands for the attempt until the work has ended."""
    return replace(outcome, result=accepted.to_json())


def next_poll(
    outcome: AttemptOutcome,
    polled: Polled,
    poll: Poll,
    operation: OperationInput,
    now: datetime,
    *,
    polls: int,
) -> Accepted | AttemptOutcome:
    """Return when the dependency is polled next, or the outcome where the deadline comes before that.

    The last poll is made when the time to connect is all that is left.

    Args:
        outcome: Of the attempt.
        polled: What the latest answer said.
        polls: How many were made.
    """
    pause = DelayConstraint(now + timedelta(seconds=poll.every_seconds), ())
    constraints = [pause, *_requested_delays(polled, operation, now)]
    due_at = max(constraint.at for constraint in constraints)
    if operation.deadline_at is not None:
        last_at = latest_start(operation.deadline_at, operation.timeouts)
        if due_at > last_at and now >= last_at:
            return _too_late(outcome, polled, polls, now)
        due_at = min(due_at, last_at)
    why = f"accepted by {operation.dependency}, asked again at {time_text(due_at)}"
    reasons = (why, *_failure_of(polled, operation), *reasons_of(constraints))
    return Accepted(place=polled.place, due_at=due_at, reasons=reasons, polls=polls)


def _requested_delays(polled: Polled, operation: OperationInput, now: datetime) -> Iterator[DelayConstraint]:
    """Yield the delays that the dependency, or its circuit, asks for."""
    if polled.refused is not None:
        held = circuit_constraint(operation, polled.refused, now)
        yield replace(held, at=min(held.at, now + _LOOKED_AGAIN))
    if (outcome := polled.outcome) is not None:
        if outcome.category is None:
            headers, status_code = outcome.result["headers"], outcome.status_code or ACCEPTED
            hint = parse_retry_after(headers, status_code=status_code, now=now)
            outcome = replace(outcome, retry_hint=hint)
        yield from retry_after_constraint(operation.policy, outcome, now)


def _failure_of(polled: Polled, operation: OperationInput) -> tuple[str, ...]:
    outcome = polled.outcome
    if outcome is None or outcome.category is None:
        return ()
    return (f"{operation.dependency} {failing_text(outcome_text(outcome.status_code, outcome.error))}",)


def _accepted_text(outcome: AttemptOutcome) -> str:
    return f"it was accepted at {time_text(end_of(outcome))}"


def _too_late(outcome: AttemptOutcome, polled: Polled, polls: int, now: datetime) -> AttemptOutcome:
    last = polled.outcome
    end = f", the last one answered {outcome_text(last.status_code, last.error)}" if last and polls else ""
    detail = f"{_accepted_text(outcome)}, and had not ended after {counted(polls, 'poll')}{end}"
    return replace(
        outcome,
        duration_ms=duration_until(outcome, now),
        category=Category.DEADLINE_EXCEEDED,
        error=detail,
        result=None,
    )


def unknown_end(outcome: AttemptOutcome, why: str, now: datetime) -> AttemptOutcome:
    """Return the outcome of an attempt when it is unknown how the work behind it ends."""
    return replace(
        outcome,
        duration_ms=duration_until(outcome, now),
        category=Category.AMBIGUOUS,
        error=f"{_accepted_text(outcome)}, and {why}",
        result=None,
    )


def ended(outcome: AttemptOutcome, last: AttemptOutcome) -> AttemptOutcome:
    """Return the outcome of an attempt, by that of its last poll."""
    error = last.error
    if last.category is not None:
        error = "; ".join(filter(None, (_accepted_text(outcome), error)))
    return replace(
        last,
        number=outcome.number,
        started_at=outcome.started_at,
        duration_ms=duration_until(outcome, end_of(last)),
        error=error,
        dependency=outcome.dependency,
    )

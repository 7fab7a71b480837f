"""Lookup: a dependency is asked whether an attempt with an unknown end happened.

    attempt ──end unknown──> question ──found──────────────────────> succeeded with what was found
                                ├──found, and failed there─────────> dead letter `RejectedByDependency`
                                ├──not found, settled──────────────> the next attempt, as after `transient`
                                ├──not found, not settled──> wait ─> question
                                └──no answer───────────────────────> dead letter `AmbiguousOutcome`

A question is a GET with the policy, the circuit and the limits of the operation. Only an answer in the
expected form says that nothing happened: a page of a proxy, or JSON without the object in which `found` would
be, is no answer. A path with a name that has no value is not asked.

Until the end is known, the outcome of the attempt is in `Run.unsettled`, with the `Inquiry` as its result.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal, assert_never
from urllib.parse import quote

from pydantic import AfterValidator, Field, WrapValidator

from durable_retry.base.json_forms import JsonShape
from durable_retry.base.names import Category
from durable_retry.base.text import cut_text, failing_text, outcome_text, time_text
from durable_retry.base.validation import (
    Strict,
    checked,
    path_problem,
    pointed_at,
    pointer_problem,
    refuse,
)
from durable_retry.features.lookup.names import LOOKUP
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.operations.request import Members, Part
from durable_retry.rules.retry.constraints import latest_start
from durable_retry.rules.retry.decide import DeadLetter, Decision, Done, Wait
from durable_retry.rules.retry.history import AttemptOutcome, WaitKind, duration_until, end_of
from durable_retry.rules.retry.loop import RetryState

_PLACE: Final = re.compile(r"\{([^{}]*)\}")
_NAMES: Final = frozenset({"key", "correlation_id", "attempt", "input"})
_KNOWN: Final = "{key}, {correlation_id}, {attempt}, {input} or {input/...}"
_VALUE_CHARS: Final = 100


def _template_problem(path: str) -> str | None:
    if not path.startswith("/"):
        return "must begin with /"
    for name in _PLACE.findall(path):
        is_input = name.startswith("input/") and pointer_problem(name.removeprefix("input")) is None
        if name not in _NAMES and not is_input:
            return f"{{{name}}} is not known: write {_KNOWN}"
    filled = _PLACE.sub("x", path)
    if "{" in filled or "}" in filled:
        return f"has a brace without its other one: write {_KNOWN}"
    if not _PLACE.search(path):
        return f"asks the same for every operation: write {_KNOWN}"
    before, _, query = filled.partition("?")
    return "must not hold #" if "#" in query else path_problem(before)


def _checked_values(values: list[Any]) -> list[Any]:
    if not all(isinstance(value, str | int | float | bool) for value in values):
        raise refuse("must be strings, numbers, true or false")
    return values


# Not declared with `type`: such an alias would be a schema of its own in the OpenAPI document.
_Pointer = Annotated[str, checked(pointer_problem)]
_SettleSeconds = Annotated[float, Field(ge=0, le=86_400)]
_DEFAULT_SETTLE_SECONDS: Final = 10.0


class Lookup(Strict):
    """`lookup`: how to ask whether an attempt happened whose end is unknown, in place of a dead letter.

    Attributes:
        path: What is asked, by GET, relative to the base URL. `{key}`, `{correlation_id}`, `{attempt}` and
            `{input/...}`, a JSON pointer into the handler's input or the request's JSON, stand for values of
            the operation.
        found: JSON pointer into the answer. What is there, and not null, is the result: it happened.
        failed: JSON pointers into the answer with values by which it happened and failed for good.
        settle_seconds: Until so long after the attempt's end, not found says nothing, and is asked again.
    """

    path: Annotated[str, checked(_template_problem)]
    found: _Pointer
    failed: dict[_Pointer, Annotated[list[Any], Field(min_length=1), AfterValidator(_checked_values)]] = (
        Field(default_factory=dict)
    )
    settle_seconds: _SettleSeconds = _DEFAULT_SETTLE_SECONDS

    @property
    def may_answer_404(self) -> bool:
        """Whether a 404 says that nothing happened: the path itself names what is sought."""
        return _PLACE.search(self.path.partition("?")[0]) is not None


class LookupFunction(Strict):
    """The lookup of a handler: a function of the app is asked in place of the dependency.

    Attributes:
        function: Takes what the handler takes.
        settle_seconds: As in `Lookup`.
    """

    function: Callable[..., Any]
    settle_seconds: _SettleSeconds = _DEFAULT_SETTLE_SECONDS


def _read(own: Any, read_table: Callable[[Any], Lookup | None]) -> Lookup | LookupFunction | None:
    # A handler's lookup is a function in place of a table; a file cannot have one.
    if isinstance(own, LookupFunction) or (isinstance(own, dict) and callable(own.get("function"))):
        return LookupFunction.model_validate(own)
    return read_table(own)


class LookupKeys(Strict):
    """The keys that a dependency has of it.

    Attributes:
        lookup: How it is asked whether an attempt happened whose end is unknown; None where it is not.
    """

    lookup: Annotated[Lookup | None, WrapValidator(_read)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unclear(JsonShape):
    """The part of an operation: what to ask before its first attempt about an earlier run; mostly nothing."""

    since: datetime | None = None  # when the latest attempt of that run ended; None asks for nothing
    attempt: int | None = None  # the number of that attempt; None where that is not known
    only_asks: bool | None = None  # whether it makes no attempt, whatever the answer; None for not


class _Lookups(Members):
    def part_of(self, _members: None, _target: str, dependency: Dependency, _now: datetime) -> Part | None:
        return None if lookup_of(dependency) is None else Part(Unclear().to_json())

    def part_of_replay(self, _part: Mapping[str, Any]) -> Mapping[str, Any]:
        return Unclear().to_json()

    def part_of_unclear(
        self, dependency: Dependency, since: datetime, attempt: int | None
    ) -> Mapping[str, Any] | None:
        return None if lookup_of(dependency) is None else Unclear(since=since, attempt=attempt).to_json()


MEMBERS: Final = _Lookups()


def lookup_of(dependency: Dependency) -> Lookup | LookupFunction | None:
    """Return the lookup of a dependency, or of what a handler makes of it; None where it has none."""
    return dependency.keys_of(LOOKUP, LookupKeys).lookup


def unclear_in(operation: OperationInput) -> Unclear:
    """Return what an operation that has a part of this feature asks before its first attempt."""
    return Unclear.from_json((operation.parts or {})[LOOKUP])


class UnaskableError(Exception):
    """There is no path to ask for this operation; that must not count as an answer."""


def question_path(lookup: Lookup, operation: OperationInput, attempt: int) -> str:
    """Return the path of the question, with its query, about an attempt of an operation.

    Raises:
        UnaskableError: A name in it has no value that can stand there.
    """
    content = operation.input if operation.request is None else operation.request.get("json")
    known = {"key": operation.key, "correlation_id": operation.correlation_id, "attempt": attempt}

    def value_of(place: re.Match[str]) -> str:
        name = place[1]
        values = [known[name]] if name in known else pointed_at(content, name.removeprefix("input"))
        value = values[0] if values else None
        if isinstance(value, bool | int | float):
            value = json.dumps(value)
        if not isinstance(value, str) or not value:
            raise UnaskableError(f"{{{name}}} has no value that can stand in a path")
        return quote(value, safe="")

    path = _PLACE.sub(value_of, lookup.path)
    if (problem := path_problem(path.partition("?")[0])) is not None:
        raise UnaskableError(f"its path {problem}")
    return path


def question_of(operation: OperationInput, attempt: int) -> OperationInput:
    """Return the operation that asks: its leases and draws are its own."""
    name = f"{operation.operation_id}~{LOOKUP}{attempt}"
    return replace(operation, operation_id=name, handler=None, acted_before=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(JsonShape):
    """What a dependency said, as the result of the outcome of a question."""

    says: Literal["found", "failed", "not_found"]
    at: datetime  # when it was asked, by the clock of its worker
    settle_seconds: float
    status_code: int | None = None  # None where a function answered
    result: Any = None  # as in `AttemptOutcome`; None unless it was found
    why: str = ""  # what says that it failed there


class FormlessError(Exception):
    """The answer does not have the expected form, so it says nothing."""


def value_found(lookup: Lookup, document: Any) -> Any:
    """Return what an answer has at `found`; None where nothing is there.

    Raises:
        FormlessError: The object in which it would be is missing, too.
    """
    if document is None:
        raise FormlessError("its answer is no JSON")
    values = pointed_at(document, lookup.found)
    if values:
        return values[0]
    parent = lookup.found.rpartition("/")[0]
    around = pointed_at(document, parent)
    if not around or not isinstance(around[0], dict | list | None):
        raise FormlessError(f"its answer has no place for {lookup.found}")
    return None


def failure_in(lookup: Lookup, document: Any) -> str | None:
    """Return what in an answer says that it failed for good; None where nothing does."""
    for pointer, failed in lookup.failed.items():
        for value in pointed_at(document, pointer):
            # True equals 1 in Python, and not in JSON.
            if any(type(known) is type(value) and known == value for known in failed):
                return f"{pointer} is {cut_text(json.dumps(value), _VALUE_CHARS)}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupCall(JsonShape):
    """The input of the activity `look_up`."""

    call: Mapping[str, Any]  # the JSON form of an `AttemptCall`: the operation, the question's admission
    number: int  # of the question, from 1
    attempt: int  # the attempt that it is about


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry(JsonShape):
    """The state of the questions about one attempt."""

    ended_at: datetime  # the end of the attempt, by whichever clock has it later
    retry: RetryState = field(default_factory=RetryState)  # of the present question

    def settles_at(self, answer: Answer) -> datetime:
        """Return from when on an answer that it was not found counts."""
        return self.ended_at + timedelta(seconds=answer.settle_seconds)


def inquiry_about(outcome: AttemptOutcome, now: datetime) -> Inquiry:
    """Return the state of the questions about an attempt: what `carried` has stored, or a new one."""
    if outcome.result is None:
        return Inquiry(ended_at=max(end_of(outcome), now))
    return Inquiry.from_json(outcome.result)


def carried(outcome: AttemptOutcome, inquiry: Inquiry) -> AttemptOutcome:
    """Return the outcome that stands for the attempt until its end is known."""
    return replace(outcome, result=inquiry.to_json())


def is_unknown(outcome: AttemptOutcome) -> bool:
    """Whether it is unknown if an attempt happened, and asking helps."""
    return outcome.category is Category.AMBIGUOUS and outcome.counted and not outcome.is_stopped


def after_question(
    operation: OperationInput,
    outcome: AttemptOutcome,
    inquiry: Inquiry,
    decision: Decision,
    *,
    asked_at: datetime,
    now: datetime,
) -> AttemptOutcome | tuple[Inquiry, Wait]:
    """Return the outcome of the attempt by what follows a question, or the wait before the next question.

    Args:
        inquiry: The state after the question.
        asked_at: When it was asked, by the clock of the orchestration.
    """
    # The attempt lasts until its end is known: the time of the questions must not show as a delay of our own.
    outcome = replace(outcome, duration_ms=max(outcome.duration_ms, duration_until(outcome, now)))
    match decision:
        case Done(result):
            answer = Answer.from_json(result)
            # The clocks of workers differ: both must be past the end of the settling.
            early = inquiry.settles_at(answer) - min(answer.at, asked_at)
            if answer.says == "not_found" and early > timedelta():
                wait = _until_settled(answer, now, early)
                if _is_too_late(operation, wait.until):
                    return _without_answer(outcome, f"{wait.reasons[0]}, and the deadline comes first")
                return replace(inquiry, retry=RetryState()), wait
            return _outcome_by(answer, outcome)
        case DeadLetter():
            return _without_answer(outcome, decision.detail)
        case Wait():
            return inquiry, _as_lookup(decision, inquiry.retry)
        case _ as never:
            assert_never(never)


def _outcome_by(answer: Answer, outcome: AttemptOutcome) -> AttemptOutcome:
    found = f"found at {time_text(answer.at)} by lookup"
    if answer.says == "not_found":
        return _with_error(outcome, f"not {found}", Category.TRANSIENT)
    ended = replace(outcome, status_code=answer.status_code, failure=None, result=None)
    if answer.says == "failed":
        error = f"{found}, and it failed there: {answer.why}"
        return replace(ended, category=Category.BUSINESS_RULE, error=error)
    return replace(ended, category=None, error=None, result=answer.result, known_by=found)


def _until_settled(answer: Answer, now: datetime, early: timedelta) -> Wait:
    until = now + early
    nothing = f"not found at {time_text(answer.at)} by lookup, which says nothing before {time_text(until)}"
    return Wait(until, early.total_seconds(), (nothing,), WaitKind.LOOKUP)


def _is_too_late(operation: OperationInput, until: datetime) -> bool:
    deadline_at = operation.deadline_at
    return deadline_at is not None and until > latest_start(deadline_at, operation.timeouts)


def _without_answer(outcome: AttemptOutcome, why: str) -> AttemptOutcome:
    return _with_error(outcome, f"its lookup got no answer: {why}", Category.AMBIGUOUS)


def _with_error(outcome: AttemptOutcome, why: str, category: Category) -> AttemptOutcome:
    error = "; ".join(filter(None, (outcome.error, why)))
    return replace(outcome, category=category, error=error, result=None)


def _as_lookup(wait: Wait, state: RetryState) -> Wait:
    """Return the wait before a question that failed is repeated, as one of the operation."""
    if wait.kind is not WaitKind.RETRY:
        return wait
    failed = state.history.attempts[-1]
    text = outcome_text(failed.status_code, failed.error)
    return replace(wait, kind=WaitKind.LOOKUP, reasons=(f"its lookup {failing_text(text)}", *wait.reasons))

"""One attempt that is a handler: it is run, and what it returns or raises becomes an outcome."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

import httpx
from pydantic import TypeAdapter, ValidationError

from durable_retry.attempt.excerpts import (
    ERROR_CHARS,
    bounded,
    credentials_of,
    error_line,
    refusal_texts,
)
from durable_retry.attempt.http_client import EscapedBaseUrlError, SignInError
from durable_retry.attempt.http_request import Plan, document_of, verdict_on
from durable_retry.base.foreign import (
    look,
    name_of,
    names_of,
    qualified_name,
    text_of,
)
from durable_retry.base.names import Category
from durable_retry.base.text import cut_text
from durable_retry.base.validation import InvalidInputError, pointer_of
from durable_retry.features.handlers.call import (
    Calls,
    ChangeStep,
    FailedStep,
    MissingDependencyError,
    StepInterrupted,
)
from durable_retry.features.handlers.call_transport import (
    Seen,
    UnmarkedError,
    may_repeat_work,
)
from durable_retry.features.handlers.excerpts import (
    failure_traceback,
    refuse_credentials,
)
from durable_retry.features.handlers.functions import NoFreeThreadError, members_of, run_function
from durable_retry.features.handlers.gate import StepGate
from durable_retry.features.handlers.raised import (
    FailedAnswer,
    answer_of,
    answer_within,
    links_of,
)
from durable_retry.features.handlers.records import change_step
from durable_retry.features.handlers.registry import Handler
from durable_retry.features.handlers.rules.libraries import kind_by_code, kind_of
from durable_retry.features.handlers.rules.steps import StepStoppedError
from durable_retry.features.handlers.signatures import stored_result
from durable_retry.features.handlers.values import Outcome, Rejected, Throttled, Transient
from durable_retry.features.handlers.writes import sent_once
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.completion import MASKED
from durable_retry.rules.operations.keys import OvertakenError
from durable_retry.rules.operations.request import is_unprotected
from durable_retry.rules.retry.classify import Classification, classify_failure
from durable_retry.rules.retry.history import AttemptOutcome, FailureDetail
from durable_retry.rules.retry.retry_after import RetryHint, hint_from_handler, parse_retry_after
from durable_retry.rules.retry.rules import ruled_name
from durable_retry.runtime import clock
from durable_retry.settings.configuration import targets
from durable_retry.telemetry.spans import fields_of

# Exceptions that only a change of the handler can end, not a repetition.
_BUGS: Final = (
    TypeError,
    AttributeError,
    NameError,
    LookupError,
    AssertionError,
    ImportError,
    NotImplementedError,
    RecursionError,
    ZeroDivisionError,
    InvalidInputError,  # an event, a write or an outcome that can never be committed
)

MAX_VALUE_BYTES: Final = 2**20
"""The most that a result takes as JSON. A client of the task hub reads 4 MiB, and a history has it twice."""

_REFUSED_HERE: Final = (ValidationError, EscapedBaseUrlError)
"""Exceptions of our own libraries by which a document or an address can never be used."""

_log = logging.getLogger(__name__)


async def attempt_handler(  # noqa: PLR0917 - what stands for the app's own parts, in tests
    plan: Plan,
    handler: Handler,
    change: ChangeStep | None = None,
    gate: StepGate | None = None,
    stand_ins: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
    mark: Callable[[], Awaitable[None]] | None = None,
) -> AttemptOutcome:
    """Run a handler once and return the outcome; whatever it raises becomes an outcome.

    Args:
        change: Keeps its steps; None means in Azure Tables.
        gate: Admits its steps at other dependencies; None for all of them.
        stand_ins: See `Calls`.
        mark: See `Calls`.

    Raises:
        StepBlockedError: A step must wait, and the handler may be run again.
        azure.core.exceptions.AzureError: Our own storage failed in a step, and the handler may be run again.
    """
    operation = plan.operation
    in_tables = partial(change_step, operation.operation_id, operation.remembered_run)
    gate = gate or StepGate(None, operation, plan.number)
    outcome_of = partial(_outcome_of_error, handler)
    calls = Calls(plan, change or in_tables, gate, outcome_of, mark, stand_ins=stand_ins)
    try:
        try:
            outcome = await _run_within_time_limit(plan, handler, calls)
        finally:
            await calls.end_steps()
    except BaseException:
        if calls.stopped is None:
            raise
    else:
        if calls.stopped is None:
            return outcome
    if isinstance(calls.stopped, StepStoppedError | OvertakenError):
        return stopped(plan, calls.stopped)
    not_ended = plan.outcome(
        category=Category.TRANSIENT,
        error=error_line(calls.stopped, plan.dependency),
        is_elsewhere=not calls.seen.is_unknown,
    )
    if calls.seen.may_have_acted:
        return _after_what_it_sent(handler, calls.seen, not_ended)
    if isinstance(calls.stopped, UnmarkedError | MissingDependencyError):
        missing = isinstance(calls.stopped, MissingDependencyError) or None
        return replace(not_ended, error=str(calls.stopped), counted=False, missing=missing)
    raise calls.stopped


def stopped(plan: Plan, error: StepStoppedError | OvertakenError) -> AttemptOutcome:
    """Return the outcome of a handler that must not go on."""
    return plan.outcome(category=Category.AMBIGUOUS, error=str(error), is_elsewhere=True, is_stopped=True)


async def _run_within_time_limit(plan: Plan, handler: Handler, calls: Calls) -> AttemptOutcome:
    if handler.heartbeat_seconds is not None:
        await calls.begin_heartbeats(handler.heartbeat_seconds)
        if plan.limit.seconds_left <= 0:
            # Our own storage took the time; the handler has not run.
            detail = "its time was over before the progress of earlier attempts was read"
            return plan.outcome(category=Category.TRANSIENT, error=detail, counted=False)
    try:
        bound = handler.signature.bound(plan.operation.input, calls.call(handler.repeatable))
    except InvalidInputError as error:
        # A saga fills its input with results, so it may be wrong only now; the function was not called.
        error_text = error_line(error, plan.dependency)
        return plan.outcome(category=Category.MALFORMED, error=error_text, did_nothing=True)
    try:
        async with calls.time_limit() as limit:
            try:
                returned = await run_function(handler.function, *bound.args, **bound.kwargs)
            except (Exception, StepInterrupted):
                await calls.finish_steps()
                raise
            await calls.finish_steps()
        calls.require_awaited()
        result = _result_document(returned, handler.signature.result, plan.dependency)
        if handler.repeatable is False or calls.seen.may_have_acted:
            result |= sent_once(result)
        return plan.outcome(result=result)
    except Exception as error:  # noqa: BLE001 - whatever the function let out is its failure: docs/handlers.md
        if limit.expired() and (ended := _outcome_of_cut_off(plan, handler, error)) is not None:
            return ended
        cut_off = await calls.cut_off() if limit.expired() else None
        if cut_off is not None and type(error) is TimeoutError and not error.args:
            error.args = (f"not ended within {plan.limit_text}",)
        outcome = _outcome_of_raised(handler, calls, error, cut_off)
    return _after_what_it_sent(handler, calls.seen, outcome)


def _outcome_of_raised(
    handler: Handler, calls: Calls, error: Exception, cut_off: FailedStep | None
) -> AttemptOutcome:
    members, outcomes, unknown = members_of(error), [], []
    for member in members:
        failed = cut_off or calls.failed_step(member)
        if (known := _outcome_of_kind(handler, failed.plan, member)) is None:
            unknown.append(member)
        outcome = known or _outcome_of_unknown(failed.plan, member)
        outcome = replace(
            outcome,
            step=failed.policy,
            is_elsewhere=outcome.is_elsewhere or failed.plan.dependency is not calls.plan.dependency,
            failure=_failure_detail(failed, member, member if len(members) == 1 else error),
        )
        outcomes.append(outcome)
        if outcome.is_our_bug:
            _log_bug(handler, failed.plan, member)
    outcome = _with_unknown(_most_final(outcomes), unknown)
    step_hints = (_retry_hint_of(member) for raised in calls.errors for member in members_of(raised))
    return replace(outcome, retry_hint=_longest([outcome.retry_hint, *step_hints]))


def _outcome_of_error(handler: Handler, plan: Plan, error: BaseException) -> AttemptOutcome:
    return _most_final(
        [
            _outcome_of_kind(handler, plan, member) or _outcome_of_unknown(plan, member)
            for member in members_of(error)
        ]
    )


_FINALITY: Final = {Category.TRANSIENT: 0, Category.THROTTLED: 1, Category.AMBIGUOUS: 3}
"""2 for all others: they will never succeed."""


def _finality(outcome: AttemptOutcome) -> int:
    waits = outcome.refuses_credential
    return 1 if waits else _FINALITY.get(outcome.category or Category.TRANSIENT, 2)


def _most_final(outcomes: list[AttemptOutcome]) -> AttemptOutcome:
    """Return the outcome of what was raised at once: the most final one, with the longest hint of all."""
    ordered = sorted(outcomes, key=lambda outcome: -_finality(outcome))
    if len(ordered) == 1:
        return ordered[0]
    lines = "; ".join(dict.fromkeys(outcome.error or "" for outcome in ordered))
    return replace(
        ordered[0],
        error=cut_text(f"{len(ordered)} errors: {lines}", ERROR_CHARS),
        retry_hint=_longest([outcome.retry_hint for outcome in ordered]),
    )


def _longest(hints: Iterable[RetryHint | None]) -> RetryHint | None:
    return max(filter(None, hints), key=lambda hint: hint.delay_seconds, default=None)


def _failure_detail(failed: FailedStep, member: BaseException, raised: BaseException) -> FailureDetail:
    dependency, answer = failed.plan.dependency, answer_within(member)
    return FailureDetail(
        step=failed.name,
        body=None if answer is None else refusal_texts(answer.body, dependency)[1],
        traceback=failure_traceback(raised, dependency),
    )


def _outcome_of_cut_off(plan: Plan, handler: Handler, error: Exception) -> AttemptOutcome | None:
    if isinstance(look(lambda: error.__cause__, None), NoFreeThreadError):
        detail = "no thread was free for a function that is not async"
        return plan.outcome(category=Category.TRANSIENT, error=detail, counted=False)
    if handler.repeatable is False:
        detail = "its time was over before it ended, and it must not run twice"
        return plan.outcome(category=Category.AMBIGUOUS, error=detail)
    return None


def _after_what_it_sent(handler: Handler, seen: Seen, outcome: AttemptOutcome) -> AttemptOutcome:
    """Return the outcome of a handler that failed, by what it had sent: the next attempt would send it again.

    Where it is unknown if a request took effect, what the handler raised does not matter. Where a request
    did, only the handler can say that the same call will never succeed, by `Rejected` or `classify`.
    """
    is_settled = outcome.is_clear_refusal(handler.name) and not seen.is_unknown
    if outcome.category is Category.AMBIGUOUS or is_settled or not seen.may_have_acted:
        return outcome
    sent = "may have taken effect" if seen.is_unknown else "took effect outside of a remembered step"
    error = f"a request that must not be sent twice {sent}, then: {outcome.error}"
    return replace(
        outcome,
        category=Category.AMBIGUOUS,
        error=error,
        retry_hint=None,
        step=None,
        counted=True,
        did_nothing=None,
    )


def _outcome_of_refusal(plan: Plan, error: BaseException, answer: FailedAnswer) -> AttemptOutcome:
    request = _request_of(error)
    if request is None:
        unprotected = is_unprotected(answer.method, plan.deduplication_header)
    else:
        unprotected = may_repeat_work(plan, request)
    verdict = verdict_on(
        plan,
        answer.status_code,
        answer.headers,
        partial(document_of, answer.body),
        unprotected=unprotected,
        coded=kind_by_code(names_of(error)),
    )
    body, _ = refusal_texts(answer.body, plan.dependency)
    return verdict.outcome(
        plan,
        status_code=answer.status_code,
        error=f"{name_of(error)}: {body}" if body else error_line(error, plan.dependency),
    )


def _outcome_of_kind(handler: Handler, plan: Plan, error: BaseException) -> AttemptOutcome | None:
    """Return the outcome of an error that is no group; None where its kind is not known.

    Its own type decides, since its attributes may lie; where that says nothing, the errors inside of it do.
    """
    links, rules = links_of(error), plan.dependency.classify
    ruled = [link for link in links if ruled_name(names_of(link), rules) is not None]
    line = error_line(error, plan.dependency)
    if not ruled and issubclass(type(error), _REFUSED_HERE):
        return plan.outcome(category=Category.MALFORMED, error=line)
    for link in ruled or links:
        if not ruled and (answer := answer_of(link)) is not None:
            outcome = _outcome_of_refusal(plan, link, answer)
        elif not ruled and link is error and issubclass(type(error), _BUGS):
            line = f"bug in handler {handler.name}: {line}"
            return plan.outcome(category=Category.MALFORMED, error=line, is_our_bug=True)
        elif (kind := _kind_of(plan, link)) is not None:
            outcome = plan.outcome(
                category=kind.category,
                error=error_line(link, plan.dependency),
                retry_hint=_retry_hint_of(link),
                counted=plan.counts(kind),
                did_nothing=_is_refused(link, kind, is_ruled=bool(ruled)) or None,
            )
        else:
            continue
        # The text of a wrapper often has that of what it wraps.
        is_said = link is error or text_of(link) in text_of(error)
        inner = "" if is_said else f", by {outcome.error}"
        return outcome if link is error else replace(outcome, error=cut_text(f"{line}{inner}", ERROR_CHARS))
    return None


def _is_refused(error: BaseException, kind: Classification, *, is_ruled: bool) -> bool:
    """Whether the handler, or `classify`, says that the same call will never succeed."""
    is_said = is_ruled or issubclass(type(error), Rejected)
    return is_said and kind.category is Category.BUSINESS_RULE


def _outcome_of_unknown(plan: Plan, error: BaseException) -> AttemptOutcome:
    return plan.outcome(category=Category.TRANSIENT, error=error_line(error, plan.dependency))


_NAME_CHARS: Final = 100


def _with_unknown(outcome: AttemptOutcome, unknown: list[BaseException]) -> AttemptOutcome:
    """Return the outcome of what was raised, with the names of the kinds of error that are not known."""
    if not unknown or outcome.category is not Category.TRANSIENT:
        return outcome
    full = ", ".join(qualified_name(type(error)).removeprefix("builtins.") for error in unknown)
    says = f"; unknown kind of error: {cut_text(full, _NAME_CHARS)}; `classify` can say what it means"
    return replace(outcome, error=cut_text(outcome.error or "", ERROR_CHARS - len(says)) + says)


def _log_bug(handler: Handler, plan: Plan, error: BaseException) -> None:
    write = partial(
        _log.error,
        "handler %s has a bug, seen in %s\n%s",
        handler.name,
        plan.operation.operation_id,
        failure_traceback(error, plan.dependency),
        extra=fields_of(plan.operation, {}),
    )
    look(write, None)


def _retry_hint_of(error: BaseException) -> RetryHint | None:
    if issubclass(type(error), Transient | Throttled):
        seconds = look(partial(getattr, error, "retry_after"), None)
        return None if seconds is None else look(lambda: hint_from_handler(float(seconds)), None)
    if (answer := answer_within(error)) is None:
        return None
    return parse_retry_after(answer.headers, status_code=answer.status_code, now=clock.now())


def _request_of(error: BaseException) -> httpx.Request | None:
    # `request` of an error raises where there is none.
    request = look(partial(getattr, error, "_request", None), None)
    return request if issubclass(type(request), httpx.Request) else None


def _kind_of(plan: Plan, error: BaseException) -> Classification | None:
    """Classify a failure: that of a request by the table of requests, others by that of libraries.

    Every attempt of a handler counts, unless it could not sign in: what it sent before is not known here.
    """
    names, rules = names_of(error), plan.dependency.classify
    if not issubclass(type(error), httpx.RequestError | httpx.InvalidURL):
        return kind_of(names, rules=rules)
    request = _request_of(error)
    unprotected = request is not None and may_repeat_work(plan, request)
    classified = classify_failure(names, unprotected=unprotected, rules=rules)
    return classified if issubclass(type(error), SignInError) else replace(classified, counted=True)


def _result_document(returned: Any, adapter: TypeAdapter[Any], dependency: Dependency) -> dict[str, Any]:
    """Return a handler's success as plain JSON, its writes and events beside the value for the commit.

    Raises:
        InvalidInputError: What it returned cannot be stored or sent as it is.
    """
    outcome = returned if issubclass(type(returned), Outcome) else Outcome(returned)
    value, text = stored_result(adapter, outcome.value, "/value", MAX_VALUE_BYTES)
    result: dict[str, Any]
    result, places = credentials_of(dependency).without({"value": value}, text)
    if places:
        result[MASKED] = bounded(places)
    if writes := [write.to_json() for write in outcome.writes]:
        result["writes"] = writes
    if events := tuple(outcome.events):
        unmet = (event.unmet(pointer_of("events", at), targets()) for at, event in enumerate(events))
        if problems := list(chain.from_iterable(unmet)):
            raise InvalidInputError(problems)
        result["events"] = [event.to_json() for event in events]
    for name in result.keys() & {"writes", "events"}:
        refuse_credentials(result[name], dependency, f"/{name}")
    return result


def sends_once(plan: Plan, handler: Handler) -> bool:
    """Whether requests of a handler, which itself may run again, may have to be sent once only."""
    return handler.repeatable is None and not plan.deduplication_header

from dataclasses import replace
from typing import Any, cast

import pytest

from durable_retry.base.names import Category
from durable_retry.features.lookup.rules import (
    Answer,
    FormlessError,
    Inquiry,
    Lookup,
    LookupKeys,
    UnaskableError,
    after_question,
    carried,
    failure_in,
    inquiry_about,
    is_unknown,
    question_of,
    question_path,
    unclear_in,
    value_found,
)
from durable_retry.features.replay.rules import parts_of_replay, parts_of_unclear
from durable_retry.rules.config.dependencies_file import ConfigError, key_path, parse_config
from durable_retry.rules.operations.keys import ScopedKey
from durable_retry.rules.operations.operation import OperationInput, operation_from
from durable_retry.rules.operations.request import parse_operation
from durable_retry.rules.retry.decide import DeadLetter, Decision, Done, Wait
from durable_retry.rules.retry.history import AttemptOutcome, WaitKind
from durable_retry.rules.retry.loop import RetryState, after
from tests.support.builders import NOON, PAYMENTS, an_operation, an_outcome
from tests.support.builders import after as instant
from tests.support.narrowing import second_of_type

LOOKUP = Lookup(path="/charges?reference={key}", found="/data/0", failed={"/data/0/status": ["failed"]})
ASKED = replace(PAYMENTS, of_features={"lookup": LookupKeys(lookup=LOOKUP)})
UNKNOWN = an_outcome(Category.AMBIGUOUS, status_code=None, error="ReadTimeout", duration_ms=1000.0)


def lookup(path: str = "/charges/{key}", **more: Any) -> Lookup:
    return Lookup.model_validate({"path": path, "found": "/id"} | more)


def config(table: str) -> str:
    return f'[dependencies.a]\nbase_url = "http://a.example"\n[dependencies.a.lookup]\n{table}'


def test_the_table_is_read_with_what_it_leaves_out() -> None:
    read = parse_config(config('path = "/charges/{key}"\nfound = "/id"'), {}).dependencies["a"]
    assert read.of_features == {"lookup": LookupKeys(lookup=lookup())}
    assert (lookup().settle_seconds, lookup().failed) == (10.0, {})


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("charges/{key}", "must begin with /"),
        (
            "/charges/{id}",
            "{id} is not known: write {key}, {correlation_id}, {attempt}, {input} or {input/...}",
        ),
        ("/charges/{input/~2}", "{input/~2} is not known"),
        ("/charges/{key", "has a brace without its other one"),
        ("/charges", "asks the same for every operation"),
        ("/charges?a={key}#b", "must not hold #"),
        ("/../{key}", "must not hold . or .. segments"),
        ("//evil/{key}", "must be relative to the dependency's base_url"),
    ],
)
def test_a_mistake_in_the_path_is_one_of_the_file(path: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(config(f'path = "{path}"\nfound = "/id"'), {})
    (found,) = refused.value.problems
    assert key_path(found.pointer) == "dependencies.a.lookup.path"
    assert found.detail.startswith(problem)


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ('found = "id"', "found"),
        ('found = "/id"\nfailed = { "status" = ["no"] }', "failed.status"),
        ('found = "/id"\nfailed = { "/status" = [] }', "failed./status"),
        ('found = "/id"\nfailed = { "/status" = [[1]] }', "failed./status"),
        ('found = "/id"\nsettle_seconds = -1', "settle_seconds"),
    ],
)
def test_every_key_is_checked(line: str, place: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(config(f'path = "/charges/{{key}}"\n{line}'), {})
    pointers = [problem.pointer for problem in refused.value.problems]
    assert [pointer.removeprefix("/dependencies/a/lookup/").replace("~1", "/") for pointer in pointers] == [
        place.replace(".", "/", 1)
    ]


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/charges/{key}", "/charges/a%2Fb%3F%26"),
        ("/charges?reference={key}&n={attempt}", "/charges?reference=a%2Fb%3F%26&n=3"),
        ("/c/{correlation_id}/{input/order/id}", "/c/order%2042/7"),
        ("/c/{input/order/paid}", "/c/true"),
    ],
)
def test_values_of_the_operation_stand_in_the_path_with_percent_signs(path: str, asked: str) -> None:
    content = {"order": {"id": 7, "paid": True}}
    request = {"method": "POST", "path": "/charges", "query": {}, "headers": {}, "json": content}
    values: dict[str, Any] = {"key": "a/b?&", "correlation_id": "order 42"}
    assert question_path(lookup(path), an_operation(request=request, **values), 3) == asked
    of_handler = an_operation(request=None, handler="charge", input=content, **values)
    assert question_path(lookup(path), of_handler, 3) == asked
    whole = an_operation(request=None, handler="charge", input="i 1")
    assert question_path(lookup("/c/{input}"), whole, 1) == "/c/i%201"


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/c/{correlation_id}", {}),
        ("/c/{input/none}", {}),
        ("/c/{input/empty}", {}),
        ("/c/{input/list}", {}),
        ("/c/{key}", {"key": ".."}),
        ("/c/{key}", {"key": "a\\b"}),
    ],
)
def test_a_value_that_cannot_stand_there_asks_nothing(path: str, values: dict[str, Any]) -> None:
    content = {"none": None, "empty": "", "list": [1]}
    request = {"method": "POST", "path": "/", "query": {}, "headers": {}, "json": content}
    with pytest.raises(UnaskableError):
        question_path(lookup(path), an_operation(request=request, **values), 1)


def test_a_404_says_something_only_where_the_path_names_what_is_sought() -> None:
    assert lookup("/charges/{key}").may_answer_404
    assert not LOOKUP.may_answer_404


@pytest.mark.parametrize(
    ("document", "value"),
    [
        ({"data": [{"id": 1}]}, {"id": 1}),
        ({"data": []}, None),
        ({"data": None}, None),
        ({"data": [None]}, None),
    ],
)
def test_what_is_there_and_not_null_was_found(document: Any, value: Any) -> None:
    assert value_found(LOOKUP, document) == value


@pytest.mark.parametrize("document", [None, {}, {"error": "x"}, [], "text", {"data": "text"}, 5])
def test_an_answer_of_another_form_says_nothing(document: Any) -> None:
    with pytest.raises(FormlessError):
        value_found(LOOKUP, document)


@pytest.mark.parametrize(
    ("value", "why"), [("failed", '/data/0/status is "failed"'), ("paid", None), (True, None)]
)
def test_a_value_says_that_it_failed_there(value: Any, why: str | None) -> None:
    assert failure_in(LOOKUP, {"data": [{"status": value}]}) == why
    assert failure_in(replace_failed([1]), {"data": [{"status": value}]}) is None


def replace_failed(values: list[Any]) -> Lookup:
    return LOOKUP.model_copy(update={"failed": {"/data/0/status": values}})


def submitted() -> OperationInput:
    request = parse_operation({"dependency": "payments", "request": {}})
    return operation_from(request, ASKED, ScopedKey("explicit", "evt-1"), source="http", now=NOON)


def test_an_operation_has_a_part_where_its_dependency_can_be_asked() -> None:
    operation = submitted()
    assert operation.parts == {"lookup": {}}
    assert unclear_in(operation).since is None
    without = replace(PAYMENTS, of_features={"lookup": LookupKeys()})
    request = parse_operation({"dependency": "payments", "request": {}})
    name = ScopedKey("explicit", "evt-1")
    assert operation_from(request, without, name, source="http", now=NOON).parts is None
    assert parts_of_unclear(without, NOON, 1) == {}


def test_a_replay_asks_first_where_nobody_knows_whether_it_happened() -> None:
    assert parts_of_replay({"lookup": {"since": "2026-11-21T12:00:00Z"}}) == {"lookup": {}}
    asked = an_operation(parts=parts_of_unclear(ASKED, NOON, 2))
    assert (unclear_in(asked).since, unclear_in(asked).attempt) == (NOON, 2)


def test_a_question_has_leases_and_draws_of_its_own() -> None:
    question = question_of(an_operation(handler="charge", acted_before=True), 2)
    assert question.operation_id == "op-test~lookup2"
    assert (question.handler, question.acted_before) == (None, None)


@pytest.mark.parametrize(
    ("changes", "unknown"),
    [
        ({}, True),
        ({"category": Category.TRANSIENT}, False),
        ({"category": None}, False),
        ({"counted": False}, False),
        ({"is_stopped": True}, False),
    ],
)
def test_only_an_attempt_of_unknown_end_is_asked_about(changes: dict[str, Any], unknown: bool) -> None:  # noqa: FBT001
    assert is_unknown(replace(UNKNOWN, **changes)) is unknown


def test_the_inquiry_stands_for_the_result_until_the_end_is_known() -> None:
    begun = inquiry_about(UNKNOWN, instant(0.5))
    assert begun.ended_at == instant(1)
    assert inquiry_about(UNKNOWN, instant(4)).ended_at == instant(4)
    assert inquiry_about(carried(UNKNOWN, begun), instant(9)) == begun


def an_answer(says: Any, at: float = 2.0, **more: Any) -> Done:
    answer = Answer(says=says, at=instant(at), settle_seconds=10, status_code=200, **more)
    return Done(answer.to_json())


def follows(decision: Any, *, at: float = 2.0, operation: OperationInput | None = None) -> Any:
    now = instant(at)
    inquiry = Inquiry(ended_at=instant(1))
    given = operation or an_operation()
    return after_question(given, UNKNOWN, inquiry, decision, asked_at=now, now=now)


def test_what_was_found_is_the_result_and_the_reason_says_when() -> None:
    ended: AttemptOutcome = follows(an_answer("found", result={"json": 1}))
    assert (ended.category, ended.result, ended.error, ended.status_code) == (None, {"json": 1}, None, 200)
    assert ended.known_by == "found at 2026-11-21T12:00:02Z by lookup"
    _, done = after(an_operation(), RetryState(), ended, instant(2))
    state, _ = after(an_operation(), RetryState(), ended, instant(2))
    assert done == Done({"json": 1})
    assert state.history.attempts[0].delay_reasons == ("found at 2026-11-21T12:00:02Z by lookup",)


@pytest.mark.parametrize("handler", [None, "charge"])
def test_what_failed_there_is_a_refusal_of_the_dependency(handler: str | None) -> None:
    ended = follows(an_answer("failed", why='/status is "failed"'))
    _, letter = after(an_operation(handler=handler), RetryState(), ended, instant(2))
    assert isinstance(letter, DeadLetter)
    assert (letter.category, letter.reason) == ("business_rule", "RejectedByDependency")
    assert letter.detail == (
        'status 200, found at 2026-11-21T12:00:02Z by lookup, and it failed there: /status is "failed"'
    )


def test_what_was_not_found_once_settled_is_attempted_again() -> None:
    ended = follows(an_answer("not_found", at=11), at=11)
    assert ended.error == "ReadTimeout; not found at 2026-11-21T12:00:11Z by lookup"
    _, _wait = second_of_type(Wait, after(an_operation(), RetryState(), ended, instant(11)))
    last = replace(ended, number=5)
    _, letter = second_of_type(DeadLetter, after(an_operation(), RetryState(), last, instant(11)))
    assert letter.reason == "RetriesExhausted"


@pytest.mark.parametrize(("at", "asked_at", "until"), [(2, 2, 11), (11, 5, 11), (5, 11, 17)])
def test_before_that_it_is_asked_again_by_whichever_clock_is_behind(
    at: float, asked_at: float, until: float
) -> None:
    inquiry, wait = follows(an_answer("not_found", at=at), at=asked_at)
    assert (wait.until, wait.kind, inquiry.ended_at) == (instant(until), WaitKind.LOOKUP, instant(1))
    assert wait.reasons[0].endswith(f"by lookup, which says nothing before 2026-11-21T12:00:{until:02}Z")


def test_a_deadline_before_that_leaves_it_unknown() -> None:
    ended = follows(an_answer("not_found"), operation=an_operation(deadline_in=11))
    assert ended.category is Category.AMBIGUOUS
    assert ended.error.startswith("ReadTimeout; its lookup got no answer: not found at 2026-11-21T12:00:02Z")
    assert ended.error.endswith("and the deadline comes first")


def test_a_question_that_fails_is_repeated_and_its_dead_letter_leaves_it_unknown() -> None:
    failed = an_outcome(error="no")
    state, decision = after(an_operation(), RetryState(), failed, instant(2))
    inquiry = Inquiry(ended_at=instant(1), retry=state)
    again = after_question(
        an_operation(), UNKNOWN, inquiry, cast("Decision", decision), asked_at=NOON, now=NOON
    )
    assert isinstance(again, tuple)
    assert again[1].reasons == ("its lookup answers 503: no", "fixed 10 s")
    assert again[1].kind is WaitKind.LOOKUP
    held = replace(again[1], kind=WaitKind.CIRCUIT)
    assert follows(held)[1] == held
    ended = follows(DeadLetter(Category.TRANSIENT, None, "attempt 5 of 5 failed"))  # type: ignore[arg-type]
    assert (ended.category, ended.error) == (
        Category.AMBIGUOUS,
        "ReadTimeout; its lookup got no answer: attempt 5 of 5 failed",
    )

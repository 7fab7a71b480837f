from dataclasses import replace
from typing import Any

import pytest

import durable_retry
from durable_retry.base.names import Category, DeadLetterReason
from durable_retry.base.validation import InvalidInputError
from durable_retry.features.fallback.rules import (
    MEMBERS,
    Departure,
    FallbackKeys,
    Route,
    Terms,
    answered,
    fallback_of,
    may_leave,
    moved,
    route_of,
    terms_at,
    with_fallback,
)
from durable_retry.features.handlers.registry import handler_of
from durable_retry.features.replay.rules import parts_of_replay
from durable_retry.rules.config.dependencies_file import Config, ConfigError, parse_config
from durable_retry.rules.config.dependency import Dependency, Targets
from durable_retry.rules.operations.keys import EXPLICIT_SCOPE, ScopedKey
from durable_retry.rules.operations.operation import OperationInput, operation_from
from durable_retry.rules.operations.request import parse_operation, unmet_keys
from durable_retry.rules.operations.submission import check_target
from durable_retry.rules.retry.decide import DeadLetter, Done, Wait
from durable_retry.rules.retry.history import History, PastWait, WaitKind
from tests.support.builders import NOON, PAYMENTS, after, an_operation

pytestmark = pytest.mark.usefixtures("no_handlers")

CONFIG = """
[dependencies.payments]
base_url = "http://payments.test"
fallback = "spare"
[dependencies.spare]
base_url = "http://spare.test"
fallback = "last"
retry = { strategy = "fixed", max_attempts = 3, initial_seconds = 7.0 }
timeouts = { attempt_seconds = 20, deadline_seconds = 50 }
[dependencies.last]
base_url = "http://last.test"
[dependencies.code]
"""
CALL: dict[str, Any] = {"dependency": "payments", "request": {"path": "/charges"}}
AWAY = Route(
    to="spare",
    stay=1,
    of="payments",
    home=Terms(policy=an_operation().policy, timeouts=an_operation().timeouts, parts={}),
)


def configured(text: str = CONFIG) -> Config:
    return parse_config(text, {})


def targets_of(config: Config, **handlers: Any) -> Targets:
    return Targets(config.dependencies, handlers, (), config.earlier_names)


def submitted(dependency: Dependency, **members: Any) -> OperationInput:
    name = ScopedKey(EXPLICIT_SCOPE, "key-1")
    return operation_from(parse_operation(CALL | members), dependency, name, source="http", now=NOON)


@pytest.mark.parametrize(
    ("own", "members", "to"),
    [
        ("", {}, None),
        ("spare", {}, "spare"),
        ("spare", {"fallback": None}, "spare"),
        ("spare", {"fallback": "last"}, "last"),
        ("spare", {"fallback": ""}, None),
        ("", {"fallback": "last"}, "last"),
    ],
)
def test_an_operation_names_its_fallback_itself_or_its_dependency_does(
    own: str, members: dict[str, Any], to: str | None
) -> None:
    dependency = replace(PAYMENTS, of_features={"fallback": FallbackKeys(fallback=own)})
    parts = submitted(dependency, **members).parts
    assert parts == (None if to is None else {"fallback": {"to": to, "stay": 0}})


def test_a_handler_names_one_in_place_of_that_of_its_dependency() -> None:
    @durable_retry.operation(dependency="payments", fallback="last")
    def charge(order: str) -> str:
        return order

    limits = handler_of(charge).limits_at(configured().dependencies["payments"])
    assert fallback_of(limits) == "last"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('fallback = "spear"', 'no dependency has the name spear; did you mean "spare"?'),
        ('fallback = "payments"', "is the dependency itself"),
        ('fallback = "paid"\nwas = ["paid"]', "is the dependency itself"),
        ('fallback = "last"', "goes round: payments, last, spare, payments"),
        ('fallback = "code"', "code has no base_url: it takes handlers, and no requests"),
        (
            'fallback = "masked"',
            "masked masks other parts than payments: give both the same masking",
        ),
    ],
)
def test_a_fallback_that_cannot_be_is_refused_at_the_start(text: str, problem: str) -> None:
    config = configured(
        f"""
        [dependencies.payments]
        base_url = "http://payments.test"
        {text}
        [dependencies.spare]
        base_url = "http://spare.test"
        fallback = "payments"
        [dependencies.last]
        base_url = "http://last.test"
        fallback = "spare"
        [dependencies.masked]
        base_url = "http://masked.test"
        masking = {{ fields = ["iban"] }}
        [dependencies.code]
        """
    )
    problems = unmet_keys(config.dependencies["payments"], targets_of(config))
    assert [(each.pointer, each.detail) for each in problems] == [("/fallback", problem)]


def test_a_chain_is_none_and_no_fallback_is_fine() -> None:
    config = configured()
    for dependency in config.dependencies.values():
        assert list(unmet_keys(dependency, targets_of(config))) == []
    for_code = replace(config.dependencies["code"], of_features={"fallback": FallbackKeys(fallback="code")})
    assert [each.detail for each in unmet_keys(for_code, targets_of(config))] == ["is the dependency itself"]


def test_what_is_no_name_is_refused_in_the_file() -> None:
    with pytest.raises(ConfigError, match=r"dependencies.payments.fallback: a name is letters, digits"):
        configured(CONFIG.replace('"spare"', '"a b"'))


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"fallback": "gone"}, "no dependency has the name gone"),
        ({"fallback": "payments"}, "is the dependency itself"),
        ({"fallback": "code"}, "code has no base_url: it takes handlers, and no requests"),
        ({"dependency": "last", "fallback": "payments"}, "goes round: last, payments, spare, last"),
    ],
)
def test_an_operation_with_one_that_cannot_be_is_refused(members: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        check_target(parse_operation(CALL | members), targets_of(configured()))
    assert [(each.pointer, each.detail) for each in refused.value.problems] == [("/fallback", problem)]


def test_an_operation_without_one_or_with_one_that_can_be_is_taken() -> None:
    for members in ({"fallback": "last"}, {"fallback": ""}, {"fallback": None}):
        assert check_target(parse_operation(CALL | members), targets_of(configured())).name == "payments"


def test_an_operation_of_a_handler_is_checked_by_the_dependency_of_that() -> None:
    @durable_retry.operation(dependency="payments")
    def charge(order: str) -> str:
        return order

    targets = targets_of(configured(), charge=handler_of(charge))
    request = {"handler": "charge", "input": {"order": "o-1"}}
    assert check_target(parse_operation(request | {"fallback": "code"}), targets).name == "payments"
    with pytest.raises(InvalidInputError, match="is the dependency itself"):
        check_target(parse_operation(request | {"fallback": "payments"}), targets)


def test_of_an_unknown_dependency_the_fallback_is_checked_for_itself() -> None:
    request = parse_operation(CALL | {"dependency": "nobody", "fallback": "spare"})
    assert list(request.unmet_members(targets_of(configured()))) == []


def test_a_replay_may_go_where_its_operation_may() -> None:
    parts = {"fallback": AWAY.to_json()}
    assert parts_of_replay(parts) == parts
    assert MEMBERS.of_part(parts["fallback"]) == {}


def test_it_is_attempted_with_the_policy_the_limits_and_a_key_of_the_fallback() -> None:
    config, operation = configured(), submitted(configured().dependencies["payments"])
    spare = config.dependencies["spare"]
    terms = terms_at(operation, config.dependencies["payments"], spare, NOON)
    assert (terms.policy, terms.timeouts.attempt_seconds) == (spare.retry, 20)
    assert terms.timeouts.deadline_seconds == operation.timeouts.deadline_seconds
    assert terms.downstream_key == "key-1~at~spare"
    away = moved(operation, Departure(to="spare", terms=terms))
    assert (away.dependency, away.submitted_to, away.sent_key) == ("spare", "payments", "key-1~at~spare")
    assert away.deadline_at == operation.deadline_at
    assert route_of(away).stay == 1
    back = moved(away, Departure(to="payments"))
    assert replace(back, parts=operation.parts) == operation
    assert route_of(back) == Route(to="spare", stay=2)


def test_one_that_was_edited_meanwhile_keeps_its_new_key_on_the_way_back() -> None:
    config, operation = configured(), submitted(configured().dependencies["payments"])
    terms = terms_at(operation, config.dependencies["payments"], config.dependencies["spare"], NOON)
    away = replace(moved(operation, Departure(to="spare", terms=terms)), downstream_key="key-1.edited")
    assert moved(away, Departure(to="payments")).sent_key == "key-1.edited"


def test_one_with_a_key_of_its_own_has_that_again_at_home() -> None:
    config = configured()
    operation = replace(submitted(config.dependencies["payments"]), downstream_key="other")
    terms = terms_at(operation, None, config.dependencies["spare"], NOON)
    assert terms.downstream_key == "other~at~spare"
    away = moved(operation, Departure(to="spare", terms=terms))
    assert moved(away, Departure(to="payments")).downstream_key == "other"


LOOKUP = 'lookup = { path = "/by/{key}", found = "/id" }'
POLL = "poll = { every_seconds = 9 }"


@pytest.mark.parametrize(
    ("first", "spare", "members", "parts"),
    [
        (LOOKUP, "", {}, {}),
        ("", LOOKUP, {}, {"lookup": {}}),
        (POLL, "", {}, {}),
        (POLL, "poll = { every_seconds = 4 }", {}, {"polling": {"location": "header", "every_seconds": 4.0}}),
        ("", "", {"poll": {}}, {"polling": {"location": "header", "every_seconds": 5.0}}),
        ('when_open = "wait"', 'when_open = "refuse"', {}, {}),
    ],
)
def test_what_an_outcome_means_is_said_by_the_fallback_or_the_operation(
    first: str, spare: str, members: dict[str, Any], parts: dict[str, Any]
) -> None:
    text = CONFIG.replace('fallback = "spare"', f'fallback = "spare"\n{first}')
    config = configured(text.replace('fallback = "last"', f'fallback = "last"\n{spare}'))
    payments = config.dependencies["payments"]
    operation = submitted(payments, **members)
    terms = terms_at(operation, payments, config.dependencies["spare"], NOON)
    assert terms.parts == parts
    away = moved(operation, Departure(to="spare", terms=terms))
    assert (away.parts or {}).keys() == parts.keys() | {"fallback"}
    assert replace(moved(away, Departure(to="payments")), parts=operation.parts) == operation


def test_what_else_an_operation_has_goes_with_it() -> None:
    config = configured()
    operation = submitted(config.dependencies["payments"], order_key="customer-7")
    terms = terms_at(operation, None, config.dependencies["spare"], NOON)
    assert moved(operation, Departure(to="spare", terms=terms)).order_key == "customer-7"


def waiting(kind: WaitKind, **more: Any) -> Wait:
    return Wait(after(60), 60.0, ("it is open",), kind, **more)


@pytest.mark.parametrize(
    ("decision", "at_home", "away"),
    [
        (waiting(WaitKind.CIRCUIT), True, True),
        (waiting(WaitKind.OWN_FAILURE), True, True),
        (waiting(WaitKind.THROTTLE), False, True),
        (waiting(WaitKind.CIRCUIT, stops_deadline=True), False, False),
        (waiting(WaitKind.RETRY), False, False),
        (waiting(WaitKind.LIMIT), False, False),
        (waiting(WaitKind.RETRY_BUDGET), False, False),
        (DeadLetter(Category.DEADLINE_EXCEEDED, DeadLetterReason.DEADLINE_EXCEEDED, "late"), True, False),
        (DeadLetter(Category.CIRCUIT_OPEN, DeadLetterReason.CIRCUIT_OPEN, "open"), True, False),
        (DeadLetter(Category.THROTTLED, DeadLetterReason.RETRIES_EXHAUSTED, "no"), False, False),
    ],
)
def test_it_leaves_for_an_open_circuit_or_a_wait_that_is_too_long(
    decision: Wait | DeadLetter, *, at_home: bool, away: bool
) -> None:
    home = {"fallback": Route(to="spare").to_json()}
    assert may_leave(an_operation(parts=home), decision, NOON) is at_home
    assert may_leave(an_operation(parts={"fallback": AWAY.to_json()}), decision, NOON) is away


@pytest.mark.parametrize(("deadline_in", "leaves"), [(None, True), (2.1, True), (1.9, False)])
def test_one_without_time_to_connect_stays(deadline_in: float | None, *, leaves: bool) -> None:
    operation = an_operation(parts={"fallback": Route(to="spare").to_json()}, deadline_in=deadline_in)
    letter = DeadLetter(Category.DEADLINE_EXCEEDED, DeadLetterReason.DEADLINE_EXCEEDED, "late")
    assert may_leave(operation, letter, NOON) is leaves


def test_a_result_says_which_fallback_answered() -> None:
    done = Done({"value": 1})
    assert answered(an_operation(parts={"fallback": Route(to="spare").to_json()}), done) is done
    away = an_operation(dependency="spare", parts={"fallback": AWAY.to_json()})
    assert answered(away, done).result == {"value": 1, "dependency": "spare"}


def test_of_several_waits_in_a_row_the_one_that_does_not_take_place_is_left_out() -> None:
    wait = PastWait(before_attempt=1, kind=WaitKind.CIRCUIT, began_at=NOON, until=after(90), times=2)
    decision = waiting(WaitKind.CIRCUIT)
    history = with_fallback(History(waits=(wait,)), an_operation(), decision, "spare", after(60))
    assert [(each.kind, each.times, each.until) for each in history.waits] == [
        (WaitKind.CIRCUIT, 1, after(60)),
        (WaitKind.FALLBACK, 1, after(60)),
    ]

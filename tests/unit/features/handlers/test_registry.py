import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import azure.durable_functions as df
import pytest
from pydantic import BaseModel

import durable_retry
from durable_retry.base.validation import InvalidInputError
from durable_retry.features.handlers import registry
from durable_retry.features.handlers.registry import (
    Handler,
    HandlerSetupError,
    find_handler,
    handler_of,
    registered_handlers,
    taken_mistakes,
)
from durable_retry.features.outbox.rules.event import Event
from durable_retry.features.outbox.rules.outbox import OutboxKeys
from durable_retry.handlers import Call, Outcome, TableWrite
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.config.dependency import Dependency
from tests.support.mistakes import pointers_of
from tests.support.narrowing import existing


class Nothing(BaseModel):
    pass


def refuse(_handler: Handler | None, mistake: HandlerSetupError | None) -> None:
    if mistake is not None:
        raise mistake


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_handlers", {})
    monkeypatch.setattr(registry, "_mistakes", {})
    monkeypatch.setattr(registry, "_check_declared", refuse)


async def first(_given: Nothing, _call: Call) -> None:
    return None


async def second(_given: Nothing, _call: Call) -> None:
    return None


def test_a_handler_is_found_by_its_name() -> None:
    durable_retry.operation("b", dependency="d")(first)
    declared: Any = durable_retry.operation(dependency="d")(second)
    assert (existing(find_handler("b")).function, declared) == (first, second)
    assert set(registered_handlers()) == {"b", "second"}
    assert find_handler("c") is None


def test_a_function_of_another_module_and_an_activity_become_operations() -> None:
    app = df.DFApp()

    @app.activity_trigger(input_name="order")
    def bill(order: dict[str, int]) -> int:
        return order["amount"]

    adder = durable_retry.wrap(math.hypot, "measure", dependency="d", timeout=3)
    biller: Any = durable_retry.wrap(bill, dependency="payments")
    assert adder is math.hypot
    assert biller({"amount": 5}) == 5
    assert [handler_of(adder).timeout_seconds, handler_of(biller).dependency] == [3, "payments"]
    assert set(registered_handlers()) == {"measure", "bill"}


def test_the_same_function_may_be_registered_again() -> None:
    for _ in range(2):
        durable_retry.operation("a", dependency="d")(first)


def test_two_functions_of_one_name_are_a_mistake() -> None:
    durable_retry.operation("a", dependency="d")(first)
    with pytest.raises(HandlerSetupError, match=r"test_registry.py:\d+: handler 'a': .* has the same name"):
        durable_retry.operation("a", dependency="d")(second)


def test_what_yields_is_no_operation() -> None:
    def stream(order: int) -> Iterator[int]:
        yield order

    with pytest.raises(HandlerSetupError, match="yields"):
        durable_retry.operation(dependency="d")(stream)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"retry": {"max_attempt": 3}}, "handler 'first'.*did you mean \"max_attempts\""),
        ({"retry": {"strategy": "schedule"}}, "schedule_seconds"),
        ({"timeout": 0}, "handler 'first': timeout must be greater than 0"),
        ({"heartbeat_seconds": "3"}, "heartbeat_seconds must be a number"),
        ({"retries": 3}, 'retries is not a known key; did you mean "retry"'),
        ({"priority": "hihg", "repeatable": 1}, "repeatable must be true or false; priority must be 'high'"),
        ({"name": "ship order"}, "handler 'ship order': name must be 1 to 128 letters"),
        ({"dependency": None}, "dependency must be a string"),
    ],
)
def test_a_wrong_option_is_a_mistake_where_it_is_made(options: dict[str, Any], words: str) -> None:
    with pytest.raises(HandlerSetupError, match=words):
        durable_retry.operation(**{"dependency": "d"} | options)(first)


class Shop:
    def book(self, order: str) -> str:
        return order

    def __call__(self, order: str) -> str:
        return order


SHOP = Shop()


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda order: order, r"a lambda needs a name: operation\(\"charge\", "),
        (SHOP, "handler 'Shop': is not a function: declare one that calls it"),
        (Shop, "is not a function"),
        (partial(print, 1), "is not a function"),
        (
            df.DFApp().activity_trigger(input_name="order")(Shop.book),
            r"handler 'book': stands above .* write @durable_retry.operation\(dependency=.* below it",
        ),
    ],
)
def test_a_mistake_says_what_to_write_instead(function: Any, words: str) -> None:
    with pytest.raises(HandlerSetupError, match=words):
        durable_retry.operation(dependency="d")(function)


def test_a_decorator_without_parentheses_names_no_dependency(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_check_declared", None)
    bare: Any = durable_retry.operation
    assert bare(first) is first
    (mistake,) = taken_mistakes()
    assert re.search(r"handler 'first': names no dependency: write @durable_retry.operation\(", str(mistake))


def test_a_method_is_declared_of_its_object() -> None:
    durable_retry.operation(dependency="d")(Shop.book)
    with pytest.raises(HandlerSetupError, match=r"durable_retry.wrap\(SHOP.book, "):
        _ = handler_of(Shop.book).signature
    book: Any = durable_retry.wrap(SHOP.book, "shop-book", dependency="d")
    assert (handler_of(SHOP.book).name, book("o-1")) == ("shop-book", "o-1")
    assert handler_of(book).check_input({"order": "o-2"}) == {"order": "o-2"}


def test_a_wrong_option_waits_for_the_others_while_the_app_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_check_declared", None)
    durable_retry.operation(dependency="d", timeout=0)(first)
    durable_retry.operation(dependency="d", retry={"max_attempt": 3})(second)
    with pytest.raises(HandlerSetupError, match="timeout"):
        handler_of(first)
    durable_retry.operation(dependency="d", timeout=1)(first)
    assert [mistake.place.partition(": ")[2] for mistake in taken_mistakes()] == ["handler 'second'"]


def test_all_mistakes_of_a_declaration_are_told_at_once() -> None:
    options: Any = {"timeout": 0, "retry": {"strategy": "schedule"}}
    with pytest.raises(HandlerSetupError) as refused:
        durable_retry.operation("ship order", **options)(lambda order: order)
    details = sorted(detail.partition(" ")[0] for detail in refused.value.details)
    assert details == ["name", "names", "retry:", "timeout"]


def test_a_function_that_is_not_declared_is_no_operation() -> None:
    with pytest.raises(LookupError, match=r"declare it with @durable_retry\.operation"):
        handler_of(first)


def a_write(**changes: Any) -> TableWrite:
    return TableWrite(**({"table": "Orders", "partition_key": "p", "row_key": "r", "values": {}} | changes))


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"values": {"at": datetime(2026, 11, 21, tzinfo=UTC)}}, "/values/at"),
        ({"values": {"amount": 2**63}}, "/values/amount"),
        ({"values": {"amount": math.nan}}, "/values/amount"),
        ({"values": {"text": "x" * 32_769}}, "/values/text"),
        ({"values": {"not a name": 1}}, "/values/not a name"),
        ({"values": {"RowKey": "r2"}}, "/values/RowKey"),
        ({"values": {1: 1}}, "/values/1"),
        ({"values": {f"p{n}": n for n in range(253)}}, "/values"),
        ({"table": "no"}, "/table"),
        ({"table": "Orders-1"}, "/table"),
        ({"table": None}, "/table"),
        ({"table": "Tables"}, "/table"),
        ({"table": "tables"}, "/table"),
        ({"values": {"amount": -(2**63) - 1}}, "/values/amount"),
        ({"values": {f"p{n}": "\U0001f600" * 15_000 for n in range(18)}}, "/values"),
        ({"row_key": "\U0001f600" * 257}, "/row_key"),
        ({"row_key": "\ud800"}, "/row_key"),
        ({"row_key": "a/b"}, "/row_key"),
        ({"partition_key": "x" * 513}, "/partition_key"),
        ({"mode": "upsert"}, "/mode"),
        ({"etag": "W/1"}, "/etag"),
        ({"only_if": {"status": "Pending"}, "mode": "merge"}, "/only_if"),
        ({"only_if": {"at": datetime(2026, 11, 21, tzinfo=UTC)}, "mode": "update"}, "/only_if/at"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_a_write_that_storage_would_refuse_is_refused_where_it_is_made(
    changes: dict[str, Any], pointer: str
) -> None:
    assert pointers_of(a_write, **changes) == [pointer]


def test_an_update_carries_its_conditions_and_no_other_write_has_any() -> None:
    update = a_write(mode="update", etag="W/1", only_if={"status": "Pending", "paid_at": None})
    assert (update.to_json()["etag"], update.to_json()["only_if"]["paid_at"]) == ("W/1", None)
    assert {"etag", "only_if"}.isdisjoint(a_write().to_json())


def test_a_row_keeps_texts_numbers_and_booleans() -> None:
    values = {"text": "x" * 32_768, "n": 2**63 - 1, "ratio": 0.5, "paid": True}
    assert a_write(values=values).to_json()["values"] == values


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"writes": [a_write(partition_key=p) for p in "ab"]}, "/writes"),
        ({"writes": [a_write(row_key=str(n)) for n in range(76)]}, "/writes"),
        ({"writes": [a_write(), a_write(mode="delete")]}, "/writes/1"),
        ({"writes": [{"table": "Orders"}]}, "/writes/0"),
        (
            {"writes": [a_write(row_key=str(n), values={"t": "\u00e9" * 30_000}) for n in range(24)]},
            "/writes",
        ),
        ({"events": [{"type": "shipped", "queue": "orders"}]}, "/events/0"),
        ({"events": [Event.to_queue("orders", "shipped")] * 79}, "/events"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_what_cannot_be_one_transaction_is_refused_where_it_is_made(
    given: dict[str, Any], pointer: str
) -> None:
    assert pointers_of(Outcome, 1, **given) == [pointer]


def test_the_largest_outcome_fits_one_transaction() -> None:
    writes = (a_write(row_key=str(n)) for n in range(75))
    outcome = Outcome(1, writes, (Event.to_queue("orders", "shipped") for _ in range(3)))
    assert (len(tuple(outcome.writes)), len(tuple(outcome.events))) == (75, 3)


def test_a_function_has_events_of_its_failure_beside_those_of_its_dependency() -> None:
    own = Event.to_queue("alarm", "charge.failed")

    @durable_retry.operation(dependency="payments", on_failure=[own])
    def charge(order: str) -> str:
        return order

    toml = """
        [dependencies.payments]
        base_url = "http://payments.test"
        on_failure = [{ type = "payments.failed", queue = "alarm" }]
    """
    dependency = parse_config(toml, {}).dependencies["payments"]
    keys = handler_of(charge).limits_at(dependency).keys_of("outbox", OutboxKeys)
    assert [event.type for event in keys.on_failure] == ["payments.failed", "charge.failed"]


def test_an_event_of_its_failure_needs_room_for_the_dead_letter() -> None:
    @durable_retry.operation(dependency="payments", on_failure=[Event.to_queue("alarm", "t", 5)])
    def charge(order: str) -> str:
        return order

    with pytest.raises(InvalidInputError, match="is no object"):
        handler_of(charge).limits_at(Dependency(name="payments"))


def charging(order: str, amount: int = 1) -> str:
    return f"{order} {amount}"


def stream(order: str) -> Iterator[str]:
    yield order


def asking(order: str, call: Call) -> str | None:
    return order if call.attempt else None


def asking_for_more(customer: str) -> str:
    return customer


def asking_by_number(amount: str) -> str:
    return amount


def test_a_lookup_belongs_to_its_operation_and_may_be_declared_again() -> None:
    for _ in range(2):
        declared = durable_retry.operation(dependency="d")(charging)
        assert declared.lookup(asking) is asking
        assert handler_of(charging).lookup is asking
        handler_of(charging).check_functions()
    declared = durable_retry.operation(dependency="d")(charging)
    declared.lookup(settle_seconds=5)(asking)
    assert handler_of(charging).of_features["lookup"] == {"function": asking, "settle_seconds": 5}


def test_a_second_lookup_and_what_is_no_function_are_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = durable_retry.operation(dependency="d")(charging)
    with pytest.raises(HandlerSetupError, match=r"handler 'charging.lookup': it yields"):
        declared.lookup(stream)
    declared.lookup(asking)
    monkeypatch.setattr(registry, "_check_declared", None)
    declared.lookup(asking)
    with pytest.raises(HandlerSetupError, match=r"'charging.lookup': is a second lookup: .*:\d+: handler"):
        handler_of(charging)
    assert len(taken_mistakes()) == 1


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (asking_for_more, "its parameter customer is none that the operation takes: order, amount"),
        (asking_by_number, "its parameter amount is of another type than that of the operation"),
    ],
)
def test_a_lookup_takes_what_its_operation_takes(function: Any, words: str) -> None:
    durable_retry.operation(dependency="d")(charging).lookup(function)
    with pytest.raises(HandlerSetupError, match=f"handler 'charging.lookup': {words}"):
        handler_of(charging).check_functions()


def test_a_lookup_of_what_cannot_be_declared_adds_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_check_declared", None)
    declared: Any = durable_retry.operation(dependency="d")(stream)
    assert declared.lookup(asking) is asking
    assert [mistake.place.partition(": ")[2] for mistake in taken_mistakes()] == ["handler 'stream'"]

import base64
import json
from dataclasses import replace
from typing import Any, Final

import pytest

from durable_retry.base.trace_context import TraceContext
from durable_retry.base.validation import InvalidInputError, validated
from durable_retry.features.handlers.registry import Handler
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.config.dependency import Targets, UnknownTargetError
from durable_retry.rules.operations.envelope import ParsedEnvelope, SubmissionHeaders, parse_envelope
from durable_retry.rules.operations.keys import EnvelopeName, ScopedKey, fields_name
from durable_retry.rules.operations.operation import OperationInput, fingerprint_of
from durable_retry.rules.operations.request import parse_operation
from durable_retry.rules.operations.submission import (
    Naming,
    Submission,
    check_target,
    parse,
    read_operation,
    resolve,
)
from durable_retry.rules.retry.policy import RetryOverride
from tests.support.builders import NOON
from tests.support.mistakes import pointers_of
from tests.support.narrowing import existing

CONFIG = """
[dependencies.payments]
base_url = "https://payments.example.com"
headers = { X-Signed = "${SIGNATURE}", Accept = "application/json" }
auth = { header = "X-Api-Key", value = "${KEY}" }
retry = { max_attempts = 4 }

[dependencies.warehouse-db]

[dependencies.open]
base_url = "https://open.example.com"
idempotency = { header = "" }
"""
CALL = {"dependency": "payments", "request": {"method": "POST", "path": "/charges", "json": {"a": 1}}}
EVENT = {"specversion": "1.0", "id": "e-1", "source": "/orders", "type": "charge", "data": CALL}
OWN = ScopedKey("source:queue/operations", "m-1")


def ship_order(amount: int) -> int:
    return amount


SLOW: Final = validated(RetryOverride, {"max_attempts": 9, "initial_seconds": 7.0})

TARGETS: Final = Targets(
    parse_config(CONFIG, {"SIGNATURE": "signature-1", "KEY": "key-12345"}).dependencies,
    {
        "ship-order": Handler(name="ship-order", dependency="payments", function=ship_order),
        "store": Handler(name="store", dependency="warehouse-db", function=ship_order),
        "slow": Handler(
            name="slow", dependency="payments", function=ship_order, retry=SLOW, timeout_seconds=1
        ),
    },
    ("durableretry-", "azure-webjobs-"),
)


def parsed(
    envelope: ParsedEnvelope, naming: Naming | None = None, trace: TraceContext | None = None
) -> Submission:
    return parse(envelope, naming or Naming(own=OWN), TARGETS, now=NOON, trace=trace)


def resolved(document: Any, scope: str = "key:", targets: Targets = TARGETS) -> OperationInput:
    submission = Submission(parse_operation(document), ScopedKey(scope, "evt-1"))
    return resolve(submission, targets, source="http", now=NOON)


def pointers(document: dict[str, Any]) -> list[str]:
    return pointers_of(resolved, document)


def test_an_operation_knows_its_policy_its_deadline_and_no_secret() -> None:
    operation = resolved(CALL | {"deadline_seconds": 60.0})
    assert operation.policy.max_attempts == 4
    assert operation.deadline_at is not None
    assert (operation.deadline_at - NOON).total_seconds() == 60
    assert "key-12345" not in str(operation.to_json())
    assert "signature-1" not in str(operation.to_json())


def test_a_function_may_have_a_policy_and_a_time_limit_of_its_own() -> None:
    own = resolved({"handler": "slow", "input": {"amount": 1}})
    assert (own.policy.max_attempts, own.policy.initial_seconds) == (9, 7)
    assert (own.timeouts.attempt_seconds, own.timeouts.connect_seconds) == (1, 1)
    asked = resolved({"handler": "slow", "input": {"amount": 1}, "retry": {"max_attempts": 8}})
    assert (asked.policy.max_attempts, asked.policy.initial_seconds) == (8, 7)


def test_the_id_depends_on_scope_and_key_alone() -> None:
    first = resolved(CALL)
    other = CALL | {"request": {"method": "GET", "path": "/x"}}
    second = resolved(other)
    elsewhere = resolved(CALL, "key:b")
    assert first.operation_id == second.operation_id != elsewhere.operation_id
    assert fingerprint_of(first.to_json()) != fingerprint_of(second.to_json())


def test_an_unknown_dependency_is_reported_with_the_nearest_name() -> None:
    with pytest.raises(UnknownTargetError, match="did you mean"):
        resolved(CALL | {"dependency": "payment"})


def test_a_body_of_wrong_form_has_its_unknown_names_reported_too() -> None:
    assert pointers_of(parsed, ParsedEnvelope(CALL | {"dependency": "payment", "foo": 1})) == [
        "/foo",
        "/dependency",
    ]
    assert "/handler" in pointers_of(parsed, ParsedEnvelope({"handler": "ship-ordre", "dependency": 3}))


def test_a_dependency_without_an_address_takes_handlers_and_no_requests() -> None:
    assert pointers(CALL | {"dependency": "warehouse-db"}) == ["/dependency"]
    assert resolved({"handler": "store", "input": {"amount": 1}}).dependency == "warehouse-db"
    webhook = {"type": "t", "dependency": "warehouse-db", "path": "/hook"}
    assert pointers(CALL | {"on_success": [webhook]}) == ["/on_success/0/dependency"]


def test_an_unknown_handler_is_reported() -> None:
    with pytest.raises(UnknownTargetError, match="ship-ordre"):
        resolved({"handler": "ship-ordre", "input": {}})


def test_a_handlers_input_is_held_to_its_model() -> None:
    assert pointers({"handler": "ship-order", "input": {"amount": "x"}}) == ["/input/amount"]


def test_a_handler_brings_its_dependency() -> None:
    operation = resolved({"handler": "ship-order", "input": {"amount": 1}})
    assert (operation.handler, operation.dependency) == ("ship-order", "payments")


@pytest.mark.parametrize("name", ["x-api-key", "X-SIGNED", "Idempotency-key"])
def test_headers_that_the_app_sets_are_refused(name: str) -> None:
    request = {"method": "POST", "path": "/x", "headers": {name: "mine"}}
    assert pointers(CALL | {"request": request}) == [f"/request/headers/{name}"]


@pytest.mark.parametrize("dependency", ["payments", "open"])
def test_headers_that_the_app_does_not_set_are_taken(dependency: str) -> None:
    request = {"method": "POST", "path": "/x", "headers": {"X-Mine": "1"}}
    operation = resolved({"dependency": dependency, "request": request})
    assert existing(operation.request)["headers"] == {"x-mine": "1"}


def test_an_event_goes_to_a_dependency_with_an_address() -> None:
    event = {"type": "charged", "dependency": "open", "path": "/hook", "data": 1}
    assert resolved(CALL | {"on_success": [event]}).parts == {"outbox": {"on_success": [event]}}
    refused = [{**event, "dependency": name} for name in ("nobody", "warehouse-db")]
    assert pointers(CALL | {"on_success": refused}) == [
        "/on_success/0/dependency",
        "/on_success/1/dependency",
    ]


def test_mistakes_of_every_kind_are_reported_together() -> None:
    document = {
        **CALL,
        "request": {"method": "POST", "path": "/x", "headers": {"X-Api-Key": "mine"}},
        "retry": {"max_attempts": 9},
        "on_success": [{"type": "t", "dependency": "nobody", "path": "/hook"}],
    }
    assert pointers(document) == [
        "/retry/max_attempts",
        "/request/headers/X-Api-Key",
        "/on_success/0/dependency",
    ]


def test_an_unknown_name_is_reported_with_what_else_is_wrong() -> None:
    event = {"type": "t", "dependency": "nobody", "path": "/hook"}
    assert pointers(CALL | {"dependency": "payment", "on_success": [event]}) == [
        "/dependency",
        "/on_success/0/dependency",
    ]
    handled = {"handler": "ship-ordre", "input": {}, "on_success": [event]}
    assert pointers(handled) == ["/handler", "/on_success/0/dependency"]


EVENT_TO_NOBODY = {"type": "t", "dependency": "nobody", "path": "/hook"}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"retry": {"max_attempts": 99, "typo": 1}}, ["/retry/typo", "/retry/max_attempts"]),
        ({"retry": {"max_attempts": 99, "strategy": 1}}, ["/retry/strategy", "/retry/max_attempts"]),
        (
            {"retry": {"max_attempts": 99}, "start_at": "2999-01-01T00:00:00Z"},
            ["/retry/max_attempts", "/start_at"],
        ),
        (
            {"retry": {"max_attempts": 0}, "on_success": [EVENT_TO_NOBODY]},
            ["/retry/max_attempts", "/on_success/0/dependency"],
        ),
        (
            {"request": {"path": "..", "headers": {"Idempotency-Key": "k"}}},
            ["/request/path", "/request/headers/Idempotency-Key"],
        ),
        (
            {"request": {"json": 1, "body": "b", "path": "..", "headers": {"Idempotency-Key": "k"}}},
            ["/request/json", "/request/path", "/request/headers/Idempotency-Key"],
        ),
        ({"request": 1, "retry": {"max_attempts": 99}}, ["/request", "/retry/max_attempts"]),
        ({"request": None, "on_success": [EVENT_TO_NOBODY]}, ["/request", "/on_success/0/dependency"]),
        ({"dependency": 1, "on_success": [EVENT_TO_NOBODY]}, ["/dependency", "/on_success/0/dependency"]),
        ({"handler": "store", "input": 1}, ["/dependency", "/request", "/input"]),
        ({"debounce_key": "k", "retry": {"max_attempts": 99}}, ["/debounce_key", "/retry/max_attempts"]),
        ({"debounce_seconds": 5, "dependency": "nobody"}, ["/debounce_seconds", "/dependency"]),
        (
            {"order_key": "", "order_on_failure": "skip", "retry": {"max_attempts": 99}},
            ["/order_key", "/retry/max_attempts"],
        ),
    ],
)
def test_a_mistake_of_the_form_hides_none_of_what_is_configured(
    changes: dict[str, Any], told: list[str]
) -> None:
    given = (ParsedEnvelope(CALL | changes), Naming(own=OWN), TARGETS)
    assert sorted(pointers_of(read_operation, *given, source="http", now=NOON)) == sorted(told)


def test_what_comes_later_is_no_mistake_beside_another() -> None:
    body = ParsedEnvelope({"handler": "store", "input": {"amount": None}, "typo": 1})
    given = {"now": NOON, "comes_later": lambda pointer: pointer.startswith("/input")}
    assert pointers_of(parse, body, Naming(own=OWN), TARGETS, **given) == ["/typo"]


def test_a_body_with_nothing_sound_is_reported_as_it_is() -> None:
    told: tuple[tuple[Any, list[str]], ...] = (
        (5, [""]),
        ({}, [""]),
        ({"handler": None}, [""]),
        ({"typo": 1}, ["", "/typo"]),
    )
    for body, pointers_told in told:
        assert pointers_of(parsed, ParsedEnvelope(body)) == pointers_told


def test_a_key_that_differs_from_the_header_is_reported_with_what_else_is_wrong() -> None:
    naming = Naming(own=OWN, key="header")
    assert pointers_of(parsed, ParsedEnvelope(CALL | {"key": "body", "dependency": "payment"}), naming) == [
        "/key",
        "/dependency",
    ]


@pytest.mark.parametrize("queue", ["durableretry-control-00", "durableretry-workitems", "azure-webjobs-host"])
def test_an_event_cannot_go_to_a_queue_of_the_platform(queue: str) -> None:
    assert pointers(CALL | {"on_success": [{"type": "t", "queue": queue}]}) == ["/on_success/0/queue"]
    resolved(CALL | {"on_success": [{"type": "t", "queue": "durable-events"}]})


def key_of(document: Any, naming: Naming) -> str:
    return parsed(parse_envelope(document), naming).name.key


def test_the_key_is_the_first_of_the_callers_the_fields_the_events_and_the_sources() -> None:
    pointer = "/request/json/a"
    by_fields = Naming(own=OWN, fields=(pointer,))
    assert key_of({**CALL, "key": "body"}, by_fields) == "body"
    assert key_of(EVENT, replace(by_fields, key="header")) == "header"
    assert key_of(EVENT, by_fields) == fields_name(CALL, [pointer]).key
    assert key_of(EVENT, Naming(own=OWN)) == "/orders#e-1"
    assert key_of(CALL, Naming(own=OWN)) == "m-1"


def test_a_key_is_new_only_where_the_generated_one_is_used() -> None:
    def has_new_key(naming: Naming, **more: str) -> bool:
        envelope = ParsedEnvelope(CALL | more)
        operation = read_operation(envelope, naming, TARGETS, source="http", now=NOON)
        return operation.key_is_generated is True

    generated = Naming(own=OWN, is_new=True)
    assert has_new_key(generated)
    assert not has_new_key(generated, key="body")
    assert not has_new_key(Naming(own=OWN))


def test_two_different_keys_in_header_and_body_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="differs from the header"):
        key_of({**CALL, "key": "body"}, Naming(own=OWN, key="header"))
    assert key_of({**CALL, "key": "same"}, Naming(own=OWN, key="same")) == "same"


BINARY: Final = {"ce-specversion": "1.0", "ce-id": "e-1", "ce-source": "/orders", "ce-type": "charge"}


def limit_key_of(document: Any, headers: dict[str, str]) -> str | None:
    envelope = SubmissionHeaders.read(headers).envelope_of(document)
    return read_operation(envelope, Naming(own=OWN), TARGETS, source="http", now=NOON).limit_key


@pytest.mark.parametrize("more", [{}, BINARY])
def test_a_header_gives_a_body_its_limit_key(more: dict[str, str]) -> None:
    assert limit_key_of(CALL, more) is None
    assert limit_key_of(CALL | {"limit_key": "customer-17"}, more) == "customer-17"
    assert limit_key_of(CALL, more | {"Limit-Key": "customer-17"}) == "customer-17"
    assert limit_key_of(CALL | {"limit_key": "c"}, more | {"Limit-Key": "c"}) == "c"


@pytest.mark.parametrize("key", ["Zoë", "カスタマー", "customer-17 \N{EURO SIGN}"])
@pytest.mark.parametrize("more", [{}, BINARY])
def test_a_limit_key_in_utf_8_is_the_one_that_json_writes(key: str, more: dict[str, str]) -> None:
    as_latin_1 = key.encode().decode("latin-1")
    for header in (as_latin_1, key):
        assert limit_key_of(CALL, more | {"Limit-Key": header}) == key
        assert limit_key_of(CALL | {"limit_key": key}, more | {"Limit-Key": header}) == key


@pytest.mark.parametrize("source", ["/käufe", "/k\xc3\xa4ufe", "/k%C3%A4ufe"])
def test_the_attributes_of_an_event_are_text_in_utf_8(source: str) -> None:
    envelope = SubmissionHeaders.read(BINARY | {"ce-source": source}).envelope_of(CALL)
    assert envelope.name == EnvelopeName("/käufe", "e-1")


@pytest.mark.parametrize("name", ["Idempotency-Key", "Limit-Key", "ce-id", "ce-source"])
@pytest.mark.parametrize("text", ["a,a", "a, a", "a,a,a", '"a","a"'])
def test_a_header_that_was_sent_twice_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{name} was sent {text.count('a')} times: .* is {text}$"):
        SubmissionHeaders.read(BINARY | {name: text})


@pytest.mark.parametrize("key", ["a,b", "a,a,b", ",", '"a,a"'])
def test_a_key_may_have_commas_of_its_own(key: str) -> None:
    assert SubmissionHeaders.read({"Idempotency-Key": key}).key == key.strip('"')


def test_two_different_limit_keys_in_header_and_body_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="differs from the header") as caught:
        limit_key_of({**EVENT, "data": CALL | {"limit_key": "c"}}, {"Limit-Key": "d"})
    assert [problem.pointer for problem in caught.value.problems] == ["/data/limit_key"]
    for length, document in ((256, CALL), (0, CALL), (1, [CALL])):
        with pytest.raises(InvalidInputError):
            limit_key_of(document, {"Limit-Key": "c" * length})


def test_mistakes_inside_an_event_have_pointers_into_the_event() -> None:
    assert pointers_of(key_of, {**EVENT, "data": {**CALL, "surprise": 1}}, Naming(own=OWN)) == [
        "/data/surprise"
    ]


def test_the_trace_context_of_an_event_goes_before_that_of_its_message() -> None:
    event, message = (TraceContext(f"00-{name * 32}-{name * 16}-01") for name in "ab")
    assert parsed(parse_envelope(EVENT | event.to_json()), trace=message).trace == event
    assert parsed(parse_envelope(EVENT), trace=message).trace == message
    assert parsed(parse_envelope(EVENT)).trace is None


def test_another_configuration_gives_the_same_submission_another_operation() -> None:
    """The configuration is an argument: nothing of the process is asked."""
    payments = TARGETS.dependencies["payments"]
    patient = replace(payments, retry=replace(payments.retry, max_attempts=9))
    targets = replace(TARGETS, dependencies={"payments": patient})
    assert resolved(CALL, targets=targets).policy.max_attempts == 9
    with pytest.raises(UnknownTargetError):
        resolved(CALL, targets=Targets({}, {}, ()))


def test_an_operation_that_keeps_its_policy_is_checked_as_any_other() -> None:
    check_target(parse_operation(CALL), TARGETS)
    with pytest.raises(UnknownTargetError):
        check_target(parse_operation(CALL | {"dependency": "nobody"}), TARGETS)
    for name in ("X-Api-Key", "x_api_key"):
        reserved = {"method": "POST", "path": "/x", "headers": {name: "mine"}}
        with pytest.raises(InvalidInputError, match="is set by the app"):
            check_target(parse_operation(CALL | {"request": reserved}), TARGETS)


def from_partition(document: Any) -> OperationInput:
    """Read a message of a partition whose source gives an order key."""
    naming = Naming(own=OWN, order_key="event_hubs:orders:3")
    return read_operation(parse_envelope(document), naming, TARGETS, source="event_hubs", now=NOON)


def test_a_source_gives_an_order_key_to_what_has_none() -> None:
    assert from_partition(CALL).order_key == "event_hubs:orders:3"
    assert from_partition(EVENT).order_key == "event_hubs:orders:3"
    assert from_partition(CALL | {"order_key": "own"}).order_key == "own"
    assert from_partition(CALL | {"order_on_failure": "skip"}).order_on_failure == "skip"


def test_what_members_say_together_counts_with_the_order_key_of_the_source_too() -> None:
    """A message that is debounced would let a later one of its partition overtake it."""
    assert pointers_of(
        from_partition, EVENT | {"data": CALL | {"debounce_key": "k", "debounce_seconds": 5}}
    ) == ["/data/debounce_key"]


@pytest.mark.parametrize("document", [[], "text", 5, None])
def test_what_is_no_body_gets_no_order_key(document: Any) -> None:
    with pytest.raises(InvalidInputError):
        from_partition(document)


BODY = {"dependency": "payments", "request": {"method": "GET"}}
CLOUD = {"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "order.placed", "data": BODY}


GRID = {
    "id": "g-1",
    "topic": "/topics/shop",
    "subject": "s",
    "eventType": "t",
    "data": BODY,
    "dataVersion": "",
}


@pytest.mark.parametrize("document", [BODY, [], None, "text", 5, {}, [CLOUD]])
def test_what_has_no_envelope_is_the_payload(document: Any) -> None:
    inside = parse_envelope(document)
    assert (inside.payload, inside.name, inside.place) == (document, None, "")


@pytest.mark.parametrize(
    ("document", "event"),
    [(CLOUD, EnvelopeName("/shop", "e-1")), (GRID, EnvelopeName("/topics/shop", "g-1"))],
)
def test_an_event_gives_its_data_and_its_name(document: Any, event: EnvelopeName) -> None:
    inside = parse_envelope(document)
    assert (inside.payload, inside.name, inside.place) == (BODY, event, "/data")


def test_data_may_be_json_in_a_text_or_in_base64() -> None:
    text = json.dumps(BODY)
    coded = {name: value for name, value in CLOUD.items() if name != "data"}
    assert parse_envelope(CLOUD | {"data": text}).payload == BODY
    inside = parse_envelope(coded | {"data_base64": base64.b64encode(text.encode()).decode()})
    assert (inside.payload, inside.place) == (BODY, "/data_base64")


def test_the_events_correlation_id_is_the_operations_unless_it_has_its_own() -> None:
    event = CLOUD | {"correlationid": "c-1"}
    assert parse_envelope(event).payload["correlation_id"] == "c-1"
    assert (
        parse_envelope(event | {"data": BODY | {"correlation_id": "mine"}}).payload["correlation_id"]
        == "mine"
    )


@pytest.mark.parametrize(
    ("changes", "pointers"),
    [
        ({"id": ""}, ["/id"]),
        ({"id": 5, "source": None}, ["/id", "/source"]),
        ({"specversion": "0.3"}, ["/specversion"]),
        ({"specversion": {}}, ["/specversion"]),
        ({"data": "{"}, ["/data"]),
        ({"data_base64": "e30="}, ["/data_base64"]),
    ],
)
def test_an_event_that_is_none_is_pointed_at(changes: dict[str, Any], pointers: list[str]) -> None:
    assert pointers_of(parse_envelope, CLOUD | changes) == pointers


@pytest.mark.parametrize("data", ["?", 5, None, "/////w=="])
def test_base64_that_is_none_is_pointed_at(data: Any) -> None:
    document = {name: value for name, value in CLOUD.items() if name != "data"} | {"data_base64": data}
    assert pointers_of(parse_envelope, document) == ["/data_base64"]


def test_an_event_grid_event_needs_what_names_it() -> None:
    assert pointers_of(parse_envelope, {name: value for name, value in GRID.items() if name != "topic"}) == [
        "/topic"
    ]


def test_an_event_says_where_in_a_trace_it_was_made() -> None:
    place = TraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1")
    assert parse_envelope(CLOUD | place.to_json()).trace == place
    coded = {name: value for name, value in CLOUD.items() if name != "data"} | {"data_base64": "e30="}
    assert parse_envelope(coded | place.to_json()).trace == place
    assert parse_envelope(CLOUD | {"traceparent": "nowhere"}).trace is None


@pytest.mark.parametrize("pointers", [[], ["/path"]])
def test_a_key_stands_for_the_same_request_by_every_name_of_its_dependency(pointers: list[str]) -> None:
    table = f'base_url = "http://pay"\nidempotency.fingerprint = {pointers}'
    prints = set()
    for names in (["payments"], ["payments", "pay"], ["payments", "pay", "till"]):
        *earlier, name = names
        config = parse_config(f"[dependencies.{name}]\n{table}\nwas = {earlier}", {})
        renamed = Targets(config.dependencies, {}, (), config.earlier_names)
        operations = [resolved(CALL | {"dependency": said}, targets=renamed) for said in names]
        assert {operation.dependency for operation in operations} == {name}
        prints |= {fingerprint_of(operation.to_json()) for operation in operations}
    assert len(prints) == 1


def test_who_still_uses_an_earlier_name_starts_the_operation_under_the_present_one() -> None:
    config = parse_config('[dependencies.pay]\nbase_url = "http://pay"\nwas = ["payments"]', {})
    renamed = Targets(config.dependencies, {}, (), config.earlier_names)
    event = {"type": "t", "dependency": "payments", "path": "/", "data": None}
    assert resolved(CALL | {"on_success": [event]}, targets=renamed).dependency == "pay"

"""Two first submissions of one key at the same moment, on a task hub whose starts are not atomic."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from durabletask.client import OrchestrationStatus
from pydantic import BaseModel

from durable_retry import handler_registry
from durable_retry.engine.base.trace_context import TraceContext
from durable_retry.engine.base.validation import InvalidInputError
from durable_retry.engine.config.dependencies_file import parse_config
from durable_retry.engine.facts import StartUnanswered
from durable_retry.engine.operations.envelope import ParsedEnvelope, parse_envelope
from durable_retry.engine.operations.naming import ScopedKey, fields_name
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.engine.operations.request import parse_operation
from durable_retry.errors import TaskHubUnavailableError
from durable_retry.handlers import Call, operation_handler
from durable_retry.services.operations import submit as submission
from durable_retry.services.operations.submit import (
    KeyReused,
    Naming,
    Replayed,
    Started,
    Submission,
    SubmitResult,
    UnknownTargetError,
    parse,
    resolve,
    submit,
)
from durable_retry.settings.configuration import using
from durable_retry.stores.instances import Instance
from durable_retry.stores.task_hub import TaskHub
from tests.support.builders import NOON, an_operation

CONFIG = """
[dependencies.payments]
base_url = "https://payments.example.com"
headers = { X-Signed = "${SIGNATURE}", Accept = "application/json" }
auth = { header = "X-Api-Key", value = "${KEY}" }
retry = { max_attempts = 4 }
"""
CALL = {"dependency": "payments", "request": {"method": "POST", "path": "/charges", "json": {"a": 1}}}


class Order(BaseModel):
    amount: int


@pytest.fixture(autouse=True)
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(handler_registry, "_handlers", {})

    @operation_handler("ship-order", dependency="payments", input_model=Order)
    async def ship(_order: Order, _call: Call) -> None:
        return None

    with using(parse_config(CONFIG, {"SIGNATURE": "signature-1", "KEY": "key-12345"})):
        yield


def resolved(document: Any, scope: str = "key:") -> OperationInput:
    submission = Submission(parse_operation(document), ScopedKey(scope, "evt-1"))
    return resolve(submission, source="http", now=NOON)


def pointers(document: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        resolved(document)
    return [problem.pointer for problem in caught.value.problems]


def test_an_operation_knows_its_policy_its_deadline_and_no_secret() -> None:
    operation = resolved(CALL | {"deadline_seconds": 60.0})
    assert operation.policy.max_attempts == 4
    assert operation.deadline_at is not None
    assert (operation.deadline_at - NOON).total_seconds() == 60
    assert "key-12345" not in str(operation.to_json())
    assert "signature-1" not in str(operation.to_json())


def test_the_id_depends_on_scope_and_key_alone() -> None:
    first = resolved(CALL)
    other = CALL | {"request": {"method": "GET", "path": "/x"}}
    second = resolved(other)
    elsewhere = resolved(CALL, "key:b")
    assert first.operation_id == second.operation_id != elsewhere.operation_id
    assert first.fingerprint != second.fingerprint


def test_an_unknown_dependency_is_reported_with_the_nearest_name() -> None:
    with pytest.raises(UnknownTargetError, match="did you mean"):
        resolved(CALL | {"dependency": "payment"})


def test_a_body_of_wrong_form_has_its_unknown_names_reported_too() -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(ParsedEnvelope(CALL | {"dependency": "payment", "foo": 1}), Naming())
    assert [problem.pointer for problem in caught.value.problems] == ["/foo", "/dependency"]
    with pytest.raises(InvalidInputError) as caught:
        parse(ParsedEnvelope({"handler": "ship-ordre", "dependency": 3}), Naming())
    assert "/handler" in [problem.pointer for problem in caught.value.problems]


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


@pytest.mark.parametrize("queue", ["durableretry-control-00", "durableretry-workitems", "azure-webjobs-host"])
def test_an_event_cannot_go_to_a_queue_of_the_platform(queue: str) -> None:
    assert pointers(CALL | {"on_success": [{"type": "t", "queue": queue}]}) == ["/on_success/0/queue"]
    resolved(CALL | {"on_success": [{"type": "t", "queue": "durable-events"}]})


EVENT = {"specversion": "1.0", "id": "e-1", "source": "/orders", "type": "charge", "data": CALL}
OWN = ScopedKey("source:queue/operations", "m-1")


def key_of(document: Any, naming: Naming) -> str:
    return parse(parse_envelope(document), naming).name.key


def test_the_key_is_the_first_of_the_callers_the_fields_the_events_and_the_sources() -> None:
    pointer = "/request/json/a"
    by_fields = Naming(fields=(pointer,), own=OWN)
    assert key_of({**CALL, "key": "body"}, by_fields) == "body"
    assert key_of(EVENT, replace(by_fields, key="header")) == "header"
    assert key_of(EVENT, by_fields) == fields_name(CALL, [pointer]).key
    assert key_of(EVENT, Naming(own=OWN)) == "/orders#e-1"
    assert key_of(CALL, Naming(own=OWN)) == "m-1"


def test_a_key_is_generated_where_there_is_none_and_is_new_each_time() -> None:
    first, second = (parse(ParsedEnvelope(CALL), Naming(tenant="a")) for _ in range(2))
    assert first.is_new_key
    assert first.name.scope == "key:a"
    assert first.name != second.name


def test_two_different_keys_in_header_and_body_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="differs from the header"):
        key_of({**CALL, "key": "body"}, Naming(key="header"))
    assert key_of({**CALL, "key": "same"}, Naming(key="same")) == "same"


def test_mistakes_inside_an_event_have_pointers_into_the_event() -> None:
    with pytest.raises(InvalidInputError) as caught:
        key_of({**EVENT, "data": {**CALL, "surprise": 1}}, Naming())
    assert [problem.pointer for problem in caught.value.problems] == ["/data/surprise"]


def test_the_trace_context_of_an_event_goes_before_that_of_its_message() -> None:
    event, message = (TraceContext(f"00-{name * 32}-{name * 16}-01") for name in "ab")
    assert parse(parse_envelope(EVENT | event.to_json()), Naming(), message).trace == event
    assert parse(parse_envelope(EVENT), Naming(), message).trace == message
    assert parse(parse_envelope(EVENT), Naming()).trace is None


AZURE = TaskHub(json.dumps({"rpcBaseUrl": "127.0.0.1:1"}))
ATOMIC = TaskHub(json.dumps({"rpcBaseUrl": "127.0.0.1:1", "startsAreAtomic": True}))
AT = datetime(2026, 11, 21, tzinfo=UTC)


class AzureStorage:
    """Answers racing starts with success; the first row stays, the message of any other start is dropped."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.reads = 0

    async def start_operation(self, operation: OperationInput, start_id: str) -> bool:
        is_there = operation.operation_id in self.rows
        await asyncio.sleep(0)  # the others look, too, before anyone writes
        given = {"operation": operation.to_json(), "start_id": start_id}
        self.rows.setdefault(operation.operation_id, given)
        return not is_there

    async def read_instance(self, operation_id: str) -> Instance | None:
        self.reads += 1
        given = self.rows.get(operation_id)
        running = OrchestrationStatus.RUNNING
        return None if given is None else Instance(operation_id, running, AT, AT, given, None, None)


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> AzureStorage:
    storage = AzureStorage()

    async def no_record(_hub: TaskHub, _operation_id: str) -> None:
        return None

    monkeypatch.setattr(submission, "read_record", no_record)
    monkeypatch.setattr(TaskHub, "start_operation", storage.start_operation)
    monkeypatch.setattr(TaskHub, "read_instance", storage.read_instance)
    return storage


async def race(
    *fingerprints: str, hub: TaskHub = AZURE, is_new_key: bool = False
) -> list[type[SubmitResult]]:
    operations = [an_operation(fingerprint=each) for each in fingerprints]
    results = await asyncio.gather(*(submit(hub, each, is_new_key=is_new_key) for each in operations))
    return [type(each) for each in results]


@pytest.mark.usefixtures("storage")
async def test_of_two_different_operations_the_one_that_is_dropped_is_refused() -> None:
    assert await race("one", "another") == [Started, KeyReused]


@pytest.mark.usefixtures("storage")
async def test_of_two_equal_operations_one_is_started_and_one_is_a_replay() -> None:
    assert await race("one", "one") == [Started, Replayed]


async def test_a_start_that_can_be_trusted_is_not_read_back(storage: AzureStorage) -> None:
    await race("one", hub=ATOMIC)
    storage.rows.clear()
    await race("one", hub=AZURE, is_new_key=True)
    assert storage.reads == 0


@pytest.mark.parametrize("noted", [1, 0])
async def test_an_operation_whose_start_was_not_answered_is_noted_by_the_key_of_its_caller(
    storage: AzureStorage, monkeypatch: pytest.MonkeyPatch, noted: int
) -> None:
    """It may run. Who submits it again is told that it does, which is noted by nobody."""

    async def answers_nothing(operation: OperationInput, start_id: str) -> bool:
        await storage.start_operation(operation, start_id)
        raise TaskHubUnavailableError("the answer was lost")

    facts: list[StartUnanswered] = []
    monkeypatch.setattr(TaskHub, "start_operation", staticmethod(answers_nothing))
    monkeypatch.setattr("durable_retry.facts._receivers", {StartUnanswered: [facts.append]})
    operation = an_operation()
    with pytest.raises(TaskHubUnavailableError):
        await submit(AZURE, operation, is_new_key=not noted)
    assert [fact.operation.operation_id for fact in facts] == noted * [operation.operation_id]

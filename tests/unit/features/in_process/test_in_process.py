import json
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock

import azure.durable_functions as df
import azure.functions as func
import pytest
from durabletask import task

import durable_retry
from durable_retry.base.errors import InstanceEndedError
from durable_retry.base.validation import InvalidInputError
from durable_retry.features.in_process import operations as in_process
from durable_retry.features.in_process.documents import operation_document
from durable_retry.features.in_process.executions import InstanceExecution, begin_execution
from durable_retry.features.in_process.operations import Operations
from durable_retry.features.outbox.rules.event import Event
from durable_retry.hub.task_hub import TaskHub
from durable_retry.intake import queue
from durable_retry.operations import actions as operations
from durable_retry.operations.actions import KeyReused
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.intake import Arrival
from durable_retry.settings.configuration import using
from orchestrators.call import call_operation
from tests.support.builders import NOON


def a_context(instance_id: str = "order-7", execution: str = "e-1", name: str = "checkout") -> Any:
    context = Mock(spec=task.OrchestrationContext, instance_id=instance_id)
    begin_execution(context, InstanceExecution(execution, NOON, name))
    return context


def called(context: Any, **fields: Any) -> dict[str, Any]:
    """What the next call of an orchestrator asks for."""
    next(durable_retry.call(context, dependency="payments", request={"path": "/charges"}, **fields))
    asked: dict[str, Any] = context.call_sub_orchestrator.call_args.kwargs
    return asked


def answered(answer: dict[str, Any]) -> Any:
    steps = durable_retry.call(a_context(), dependency="payments", request={"path": "/charges"})
    next(steps)
    with pytest.raises(StopIteration) as stopped:
        steps.send(answer)
    return stopped.value.value


def ended(orchestration: Generator[Any, Any, Any]) -> Any:
    with pytest.raises(StopIteration) as stopped:
        next(orchestration)
    return stopped.value.value


def failed(answer: dict[str, Any]) -> durable_retry.OperationFailed:
    with pytest.raises(durable_retry.OperationFailed) as caught:
        answered(answer)
    return caught.value


def test_each_call_of_an_orchestration_has_an_instance_of_its_own_and_the_same_in_every_replay() -> None:
    first, replayed = a_context(), a_context()
    asked = [called(first)["instance_id"], called(first)["instance_id"]]
    assert asked[0] != asked[1]
    assert [called(replayed)["instance_id"], called(replayed)["instance_id"]] == asked
    assert called(a_context("order-8"))["instance_id"] not in asked
    assert called(a_context(execution="e-2"))["instance_id"] not in asked
    assert all(each.startswith("call-") for each in asked)


def test_a_call_has_a_key_that_names_its_orchestrator_its_instance_and_its_number() -> None:
    first, replayed = a_context(), a_context()
    keys = [called(first)["input"]["keys"], called(first)["input"]["keys"]]
    assert [each[0] for each in keys] == ["checkout/order-7/1", "checkout/order-7/2"]
    assert [called(replayed)["input"]["keys"], called(replayed)["input"]["keys"]] == keys
    # What a later execution of the instance uses where the first is taken.
    (again,) = {called(a_context(execution="e-2"))["input"]["keys"][1]}
    assert again.startswith("checkout/order-7/")
    assert again not in keys[0]
    assert called(a_context("order-8"))["input"]["keys"][0] == "checkout/order-8/1"
    assert called(a_context(name="refund"))["input"]["keys"][0] == "refund/order-7/1"


@pytest.mark.parametrize(
    ("instance_id", "correlation_id"),
    [("order-7", "order-7"), ("order 7é", "order%207%C3%A9"), ("o" * 256, "sha256-")],
)
def test_the_instance_of_the_caller_is_the_correlation_id_of_a_call(
    instance_id: str, correlation_id: str
) -> None:
    document = called(a_context(instance_id))["input"]["document"]
    assert document["correlation_id"].startswith(correlation_id)
    given = called(a_context(instance_id), correlation_id="mine")["input"]["document"]
    assert given["correlation_id"] == "mine"


def test_a_call_is_the_body_of_an_operation() -> None:
    asked = called(a_context(), key="k-1", deadline_seconds=0)
    assert asked["input"]["document"] == {
        "dependency": "payments",
        "request": {"path": "/charges"},
        "key": "k-1",
        "deadline_seconds": 0,
        "correlation_id": "order-7",
    }
    assert asked["input"]["since"] == "2026-11-21T12:00:00Z"


def test_a_call_takes_its_place_in_an_order() -> None:
    asked = called(a_context(), key="k-1", order_key="customer-7", order_on_failure="skip")
    document = asked["input"]["document"]
    assert (document["order_key"], document["order_on_failure"]) == ("customer-7", "skip")
    context = a_context()
    next(durable_retry.call(context, charge, "o-1", key="k-1", order_key="customer-7"))
    of_function = context.call_sub_orchestrator.call_args.kwargs["input"]["document"]
    assert (of_function["order_key"], of_function["input"]) == ("customer-7", {"order": "o-1"})


@dataclass
class Receipt:
    id: str


@durable_retry.operation("charge-in-process", dependency="flaky")
async def charge(order: str, amount: int = 1) -> Receipt:
    return Receipt(f"{order} {amount}")


@pytest.mark.parametrize("function", [charge, "charge-in-process"])
def test_a_call_of_a_function_and_of_its_name_gives_what_the_function_returns(function: Any) -> None:
    context = a_context()
    steps = durable_retry.call(context, function, "o-1", amount=5, key="k-1")
    next(steps)
    assert context.call_sub_orchestrator.call_args.kwargs["input"]["document"] == {
        "handler": "charge-in-process",
        "input": {"order": "o-1", "amount": 5},
        "key": "k-1",
        "correlation_id": "order-7",
    }
    done = {"status": "succeeded", "handler": "charge-in-process", "result": {"value": {"id": "r-1"}}}
    by_name = durable_retry.call(a_context(), handler="charge-in-process", input={"order": "o-1"})
    next(by_name)
    for each in (steps, by_name):
        with pytest.raises(StopIteration) as stopped:
            each.send({"document": done})
        assert stopped.value.value == Receipt("r-1")


def test_wrong_arguments_are_refused_in_the_orchestrator_and_start_nothing() -> None:
    context = a_context()
    with pytest.raises(InvalidInputError, match="/input/amount"):
        next(durable_retry.call(context, charge, "o-1", amount="five", key="k-1"))
    assert not context.call_sub_orchestrator.called


def test_a_name_that_is_not_declared_is_no_operation() -> None:
    with pytest.raises(LookupError, match="no handler 'chrge' is registered"):
        next(durable_retry.call(a_context(), "chrge", "o-1", key="k-1"))


def test_a_call_that_the_host_could_not_read_is_refused_by_its_own_orchestration() -> None:
    context = a_context()
    next(durable_retry.call(context, handler="ship", input=json.loads("[" * 48 + "]" * 48)))
    given = context.call_sub_orchestrator.call_args.kwargs["input"]
    assert given["problems"][0]["detail"] == "nests deeper than 48 levels"
    assert ended(call_operation(context, given)) == given
    assert "nests deeper than 48 levels" in str(failed(given))


def test_a_call_of_several_megabytes_is_refused_by_its_own_orchestration() -> None:
    """The backend could not take the message, and would repeat the turn for ever."""
    context = a_context()
    next(durable_retry.call(context, handler="ship", input="é" * 3_000_000))
    given = context.call_sub_orchestrator.call_args.kwargs["input"]
    assert given == {"problems": [{"pointer": "", "detail": "is larger than 65536 bytes"}]}
    assert "is larger than 65536 bytes" in str(failed(given))


async def test_a_submission_is_no_larger_than_one_over_http() -> None:
    with pytest.raises(InvalidInputError, match="is larger than 65536 bytes"):
        await Operations("hub").submit(handler="ship", input="é" * 32_768)


def test_events_may_be_objects_or_json() -> None:
    event = Event.to_queue("mails", "mail.wanted", {"to": "a"})
    document = operation_document(None, (), {"on_success": [event, {"type": "b", "queue": "q"}]})
    assert document["on_success"] == [event.to_json(), {"type": "b", "queue": "q"}]
    assert operation_document(None, (), {"on_failure": [event]}) == {"on_failure": [event.to_json()]}


def test_the_first_style_of_the_sdk_takes_the_input_by_another_name() -> None:
    context = Mock(spec=df.DurableOrchestrationContext, instance_id="order-7", _ctx=a_context())
    next(durable_retry.call(context, handler="ship", input={}))
    name, given, _ = context.call_sub_orchestrator.call_args.args
    document = {"handler": "ship", "input": {}, "correlation_id": "order-7"}
    assert (name, given["document"]) == ("call_operation", document)


def test_a_success_is_its_result() -> None:
    ended = {"status": "succeeded", "handler": "ship"}
    assert answered({"document": ended | {"result": {"value": 7}}}) == 7
    assert answered({"document": ended | {"result": {"status_code": 200}}}) == {"status_code": 200}


def test_a_dead_letter_is_raised_with_its_id() -> None:
    letter = {"id": "dl-1", "category": "transient", "reason": "RetriesExhausted", "detail": "503"}
    error = failed({"document": {"operation_id": "op-1", "status": "dead_lettered", "dead_letter": letter}})
    assert (error.dead_letter_id, error.category, error.reason) == ("dl-1", "transient", "RetriesExhausted")
    assert str(error) == "op-1, dead_lettered, RetriesExhausted, 503"


def test_a_cancelled_operation_is_raised() -> None:
    error = failed({"document": {"operation_id": "op-1", "status": "cancelled", "dead_letter": None}})
    assert (error.status, error.category, error.dead_letter_id) == ("cancelled", None, None)


def test_what_cannot_be_started_lists_its_mistakes() -> None:
    error = failed({"problems": [{"pointer": "/dependency", "detail": "no dependency has the name x"}]})
    assert (error.status, error.category, error.operation_id) == ("refused", "malformed", "")
    assert error.detail == "/dependency: no dependency has the name x"


class Hub:
    """What the services of `Operations` find and do, in place of a task hub."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.documents: list[dict[str, Any] | None] = [None]
        self.raised: list[str] = []
        self.waited: list[float] = []
        self.ended_meanwhile = False
        monkeypatch.setattr(operations, "find_status", self.find_status)
        monkeypatch.setattr(TaskHub, "raise_event", self.raise_event)
        monkeypatch.setattr(TaskHub, "wait_for_end", self.wait_for_end)

    async def find_status(self, _hub: TaskHub, _operation_id: str) -> dict[str, Any] | None:
        return self.documents.pop(0) if len(self.documents) > 1 else self.documents[0]

    async def raise_event(self, _operation_id: str, event: str, _data: object) -> None:
        if self.ended_meanwhile:
            raise InstanceEndedError
        self.raised.append(event)

    async def wait_for_end(self, _operation_id: str, seconds: float) -> None:
        self.waited.append(seconds)


RUNNING = {
    "operation_id": "op-1",
    "key": "order-7",
    "dependency": "payments",
    "source": "app",
    "correlation_id": None,
    "status": "running",
    "created_at": "2030-01-01T12:00:00Z",
    "updated_at": "2030-01-01T12:00:00Z",
}
DONE = {"operation_id": "op-1", "status": "succeeded", "handler": "ship", "result": {"value": 7}}
DEAD = {"operation_id": "op-1", "status": "dead_lettered", "dead_letter": {"id": "dl-1"}}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    return Hub(monkeypatch)


async def test_a_wait_asks_until_the_end(hub: Hub) -> None:
    hub.documents = [RUNNING, RUNNING, DONE]
    assert await Operations("{}").wait("op-1", timeout_seconds=600) == 7
    assert len(hub.waited) == 2
    assert all(seconds <= 30 for seconds in hub.waited)


async def test_a_wait_for_a_dead_letter_raises_it(hub: Hub) -> None:
    hub.documents = [DEAD]
    with pytest.raises(durable_retry.OperationFailed) as caught:
        await Operations("{}").wait("op-1", timeout_seconds=1)
    assert caught.value.dead_letter_id == "dl-1"


async def test_a_wait_ends_in_time(hub: Hub) -> None:
    hub.documents = [RUNNING]
    with pytest.raises(TimeoutError, match="op-1 has not ended"):
        await Operations("{}").wait("op-1", timeout_seconds=0)


async def test_what_is_not_there_cannot_be_waited_for(hub: Hub) -> None:
    hub.documents = [None]
    with pytest.raises(LookupError):
        await Operations("{}").wait("op-1", timeout_seconds=1)
    assert await Operations("{}").get("op-1") is None


@pytest.mark.parametrize(("found", "is_cancelled"), [(RUNNING, True), (DONE, False), (None, False)])
async def test_only_what_runs_is_cancelled(
    hub: Hub,
    found: dict[str, Any] | None,
    is_cancelled: bool,  # noqa: FBT001 - an expectation
) -> None:
    hub.documents = [found]
    assert await Operations("{}").cancel("op-1") is is_cancelled
    assert hub.raised == (["cancel"] if is_cancelled else [])


async def test_what_ended_meanwhile_is_not_cancelled(hub: Hub) -> None:
    hub.documents = [RUNNING]
    hub.ended_meanwhile = True
    assert await Operations("{}").cancel("op-1") is False


async def test_a_key_of_another_request_is_an_invalid_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def reused(*_: object, **__: object) -> KeyReused:
        return KeyReused()

    monkeypatch.setattr(in_process, "submit", reused)
    config = parse_config('[dependencies.payments]\nbase_url = "https://payments.example.com"', {})
    with using(config), pytest.raises(InvalidInputError, match="belongs to another request"):
        await Operations("{}").submit(dependency="payments", request={"path": "/charges"}, key="k-1")


async def test_every_mistake_of_a_submission_is_raised() -> None:
    config = parse_config('[dependencies.payments]\nbase_url = "https://payments.example.com"', {})
    with using(config), pytest.raises(InvalidInputError) as caught:
        await Operations("{}").submit(dependency="paiments", request={"path": "/charges"}, key="a b")
    assert {problem.pointer for problem in caught.value.problems} == {"/dependency", "/key"}


def test_the_task_hub_is_that_of_the_durable_client() -> None:
    given = {"taskHubName": "Shop", "rpcBaseUrl": "http://127.0.0.1:4001", "maxGrpcMessageSizeInBytes": 7}
    client = df.DurableFunctionsClient.__new__(df.DurableFunctionsClient)
    client._parse_client_configuration(json.dumps(given))
    assert json.loads(Operations.of(client).hub).items() >= given.items()


def test_a_value_with_a_credential_is_not_returned_with_its_mask() -> None:
    document = {"operation_id": "op-1", "status": "succeeded", "dead_letter": None}
    answer = {"document": document | {"result": {"value": {"a": "***"}, "masked": ["/value/a"]}}}
    error = failed(answer)
    assert (error.reason, error.detail.partition(" holds")[0]) == ("ValidationFailed", "/value/a:")
    shown = {"json": {"a": "***"}, "masked": ["/json/a"]}
    assert answered({"document": document | {"result": shown}}) == shown


@pytest.mark.parametrize(
    ("fields", "content", "body"),
    [
        ({}, b'{"handler": "charge"}', b'{"handler": "charge"}'),
        ({"handler": "charge"}, b'{"a": 1.10}', b'{"handler": "charge", "input": {"a": 1.10}}'),
        (
            {"dependency": "payments", "request": {"path": "/charges"}, "key": "k"},
            b"[7]",
            b'{"dependency": "payments", "key": "k", "request": {"path": "/charges", "json": [7]}}',
        ),
        ({"handler": "charge"}, b'7}, "x": {', b'7}, "x": {'),
        ({"handler": "charge"}, b"\xff", b"\xff"),
    ],
)
async def test_a_message_is_the_content_of_its_operation_and_no_json_stays_alone(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], content: bytes, body: bytes
) -> None:
    taken: list[Arrival] = []

    class Kept:
        async def accept(self, _hub: TaskHub, arrival: Arrival) -> None:
            taken.append(arrival)

    monkeypatch.setattr(queue, "intake", Kept)
    await Operations("{}").accept(func.QueueMessage(id="m-1", body=content), **fields)
    ((arrival,), place) = taken, "operations"
    assert (arrival.body, arrival.native_id, arrival.source, arrival.place) == (body, "m-1", "queue", place)

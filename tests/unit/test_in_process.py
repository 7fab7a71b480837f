"""`durable_retry.call` without a task hub: what it asks for, and what it makes of the answer."""

from typing import Any
from unittest.mock import Mock

import azure.durable_functions as df
import pytest
from durabletask import task

import durable_retry
from durable_retry.client.documents import operation_document
from durable_retry.engine.operations.request import Event


def a_context(instance_id: str = "order-7") -> Any:
    return Mock(spec=task.OrchestrationContext, instance_id=instance_id)


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
    assert all(each.startswith("call-") for each in asked)


def test_a_call_is_the_body_of_an_operation() -> None:
    asked = called(a_context(), key="k-1", deadline_seconds=0)
    assert asked["input"]["document"] == {
        "dependency": "payments",
        "request": {"method": "POST", "path": "/charges"},
        "key": "k-1",
        "deadline_seconds": 0,
    }


def test_events_may_be_objects_or_json() -> None:
    event = Event.to_queue("mails", "mail.wanted", {"to": "a"})
    document = operation_document({"on_success": [event, {"type": "b", "queue": "q"}]})
    assert document["on_success"] == [event.to_json(), {"type": "b", "queue": "q"}]


def test_the_first_style_of_the_sdk_takes_the_input_by_another_name() -> None:
    context = Mock(spec=df.DurableOrchestrationContext, instance_id="order-7")
    next(durable_retry.call(context, handler="ship", input={}))
    name, given, _ = context.call_sub_orchestrator.call_args.args
    assert (name, given["document"]) == ("call_operation", {"handler": "ship", "input": {}})


def test_a_success_is_its_result() -> None:
    assert answered({"document": {"status": "succeeded", "result": {"value": 7}}}) == {"value": 7}


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

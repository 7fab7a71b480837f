from typing import Any

import httpx
import pytest

from activities.operation import attempt
from activities.outbox import publish
from durable_retry.attempt.http_client import sending_over
from durable_retry.circuit import cache
from durable_retry.features.outbox import sending as outbox
from durable_retry.features.outbox.rules.outbox import delivery_of
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.calls import CallHealth
from durable_retry.rules.circuit.snapshot import Permitted
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.config.dependency import Dependency
from durable_retry.rules.operations.operation import AttemptCall
from durable_retry.rules.retry.admission import AdmissionState
from durable_retry.rules.retry.loop import RetryState
from durable_retry.rules.retry.slots import Slot
from durable_retry.settings.configuration import using
from tests.integration.activities.test_step_elsewhere import OPEN, Circuit
from tests.support.builders import NOON, an_operation
from tests.support.narrowing import existing

CONFIG = """
[dependencies.pay]
base_url = "http://pay.test"
was = ["payments", "billing"]
"""
HUB = TaskHub("{}")


@pytest.fixture
def circuit(monkeypatch: pytest.MonkeyPatch) -> Circuit:
    """The circuit of the present name; there is none of another."""
    circuits = {"pay": Circuit()}
    monkeypatch.setattr(cache, "circuit_of", lambda _hub, dependency, _key: circuits[dependency.name])
    monkeypatch.setattr(Circuit, "at_begin", lambda _self, admission, _seconds: admission, raising=False)
    return circuits["pay"]


async def attempted(dependency: str, admission: AdmissionState = AdmissionState()) -> dict[str, Any]:  # noqa: B008 # frozen
    operation = an_operation(dependency=dependency, deadline_at=None)
    call = AttemptCall(operation=operation.to_json(), attempt=1, admission=admission)
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json={"url": str(request.url)}))
    with using(parse_config(CONFIG, {})), sending_over(lambda _: transport):
        return await attempt(call.to_json(), HUB)


async def test_the_answer_of_an_attempt_says_the_present_name_where_that_differs(circuit: Circuit) -> None:
    answers = [await attempted(name) for name in ("payments", "billing", "pay")]
    assert [answer["result"]["json"]["url"].partition("test")[0] for answer in answers] == ["http://pay."] * 3
    assert [answer.get("renamed_to") for answer in answers] == ["pay", "pay", None]
    assert circuit.seen == [CallHealth.SUCCESS] * 3


async def test_what_the_circuit_refuses_says_the_present_name_too(circuit: Circuit) -> None:
    circuit.answer = OPEN
    assert await attempted("payments") == {"stopped": OPEN.to_json(), "renamed_to": "pay"}


async def test_what_was_reached_at_the_earlier_name_lets_nobody_past(circuit: Circuit) -> None:
    """Its entities are others: a probe or a slot of theirs is none here."""
    reached = AdmissionState(
        waiting=True,
        promised_at=NOON,
        permit=Permitted(1, lease_id="lease"),
        slot=Slot("op-test:1", NOON),
        turn_at=NOON,
        ahead=3,
        slot_since=NOON,
        unsent=("e-1",),
    )
    await attempted("payments", reached)
    await attempted("pay", reached)
    assert circuit.asked == [AdmissionState(slot_since=NOON, unsent=("e-1",)), reached]


async def test_a_webhook_goes_under_the_present_name(
    circuit: Circuit, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    async def deliver_once(_hub: Any, delivery: Any, _place: Any, _number: int) -> Any:
        seen.append((delivery.lane, delivery.state.admission))
        return OPEN

    monkeypatch.setattr("activities.outbox.deliver_once", deliver_once)
    event = {"event_id": "op-1.1", "type": "t", "dependency": "payments", "path": "/"}
    delivery = delivery_of(event, Dependency(name="payments"), NOON)
    reached = RetryState(admission=AdmissionState(waiting=True, ahead=1))
    for name, answer in (("payments", {"renamed_to": "pay"}), ("pay", {}), ("queue:x", {})):
        operation = an_operation(dependency=name)
        given = {**delivery.to_json(), "operation": operation.to_json(), "state": reached.to_json()}
        with using(parse_config(CONFIG, {})):
            answered = await publish({"delivery": given, "place": {}, "attempt": 1}, HUB)
        assert answered == {"stopped": OPEN.to_json(), "event_id": operation.operation_id, **answer}
    assert seen == [
        ("pay", AdmissionState()),
        ("pay", reached.admission),
        ("queue:x", reached.admission),
    ]
    with using(parse_config(CONFIG, {})):
        webhook = outbox._dependency_of(type("Event", (), {"event": event}))  # type: ignore[arg-type] # all that it reads
    assert existing(webhook).name == "pay"
    assert circuit.asked == []

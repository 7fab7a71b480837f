import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from durable_retry.base.names import Category, EventState
from durable_retry.base.signatures import signature, signing_key
from durable_retry.base.text import Secret
from durable_retry.features.outbox.rules.outbox import StoredEvent, envelope_of, envelope_text
from durable_retry.features.outbox.sending import deliver
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.runtime import clock
from durable_retry.settings.configuration import encodes_queue_messages, find_dependency, using
from scripts.processes import free_port
from tests.support.azurite import Storage, use_account
from tests.support.hub import binding_for
from tests.support.narrowing import of_type
from tests.support.target import Target

OLD = "whsec_" + base64.b64encode(b"the old secret, 32 bytes long...").decode()
NEW = "whsec_" + base64.b64encode(b"the new secret, 32 bytes long...").decode()

DEPENDENCIES = """
[defaults]
circuit = { enabled = false }
retry_budget = { ratio = 0 }

[dependencies.signed]
base_url = "${TARGET}"
webhook = { secrets = ["${NEW}", "${OLD}"] }
auth = { header = "Authorization", value = "Bearer ${TOKEN}" }

[dependencies.unsigned]
base_url = "${TARGET}"
idempotency = { header = "" }
"""


@pytest.fixture(autouse=True)
def dependencies(target: Target) -> Any:
    settings = {"TARGET": target.url, "OLD": OLD, "NEW": NEW, "TOKEN": "sesame-open"}
    with using(parse_config(DEPENDENCIES, settings)):
        yield


def an_event(key: str, number: int = 1, **target: Any) -> StoredEvent:
    now = clock.now()
    return StoredEvent(
        event_id=f"op-{key}.{number}",
        event={"type": "charge.completed", "data": {"order": "\u00e9\u20ac\U0001f600"}, **target},
        state=EventState.PENDING,
        created_at=now,
        pending_since=now,
    )


async def delivered(event: StoredEvent, number: int = 1) -> AttemptOutcome:
    dependency = event.event.get("dependency")
    delivery = event.to_delivery(None if dependency is None else find_dependency(dependency))
    return of_type(AttemptOutcome, await deliver(binding_for(free_port()), delivery, event, number))


async def test_a_webhook_is_signed_with_every_secret(target: Target, key: str) -> None:
    event = an_event(key, dependency="signed", path="/echo")
    assert (await delivered(event)).category is None
    [arrived] = target.received(event.event_id)["tries"]
    headers = arrived["headers"]
    assert (headers["webhook-id"], headers["content-type"]) == (
        event.event_id,
        "application/cloudevents+json",
    )
    assert headers["authorization"] == "Bearer sesame-open"
    sent_at = int(headers["webhook-timestamp"])
    assert abs(clock.now().timestamp() - sent_at) < 300
    assert sorted(headers["webhook-signature"].split(" ")) == sorted(
        signature(
            signing_key(Secret(secret)),
            message_id=event.event_id,
            timestamp=sent_at,
            body=envelope_text(event),
        )
        for secret in (OLD, NEW)
    )


async def test_every_attempt_has_its_own_time_and_the_same_id(target: Target, key: str) -> None:
    event = an_event(key, dependency="signed", path="/fail/1")
    first = await delivered(event)
    assert (first.category, first.status_code) == (Category.TRANSIENT, 503)
    assert (await delivered(event, 2)).category is None
    tries = target.received(event.event_id)["tries"]
    assert [one["headers"]["webhook-id"] for one in tries] == [event.event_id] * 2


async def test_a_webhook_may_be_sent_again_where_the_dependency_knows_no_keys(
    target: Target, key: str
) -> None:
    """A receiver of webhooks deduplicates on their id, so that no answer is ambiguous."""
    event = an_event(key, dependency="unsigned", path="/fail/1")
    assert (await delivered(event)).category is Category.TRANSIENT
    assert "webhook-signature" not in target.received("")["tries"][-1]["headers"]


async def test_a_webhook_to_a_dependency_that_is_gone_has_not_left(key: str) -> None:
    outcome = await delivered(an_event(key, dependency="gone", path="/"))
    assert (outcome.category, outcome.counted) == (Category.TRANSIENT, False)


async def test_a_webhook_after_its_deadline_is_not_sent(target: Target, key: str) -> None:
    event = an_event(key, dependency="signed", path="/echo")
    old = replace(event, pending_since=event.pending_since.replace(year=2025))
    assert (await delivered(old)).category is Category.DEADLINE_EXCEEDED
    assert target.totals().get(event.event_id, 0) == 0


async def test_a_message_is_a_cloud_event_as_host_json_wants_it_encoded(storage: Storage, key: str) -> None:
    event = an_event(key, queue="delivered")
    assert (await delivered(event)).category is None
    with storage.queue("delivered") as client:
        [message] = client.receive_messages()
        client.delete_message(message)
    assert not encodes_queue_messages()
    assert json.loads(message.content) == envelope_of(event)


async def test_a_message_in_base64_is_what_a_default_trigger_reads(
    storage: Storage, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable_retry.storage.queues.encodes_queue_messages", lambda: True)
    event = an_event(key, queue="encoded")
    await delivered(event)
    with storage.queue("encoded") as client:
        [message] = client.receive_messages()
    assert json.loads(base64.b64decode(message.content)) == envelope_of(event)


async def test_a_message_with_what_xml_cannot_carry_can_be_received(storage: Storage, key: str) -> None:
    event = an_event(key, queue="unfit")
    odd = replace(event, event={**event.event, "data": "a\uffff\ufffe\x7f\x85\U0001f600b"})
    await delivered(odd)
    with storage.queue("unfit") as client:
        [message] = client.receive_messages()
    assert json.loads(message.content) == envelope_of(odd)


@pytest.mark.usefixtures("storage")
async def test_a_message_that_no_queue_takes_is_malformed_at_once(key: str) -> None:
    large = an_event(key, queue="large")
    outcome = await delivered(replace(large, event={**large.event, "data": "x" * 70_000}))
    assert outcome.category is Category.MALFORMED
    assert "65536" in str(outcome.error)


@pytest.mark.shows("P8")
async def test_an_account_that_does_not_answer_is_transient(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = (
        "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=a2V5;QueueEndpoint=http://127.0.0.1:9/a;"
    )
    use_account(monkeypatch, nowhere)
    monkeypatch.setattr(
        "durable_retry.storage.queues._CLIENT_OPTIONS", {"retry_total": 0, "connection_timeout": 1}
    )
    outcome = await delivered(an_event(key, queue="nowhere"))
    assert outcome.category is Category.TRANSIENT

import json
from typing import Any
from unittest.mock import AsyncMock, call

import azure.functions as func
import pytest

from durable_retry.base.trace_context import TraceContext
from durable_retry.features.enqueue import enqueuing
from durable_retry.features.enqueue import routes as submissions
from durable_retry.features.enqueue.enqueuing import enqueue, message_of
from durable_retry.features.enqueue.routes import read_submission
from durable_retry.rules.config.dependency import Dependency, Targets
from durable_retry.rules.intake import Arrival, read_message
from durable_retry.rules.operations.envelope import parse_envelope
from durable_retry.rules.operations.submission import Naming, parse
from tests.support.builders import NOON

BODY = {"dependency": "payments", "request": {"method": "POST", "path": "/charges"}}
EVENT = {"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "order"}
CALLER, MAKER = (TraceContext(f"00-{name * 32}-{name * 16}-01", f"vendor={name}") for name in "ab")


@pytest.fixture(autouse=True)
def no_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """An app whose settings nobody loaded: what is read here is not looked up."""
    monkeypatch.setattr(submissions, "targets", lambda: Targets({}, {}, ()))


def posted(document: Any, headers: dict[str, str]) -> func.HttpRequest:
    body = json.dumps(document).encode()
    return func.HttpRequest("POST", "http://localhost/api/operations", headers=headers, body=body)


@pytest.mark.parametrize(
    ("document", "headers", "place"),
    [
        (BODY, {}, None),
        (BODY, CALLER.to_json(), CALLER),
        (BODY, {"traceparent": "nowhere"}, None),
        ({**EVENT, "data": BODY}, CALLER.to_json(), CALLER),
        ({**EVENT, **MAKER.to_json(), "data": BODY}, CALLER.to_json(), MAKER),
        (
            BODY,
            {f"ce-{name}": value for name, value in (EVENT | MAKER.to_json()).items()} | CALLER.to_json(),
            MAKER,
        ),
    ],
)
def test_http_gives_the_events_place_before_the_callers(
    document: Any, headers: dict[str, str], place: TraceContext | None
) -> None:
    assert read_submission(posted(document, headers)).trace == place


@pytest.mark.parametrize("document", [BODY, {**EVENT, "data": BODY}])
def test_what_is_enqueued_keeps_its_place_and_its_name(document: Any) -> None:
    request = posted(document, CALLER.to_json())
    submission = read_submission(request)
    message = json.dumps(message_of(submission)).encode()
    arrival = Arrival(source="queue", body=message, native_id="m-1")
    envelope = read_message(arrival.body, parse_envelope, max_bytes=10_000)
    parsed = parse(envelope, Naming(own=arrival.name), Targets({}, {}, ()), now=NOON, trace=arrival.trace)
    assert (parsed.trace, parsed.name) == (CALLER, submission.name)


def test_what_is_enqueued_without_a_place_stays_a_plain_operation() -> None:
    message = message_of(read_submission(posted(BODY | {"key": "k-1"}, {})))
    assert parse_envelope(message).payload == BODY | {"key": "k-1"}


async def test_what_is_put_on_the_queue_is_what_will_start(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = AsyncMock()
    known = Targets({"payments": Dependency(name="payments", base_url="http://payments.test")}, {}, ())
    monkeypatch.setattr(enqueuing, "send_message", sent)
    monkeypatch.setattr(enqueuing, "targets", lambda: known)
    body = BODY | {"key": "k-1"}
    operation = await enqueue(read_submission(posted(body, {})), NOON)
    assert sent.await_args == call("operations", json.dumps(body))
    assert (operation.key, operation.source, operation.created_at) == ("k-1", "queue", NOON)

"""Where in a trace a caller stands, read off each way in."""

import json
from typing import Any

import azure.functions as func
import pytest

from durable_retry.base.trace_context import TraceContext
from durable_retry.features.workflows import routes as workflows
from durable_retry.intake import routes as submissions
from durable_retry.intake.queue import message_of
from durable_retry.intake.routes import read_submission
from durable_retry.rules.config.dependency import Targets
from durable_retry.rules.intake import Arrival, read_message
from durable_retry.rules.operations.envelope import parse_envelope
from durable_retry.rules.operations.submission import Naming, parse

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


def test_a_batch_has_its_callers_place() -> None:
    whole = workflows.workflow_of(posted([], {**CALLER.to_json(), "Idempotency-Key": "b-1"}), "batch", [])
    assert whole.trace == CALLER


@pytest.mark.parametrize("document", [BODY, {**EVENT, "data": BODY}])
def test_what_is_enqueued_keeps_its_place_and_its_name(document: Any) -> None:
    request = posted(document, CALLER.to_json())
    submission = read_submission(request)
    message = json.dumps(message_of(submission)).encode()
    arrival = Arrival(source="queue", body=message, native_id="m-1")
    envelope = read_message(arrival.body, parse_envelope, max_bytes=10_000)
    parsed = parse(envelope, Naming(own=arrival.name), Targets({}, {}, ()), arrival.trace)
    assert (parsed.trace, parsed.name) == (CALLER, submission.name)


def test_what_is_enqueued_without_a_place_stays_a_plain_operation() -> None:
    message = message_of(read_submission(posted(BODY | {"key": "k-1"}, {})))
    assert parse_envelope(message).payload == BODY | {"key": "k-1"}

from dataclasses import replace

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, StatusCode

from durable_retry.attempt.http_client import TracedTransport
from durable_retry.base.names import Category
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.telemetry import spans
from tests.support.builders import NOON, an_operation, an_outcome
from tests.support.narrowing import existing
from tests.support.telemetry import CALLED, CALLER, CALLER_ID, TRACE_ID, Recorded, ids

OPERATION_ID = "durable_retry.operation.id"


def test_a_submission_hangs_on_the_caller_and_what_follows_on_the_submission(
    recorded: Recorded,
) -> None:
    with spans.submission(CALLED) as (_, operation):
        pass
    with spans.attempt(operation, 1):
        pass
    submitted, attempted = recorded.span("submit payments"), recorded.span("attempt payments")
    assert submitted.kind is SpanKind.PRODUCER
    assert ids(submitted) == (TRACE_ID, CALLER_ID)
    assert ids(attempted) == (TRACE_ID, f"{existing(submitted.context).span_id:016x}")
    assert existing(operation.trace).tracestate == "vendor=1"


def test_without_a_caller_a_trace_begins(recorded: Recorded) -> None:
    with spans.submission(an_operation()) as (_, operation):
        pass
    assert ids(recorded.span("submit payments")) == (existing(operation.trace).trace_id, "")


def test_without_the_sdk_the_callers_place_stays_as_it_was() -> None:
    with spans.submission(CALLED) as (_, operation):
        assert operation.trace == CALLED.trace
    with spans.submission(an_operation()) as (_, operation):
        assert operation.trace is None


def test_a_hosts_span_of_the_same_trace_is_the_parent(recorded: Recorded) -> None:
    context = trace.set_span_in_context(
        trace.NonRecordingSpan(
            trace.SpanContext(int(TRACE_ID, 16), 0xABC, is_remote=True, trace_flags=trace.TraceFlags(1))
        )
    )
    with (
        recorded.provider.get_tracer("host").start_as_current_span(
            "activity:attempt", context=context
        ) as host,
        spans.attempt(CALLED, 1),
    ):
        pass
    attempted = recorded.span("attempt payments")
    assert ids(attempted) == (TRACE_ID, f"{host.get_span_context().span_id:016x}")
    assert attempted.links == ()


def test_a_hosts_span_of_another_trace_is_linked(recorded: Recorded) -> None:
    with (
        recorded.provider.get_tracer("host").start_as_current_span("queue", context=Context()) as host,
        spans.submission(CALLED),
    ):
        pass
    submitted = recorded.span("submit payments")
    assert ids(submitted) == (TRACE_ID, CALLER_ID)
    assert [link.context.span_id for link in submitted.links] == [host.get_span_context().span_id]


def test_a_hosts_span_is_the_parent_where_the_caller_has_none(recorded: Recorded) -> None:
    with (
        recorded.provider.get_tracer("host").start_as_current_span("timer", context=Context()) as host,
        spans.submission(an_operation()),
    ):
        pass
    assert ids(recorded.span("submit payments"))[1] == f"{host.get_span_context().span_id:016x}"


def test_an_attempt_says_how_it_ended(recorded: Recorded) -> None:
    failed = an_outcome(Category.THROTTLED, error="429: slow down")
    with spans.attempt(CALLED, 3) as span:
        spans.attempt_ended(span, failed)
    attempted = recorded.span("attempt payments")
    assert attempted.attributes == {
        OPERATION_ID: "op-test",
        "durable_retry.operation.key": "key-1",
        "durable_retry.dependency": "payments",
        "durable_retry.attempt.number": 3,
        "durable_retry.outcome": "failure",
        "http.response.status_code": 503,
        "durable_retry.category": "throttled",
        "error.type": "throttled",
    }
    assert (attempted.status.status_code, attempted.status.description) == (
        StatusCode.ERROR,
        "429: slow down",
    )


def test_a_successful_attempt_is_no_error(recorded: Recorded) -> None:
    with spans.attempt(replace(CALLED, dependency="queue:orders"), 1) as span:
        spans.attempt_ended(span, AttemptOutcome(number=1, started_at=NOON, duration_ms=1.0))
    attempted = recorded.span("attempt queue")  # a queue's name is the caller's: no name of spans
    assert attempted.status.status_code is StatusCode.UNSET


async def answered(
    status_code: int, request_headers: dict[str, str] | None = None
) -> tuple[httpx.Headers, str]:
    """Send a request whose query is a secret; return the headers that arrived, and where the caller stood."""
    arrived: list[httpx.Headers] = []

    def answer(request: httpx.Request) -> httpx.Response:
        arrived.append(request.headers)
        if status_code == 0:
            raise httpx.ConnectError("cannot reach https://api.example.com/v1?token=secret")
        return httpx.Response(status_code)

    transport = TracedTransport(httpx.MockTransport(answer))
    async with httpx.AsyncClient(transport=transport) as client:
        with spans.attempt(CALLED, 1) as attempted:
            await client.post("https://api.example.com/v1?token=secret", headers=request_headers)
    return arrived[0], f"{attempted.get_span_context().span_id:016x}"


async def test_a_request_has_a_span_and_its_place_goes_out_with_it(recorded: Recorded) -> None:
    headers, attempt_id = await answered(200)
    request = recorded.span("POST")
    assert (request.kind, ids(request)) == (SpanKind.CLIENT, (TRACE_ID, attempt_id))
    assert headers["traceparent"] == f"00-{TRACE_ID}-{existing(request.context).span_id:016x}-01"
    assert headers["tracestate"] == "vendor=1"
    assert request.attributes == {
        "http.request.method": "POST",
        "server.address": "api.example.com",
        "http.response.status_code": 200,
    }


async def test_a_refused_request_is_an_error(recorded: Recorded) -> None:
    await answered(503)
    assert recorded.span("POST").status.status_code is StatusCode.ERROR


async def test_a_traceparent_that_the_submitter_wrote_stays(recorded: Recorded) -> None:
    headers, _ = await answered(200, {"traceparent": "theirs"})
    assert headers.get_list("traceparent") == ["theirs"]
    assert recorded.span("POST") is not None


async def test_a_span_of_a_failed_request_has_its_kind_and_no_url(recorded: Recorded) -> None:
    with pytest.raises(httpx.ConnectError):
        await answered(0)
    request = recorded.span("POST")
    assert existing(request.attributes)["error.type"] == "ConnectError"
    assert request.events == ()
    assert "secret" not in request.to_json()


async def test_without_the_sdk_the_callers_place_goes_out() -> None:
    headers, _ = await answered(200)
    assert headers["traceparent"] == CALLER


def test_a_provider_that_the_environment_names_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """`OTEL_PYTHON_TRACER_PROVIDER` takes effect when somebody asks for the provider."""
    monkeypatch.setattr(trace, "get_tracer_provider", object)
    assert not spans.nobody_traces()

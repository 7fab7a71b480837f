from unittest.mock import Mock

import pytest
from opentelemetry.trace import StatusCode

from durable_retry.features.recording import spans
from tests.support.telemetry import CALLED, CALLER_ID, TRACE_ID, Recorded, an_end, ids


def test_an_operation_that_has_ended_is_one_span_with_every_wait(recorded: Recorded) -> None:
    spans.operation_ended(an_end(), CALLED.trace)
    whole = recorded.span("operation payments")
    assert ids(whole) == (TRACE_ID, CALLER_ID)
    assert whole.start_time is not None
    assert whole.end_time is not None
    assert whole.end_time - whole.start_time == 10_250_000_000
    assert [(event.timestamp - whole.start_time, dict(event.attributes or {})) for event in whole.events] == [
        (
            500_000_000,
            {
                "durable_retry.wait.kind": "retry",
                "durable_retry.wait.seconds": 2.0,
                "durable_retry.wait.reasons": (
                    "payments answers 503, since 2026-11-21T12:00:00Z",
                    "fixed 2 s",
                ),
            },
        ),
        (
            3_000_000_000,
            {
                "durable_retry.wait.kind": "circuit",
                "durable_retry.wait.seconds": 6.0,
                "durable_retry.wait.reasons": ("circuit open",),
            },
        ),
    ]


def test_a_dead_lettered_operation_is_an_error(recorded: Recorded) -> None:
    letter = {"id": "dl-1", "category": "malformed", "reason": "RejectedByDependency"}
    spans.operation_ended(an_end(status="dead_lettered", dead_letter=letter), None)
    whole = recorded.span("operation payments")
    assert whole.status.status_code is StatusCode.ERROR
    assert whole.attributes is not None
    assert whole.attributes["error.type"] == "malformed"
    assert whole.attributes["durable_retry.dead_letter.id"] == "dl-1"


def test_where_nobody_traces_there_is_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Mock()
    monkeypatch.setattr(spans, "tracer", made)
    spans.operation_ended(an_end(), None)
    assert made.mock_calls == []

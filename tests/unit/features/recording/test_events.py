"""What is counted and logged. Operations run on the SDK's own executor, where every turn replays."""

import logging
from dataclasses import replace
from datetime import timedelta

import pytest
from azure.durable_functions.testing import execute_entity

from durable_retry.base.names import REPORT, Category, OperationState, Priority
from durable_retry.base.trace_context import TraceContext
from durable_retry.features.debounce.facts import DEBOUNCED
from durable_retry.features.recording import metrics
from durable_retry.rules.circuit.messages import ReportMessage
from durable_retry.rules.circuit.retry_budget import BudgetPostponed, RetryBudgetSettings
from durable_retry.rules.facts import ActedOn, AttemptEnded, DeliveryEnded, OperationEnded
from durable_retry.rules.operations.status import OperationStatus
from durable_retry.rules.retry.admission import AdmissionState
from durable_retry.rules.retry.history import AttemptOutcome, History
from durable_retry.runtime import clock
from durable_retry.telemetry import spans
from durable_retry.telemetry.facts import report
from entities.circuit_breaker import CircuitBreaker
from tests.support.builders import NOON, an_operation, an_outcome, failing
from tests.support.circuit import BUDGET, SETTINGS, Desk
from tests.support.shared_circuit import Copies
from tests.support.stage import Stage
from tests.support.telemetry import CALLED, CALLER, TRACE_ID, Recorded, an_end, ids

DEPENDENCY = "durable_retry.dependency"
OUTCOME = "durable_retry.outcome"
LOG = "durable_retry.features.recording.events"


NORMAL = {"durable_retry.priority": "normal"}


def test_an_operation_records_each_wait_and_its_end_once_however_often_it_replays(
    recorded: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger=LOG):
        stage = Stage(an_operation(correlation_id="order-42", trace=TraceContext(CALLER)), failing(2))
        stage.run()
    assert stage.turns > 5
    assert recorded.points(metrics.WAIT_DURATION) == [
        ({DEPENDENCY: "payments", "durable_retry.wait.kind": "retry", **NORMAL}, (2, 20.0))
    ]
    assert recorded.points(metrics.OPERATION_DURATION) == [
        ({DEPENDENCY: "payments", "durable_retry.operation.status": "succeeded", **NORMAL}, (1, 20.0))
    ]
    assert ids(recorded.span("operation payments"))[0] == TRACE_ID
    assert [record.getMessage() for record in caplog.records] == [
        "operation op-test (key key-1): waits until 2026-11-21T12:00:10Z (retry)",
        "operation op-test (key key-1): waits until 2026-11-21T12:00:20Z (retry)",
        "operation op-test (key key-1): succeeded after 3 attempts in 20.0 s",
    ]
    names = ("durable_retry.operation.id", "durable_retry.operation.key", "durable_retry.correlation_id")
    assert {tuple(vars(record)[name] for name in names) for record in caplog.records} == {
        ("op-test", "key-1", "order-42")
    }


def test_a_wait_that_is_cut_short_counts_as_long_as_it_was(recorded: Recorded) -> None:
    stage = Stage(an_operation(), failing(1)).waiting()
    stage.now += timedelta(seconds=3)
    stage.raise_event("retry_now", {"attempt": 2}).run()
    ((_, waited),) = recorded.points(metrics.WAIT_DURATION)
    assert waited == (1, 3.0)


class Traces(logging.Handler):
    """Notes in which trace each line is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str | None]] = []

    def emit(self, record: logging.LogRecord) -> None:
        context = spans.current_context()
        self.seen.append((str(record.msg), None if context is None else context.trace_id))


@pytest.mark.usefixtures("recorded")
def test_every_line_of_a_turn_is_in_the_trace_of_its_operation(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host may run turns of orchestrators outside of any trace, and Microsoft's own does."""
    traces = Traces()
    monkeypatch.setattr(logging.getLogger(LOG), "handlers", [traces])
    with caplog.at_level(logging.DEBUG, logger=LOG):
        Stage(an_operation(trace=TraceContext(CALLER)), failing(1)).run()
    assert [text.partition(": ")[2].split()[0] for text, _ in traces.seen] == ["waits", "waited", "%s"]
    assert {trace_id for _, trace_id in traces.seen} == {TRACE_ID}


@pytest.mark.parametrize(("by", "name"), [("ada", "ada"), (None, "nobody by name")])
def test_what_somebody_asks_of_an_operation_is_logged_with_its_ids(
    recorded: Recorded,  # noqa: ARG001 - subscribes
    caplog: pytest.LogCaptureFixture,
    by: str | None,
    name: str,
) -> None:
    with caplog.at_level(logging.INFO, logger=LOG):
        report(ActedOn(an_end(), "cancel", by))
    (record,) = caplog.records
    assert record.getMessage() == f"operation op-sample (key evt-1): cancel, asked for by {name}"
    assert vars(record)["durable_retry.operation.id"] == "op-sample"


def test_what_a_later_operation_replaced_is_counted_with_its_priority(recorded: Recorded) -> None:
    operation = an_operation(priority=Priority.HIGH)
    status = OperationStatus(
        operation=operation, state=OperationState.CANCELLED, history=History(), updated_at=NOON
    )
    report(OperationEnded(status.to_json() | {"replaced_by": "op-2"}, None))
    assert recorded.points(DEBOUNCED) == [({DEPENDENCY: "payments", "durable_retry.outcome": "replaced"}, 1)]
    ((labels, _),) = recorded.points(metrics.OPERATION_DURATION)
    assert labels["durable_retry.priority"] == "high"


def test_a_dead_letter_is_a_warning(recorded: Recorded, caplog: pytest.LogCaptureFixture) -> None:
    Stage(an_operation(), failing(9, Category.MALFORMED, 400)).run()
    (record,) = [one for one in caplog.records if one.name == LOG]
    assert record.levelno == logging.WARNING
    assert vars(record)["durable_retry.dead_letter.reason"] == "RejectedByDependency"
    ((labels, _),) = recorded.points(metrics.OPERATION_DURATION)
    assert labels["durable_retry.operation.status"] == "dead_lettered"


@pytest.mark.parametrize(
    ("outcome", "labels"),
    [
        (an_outcome(None), {OUTCOME: "success"}),
        (an_outcome(Category.TRANSIENT), {OUTCOME: "failure", "durable_retry.category": "transient"}),
        (
            an_outcome(Category.TRANSIENT, counted=False),
            {OUTCOME: "not_sent", "durable_retry.category": "transient"},
        ),
    ],
)
def test_attempts_count_by_outcome_and_category(
    recorded: Recorded, outcome: AttemptOutcome, labels: dict[str, str]
) -> None:
    report(AttemptEnded(CALLED, outcome, was_held=False))
    assert recorded.points(metrics.ATTEMPT_DURATION) == [({DEPENDENCY: "payments"} | labels, (1, 0.0125))]


def test_the_name_of_a_callers_queue_is_no_label(recorded: Recorded) -> None:
    queued = replace(CALLED, dependency="queue:theirs-of-many")
    report(DeliveryEnded(queued, an_outcome(None)))
    assert recorded.points(metrics.ATTEMPT_DURATION) == [
        ({DEPENDENCY: "queue", OUTCOME: "success"}, (1, 0.0125))
    ]


def test_an_end_that_cannot_be_recorded_undoes_nothing(
    recorded: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    report(OperationEnded(an_end(created_at="yesterday"), None))
    assert recorded.spans == ()
    assert "OperationEnded could not be recorded" in caplog.text


async def test_calls_that_go_on_without_the_circuit_are_counted(recorded: Recorded) -> None:
    stage = Copies()
    stage.shared.is_down = True
    for number in range(3):
        await stage.copy.enter(f"op-{number}", 1, AdmissionState())
    assert recorded.points(metrics.FAILED_OPEN_CALLS) == [({DEPENDENCY: "payments"}, 3)]
    stage.shared.is_down = False
    stage.moment.pass_(2)
    await stage.copy.enter("op-4", 1, AdmissionState())
    assert recorded.points(metrics.FAILED_OPEN_CALLS) == [({DEPENDENCY: "payments"}, 3)]


async def test_retries_that_the_budget_puts_off_are_counted(recorded: Recorded) -> None:
    stage = Copies(budget=RetryBudgetSettings(ratio=0.2, minimum_per_second=1))
    answers = [await stage.copy.enter(f"op-{number}", 2, AdmissionState()) for number in range(12)]
    stage.copy.reporting.close()
    postponed = sum(isinstance(answer, BudgetPostponed) for answer in answers)
    assert postponed > 0
    assert recorded.points(metrics.POSTPONEMENTS) == [({DEPENDENCY: "payments"}, postponed)]


@pytest.mark.parametrize(
    ("limit_key", "of", "name"),
    [(None, "dependency", "payments"), ("customer-17", "limit_key", "payments for customer-17")],
)
def test_every_move_of_a_circuit_is_counted_and_logged(
    recorded: Recorded, caplog: pytest.LogCaptureFixture, limit_key: str | None, of: str, name: str
) -> None:
    desk, state = Desk(), None
    for at in (0.0, 1.0):  # The second report changes no state.
        message = ReportMessage(desk.report(at, failures=10), SETTINGS, BUDGET, limit_key).to_json()
        with clock.reading(lambda: NOON):
            done = execute_entity(CircuitBreaker, REPORT, message, state, entity_key="payments")
        state = done.get_state(dict)
    labels = {
        DEPENDENCY: "payments",
        "durable_retry.circuit.of": of,
        "durable_retry.circuit.previous_state": "closed",
        "durable_retry.circuit.state": "open",
    }
    assert recorded.points(metrics.CIRCUIT_MOVES) == [(labels, 1)]
    (record,) = [one for one in caplog.records if one.name == LOG]
    assert record.getMessage().startswith(f"circuit of {name}: open, was closed: ")

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import httpx
import pytest

import durable_retry
from durable_retry.attempt.admission import attempt_if_admitted
from durable_retry.attempt.attempt import attempt_operation
from durable_retry.attempt.http_client import sending_over
from durable_retry.attempt.http_pool import PROGRESS
from durable_retry.base.names import Category, OperationState
from durable_retry.circuit import cache
from durable_retry.circuit.entity import AdmissionSettings
from durable_retry.features.handlers import registry
from durable_retry.features.handlers.shown import steps_shown
from durable_retry.handlers import Call
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.status import with_parts
from durable_retry.rules.circuit.calls import CallEnd, CallHealth
from durable_retry.rules.circuit.retry_budget import RetryBudgetSettings
from durable_retry.rules.circuit.snapshot import Permitted, Refused, throttled
from durable_retry.rules.circuit.states import CircuitSettings
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.operations.operation import AttemptCall, OperationInput
from durable_retry.rules.operations.status import OperationDocument, running_document
from durable_retry.rules.retry.admission import AdmissionState, StepAdmission
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.rules.retry.loop import BlockedStep
from durable_retry.rules.retry.policy import Timeouts
from durable_retry.runtime import clock
from durable_retry.settings.configuration import find_dependency, using
from tests.support.builders import NOON, an_operation, an_outcome
from tests.support.narrowing import existing
from tests.support.tables import TablesInMemory

pytestmark = pytest.mark.usefixtures("no_handlers", "tables_in_memory")

CONFIG = """
[dependencies.payments]
base_url = "http://payments.test"

[dependencies.warehouse]
base_url = "http://warehouse.test"
retry = { max_attempts = 9 }
classify = { 404 = "transient" }
"""
OPEN = Refused(base=NOON, waiting=0, until=NOON + timedelta(seconds=30), reason="the circuit is open")


SETTINGS = AdmissionSettings("payments", CircuitSettings(), RetryBudgetSettings())


@dataclass
class Circuit:
    """The circuit of a dependency: what it answers, and what it was told."""

    answer: Permitted | Refused = field(default_factory=lambda: Permitted(epoch=1))
    asked: list[AdmissionState] = field(default_factory=list)
    seen: list[CallHealth] = field(default_factory=list)
    lasted_seconds: list[float] = field(default_factory=list)
    settings: AdmissionSettings = SETTINGS
    paused: Refused | None = None
    limits: None = None

    async def enter(self, _id: str, _attempt: int, state: AdmissionState, **_: Any) -> Any:
        self.asked.append(state)
        return self.answer

    async def refresh_snapshot(self) -> None:
        """It is never too old."""

    def now(self) -> datetime:
        return NOON

    def at_begin(self, admission: AdmissionState, _attempt_seconds: float) -> AdmissionState:
        return admission

    def pause(self, _id: str, _now: datetime) -> Refused | None:
        return self.paused

    async def leave(self, _permitted: Permitted, end: CallEnd) -> None:
        self.seen.append(end.health)
        self.lasted_seconds.append(end.duration_seconds)


@pytest.fixture
def circuits(monkeypatch: pytest.MonkeyPatch) -> dict[str, Circuit]:
    found = {"payments": Circuit(), "warehouse": Circuit()}
    monkeypatch.setattr(cache, "circuit_of", lambda _hub, dependency, _key: found[dependency.name])
    return found


def ship(order: int, call: Call) -> str:
    """A step function that is not async; its client belongs to the loop."""
    return f"{order} {call.key}"


async def ask(path: str, call: Call) -> str:
    answer = await call.client.post(path)
    answer.raise_for_status()
    return str(answer.url)


async def run(function: Any, step: StepAdmission | None = None, status: int = 200) -> Any:
    registry._handlers.clear()
    durable_retry.operation("order", dependency="payments")(function)
    operation = an_operation(
        handler="order", request=None, input={}, dependency="payments", deadline_at=None, run=1
    )
    transport = httpx.MockTransport(lambda _: httpx.Response(status))
    with using(parse_config(CONFIG, {})), sending_over(lambda _: transport):
        return await attempt_operation(
            TaskHub("{}"), AttemptCall(operation=operation.to_json(), attempt=1, step=step)
        )


async def order(call: Call) -> list[str]:
    charged = await call.step("charge", ask, "/charges")
    return [charged, await call.step("ship", ask, "/parcels", dependency="warehouse")]


async def test_a_step_has_the_client_and_the_circuit_of_its_dependency(circuits: dict[str, Circuit]) -> None:
    outcome: AttemptOutcome = await run(order)
    assert outcome.result == {"value": ["http://payments.test/charges", "http://warehouse.test/parcels"]}
    assert [circuit.seen for circuit in circuits.values()] == [[CallHealth.SUCCESS], [CallHealth.SUCCESS]]


@pytest.mark.parametrize("status", [200, 503])
async def test_a_steps_call_lasts_from_its_begin_and_not_from_that_of_its_handler(
    circuits: dict[str, Circuit], monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    now = [0.0]
    monkeypatch.setattr(clock, "monotonic_seconds", lambda: now[0])

    async def slow_order(call: Call) -> str:
        now[0] += 5.0
        return await call.step("ship", slow_ship, dependency="warehouse")

    async def slow_ship(call: Call) -> str:
        now[0] += 1.0
        return await ask("/parcels", call)

    await run(slow_order, status=status)
    assert circuits["warehouse"].lasted_seconds == [1.0]


async def test_a_refused_step_ends_the_attempt_that_is_not_counted_and_goes_on_later(
    circuits: dict[str, Circuit], tables_in_memory: TablesInMemory
) -> None:
    circuits["warehouse"].answer = OPEN
    assert await run(order) == BlockedStep("warehouse", OPEN)
    assert circuits["payments"].seen == [CallHealth.SILENT]
    assert tables_in_memory.rows("AttemptMarkers") == []
    held = StepAdmission("warehouse", AdmissionState(waiting=True))
    circuits["warehouse"].answer = Permitted(epoch=1)
    assert (await run(order, held)).category is None
    assert circuits["warehouse"].asked[-1].waiting
    shown, _ = await steps_shown("op-test", 1, OperationState.SUCCEEDED)
    assert [(step.name, step.status, step.attempts) for step in shown] == [
        ("charge", "succeeded", 1),
        ("ship", "succeeded", 1),
    ]


async def test_a_step_that_somebody_lets_past_its_circuit_is_not_counted_there(
    circuits: dict[str, Circuit],
) -> None:
    circuits["warehouse"].answer = OPEN
    held = StepAdmission("warehouse", AdmissionState(waiting=True, is_canary=True))
    assert (await run(order, held)).category is None
    assert (circuits["warehouse"].asked, circuits["warehouse"].seen) == ([], [])
    assert circuits["payments"].seen == [CallHealth.SUCCESS]


async def test_a_step_that_somebody_lets_past_its_circuit_keeps_to_a_pause(
    circuits: dict[str, Circuit],
) -> None:
    circuits["warehouse"].paused = throttled("op-test", NOON + timedelta(seconds=111), 0, "429")
    held = StepAdmission("warehouse", AdmissionState(waiting=True, is_canary=True))
    assert await run(order, held) == BlockedStep("warehouse", circuits["warehouse"].paused)


async def test_an_attempt_that_somebody_lets_past_its_circuit_keeps_to_a_pause(
    circuits: dict[str, Circuit],
) -> None:
    async def attempt() -> AttemptOutcome:
        return an_outcome(None)

    let_past = partial(
        attempt_if_admitted,
        TaskHub("{}"),
        operation=an_operation(dependency="payments"),
        number=1,
        attempt=attempt,
    )
    with using(parse_config(CONFIG, {})):
        dependency, canary = find_dependency("payments"), AdmissionState(is_canary=True)
        assert await let_past(dependency=dependency, admission=canary) == an_outcome(None)
        circuits["payments"].paused = throttled("op-test", NOON + timedelta(seconds=111), 0, "429")
        assert await let_past(dependency=dependency, admission=canary) == circuits["payments"].paused
    assert (circuits["payments"].asked, circuits["payments"].seen) == ([], [])


async def hang(request: httpx.Request) -> httpx.Response:
    request.extensions[PROGRESS].sent = True
    await asyncio.Event().wait()
    raise AssertionError("nothing sets it")


async def only_ask(call: Call) -> str:
    return await ask("/charges", call)


async def only_ship(call: Call) -> str:
    return await call.step("ship", ask, "/parcels", dependency="warehouse")


EACH_CALL: Final = pytest.mark.parametrize(
    ("function", "options", "called"),
    [
        (None, {}, "payments"),
        (only_ask, {}, "payments"),
        (only_ask, {"repeatable": False}, "payments"),
        (only_ship, {}, "warehouse"),
    ],
    ids=["a request", "a handler", "a handler that runs once", "a step elsewhere"],
)


def an_operation_of(function: Any, options: dict[str, Any], **changes: Any) -> OperationInput:
    operation = replace(an_operation(dependency="payments", run=1), **changes)
    if function is None:
        return operation
    durable_retry.operation("order", dependency="payments", **options)(function)
    return replace(operation, handler="order", request=None, input={})


@EACH_CALL
@pytest.mark.parametrize("by_deadline", [True, False])
async def test_an_attempt_that_the_deadline_cuts_off_shows_nothing_of_its_dependency(
    circuits: dict[str, Circuit],
    function: Any,
    options: dict[str, Any],
    called: str,
    *,
    by_deadline: bool,
) -> None:
    short = Timeouts(connect_seconds=0.05, attempt_seconds=0.05)
    operation = an_operation_of(
        function,
        options,
        timeouts=Timeouts() if by_deadline else short,
        deadline_at=clock.now() + timedelta(seconds=0.25) if by_deadline else None,
    )
    with using(parse_config(CONFIG, {})), sending_over(lambda _: httpx.MockTransport(hang)):
        outcome = await attempt_operation(
            TaskHub("{}"), AttemptCall(operation=operation.to_json(), attempt=1)
        )
    assert isinstance(outcome, AttemptOutcome)
    assert circuits[called].seen == [CallHealth.SILENT if by_deadline else CallHealth.FAILURE]


@EACH_CALL
@pytest.mark.parametrize(("status", "health"), [(200, CallHealth.SUCCESS), (503, CallHealth.FAILURE)])
async def test_an_answer_in_the_last_instant_before_the_deadline_shows_what_it_says(
    circuits: dict[str, Circuit],
    monkeypatch: pytest.MonkeyPatch,
    function: Any,
    options: dict[str, Any],
    called: str,
    *,
    status: int,
    health: CallHealth,
) -> None:
    later = clock.monotonic_seconds() + 3_600

    def answer(_request: httpx.Request) -> httpx.Response:
        monkeypatch.setattr(clock, "monotonic_seconds", lambda: later)
        return httpx.Response(status)

    operation = an_operation_of(function, options, deadline_at=clock.now() + timedelta(seconds=5))
    with using(parse_config(CONFIG, {})), sending_over(lambda _: httpx.MockTransport(answer)):
        await attempt_operation(TaskHub("{}"), AttemptCall(operation=operation.to_json(), attempt=1))
    assert circuits[called].seen == [health]


async def test_a_failed_step_is_its_own_dependencys_by_its_table_and_its_policy(
    circuits: dict[str, Circuit],
) -> None:
    outcome: AttemptOutcome = await run(only_ship, status=404)
    assert (outcome.category, outcome.status_code) == (Category.TRANSIENT, 404)
    assert existing(outcome.step).policy.max_attempts == 9
    assert circuits["payments"].seen == [CallHealth.SILENT]
    assert circuits["warehouse"].seen == [CallHealth.FAILURE]  # as its table says


async def test_a_step_function_need_not_be_async(circuits: dict[str, Circuit]) -> None:
    async def only_ship(call: Call) -> str:
        return await call.step("ship", ship, order=7, dependency="warehouse")

    assert (await run(only_ship)).result == {"value": "7 key-1~ship"}
    assert circuits["warehouse"].seen == [CallHealth.SUCCESS]


async def test_a_step_whose_dependency_is_not_there_waits_until_it_is_back(
    circuits: dict[str, Circuit],
) -> None:
    """As an operation does whose own dependency is not."""

    async def lost(call: Call) -> None:
        with suppress(Exception):
            await call.step("ship", ask, "/parcels", dependency="removed")

    outcome: AttemptOutcome = await run(lost)
    assert "dependency removed of step ship is not configured here" in (outcome.error or "")
    assert (outcome.missing, outcome.counted, outcome.category) == (True, False, Category.TRANSIENT)
    assert circuits["payments"].seen == [CallHealth.SILENT]


async def test_the_status_names_the_dependency_that_a_step_waits_for() -> None:
    operation = an_operation(handler="order", request=None, input={})
    waiting = {"status": "waiting_circuit", "waits_for": "warehouse"}
    with using(parse_config(CONFIG, {})):
        document = await with_parts(running_document(operation, waiting))
    assert OperationDocument.read(document).waits_for == "warehouse"

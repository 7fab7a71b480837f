import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest
from azure.core.exceptions import ServiceRequestError

import durable_retry
from durable_retry.attempt import markers
from durable_retry.attempt.attempt import attempt_operation, make_attempt
from durable_retry.attempt.http_client import sending_over
from durable_retry.attempt.http_pool import PROGRESS
from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.base.names import Category
from durable_retry.circuit import cache
from durable_retry.features.handlers import gate as gates
from durable_retry.features.handlers import registry
from durable_retry.features.handlers.call_transport import CallTransport
from durable_retry.features.handlers.functions import Interruption
from durable_retry.features.handlers.starts import SENT
from durable_retry.features.limits.rules.limiter import acquire, give_back, leave
from durable_retry.features.limits.rules.settings import LimitSettings
from durable_retry.features.limits.rules.state import Limiter
from durable_retry.handlers import Call, Rejected, Transient
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.calls import CallHealth
from durable_retry.rules.circuit.retry_budget import BudgetPostponed
from durable_retry.rules.circuit.snapshot import Permitted
from durable_retry.rules.circuit.states import CircuitSettings
from durable_retry.rules.operations.operation import AttemptCall
from durable_retry.rules.retry.admission import AdmissionState, StepAdmission
from durable_retry.rules.retry.history import AttemptOutcome
from durable_retry.rules.retry.loop import BlockedStep, NeedsProbe
from durable_retry.rules.retry.policy import Timeouts
from durable_retry.rules.retry.slots import Leaving, NeedsSlot, Slot, SlotRequest
from durable_retry.runtime import clock
from durable_retry.storage import tables
from tests.integration.activities.test_step_elsewhere import OPEN, Circuit
from tests.support.builders import NOON, an_operation
from tests.support.narrowing import existing
from tests.support.tables import TablesInMemory

pytestmark = pytest.mark.usefixtures("no_handlers", "tables_in_memory")

UNAVAILABLE = 503
BUSY = NeedsSlot(LimitSettings(max_concurrency=1).to_json())
PROBE = NeedsProbe(CircuitSettings())


class DeathError(Interruption):
    """The process died: nothing of the attempt runs after it."""


class UniqueError(Exception):
    """What a database raises of its own, which the table of libraries has."""


UniqueError.__module__, UniqueError.__name__ = "psycopg.errors", "IntegrityError"


class Service:
    """Receives requests, and answers each with the next of its answers, the last one again and again."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self.answers: list[int | BaseException] = [200]

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.received.append(request.method)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        request.extensions[PROGRESS].sent = not isinstance(answer, httpx.ConnectError)
        if isinstance(answer, BaseException):
            raise answer
        return httpx.Response(answer, headers={"Retry-After": "1"} if answer == UNAVAILABLE else {})


@pytest.fixture(autouse=True)
def service() -> Iterator[Service]:
    service = Service()
    with sending_over(lambda _: httpx.MockTransport(service.answer)):
        yield service


def handled(function: Callable[[Call], Awaitable[Any]], **more: Any) -> dict[str, Any]:
    """Register a handler, and return the operation that runs it."""
    registry._handlers.clear()
    dependency = more.pop("dependency", "unsafe")
    durable_retry.operation("order", dependency=dependency, **more)(function)
    return {"handler": "order", "request": None, "input": {}, "dependency": dependency, "deadline_at": None}


async def run(function: Callable[[Call], Awaitable[Any]], attempt: int = 1, **more: Any) -> AttemptOutcome:
    return await make_attempt(an_operation(**handled(function, **more)), attempt)


def posting(then: BaseException | None) -> Callable[[Call], Awaitable[str]]:
    async def order(call: Call) -> str:
        await call.client.post("/charges")
        if then is not None:
            raise then
        return "done"

    return order


@pytest.mark.parametrize("dies", ["before it goes", "under way", "after its answer"])
async def test_what_a_process_that_died_may_have_sent_is_never_sent_again(
    dies: str, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.answers = [DeathError() if dies == "under way" else 200]
    with monkeypatch.context() as fault:
        if dies == "before it goes":
            fault.setattr(CallTransport, "_answer", AsyncMock(side_effect=DeathError))
        with pytest.raises(DeathError):
            await run(posting(DeathError()))
    sent = len(service.received)
    early = await run(posting(None))
    assert (early.category, early.counted) == (Category.AMBIGUOUS, False), "the first may still answer"
    until = existing(early.may_answer_until)
    with clock.reading(lambda: until):
        again = await run(posting(None))
    assert (again.category, again.counted) == (Category.AMBIGUOUS, True)
    assert len(service.received) == sent == (dies != "before it goes")


async def test_nothing_before_the_request_is_done_twice_either() -> None:
    async def order(call: Call) -> None:
        ran.append("begun")
        await call.client.post("/charges")
        raise DeathError

    ran: list[str] = []
    with pytest.raises(DeathError):
        await run(order)
    assert (await run(order)).category is Category.AMBIGUOUS
    assert ran == ["begun"]


@pytest.mark.parametrize("ended", ["done", Rejected("no")])
async def test_a_second_execution_returns_the_outcome_that_the_first_one_noted(
    ended: str | Rejected, service: Service
) -> None:
    then = ended if isinstance(ended, Rejected) else None
    first, second = await run(posting(then)), await run(posting(then))
    assert second.to_json() == first.to_json()
    assert (first.is_elsewhere, second.is_elsewhere) == (False, True), "the first has told the circuit"
    assert service.received == ["POST"]


@pytest.mark.parametrize(
    "options", [{"dependency": "safe"}, {"repeatable": True}], ids=["deduplicated", "repeatable"]
)
async def test_what_may_be_sent_twice_has_no_marker_of_its_own(
    options: dict[str, Any], service: Service, tables_in_memory: TablesInMemory
) -> None:
    assert (await run(posting(Transient("away")), **options)).category is Category.TRANSIENT
    assert [row["RowKey"] for row in tables_in_memory.rows(markers.TABLE)] == ["0000000001"]
    assert (await run(posting(None), 2, **options)).category is None
    assert service.received == ["POST", "POST"]


async def test_a_handler_that_only_reads_has_no_marker_of_its_own(tables_in_memory: TablesInMemory) -> None:
    async def order(call: Call) -> None:
        await call.client.get("/charges")
        await call.client.put("/charges/7")

    assert (await run(order)).category is None
    assert [row["RowKey"] for row in tables_in_memory.rows(markers.TABLE)] == ["0000000001"]


async def test_many_requests_at_once_cost_one_marker(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def order(call: Call) -> None:
        await asyncio.gather(*(call.client.post(f"/charges/{number}") for number in range(20)))
        await call.client.post("/charges/21")

    inserted, insert = list[str](), tables.insert_if_absent

    async def counted(table: str, row: tables.Row) -> bool:
        inserted.append(row["RowKey"])
        return await insert(table, row)

    monkeypatch.setattr(tables, "insert_if_absent", counted)
    assert (await run(order)).category is None
    assert (inserted, len(service.received)) == (["0000000001", "0000000001.sent"], 21)


async def test_of_two_executions_at_once_one_sends(service: Service) -> None:
    async def order(call: Call) -> None:
        await both.wait()
        await call.client.post("/charges")

    both = asyncio.Barrier(2)
    outcomes = await asyncio.gather(run(order), run(order))
    assert sorted(str(outcome.category) for outcome in outcomes) == ["None", "ambiguous"]
    assert service.received == ["POST"]


AFTER_AN_EFFECT = [Transient("away"), ValueError("what"), TypeError("bug"), TimeoutError("late")]


@pytest.mark.parametrize("then", AFTER_AN_EFFECT, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("options", [{}, {"repeatable": False}, {"repeatable": False, "dependency": "safe"}])
async def test_what_took_effect_is_not_sent_again_for_what_failed_after_it(
    then: Exception, options: dict[str, Any]
) -> None:
    outcome = await run(posting(then), **options)
    assert outcome.category is Category.AMBIGUOUS
    assert "took effect outside of a remembered step, then: " in (outcome.error or "")
    assert str(then) in (outcome.error or "")


async def test_a_read_that_fails_after_what_took_effect_does_not_repeat_it(service: Service) -> None:
    async def order(call: Call) -> None:
        await call.client.post("/charges")
        (await call.client.get("/charges/7")).raise_for_status()

    service.answers = [200, 503]
    outcome = await run(order)
    assert (outcome.category, outcome.status_code) == (Category.AMBIGUOUS, 503)


async def test_time_that_is_over_after_what_took_effect_does_not_repeat_it() -> None:
    async def order(call: Call) -> None:
        await call.client.post("/charges")
        await asyncio.Event().wait()

    operation = an_operation(**handled(order), timeouts=Timeouts(connect_seconds=0.2, attempt_seconds=0.2))
    assert (await make_attempt(operation, 1)).category is Category.AMBIGUOUS


async def test_a_handler_alone_can_say_that_what_took_effect_was_refused() -> None:
    assert (await run(posting(Rejected("declined")))).category is Category.BUSINESS_RULE
    assert (await run(posting(UniqueError("there")), 2)).category is Category.AMBIGUOUS


async def test_classify_says_it_for_the_handler() -> None:
    outcome = await run(posting(UniqueError("there")), dependency="ruled")
    assert (outcome.category, outcome.did_nothing) == (Category.BUSINESS_RULE, True)


async def test_what_a_library_refuses_where_nothing_was_sent_is_a_refusal() -> None:
    async def order(_call: Call) -> None:
        raise UniqueError("there")

    outcome = await run(order)
    assert (outcome.category, outcome.did_nothing) == (Category.BUSINESS_RULE, None)


@pytest.mark.parametrize("answer", [429, 503, 409, httpx.ConnectError("nobody listens")])
async def test_what_surely_did_nothing_is_sent_again(answer: int | BaseException, service: Service) -> None:
    async def order(call: Call) -> None:
        with suppress(httpx.ConnectError):
            await call.client.post("/charges")
        raise Transient("later")

    service.answers = [answer]
    for attempt in (1, 2):
        assert (await run(order, attempt)).category is Category.TRANSIENT
    assert service.received == ["POST", "POST"]


@pytest.mark.parametrize("then", [Transient("away"), Rejected("no")])
async def test_a_step_whose_request_took_effect_is_not_run_again_unless_its_result_is_remembered(
    then: Exception, service: Service
) -> None:
    async def order(call: Call) -> None:
        with suppress(Rejected):
            await call.step("charge", posting(then))
        raise Transient("later")

    assert (await run(order)).category is Category.AMBIGUOUS
    assert (await run(order, 2)).category is Category.AMBIGUOUS
    assert service.received == ["POST"]


async def test_what_a_remembered_step_sent_does_not_keep_its_handler_from_another_attempt(
    service: Service,
) -> None:
    async def lost(call: Call) -> str:
        with suppress(httpx.ReadError):
            await call.client.post("/charges")
        return "found by its reference"

    async def order(call: Call) -> None:
        await call.step("charge", posting(None))
        await call.step("find", lost)
        raise Transient("later")

    service.answers = [200, httpx.ReadError("lost")]
    for attempt in (1, 2):
        assert (await run(order, attempt)).category is Category.TRANSIENT
    assert service.received == ["POST", "POST"]


async def test_a_marker_that_cannot_be_written_lets_nothing_go_and_is_taken_over(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert, read = tables.insert_if_absent, tables.read_version

    async def away(table: str, row: tables.Row) -> bool:
        stored = await insert(table, row)
        if row["RowKey"].endswith(SENT):
            raise ServiceRequestError("away")
        return stored

    async def unread(table: str, partition: str, row: str) -> Any:
        if row.endswith(SENT):
            raise ServiceRequestError("away")
        return await read(table, partition, row)

    operation = an_operation(**handled(posting(None)))
    with monkeypatch.context() as fault:
        fault.setattr(tables, "insert_if_absent", away)
        fault.setattr(tables, "read_version", unread)
        outcome = await make_attempt(operation, 1)
    assert (outcome.category, outcome.counted, service.received) == (Category.TRANSIENT, False, [])
    assert outcome.unsent is not None
    assert (await make_attempt(operation, 1, unsent=[outcome.unsent])).category is None
    assert service.received == ["POST"]


async def test_our_own_storage_that_fails_after_what_took_effect_does_not_repeat_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def order(call: Call) -> None:
        await call.client.post("/charges")
        await call.step("next", posting(None))

    async def away(*_: Any) -> Any:
        raise ServiceRequestError("away")

    with monkeypatch.context() as fault:
        fault.setattr("durable_retry.features.handlers.handler.change_step", away)
        outcome = await run(order)
        assert outcome.category is Category.AMBIGUOUS
        assert "ServiceRequestError" in (outcome.error or "")
        service.answers = [429]
        with pytest.raises(ServiceRequestError):
            await run(order, 2)
    service.answers = [200]
    assert (await run(order, 2)).category is None, "nothing took effect: it is made again under its number"


class Gate:
    """The circuits of all dependencies: what each of the next requests to enter gets, the last for ever."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.circuit = list(answers), Circuit()
        self.states: list[AdmissionState] = []
        self.own = Circuit()
        self.limiter = Limiter()

    async def signalled(self, operation: str, message: Any) -> None:
        """Take what a step says to its limiter."""
        match operation:
            case "acquire":
                await self.ask(SlotRequest.from_json(message))
            case "leave":
                self.limiter = leave(self.limiter, Leaving.from_json(message), clock.now())
            case _:
                self.give_back(Slot.from_json(message))

    async def ask(self, request: SlotRequest) -> None:
        self.limiter, _ = acquire(self.limiter, request, clock.now())

    def give_back(self, slot: Slot) -> None:
        self.limiter = give_back(self.limiter, slot, clock.now())

    async def enter(self, _id: str, _attempt: int, state: AdmissionState, **_: Any) -> Any:
        self.states.append(state)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate(Permitted(epoch=1))

    def circuit_of(_hub: object, dependency: Any, _key: object) -> Circuit:
        if dependency.name != "lenient":
            return gate.own
        monkeypatch.setattr(gate.circuit, "enter", gate.enter)
        return gate.circuit

    monkeypatch.setattr(cache, "circuit_of", circuit_of)

    async def signal(_hub: object, _entity: object, operation: str, message: Any) -> None:
        await gate.signalled(operation, message)

    async def read(*_: object) -> str:
        return json.dumps(gate.limiter.to_json())

    monkeypatch.setattr(gates, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(TaskHub, "signal_entity", signal)
    monkeypatch.setattr(TaskHub, "read_entity", read)
    return gate


async def at_hub(function: Callable[[Call], Awaitable[Any]], *, step: bool = False, **more: Any) -> Any:
    seconds = more.pop("seconds", 10.0)
    limits = Timeouts(connect_seconds=min(seconds, 2.0), attempt_seconds=seconds)
    operation = an_operation(**handled(function, **more), timeouts=limits)
    held = StepAdmission("lenient", AdmissionState(waiting=True)) if step else None
    return await attempt_operation(
        TaskHub("{}"), AttemptCall(operation=operation.to_json(), attempt=1, step=held)
    )


def stepping(ran: list[str], method: str = "POST") -> Callable[[Call], Awaitable[str]]:
    async def order(call: Call) -> str:
        ran.append(method)
        with suppress(httpx.ReadError):
            await call.client.request(method, "/charges")
        return await call.step("ship", posting(None), dependency="lenient")

    return order


@pytest.mark.parametrize("options", [{}, {"repeatable": False}], ids=["not declared", "never twice"])
@pytest.mark.parametrize("answer", [200, httpx.ReadError("lost")], ids=["answered", "lost"])
@pytest.mark.parametrize("blocked", [OPEN, BUSY, PROBE], ids=["open", "limited", "half-open"])
async def test_a_step_that_must_wait_never_repeats_what_its_handler_sent(
    options: dict[str, Any], answer: int | BaseException, blocked: Any, service: Service, gate: Gate
) -> None:
    ran, gate.answers, service.answers = list[str](), [blocked], [answer]
    outcome = await at_hub(stepping(ran), seconds=0.3, **options)
    assert outcome.category is Category.AMBIGUOUS
    assert "a step at lenient may not start yet" in outcome.error
    shown = CallHealth.SILENT if answer == 200 else CallHealth.FAILURE
    assert gate.own.seen == [shown], "what the step waits for says nothing of the handler's dependency"
    assert (await at_hub(stepping(ran), step=True, **options)) == BlockedStep("lenient", blocked)
    gate.answers = [Permitted(epoch=1)]
    assert (await at_hub(stepping(ran), step=True, **options)).category is Category.AMBIGUOUS
    assert (ran, service.received) == (["POST"], ["POST"])
    assert gate.own.seen[1:] == [CallHealth.SILENT] * 2


async def test_a_step_whose_dependency_is_gone_never_repeats_what_its_handler_sent(gate: Gate) -> None:
    async def order(call: Call) -> str:
        await call.client.post("/charges")
        return await call.step("ship", posting(None), dependency="removed")

    outcome = await at_hub(order)
    assert (outcome.category, outcome.counted) == (Category.AMBIGUOUS, True)
    assert "dependency removed of step ship is not configured here" in outcome.error
    assert gate.own.seen == [CallHealth.SILENT]


async def test_a_step_waits_in_place_for_a_short_while_behind_what_must_not_be_sent_twice(
    service: Service, gate: Gate
) -> None:
    postponed = BudgetPostponed(until=NOON, reserved=True)
    ran, gate.answers = list[str](), [BUSY, OPEN, postponed, BUSY, Permitted(epoch=1)]
    assert (await at_hub(stepping(ran))).result == {"value": "done"}
    assert (ran, service.received) == (["POST"], ["POST", "POST"])
    assert [(state.waiting, state.promised_at is not None, bool(state.slot)) for state in gate.states] == [
        (False, False, False),
        (False, False, True),
        (True, False, True),
        (True, True, True),
        (True, True, True),
    ]
    assert len(gate.limiter.leases) == 0, "it is given back"


async def test_a_step_that_is_held_in_place_asks_until_a_slot_is_free(service: Service, gate: Gate) -> None:
    request = SlotRequest("another:1", 60.0, BUSY.settings, clock.now(), clock.now())
    gate.limiter, taken = acquire(Limiter(lasted_seconds=0.05), request, clock.now())
    assert isinstance(taken, Slot)
    asks = list[SlotRequest]()

    async def ask(request: SlotRequest) -> None:
        asks.append(request)
        if len(asks) == 3:
            gate.give_back(taken)
        await Gate.ask(gate, request)

    async def enter(_id: str, _attempt: int, state: AdmissionState, **_: Any) -> Any:
        return BUSY if state.slot is None else Permitted(epoch=1)

    gate.ask, gate.enter = ask, enter  # type: ignore[method-assign]
    ran = list[str]()
    assert (await at_hub(stepping(ran))).result == {"value": "done"}
    assert (ran, service.received) == (["POST"], ["POST", "POST"])
    assert [request.has_waited for request in asks] == [False, True, True]
    assert len({request.lease_id for request in asks}) == 1
    assert len(gate.limiter.leases) == 0


async def test_a_step_that_is_held_in_place_asks_again_where_its_signal_is_lost(
    service: Service, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = list[SlotRequest]()

    async def ask(request: SlotRequest) -> None:
        asks.append(request)
        if len(asks) > 1:
            await Gate.ask(gate, request)

    gate.ask, gate.answers = ask, [BUSY, Permitted(epoch=1)]  # type: ignore[method-assign]
    monkeypatch.setattr(gates, "_LOST", timedelta(0))
    assert (await at_hub(stepping([]))).result == {"value": "done"}
    assert service.received == ["POST", "POST"]
    first, second = asks
    assert (first.lease_id, first.asked_at < second.asked_at) == (second.lease_id, True)
    assert len(gate.limiter.leases) == 0, "it is given back"
    assert gate.limiter.told is None
    assert gate.limiter.lasted_seconds is not None


async def test_a_step_that_is_held_in_place_goes_where_the_limiter_fails(
    service: Service, gate: Gate
) -> None:
    async def ask(_request: SlotRequest) -> None:
        raise TaskHubUnavailableError("away")

    gate.ask = ask  # type: ignore[assignment, method-assign]
    gate.answers = [BUSY, Permitted(epoch=1)]
    assert (await at_hub(stepping([]))).result == {"value": "done"}
    assert gate.states[-1].slot == Slot(turn_seconds=0.0, fail_open=True)
    assert service.received == ["POST", "POST"]


async def test_a_handler_that_sent_nothing_of_the_kind_runs_again_once_its_step_is_admitted(
    gate: Gate, tables_in_memory: TablesInMemory
) -> None:
    ran, gate.answers = list[str](), [BUSY]
    for look in range(5):
        assert await at_hub(stepping(ran, "GET"), step=look > 0) == BlockedStep("lenient", BUSY)
    assert ran == ["GET"], "the looks after the first do not run it"
    assert tables_in_memory.rows(markers.TABLE) == []
    gate.answers = [Permitted(epoch=1), BUSY]
    assert (await at_hub(stepping(ran, "GET"), step=True)).result == {"value": "done"}
    assert ran == ["GET", "GET"]


async def test_a_place_that_no_step_takes_is_given_back(gate: Gate) -> None:
    async def order(_call: Call) -> str:
        return "needs it no more"

    assert (await at_hub(order, step=True)).result == {"value": "needs it no more"}
    assert [health.value for health in gate.circuit.seen] == ["silent"]


async def test_what_was_refused_before_a_step_had_to_wait_is_sent_again(
    service: Service, gate: Gate, tables_in_memory: TablesInMemory
) -> None:
    ran, gate.answers, service.answers = list[str](), [BUSY], [429]
    assert await at_hub(stepping(ran)) == BlockedStep("lenient", BUSY)
    assert tables_in_memory.rows(markers.TABLE) == []

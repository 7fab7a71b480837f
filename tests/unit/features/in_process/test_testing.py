from collections.abc import Generator
from datetime import timedelta
from typing import Any

import azure.durable_functions as df
import pytest
from durabletask import task
from durabletask.entities import EntityInstanceId

import durable_retry
from durable_retry.features.handlers import registry
from durable_retry.testing import FakeDependency, FakeStep, Slow, run_orchestrator

type Turns = Generator[task.Task[Any], Any, Any]

PLAIN = {"jitter": "none"}


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_handlers", {})


def checkout(context: task.OrchestrationContext, order: dict[str, Any]) -> Turns:
    try:
        charge = yield from durable_retry.call(
            context,
            dependency="payments",
            request={"path": "/charges", "json": {"amount": order["amount"]}},
            retry=PLAIN,
        )
    except durable_retry.OperationFailed as failed:
        return {"failed": failed.reason, "detail": failed.detail}
    return {"charge": charge["json"]["id"]}


async def test_a_request_is_retried_by_its_policy_and_its_result_is_read() -> None:
    payments = FakeDependency(503, {"id": "ch-1"})
    run = await run_orchestrator(checkout, {"amount": 5}, {"payments": payments})
    (operation,) = run.operations
    assert (run.result, operation.waits, run.seconds) == ({"charge": "ch-1"}, [2.0], 2.0)
    assert payments.keys() == [operation.key] * 2
    assert [request.method for request in payments.requests] == ["POST", "POST"]


async def test_what_is_refused_is_what_the_orchestrator_makes_of_it() -> None:
    run = await run_orchestrator(checkout, {"amount": 5}, {"payments": FakeDependency(422)})
    assert run.result["failed"] == "RejectedByDependency"
    unknown = await run_orchestrator(checkout, {"amount": 5})
    assert unknown.result["failed"] == "ValidationFailed"
    assert "payments" in unknown.result["detail"]
    without_amount = await run_orchestrator(checkout, {})
    assert isinstance(without_amount.error, KeyError)


async def test_a_function_runs_as_its_operation() -> None:
    async def ship(order: str, call: durable_retry.handlers.Call) -> str:
        answer = await call.client.post("/parcels", json={"order": order})
        answer.raise_for_status()
        return f"parcel {answer.json()['number']}"

    declared: Any = durable_retry.operation(dependency="warehouse", retry=PLAIN)(ship)

    def shipping(context: task.OrchestrationContext, order: str) -> Turns:
        parcel = yield from durable_retry.call(context, declared, order, key=f"ship-{order}")
        return parcel

    run = await run_orchestrator(shipping, "o-1", {"warehouse": FakeDependency(503, {"number": 7})})
    assert (run.result, run.operations[0].key) == ("parcel 7", "ship-o-1")


async def test_operations_side_by_side_end_by_their_own_time() -> None:
    def both(context: task.OrchestrationContext, _: None) -> Turns:
        first = durable_retry.call(context, dependency="slow", request={"path": "/a"})
        second = durable_retry.call(context, dependency="quick", request={"path": "/b"})
        tasks = [next(first), next(second)]
        winner = yield task.when_any(tasks)
        yield task.when_all(tasks)
        return tasks.index(winner)

    given = {"slow": FakeDependency(Slow(5)), "quick": FakeDependency(Slow(3))}
    run = await run_orchestrator(both, None, given)
    assert (run.result, run.seconds, len(run.operations)) == (1, 5.0, 2)


async def test_activities_timers_events_entities_and_children_are_stand_ins() -> None:
    app = df.DFApp()

    @app.activity_trigger(input_name="order")
    def reserve(order: str) -> str:
        return f"reserved {order}"

    async def ask(question: str) -> str:
        return f"{question} yes"

    @app.orchestration_trigger(context_name="context")  # type: ignore[arg-type] # the SDK takes both styles
    def first_style(context: df.DurableOrchestrationContext) -> Turns:
        order = context.get_input()
        context.set_custom_status("begun")
        seen = [(yield context.call_activity(reserve, order))]
        seen.append((yield context.call_sub_orchestrator("ask", "sure?")))
        cart = EntityInstanceId("cart", order)
        context.signal_entity(cart, "note", 1)
        seen.append((yield context.call_entity(cart, "total", None)))
        seen.append((yield context.wait_for_external_event("approval")))
        yield context.create_timer(context.current_utc_datetime + timedelta(hours=1))
        context.continue_as_new("next")
        return seen

    total = FakeStep(12)
    run = await run_orchestrator(
        first_style, "o-1", functions={"ask": ask, "cart.total": total}, events={"approval": True}
    )
    assert run.error is None
    assert run.result == ["reserved o-1", "sure? yes", 12, True]
    assert run.called == [("reserve", "o-1"), ("ask", "sure?"), ("cart.note", 1), ("cart.total", None)]
    assert (run.custom_status, run.continued_with, run.seconds) == ("begun", "next", 3600.0)


async def test_a_timer_ends_the_wait_for_an_event_that_never_comes() -> None:
    def approval(context: task.OrchestrationContext, _: None) -> Turns:
        with (yield context.lock_entities([EntityInstanceId("stock", "1")])):
            timer = context.create_timer(timedelta(minutes=5))
            heard = context.wait_for_external_event("approval")
            winner = yield task.when_any([heard, timer])
        if winner is heard:
            timer.cancel()
        return [winner is timer, context.new_uuid() != context.new_uuid(), context.is_replaying]

    run = await run_orchestrator(approval)
    assert (run.result, run.seconds) == ([True, True, False], 300.0)
    heard = await run_orchestrator(approval, events={"approval": "yes"})
    assert (heard.result[0], heard.seconds) == (False, 0.0)


async def test_a_failed_activity_raises_in_the_orchestrator() -> None:
    def failing(context: task.OrchestrationContext, _: None) -> Turns:
        try:
            yield context.call_activity("reserve", input={"n": 1})
        except task.TaskFailedError as error:
            return str(error)

    run = await run_orchestrator(failing, functions={"reserve": FakeStep(ValueError("sold out"))})
    assert run.result == "sold out"


async def test_an_orchestrator_without_waits_returns_at_once() -> None:
    run = await run_orchestrator(lambda context, given: [context.instance_id, given], 5, instance_id="i-1")
    assert (run.result, run.seconds) == (["i-1", 5], 0.0)


async def test_what_the_test_does_not_give_is_named() -> None:
    def lacking(context: task.OrchestrationContext, name: str) -> Turns:
        try:
            yield (
                context.call_activity(name)
                if name != "event"
                else context.wait_for_external_event("approval")
            )
        except Exception:  # noqa: BLE001 - what is lacking is the test's mistake, whatever is caught here
            return "caught"

    with pytest.raises(LookupError, match=r"'reserve' has no stand-in: give functions=\{'reserve': ...\}"):
        await run_orchestrator(lacking, "reserve")
    with pytest.raises(LookupError, match=r"events to give: \['approval'\]"):
        await run_orchestrator(lacking, "event")


async def test_a_declared_function_may_have_a_stand_in() -> None:
    def charge(order: str, amount: int) -> dict[str, str]:
        raise AssertionError(f"{order} was charged {amount}")

    declared: Any = durable_retry.operation(dependency="payments", retry=PLAIN)(charge)

    def pay(context: task.OrchestrationContext, _given: Any) -> Turns:
        return (yield from durable_retry.call(context, declared, "o-1", amount=5))

    stand_in = FakeStep(durable_retry.Transient("busy"), {"id": "ch-1"})
    run = await run_orchestrator(pay, functions={"charge": stand_in})
    assert (run.result, run.seconds) == ({"id": "ch-1"}, 2.0)
    assert stand_in.calls == [(("o-1", 5), {})] * 2


async def test_an_orchestrator_of_the_wrong_kind_is_told_what_to_write() -> None:
    def yields(context: task.OrchestrationContext, order: dict[str, Any]) -> Generator[Any, Any, Any]:
        return (yield checkout(context, order))

    async def awaits(_context: task.OrchestrationContext, _order: Any) -> None:
        return None

    run = await run_orchestrator(yields, {"amount": 5})
    assert "write `yield from durable_retry.call(...)`" in str(run.error)
    assert "is an `async def`: write `def`" in str((await run_orchestrator(awaits)).error)

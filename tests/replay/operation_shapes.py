"""What can happen in an operation: the shapes of which histories are recorded."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

from durable_retry.base import names
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import Category
from durable_retry.circuit.entity import wake
from durable_retry.features.fallback.names import FALLBACK, LEAVE_DEPENDENCY
from durable_retry.features.fallback.rules import Departure, Route, Terms
from durable_retry.features.lookup.names import LOOK_UP, LOOKUP
from durable_retry.features.order.store import join_lane, leave_lane, read_lane
from durable_retry.features.polling.names import POLLING
from durable_retry.features.polling.rules import Poll
from durable_retry.rules.circuit.retry_budget import BudgetPostponed
from durable_retry.rules.circuit.snapshot import Refused
from durable_retry.rules.circuit.states import CircuitSettings
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.rules.retry.loop import Blocked, NeedsProbe
from durable_retry.rules.retry.policy import RetryPolicy
from durable_retry.rules.retry.slots import NeedsSlot
from durable_retry.runtime import clock
from tests.replay.recording import Shape, Steer
from tests.support.builders import Activities, an_operation, failing, outcome
from tests.support.feature_parts import followed_by, in_order
from tests.support.hub import TaskHubStage
from tests.support.narrowing import existing


def _shape(operation: OperationInput, answer: Activities, steer: Steer | None = None) -> Shape:
    return Shape("op-test", {"operation": operation.to_json()}, answer, steer)


def _quick(**changes: Any) -> OperationInput:
    policy = RetryPolicy(strategy="fixed", initial_seconds=0.05, jitter="none", max_attempts=30)
    return replace(an_operation(), policy=policy, deadline_at=clock.now() + timedelta(hours=1), **changes)


async def _cancel(stage: TaskHubStage) -> None:
    while not stage.activities:  # noqa: ASYNC110 - the worker runs on threads of its own
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    await stage.binding.raise_event("op-test", names.CANCEL_EVENT, {})


async def _retry_now(stage: TaskHubStage) -> None:
    while not stage.activities:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    await stage.binding.raise_event("op-test", names.RETRY_NOW_EVENT, {"attempt": 2})


def _worker_failing_once() -> Activities:
    failures = iter([RuntimeError("the worker died")])

    def answer(name: str, given: dict[str, Any]) -> Any:
        failure = next(failures, None)
        if failure is not None:
            raise failure
        return failing(0)(name, given)

    return answer


def _held_up_once(stop: Callable[[], Blocked], then: Activities) -> Activities:
    """Hold the first run of the attempt up, and no later one."""
    stops = iter([stop])

    def answer(name: str, given: dict[str, Any]) -> Any:
        held = next(stops, None) if name == "attempt" else None
        return then(name, given) if held is None else {"stopped": held().to_json()}

    return answer


def _accepting(polls: int) -> Activities:
    """Accept the request of the attempt, and end the work behind it after so many polls."""
    asked = count(1)

    def answer(name: str, given: dict[str, Any]) -> Any:
        accepted = outcome(1, status_code=202, result={"status_code": 202, "headers": {"location": "/7"}})
        if name != "poll":
            return accepted if name == "attempt" else failing(0)(name, given)
        if next(asked) < polls:
            return {"place": "/7", "outcome": accepted}
        ended = outcome(1, status_code=200, result={"status_code": 200, "headers": {}})
        return {"place": "/7", "outcome": ended, "is_over": True}

    return answer


def _found_by_lookup() -> Activities:
    """Leave the end of the first attempt unknown, and find it by the second question."""
    asked = count(1)

    def answer(name: str, given: dict[str, Any]) -> Any:
        if name != LOOK_UP:
            return failing(1, Category.AMBIGUOUS, 504)(name, given)
        says = "found" if next(asked) > 1 else "not_found"
        said = {"says": says, "at": to_rfc3339(clock.now()), "settle_seconds": 1, "status_code": 200}
        result = {"status_code": 200, "headers": {}, "json": {"id": "ch_1"}}
        return outcome(given["number"], status_code=200, result=said | {"result": result})

    return answer


def _left(then: Activities) -> Activities:
    """Leave the dependency when its circuit holds the attempt up, and wait at the other one."""
    terms = Terms(
        policy=_quick().policy, timeouts=_quick().timeouts, downstream_key="key-1~at~spare", parts={}
    )
    departures = iter([Departure(to="spare", terms=terms), Departure(why="payments is open, too")])
    held = iter([True, True])

    def answer(name: str, given: dict[str, Any]) -> Any:
        if name == LEAVE_DEPENDENCY:
            return next(departures).to_json()
        is_held = name == names.ATTEMPT and next(held, False)
        return {"stopped": _refused_for(0.1).to_json()} if is_held else then(name, given)

    return answer


def _refused_for(seconds: float) -> Refused:
    base = clock.now() + timedelta(seconds=seconds)
    return Refused(base, 0, base, "the circuit is open: 10 of 10 calls in 30 s failed")


def _postponed() -> BudgetPostponed:
    return BudgetPostponed(clock.now() + timedelta(seconds=0.1), reserved=True)


async def _wake(stage: TaskHubStage) -> None:
    while not stage.activities:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    await wake(stage.binding, "payments", ["op-test"], clock.now())


async def _change_and_go_on(stage: TaskHubStage) -> None:
    while True:
        instance = await stage.binding.read_instance("op-test")
        if instance is not None and (instance.custom_status or {}).get("status") == "paused":
            break
        await asyncio.sleep(0.05)
    change = {"retry": {"initial_seconds": 1.0}, "deadline_seconds": 60.0, "priority": "high"}
    await stage.binding.raise_event("op-test", names.PAUSE_EVENT, {"at_once": True, "change": change})


async def _give_way(stage: TaskHubStage) -> None:
    """Stand in front of an operation's lane, and leave it a little later."""
    front = an_operation(operation_id="op-front", parts=in_order("customer-7"))
    await join_lane(stage.binding, front)
    await asyncio.sleep(2)
    lane = await read_lane(stage.binding, "customer-7")
    await leave_lane(stage.binding, lane, existing(lane.front)._replace(run=1), None)


def operation_shapes() -> dict[str, Shape]:
    """Return every shape by its name."""
    slow = RetryPolicy(strategy="fixed", initial_seconds=60.0, jitter="none")
    holding = replace(slow, max_attempts=1, on_exhausted="hold")
    slot, needed_slot = _shape(_quick(), failing(1)), NeedsSlot({"max_concurrency": 1})
    event = {"type": "charge.completed", "queue": "charge-events", "data": {"order": 42}}
    return {
        "healthy": _shape(_quick(), failing(0)),
        "retried": _shape(_quick(), failing(2)),
        "dead_lettered": _shape(_quick(), failing(9, Category.MALFORMED, 422)),
        "cancelled_while_waiting": _shape(replace(_quick(), policy=slow), failing(9), _cancel),
        "retried_now": _shape(replace(_quick(), policy=slow), failing(1), _retry_now),
        "worker_failed": _shape(_quick(), _worker_failing_once()),
        "with_events": _shape(_quick(**followed_by(event)), failing(0)),
        "continued_as_new": _shape(_quick(), failing(22)),
        "circuit_waited": _shape(_quick(), _held_up_once(lambda: _refused_for(0.1), failing(1))),
        "circuit_woken": _shape(_quick(), _held_up_once(lambda: _refused_for(600), failing(0)), _wake),
        "slot_needed": replace(slot, given=slot.given | {"needed_slot": needed_slot.to_json()}),
        "probed": _shape(_quick(), _held_up_once(lambda: NeedsProbe(CircuitSettings()), failing(0))),
        "held": _shape(replace(_quick(), policy=holding), failing(1), _change_and_go_on),
        "in_order": _shape(_quick(parts=in_order("customer-7")), failing(0)),
        "gone_to_fallback": _shape(_quick(parts={FALLBACK: Route(to="spare").to_json()}), _left(failing(0))),
        "looked_up": _shape(_quick(parts={LOOKUP: {}}), _found_by_lookup()),
        "polled": _shape(_quick(parts={POLLING: Poll(every_seconds=1.0).model_dump()}), _accepting(2)),
        "waited_in_order": _shape(
            _quick(parts=in_order("customer-7"), start_at=clock.now() + timedelta(seconds=1)),
            failing(0),
            _give_way,
        ),
        "budget_waited": _shape(_quick(), _held_up_once(_postponed, failing(0))),
    }

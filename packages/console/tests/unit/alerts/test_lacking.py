"""The handlers and dependencies that waiting operations need and the app does not have."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry.attempt.attempt import without_dependency, without_handler
from durable_retry.attempt.http_request import Plan, start_clock
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import OPERATION
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.settings.configuration import find_dependency, using
from durable_retry_console.alerts.health import Look, all_thresholds
from durable_retry_console.alerts.health import _lacking as find_lacking
from durable_retry_console.alerts.lacking import LackingLook, lacking_since
from durable_retry_console.alerts.rules import alert_changes
from tests.support.builders import NOON, after, an_operation
from tests.support.narrowing import existing

CONFIG = parse_config('[dependencies.payments]\nbase_url = "http://a.test"\n', {})


@pytest.fixture(autouse=True)
def configured() -> Iterator[None]:
    with using(CONFIG):
        yield


def waiting(for_what: str, since: datetime = NOON) -> dict[str, Any]:
    why = f"attempt 1 failed on this side and is not counted: {for_what} here any more"
    wait = {"began_at": to_rfc3339(since), "delay_reasons": [why, "exponential 32 s"]}
    return {"waits": [{"began_at": "?", "delay_reasons": ["exponential 2 s"]}, wait]}


async def look(hub: TaskHub, now: datetime, *shown: dict[str, Any]) -> None:
    one = LackingLook(hub, now)
    for status in shown:
        state = pb.OrchestrationState(instanceId="op-1")
        state.customStatus.value = json.dumps(status)
        await one.move_on(OPERATION, state)
    await one.end()


async def test_what_is_needed_and_not_there_is_seen_with_the_first_that_waits_for_it() -> None:
    hub = TaskHub("a")
    await look(
        hub,
        after(120),
        waiting("handler ship-order is not registered", after(30)),
        waiting("handler ship-order is not registered"),
        waiting("dependency gone is not configured", after(60)),
        {"waits": []} | {"last": "handler old is not registered here any more"},
        {"status": "running"},
    )
    assert lacking_since(hub, after(120)) == {"dependency gone": after(60), "handler ship-order": NOON}


async def test_the_words_of_an_attempt_without_its_handler_or_dependency_are_understood() -> None:
    hub, operation = TaskHub("a"), an_operation(dependency="gone", handler="ship-order", request=None)
    limit = start_clock(operation)
    plan = Plan(operation, 1, existing(find_dependency("payments")), limit)
    for outcome in (without_dependency(operation, 1, limit), without_handler(plan)):
        wait = {"began_at": to_rfc3339(NOON), "delay_reasons": [f"not counted: {outcome.error}"]}
        await look(hub, NOON, {"waits": [wait]})
    assert list(existing(lacking_since(hub, NOON))) == ["dependency gone", "handler ship-order"]


async def test_what_the_app_has_again_lacks_no_more_although_operations_still_wait() -> None:
    hub = TaskHub("a")
    await look(hub, NOON, waiting("dependency payments is not configured"))
    assert lacking_since(hub, NOON) == {}


async def test_what_nobody_needs_any_more_is_forgotten() -> None:
    hub = TaskHub("a")
    await look(hub, NOON, waiting("dependency gone is not configured"))
    later = NOON + timedelta(minutes=4)
    await look(hub, later)
    assert list(existing(lacking_since(hub, later))) == ["dependency gone"]
    later = NOON + timedelta(minutes=5)
    await look(hub, later)
    assert lacking_since(hub, later) == {}


async def test_a_process_that_has_not_looked_lately_ends_no_alert() -> None:
    hub, silent = TaskHub("a"), TaskHub("b")
    await look(hub, NOON, waiting("dependency gone is not configured"))
    for one in (Look(hub, after(301), all_thresholds()), Look(silent, NOON, all_thresholds())):
        await find_lacking(one)
        assert [metric.value for metric in one.metrics.values()] == [None]


async def test_an_alert_names_what_is_missing_and_says_what_to_do() -> None:
    hub = TaskHub("a")
    await look(hub, NOON, waiting("handler ship-order is not registered"))
    one = Look(hub, after(120), all_thresholds())
    await find_lacking(one)
    (alert,) = alert_changes({}, one.metrics.values(), NOON)
    assert alert.text == (
        "Operations wait for what this app does not have (handler ship-order): 2 min, "
        "over the threshold of 1 min. "
        "Deploy it, or give a dependency that was renamed its earlier name by `was`."
    )

"""Calls whose steps are cut short, and whose reports come late, twice or never: each seed is one life.

Whatever happens, the operation is started once, and the caller is told how it ended.
"""

from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest

from activities.calls import look_at_call, start_call
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import OperationState
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.settings.configuration import using
from orchestrators.call import call_operation
from tests.fault.app.workflow_items import PartHub
from tests.support.builders import NOON
from tests.support.cuts import Activity, PartStage, Turns, on_the_clock_of

CONFIG = parse_config('[dependencies.payments]\nbase_url = "https://payments.example.com"', {})
CALL = {"dependency": "payments", "request": {"method": "POST", "path": "/charges"}}


def lived(
    seed: int,
    document: dict[str, Any],
    *,
    slow: bool = False,
    before: PartHub | None = None,
    since: datetime = NOON,
) -> tuple[dict[str, Any], PartHub]:
    """Play a call to its end.

    Args:
        before: Where earlier calls were played; None when there were none.
        since: When the caller began. Every operation ends at noon.
    """
    rng = Random(seed)  # noqa: S311 - a seeded simulation
    fate = OperationState.SUCCEEDED if seed % 2 else OperationState.DEAD_LETTERED
    hub = before or PartHub(lambda _: fate, rng, cut_ratio=0.2)
    answers: dict[str, Activity] = {
        "start_call": lambda given: start_call(given, TaskHub("hub")),
        "look_at_call": lambda given: look_at_call(given, TaskHub("hub")),
    }
    steps = Turns(answers, twice=seed % 3 == 0)
    name = "call-1" if before is None else "call-2"
    keys = ["checkout/order-7/1", f"checkout/order-7/{name}/1"]
    given = {"document": document, "since": to_rfc3339(since), "keys": keys}
    stage = PartStage(call_operation, name, given, steps.answer)
    turns = iter(range(1000))
    stage.before_turn = lambda _: None if next(turns) < 60 and slow else hub.move_on(stage)
    with hub.in_place(), using(CONFIG), on_the_clock_of(stage):
        ended = stage.run()
    return ended, hub


@pytest.mark.parametrize("seed", range(40))
def test_a_call_starts_its_operation_once_and_tells_how_it_ended(seed: int) -> None:
    ended, hub = lived(seed, CALL)
    assert hub.started == ["checkout/order-7/1"]
    assert ended["document"]["status"] == ("succeeded" if seed % 2 else "dead_lettered")


@pytest.mark.parametrize("seed", range(40))
def test_a_later_execution_of_the_caller_starts_an_operation_of_its_own(seed: int) -> None:
    first, hub = lived(seed, CALL)
    second, _ = lived(seed, CALL, before=hub, since=NOON + timedelta(hours=1))
    assert hub.started == ["checkout/order-7/1", "checkout/order-7/call-2/1"]
    assert [ended["document"]["key"] for ended in (first, second)] == hub.started


@pytest.mark.parametrize("seed", range(6))
def test_a_call_that_takes_long_continues_as_new_and_starts_nothing_again(seed: int) -> None:
    ended, hub = lived(seed, {**CALL, "key": "k-1"}, slow=True)
    assert hub.started == ["k-1"]
    assert ended["document"]["key"] == "k-1"


@pytest.mark.parametrize("seed", range(6))
def test_a_call_that_is_not_valid_starts_nothing(seed: int) -> None:
    ended, hub = lived(seed, {**CALL, "dependency": "paiments"})
    assert hub.started == []
    assert [problem["pointer"] for problem in ended["problems"]] == ["/dependency"]


@pytest.mark.parametrize("seed", range(6))
def test_the_result_of_a_key_is_taken_unless_it_is_older_than_the_caller(seed: int) -> None:
    _, hub = lived(seed, {**CALL, "key": "k-1"})
    taken, _ = lived(seed, {**CALL, "key": "k-1"}, before=hub)
    assert taken["document"]["key"] == "k-1"
    refused, _ = lived(seed, {**CALL, "key": "k-1"}, before=hub, since=NOON + timedelta(hours=1))
    (problem,) = refused["problems"]
    assert problem["pointer"] == "/key"
    assert "ended at 2026-11-21T12:00:00Z, before the orchestration that calls began" in problem["detail"]
    assert hub.started == ["k-1"]


@pytest.mark.parametrize("seed", range(20))
def test_a_call_that_starts_again_takes_its_own_result_whatever_the_clocks_say(seed: int) -> None:
    ended, _ = lived(seed, {**CALL, "key": "k-1"}, since=NOON + timedelta(hours=1))
    assert "document" in ended

import json
from datetime import timedelta
from typing import Any, Final

import pytest
from durabletask.internal import orchestrator_service_pb2 as pb

from durable_retry.base.names import OPERATION, Category, DeadLetterReason
from durable_retry.features.holding.look import HeldLook, held_operations
from durable_retry.features.holding.rules import held_since, held_until, pause_in_place_of
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.retry.decide import DeadLetter
from durable_retry.rules.retry.policy import RetryPolicy
from tests.support.builders import NOON, after

HELD: Final = {
    "action": "pause",
    "at": "2026-11-21T12:00:00Z",
    "by": "the policy",
    "reason": "RetriesExhausted",
}
SHOWN: Final = {"status": "paused", "actions": [HELD]}


@pytest.mark.parametrize("reason", DeadLetterReason)
def test_only_what_more_attempts_or_more_time_may_help_is_held(reason: DeadLetterReason) -> None:
    letter = DeadLetter(Category.TRANSIENT, reason, "it failed")
    until = held_until(RetryPolicy(on_exhausted="hold", hold_seconds=60.0), letter, NOON)
    is_held = reason in {"RetriesExhausted", "DeadlineExceeded"}
    assert until == (after(60) if is_held else None)


def test_why_it_is_held_is_no_longer_than_a_reason_may_be() -> None:
    letter = DeadLetter(Category.TRANSIENT, DeadLetterReason.RETRIES_EXHAUSTED, "x" * 500)
    request = pause_in_place_of(letter)
    assert (request["by"], len(request["reason"])) == ("the policy", 200)
    assert request["reason"].startswith("RetriesExhausted: xxx")


@pytest.mark.parametrize(
    "shown",
    [
        {},
        {"status": "paused"},
        {"status": "paused", "actions": []},
        {"status": "paused", "actions": "the policy"},
        {"status": "paused", "actions": [HELD | {"by": "ada"}]},
        {"status": "paused", "actions": [HELD, {"action": "resume", "by": "ada"}]},
        SHOWN | {"status": "running"},
    ],
)
def test_what_a_person_paused_or_resumed_is_not_held(shown: dict[str, Any]) -> None:
    assert held_since(shown) is None
    assert held_since(SHOWN) == NOON


def a_state(name: str, shown: dict[str, Any]) -> pb.OrchestrationState:
    state = pb.OrchestrationState(instanceId=name)
    state.customStatus.value = json.dumps(shown)
    return state


async def look(hub: TaskHub, minutes: float, **shown: dict[str, Any]) -> None:
    each = HeldLook(hub, NOON + timedelta(minutes=minutes))
    for name, of_one in shown.items():
        await each.move_on(OPERATION, a_state(name, of_one))
    await each.end()


def held(hub: TaskHub, minutes: float) -> list[str] | None:
    seen = held_operations(hub, NOON + timedelta(minutes=minutes))
    return None if seen is None else list(seen)


async def test_a_look_sees_what_is_held_the_first_first() -> None:
    hub = TaskHub("a")
    assert held(hub, 0) is None
    later = {"status": "paused", "actions": [HELD | {"at": "2026-11-21T12:00:05Z"}]}
    await look(hub, 1, later=later, first=SHOWN, other={"status": "running"})
    assert held(hub, 1) == ["first", "later"]
    assert held_operations(hub, after(60)) == {"first": NOON, "later": after(5)}


async def test_what_goes_on_is_held_no_more_and_what_is_not_seen_has_ended() -> None:
    hub = TaskHub("b")
    await look(hub, 1, resumed=SHOWN, ended=SHOWN)
    await look(hub, 2, resumed={"status": "running", "heartbeat": "the policy"})
    assert held(hub, 2) == ["ended"]
    await look(hub, 6)
    assert held(hub, 6) == []


async def test_nothing_is_known_where_nobody_has_looked_lately() -> None:
    hub = TaskHub("c")
    await look(hub, 1)
    assert (held(hub, 6), held(hub, 6.1)) == ([], None)

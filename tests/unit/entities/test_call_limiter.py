from datetime import datetime, timedelta
from typing import Any

from azure.durable_functions.testing import execute_entity
from azure.durable_functions.testing.entity import EntitySignalAction, OrchestrationStartAction

from durable_retry.app import harden_runtime
from durable_retry.base.json_forms import from_ms, to_ms
from durable_retry.features.limits.rules.settings import LimitSettings, ReadLimits
from durable_retry.rules.retry.slots import SlotRequest
from durable_retry.runtime import clock
from entities.call_limiter import CallLimiter
from tests.support.builders import NOON

ONE_AT_ONCE = ReadLimits.of(LimitSettings(max_concurrency=1), NOON)


def run(operation: str, request: dict[str, Any], state: Any = None, at: datetime = NOON) -> Any:
    harden_runtime()
    with clock.reading(lambda: at):
        return execute_entity(CallLimiter, operation, request, state, entity_key="payments")


def asking(lease_id: str) -> dict[str, Any]:
    return SlotRequest(lease_id, 70.0, ONE_AT_ONCE.to_json(), asked_at=NOON, due_at=NOON).to_json()


def test_a_slot_is_granted_once_until_it_is_given_back() -> None:
    first = run("acquire", asking("a:1"))
    assert first.get_result() == {"kind": "slot", "lease_id": "a:1", "asked_at": to_ms(NOON)}
    second = run("acquire", asking("b:1"), first.get_state())
    assert second.get_result()["kind"] == "postponed"
    freed = run("give_back", first.get_result(), second.get_state())
    assert run("acquire", asking("c:1"), freed.get_state()).get_result()["kind"] == "postponed"
    left = run("leave", {"lease_id": "b:1"}, freed.get_state())
    assert run("acquire", asking("c:1"), left.get_state()).get_result()["lease_id"] == "c:1"


def test_a_reset_forgets_who_waits() -> None:
    first = run("acquire", asking("a:1"))
    second = run("acquire", asking("b:1"), first.get_state())
    forgotten = run("reset", {}, second.get_state()).get_state()
    assert (forgotten["places"], forgotten["leases"]) == ([], first.get_state()["leases"])


def test_an_attempt_that_started_in_a_share_leaves_its_place_to_others() -> None:
    first = run("acquire", asking("a:1"))
    second = run("acquire", asking("b:1"), first.get_state())
    left = run("leave", {"lease_id": "b:1"}, second.get_state())
    assert (len(second.get_state()["places"]), left.get_state()["places"]) == (1, [])


def waiting(lease_id: str, state: Any) -> Any:
    """Return the state when one waits for a slot to be told that it is free."""
    request = asking(lease_id) | {"waiter": lease_id, "has_waited": True}
    return run("acquire", request, state).get_state()


def started(done: Any) -> list[Any]:
    return [each.get_input() for each in done.actions if isinstance(each, OrchestrationStartAction)]


def looks(done: Any) -> list[Any]:
    """Return when the entity looks again."""
    signals = [each for each in done.actions if isinstance(each, EntitySignalAction)]
    assert all(each.scheduled_time == from_ms(each.get_input()["at"]) for each in signals)
    return [each.scheduled_time for each in signals]


def test_where_nobody_will_come_for_a_slot_that_is_given_back_one_that_waits_is_told() -> None:
    first = run("acquire", asking("a:1"))
    state = waiting("b:1", first.get_state())
    freed = run("give_back", first.get_result(), state)
    assert started(freed) == [{"waiters": ["b:1"], "dependency": "payments"}]
    assert looks(freed) == [NOON + timedelta(seconds=2)]
    again = run("give_back", first.get_result(), freed.get_state())
    assert (started(again), looks(again)) == ([], []), "it is called by now"
    assert started(run("leave", {"lease_id": "c:1", "is_gone": True}, state)) == [], "one is lent"


def test_when_the_one_that_was_called_leaves_and_nothing_is_lent_the_next_one_is_told() -> None:
    first = run("acquire", asking("a:1"))
    state = waiting("c:1", waiting("b:1", first.get_state()))
    freed = run("give_back", first.get_result(), state)
    assert started(freed)[0]["waiters"] == ["b:1"]
    left = run("leave", {"lease_id": "b:1", "is_gone": True, "waiter": "b:1"}, freed.get_state())
    assert started(left) == [{"waiters": ["c:1"], "dependency": "payments"}]


def test_when_it_looks_and_nobody_came_others_are_told() -> None:
    first = run("acquire", asking("a:1"))
    freed = run("give_back", first.get_result(), waiting("c:1", waiting("b:1", first.get_state())))
    planned = {"at": to_ms(NOON + timedelta(seconds=2))}
    looked = run("look", planned, freed.get_state(), at=NOON + timedelta(seconds=2))
    assert started(looked) == [{"waiters": ["c:1", "b:1"], "dependency": "payments"}]
    behind = run("look", planned, freed.get_state(), at=NOON + timedelta(seconds=1))
    assert started(behind) == started(looked), "else a machine whose clock is behind would look for ever"
    assert run("look", planned, freed.get_state(), at=NOON).get_state() == looked.get_state()


def test_limits_that_were_changed_hold_for_those_who_wait_by_earlier_ones() -> None:
    first = run("acquire", asking("a:1"))
    state = waiting("c:1", waiting("b:1", first.get_state()))
    more = ReadLimits.of(LimitSettings(max_concurrency=2), NOON + timedelta(seconds=1))
    changed = run("change", more.to_json(), state)
    assert started(changed) == [{"waiters": ["b:1"], "dependency": "payments"}]
    again = asking("b:1") | {"waiter": "b:1", "asked_at": to_ms(NOON + timedelta(seconds=1))}
    second = run("acquire", again, changed.get_state())
    assert second.get_result()["kind"] == "slot", "it asks by the earlier limits"
    earlier = ReadLimits.of(LimitSettings(max_concurrency=9), NOON)
    assert started(run("change", earlier.to_json(), second.get_state())) == []
    assert run("change", more.to_json()).get_state()["places"] == [], "nobody has asked"


def test_after_a_reset_those_who_wait_ask_again() -> None:
    first = run("acquire", asking("a:1"))
    done = run("reset", {}, waiting("b:1", first.get_state()))
    assert (started(done), looks(done)) == ([{"waiters": ["b:1"], "dependency": "payments"}], [])

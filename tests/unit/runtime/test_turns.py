"""What an operation does when a limit of its dependency holds it up."""

from datetime import timedelta
from typing import Any

import pytest

from durable_retry.engine.base.json_forms import from_rfc3339
from durable_retry.engine.limits.limiter import Limiter, SlotRequest, acquire
from durable_retry.engine.limits.settings import LimitSettings, NeedsSlot
from durable_retry.engine.retry.admission import WITHOUT_THE_LIMITER, AdmissionState
from durable_retry.engine.retry.policy import Timeouts
from durable_retry.runtime.turns import ENTITY_CALLS
from tests.support.builders import NOON, Activities, an_operation, failing
from tests.support.stage import Stage, dying

ONE_AT_ONCE = LimitSettings(max_concurrency=1)
ONE_IN_TEN_SECONDS = LimitSettings(rate_per_second=0.1)


def limited(settings: LimitSettings, then: Activities) -> Activities:
    """Give what a worker without a share answers: an attempt goes with a slot only."""

    def answer(name: str, given: dict[str, Any]) -> Any:
        if name == "attempt":
            admission = AdmissionState.from_json(given["admission"])
            if admission.slot is None:
                return {"stopped": NeedsSlot(settings).to_json()}
        return then(name, given)

    return answer


def taken(settings: LimitSettings) -> Any:
    """Return a limiter's state after another operation took a slot."""
    request = SlotRequest("another:1", lease_seconds=5.0, settings=settings)
    return acquire(Limiter(), request, NOON)[0].to_json()


def run_of(stage: Stage) -> str:
    """Return the name of the run: an attempt of the same number in an earlier run may still hold a slot."""
    return stage.operation.in_run(stage.record["run"]).run_id


def test_an_attempt_takes_a_slot_and_gives_it_back() -> None:
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, failing(0)))
    assert stage.run()["status"] == "succeeded"
    assert [name for name, _ in stage.limiter_calls] == ["acquire", "give_back"]
    assert stage.limiter["leases"] == []


def test_every_attempt_takes_a_slot_of_its_own() -> None:
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, failing(2)))
    assert stage.run()["attempt_count"] == 3
    assert [name for name, _ in stage.limiter_calls] == ["acquire", "give_back"] * 3
    asked = [given["lease_id"] for name, given in stage.limiter_calls if name == "acquire"]
    assert asked == [f"{run_of(stage)}:{number}" for number in (1, 2, 3)]


def test_a_slot_that_a_worker_failed_with_is_given_back() -> None:
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, lambda _name, _given: OSError("gone")))
    stage.run_until_waiting()
    assert [name for name, _ in stage.limiter_calls] == ["acquire", "give_back"]


def test_an_operation_waits_until_a_slot_is_free() -> None:
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, failing(0)))
    stage.limiter = taken(ONE_AT_ONCE)
    shown = stage.run_until_waiting()
    assert (shown["status"], shown["attempt_count"]) == ("waiting_retry", 0)
    (wait,) = shown["waits"]
    assert wait["kind"] == "limit"
    assert "1 attempt at once" in wait["delay_reasons"][0]
    done = stage.run()
    assert (done["status"], done["attempt_count"]) == ("succeeded", 1)
    assert stage.now >= NOON + timedelta(seconds=5)


def test_a_rate_reserves_the_turn_so_that_it_is_asked_for_once() -> None:
    stage = Stage(an_operation(), limited(ONE_IN_TEN_SECONDS, failing(0)))
    stage.limiter = taken(ONE_IN_TEN_SECONDS)
    shown = stage.run_until_waiting()
    assert from_rfc3339(shown["next_attempt_at"]) == NOON + timedelta(seconds=10)
    assert stage.run()["status"] == "succeeded"
    asked = [given["reserved"] for name, given in stage.limiter_calls if name == "acquire"]
    assert asked == [False, True]


def test_a_limiter_that_fails_does_not_stop_calls() -> None:
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, failing(0)))
    stage.limiter = {"clock": "nonsense"}
    assert stage.run()["status"] == "succeeded"


def test_a_limiter_whose_worker_dies_is_asked_again() -> None:
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, failing(0)))
    stage.dead_batches = dying("acquire", 2)
    assert stage.run()["status"] == "succeeded"
    assert stage.now == NOON + timedelta(seconds=6)
    assert [name for name, _ in stage.limiter_calls] == ["acquire", "give_back"]
    (slot,) = [
        given["admission"]["slot"]
        for name, given in stage.activities
        if given.get("admission", {}).get("slot")
    ]
    assert slot["lease_id"] == f"{run_of(stage)}:1"


@pytest.mark.shows("P9", "W3")
def test_a_limiter_that_always_fails_does_not_hold_its_dependency_up_for_ever() -> None:
    stage = Stage(an_operation(), limited(ONE_AT_ONCE, failing(0)))
    stage.dead_batches = dying("acquire", 99)
    document = stage.run()
    assert document["status"] == "succeeded"
    assert document["attempts"][0]["delay_reasons"] == [WITHOUT_THE_LIMITER]
    assert (stage.now, stage.entity_calls) == (NOON + timedelta(seconds=30), ENTITY_CALLS)


def test_a_limiter_that_fails_is_not_asked_again_beyond_the_last_useful_start() -> None:
    soon = an_operation(deadline_at=NOON + timedelta(seconds=9), timeouts=Timeouts(connect_seconds=2))
    stage = Stage(soon, limited(ONE_AT_ONCE, failing(0)))
    stage.dead_batches = dying("acquire", 99)
    assert stage.run()["status"] == "succeeded"
    assert stage.now == NOON + timedelta(seconds=6)

from typing import Any, get_args

import pytest
from pydantic import TypeAdapter

from durable_retry.rules.retry.policy import (
    HOLD_SECONDS,
    PRESETS,
    UNLIMITED,
    Jitter,
    PresetName,
    RetryOverride,
    RetryPolicy,
    Strategy,
    Timeouts,
    overridden,
    override_problems,
    policy_from,
    policy_problems,
    policy_warnings,
    shortest_cap_seconds,
)

STANDARD = RetryPolicy()
UNTIL_DEADLINE = RetryPolicy(max_attempts=UNLIMITED)


def pointers_for(limits: RetryPolicy, **written: Any) -> list[str]:
    wanted = overridden(limits, written)
    return [problem.pointer for problem in override_problems(limits, wanted)]


def test_every_preset_has_a_reason_and_a_usable_policy() -> None:
    assert set(PRESETS) == set(get_args(PresetName.__value__))
    for preset in PRESETS.values():
        assert len(preset.reason) > 40
        assert policy_problems(preset.policy) == []
        assert preset.policy.strategy in get_args(Strategy.__value__)
        assert preset.policy.jitter in get_args(Jitter.__value__)


def test_the_webhook_preset_is_the_standard_webhooks_schedule() -> None:
    webhook = PRESETS["webhook"].policy
    assert list(webhook.schedule_seconds) == [5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400]
    assert webhook.max_attempts == 1 + len(webhook.schedule_seconds)


def test_the_defaults_are_those_of_the_contract() -> None:
    assert STANDARD.to_json() == {
        "strategy": "exponential",
        "max_attempts": 5,
        "initial_seconds": 2.0,
        "factor": 2.0,
        "max_seconds": 60.0,
        "schedule_seconds": [],
        "jitter": "full",
        "respect_retry_after": True,
        "max_retry_after_seconds": 300.0,
    }
    assert Timeouts().to_json() == {"connect_seconds": 2, "attempt_seconds": 10, "deadline_seconds": 3600}


def test_the_written_form_of_a_policy_has_the_same_keys_and_defaults() -> None:
    """An operation carries nothing of a hold that it does not have."""
    written = RetryOverride().model_dump()
    end = {"on_exhausted": "dead_letter", "hold_seconds": HOLD_SECONDS}
    assert written == STANDARD.to_json() | {"preset": "standard", **end}
    assert TypeAdapter(RetryPolicy).dump_python(STANDARD, mode="json") == STANDARD.to_json() | end


def test_a_preset_leaves_what_becomes_of_an_operation_in_the_end() -> None:
    holding = policy_from({"preset": "webhook", "on_exhausted": "hold", "hold_seconds": 60.0})
    assert (holding.on_exhausted, holding.hold_seconds, holding.max_attempts) == ("hold", 60.0, 10)
    for policy in (policy_from({"preset": "none"}, holding), overridden(holding, {"preset": "none"})):
        assert (policy.on_exhausted, policy.hold_seconds, policy.max_attempts) == ("hold", 60.0, 1)
    assert overridden(holding, {"on_exhausted": "dead_letter"}).on_exhausted == "dead_letter"


def test_what_an_operation_has_is_changed_key_by_key() -> None:
    present = RetryPolicy(max_attempts=3)
    changed = overridden(STANDARD, {"initial_seconds": 1.0}, present)
    assert changed == RetryPolicy(max_attempts=3, initial_seconds=1.0)


def test_more_attempts_are_no_more_than_without_a_limit() -> None:
    assert STANDARD.with_more_attempts(2).max_attempts == 7
    assert UNTIL_DEADLINE.with_more_attempts(2) == UNTIL_DEADLINE


def test_json_round_trips() -> None:
    for preset in PRESETS.values():
        assert RetryPolicy.from_json(preset.policy.to_json()) == preset.policy
    assert Timeouts.from_json(Timeouts(deadline_seconds=0).to_json()) == Timeouts(deadline_seconds=0)


def test_keys_lie_over_the_preset() -> None:
    policy = policy_from({"preset": "webhook", "max_attempts": 3, "schedule_seconds": [1, 2]})
    assert policy.strategy == "schedule"
    assert policy.max_attempts == 3
    assert policy.schedule_seconds == (1, 2)


def test_without_a_preset_the_base_is_changed() -> None:
    assert policy_from({"factor": 3.0}) == RetryPolicy(factor=3.0)
    assert policy_from({"factor": 3.0}, RetryPolicy(max_attempts=9)) == RetryPolicy(
        factor=3.0, max_attempts=9
    )


def test_a_schedule_needs_entries() -> None:
    assert [key for key, _ in policy_problems(RetryPolicy(strategy="schedule"))] == ["schedule_seconds"]


def test_an_operation_cannot_ask_to_be_held_without_the_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    absent: dict[str, str] = {}
    monkeypatch.setattr("durable_retry.plugins.names_of_absent", lambda: absent)
    assert pointers_for(STANDARD, on_exhausted="hold") == []
    absent["retry.on_exhausted"] = "holding"
    assert pointers_for(STANDARD, on_exhausted="hold") == ["/retry/on_exhausted"]


def test_attempts_are_counted_with_the_first() -> None:
    assert STANDARD.allows_another(4)
    assert not STANDARD.allows_another(5)
    assert UNTIL_DEADLINE.allows_another(10**9)


def test_an_operation_may_ask_for_less() -> None:
    assert pointers_for(STANDARD, max_attempts=3) == []
    assert pointers_for(STANDARD, initial_seconds=0.1, max_seconds=0.5, jitter="none") == []


@pytest.mark.parametrize("attempts", [6, UNLIMITED])
def test_an_operation_may_not_ask_for_more_attempts(attempts: int) -> None:
    assert pointers_for(STANDARD, max_attempts=attempts) == ["/retry/max_attempts"]


def test_an_unlimited_dependency_allows_any_number() -> None:
    assert pointers_for(UNTIL_DEADLINE, max_attempts=10**9) == []
    assert pointers_for(UNTIL_DEADLINE, max_attempts=UNLIMITED) == []


def test_unlimited_attempts_without_a_deadline_are_worth_a_warning() -> None:
    assert [key for key, _ in policy_warnings(UNTIL_DEADLINE, 0)] == ["max_attempts"]
    assert policy_warnings(UNTIL_DEADLINE, 60) == policy_warnings(STANDARD, 0) == []


def test_unlimited_attempts_keep_the_pace_of_the_dependency() -> None:
    assert pointers_for(UNTIL_DEADLINE, initial_seconds=1.0) == ["/retry/initial_seconds"]
    assert pointers_for(UNTIL_DEADLINE, max_seconds=1.0) == ["/retry/initial_seconds"]
    too_quick = pointers_for(UNTIL_DEADLINE, strategy="schedule", schedule_seconds=[60, 0])
    assert too_quick == ["/retry/schedule_seconds"]


def test_the_dependencys_wish_stays_respected() -> None:
    assert pointers_for(STANDARD, respect_retry_after=False) == ["/retry/respect_retry_after"]
    assert pointers_for(STANDARD, max_retry_after_seconds=10.0) == ["/retry/max_retry_after_seconds"]
    assert pointers_for(STANDARD, max_retry_after_seconds=900.0) == []


def test_a_dependency_that_ignores_wishes_lets_operations_ignore_them() -> None:
    careless = RetryPolicy(respect_retry_after=False)
    assert pointers_for(careless, respect_retry_after=False, max_retry_after_seconds=1.0) == []
    assert pointers_for(careless, preset="critical") == []


@pytest.mark.parametrize("name", sorted(PRESETS))
@pytest.mark.parametrize("limits", [STANDARD, PRESETS["rate_limited"].policy, UNTIL_DEADLINE])
def test_a_preset_is_lowered_to_what_the_dependency_allows(name: str, limits: RetryPolicy) -> None:
    assert pointers_for(limits, preset=name) == []


def test_the_shortest_wait_of_an_empty_schedule_is_none() -> None:
    assert shortest_cap_seconds(RetryPolicy(strategy="schedule")) == 0

from dataclasses import dataclass

import pytest

from tests.support.app import System


@dataclass(frozen=True)
class Case:
    path: str
    category: str
    reason: str
    attempts: int = 1
    dependency: str = "flaky"


NEVER_SUCCEEDING = [
    Case("/status/500", "transient", "RetriesExhausted", 3),
    Case("/echo", "transient", "RetriesExhausted", 3, "absent"),
    Case("/throttle/9?retry_after=0.1&form=ms", "throttled", "RetriesExhausted", 3),
    Case("/status/409", "business_rule", "RejectedByDependency"),
]


@pytest.mark.parametrize("case", NEVER_SUCCEEDING, ids=lambda case: f"{case.dependency}{case.path}")
@pytest.mark.shows("D5", "D11")
def test_a_failure_ends_as_its_category_says(system: System, key: str, case: Case) -> None:
    operation_id = system.accepted(key, case.path, dependency=case.dependency)
    ended = system.until(operation_id, "dead_lettered")
    assert ended["dead_letter"]["category"] == case.category
    assert ended["dead_letter"]["reason"] == case.reason
    assert ended["attempt_count"] == case.attempts
    assert [attempt["category"] for attempt in ended["attempts"]] == [case.category] * case.attempts
    if case.dependency != "absent":
        assert system.target.received(key)["count"] == case.attempts


@pytest.mark.parametrize(
    "path",
    [
        "/fail/1?status=502",
        "/fail/1?status=423&retry_after=0.1&form=ratelimit",
        "/hang/1?seconds=10",
        "/drop/1?when=after_body",
        "/drop/1?when=mid_response",
    ],
)
@pytest.mark.shows("D1", "D3")
def test_a_passing_trouble_is_retried_when_the_dependency_deduplicates(
    system: System, key: str, path: str
) -> None:
    done = system.until(system.accepted(key, path), "succeeded")
    assert [attempt["category"] for attempt in done["attempts"]] == ["transient", None]
    assert system.target.received(key)["count"] == 2

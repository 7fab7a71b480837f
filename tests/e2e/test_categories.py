"""Each kind of failure, caused by the target, and what becomes of it."""

from dataclasses import dataclass
from datetime import datetime

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
    Case("/status/408", "transient", "RetriesExhausted", 3),
    Case("/status/599", "transient", "RetriesExhausted", 3),
    Case("/echo", "transient", "RetriesExhausted", 3, "absent"),
    Case("/throttle/9?retry_after=0.1&form=ms", "throttled", "RetriesExhausted", 3),
    Case("/status/400", "malformed", "RejectedByDependency"),
    Case("/status/422", "malformed", "RejectedByDependency"),
    Case("/status/418", "malformed", "RejectedByDependency"),
    Case("/status/501", "malformed", "RejectedByDependency"),
    Case("/redirect/1", "malformed", "RejectedByDependency"),
    Case("/status/401", "unauthorized", "RejectedByDependency"),
    Case("/status/403", "unauthorized", "RejectedByDependency"),
    Case("/status/404", "not_found", "RejectedByDependency"),
    Case("/status/410", "not_found", "RejectedByDependency"),
    Case("/status/402", "business_rule", "RejectedByDependency"),
    Case("/status/409", "business_rule", "RejectedByDependency"),
]


def gap_seconds(system: System, key: str) -> float:
    """The time between the first two tries, as the target saw them."""
    first, second = (
        datetime.fromisoformat(one["received_at"]) for one in system.target.received(key)["tries"]
    )
    return (second - first).total_seconds()


@pytest.mark.parametrize("case", NEVER_SUCCEEDING, ids=lambda case: f"{case.dependency}{case.path}")
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
        "/fail/1?status=425",
        "/fail/1?status=404&retry_after=0.1&form=ms",
        "/fail/1?status=409&retry_after=0.1&form=ms",
        "/fail/1?status=423&retry_after=0.1&form=ratelimit",
        "/hang/1?seconds=10",
        "/slow/1?seconds=10",
        "/drop/1?when=before_body",
        "/drop/1?when=after_body",
        "/drop/1?when=mid_response",
    ],
)
def test_a_passing_trouble_is_retried_when_the_dependency_deduplicates(
    system: System, key: str, path: str
) -> None:
    done = system.until(system.accepted(key, path), "succeeded")
    assert [attempt["category"] for attempt in done["attempts"]] == ["transient", None]
    assert system.target.received(key)["count"] == 2


def test_a_conflict_after_a_timeout_of_the_same_key_is_no_refusal(system: System, key: str) -> None:
    operation_id = system.accepted(key, "/hang/1?seconds=10&then=409")
    ended = system.until(operation_id, "dead_lettered")
    assert ended["dead_letter"]["reason"] == "RetriesExhausted"
    assert [attempt["category"] for attempt in ended["attempts"]] == ["transient"] * 3
    assert ended["attempts"][-1]["status_code"] == 409


@pytest.mark.parametrize(
    "path", ["/hang/1?seconds=10", "/drop/1?when=after_body", "/drop/1?when=mid_response"]
)
def test_an_unsafe_request_whose_outcome_is_unknown_is_never_sent_again(
    system: System, key: str, path: str
) -> None:
    marked = f"{path}&case={key}"
    ended = system.until(system.accepted(key, marked, dependency="unsafe"), "dead_lettered")
    assert (ended["dead_letter"]["category"], ended["dead_letter"]["reason"]) == (
        "ambiguous",
        "AmbiguousOutcome",
    )
    queries = [one["query"] for one in system.target.received("")["tries"]]
    assert sum(key in query for query in queries) == 1


def test_a_safe_request_is_retried_without_deduplication(system: System, key: str) -> None:
    request = {"method": "GET", "json": None}
    operation_id = system.accepted(key, f"/drop/1?case={key}", dependency="unsafe", request=request)
    assert system.until(operation_id, "succeeded")["attempt_count"] == 2


@pytest.mark.parametrize(("form", "seconds"), [("seconds", 2), ("date", 3), ("ms", 1), ("ratelimit", 1)])
def test_a_requested_wait_is_kept_in_each_form(system: System, key: str, form: str, seconds: int) -> None:
    path = f"/fail/1?status=429&retry_after={seconds}&form={form}"
    done = system.until(system.accepted(key, path), "succeeded")
    assert gap_seconds(system, key) >= (
        seconds - 1 if form == "date" else seconds
    )  # A date has no fractions.
    assert done["attempts"][0]["category"] == "throttled"
    assert done["attempts"][0]["delay_reasons"] != []


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_503_that_names_a_wait_is_throttling(system: System, key: str, form: str) -> None:
    path = f"/fail/1?status=503&retry_after=2&form={form}"
    done = system.until(system.accepted(key, path), "succeeded")
    assert gap_seconds(system, key) >= 1
    assert done["attempts"][0]["category"] == "throttled"


def test_a_deadline_before_the_next_attempt_ends_it_without_the_wait(system: System, key: str) -> None:
    wait = {"initial_seconds": 600, "max_seconds": 600, "jitter": "none"}
    operation_id = system.accepted(key, "/fail/1", retry=wait, deadline_seconds=60)
    ended = system.until(operation_id, "dead_lettered")
    assert ended["dead_letter"]["reason"] == "DeadlineExceeded"
    assert ended["dead_letter"]["category"] == "deadline_exceeded"
    took = datetime.fromisoformat(ended["updated_at"]) - datetime.fromisoformat(ended["created_at"])
    assert took.total_seconds() < 60
    assert system.target.received(key)["count"] == 1


def test_a_long_requested_wait_does_not_pass_the_deadline(system: System, key: str) -> None:
    operation_id = system.accepted(key, "/throttle/1?retry_after=60", deadline_seconds=5)
    ended = system.until(operation_id, "dead_lettered")
    assert ended["dead_letter"]["reason"] == "DeadlineExceeded"


def test_a_garbled_answer_is_kept_as_text(system: System, key: str) -> None:
    done = system.until(system.accepted(key, "/garbled/1"), "succeeded")
    assert done["result"]["status_code"] == 200
    assert "json" not in done["result"]
    assert done["result"]["body"] == '{"id": "ch_1'


@pytest.mark.parametrize("size", [300_000, 5_000_000])
def test_a_huge_answer_is_cut_and_says_so(system: System, key: str, size: int) -> None:
    done = system.until(system.accepted(key, f"/huge/1?bytes={size}"), "succeeded")
    assert done["result"]["truncated"] is True
    assert done["result"]["body"] == '"' + "x" * (16 * 1024 - 1)
    assert "json" not in done["result"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(system: System, key: str, status: int) -> None:
    path = f"/redirect/1?to=/echo&status={status}"
    ended = system.until(system.accepted(key, path), "dead_lettered")
    assert ended["attempts"][0]["status_code"] == status
    assert [one["path"] for one in system.target.received(key)["tries"]] == ["/redirect/1"]

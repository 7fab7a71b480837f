"""What a policy would do, and what the dependencies are."""

from typing import Any

import pytest

from tests.e2e.conftest import SECRETS
from tests.support.app import System


def preview(system: System, question: dict[str, Any]) -> dict[str, Any]:
    answer = system.client.post("/api/policies/preview", json=question)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def test_a_dependencys_policy_is_previewed(system: System) -> None:
    shown = preview(system, {"dependency": "patient"})
    assert [wait["after_attempt"] for wait in shown["waits"]] == [1, 2]
    assert all(wait["least_seconds"] == wait["most_seconds"] == 3 for wait in shown["waits"])
    assert shown["total"] == {
        "least_seconds": 6,
        "expected_seconds": 6,
        "most_seconds": 6,
        "attempts_at_most_seconds": 3,
    }
    assert (shown["deadline_seconds"], shown["fits_deadline"]) == (120, True)


def test_a_policy_spelled_out_is_previewed(system: System) -> None:
    policy = {
        "strategy": "exponential",
        "initial_seconds": 1,
        "factor": 2,
        "max_seconds": 5,
        "jitter": "full",
    }
    shown = preview(system, {"retry": {**policy, "max_attempts": 5}})
    assert [wait["most_seconds"] for wait in shown["waits"]] == [1, 2, 4, 5]
    assert [wait["expected_seconds"] for wait in shown["waits"]] == [0.5, 1, 2, 2.5]
    assert {wait["least_seconds"] for wait in shown["waits"]} == {0}
    assert shown["total"]["most_seconds"] == 12


def test_a_preview_says_when_the_waits_do_not_fit_the_deadline(system: System) -> None:
    question = {"dependency": "flaky", "retry": {"initial_seconds": 60}, "deadline_seconds": 90}
    assert preview(system, question)["fits_deadline"] is False


def test_an_operation_waits_as_long_as_its_preview_says(system: System, key: str) -> None:
    retry = {"strategy": "exponential", "initial_seconds": 0.4, "jitter": "full"}
    waits = preview(system, {"dependency": "flaky", "retry": retry})["waits"]
    done = system.until(system.accepted(key, "/fail/2", retry=retry), "succeeded")
    planned = [attempt["next_delay_seconds"] for attempt in done["attempts"][:2]]
    assert all(
        wait["least_seconds"] <= seconds <= wait["most_seconds"]
        for wait, seconds in zip(waits, planned, strict=True)
    )


@pytest.mark.parametrize(
    ("question", "pointers"),
    [
        ({}, {""}),
        ({"dependency": "nowhere"}, {"/dependency"}),
        ({"retry": {"max_attempts": 0}}, {"/retry/max_attempts"}),
        ({"retry": {"jitter": "some", "factor": "two"}}, {"/retry/jitter", "/retry/factor"}),
        ({"retry": {"strategy": "schedule", "schedule_seconds": []}}, {"/retry/schedule_seconds"}),
        ({"retry": {}, "surprise": 1}, {"/surprise"}),
        ([], {""}),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(system: System, question: Any, pointers: set[str]) -> None:
    answer = system.client.post("/api/policies/preview", json=question)
    assert answer.status_code == 400, answer.text
    assert {error["pointer"] for error in answer.json()["errors"]} == pointers


def test_dependencies_are_shown_with_their_policies_and_without_secrets(tailored: System) -> None:
    answer = tailored.client.get("/api/dependencies")
    assert answer.status_code == 200
    shown = {one["name"]: one for one in answer.json()["items"]}
    assert sorted(shown) == ["endless", "flaky", "forgetful", "guarded", "once"]
    assert shown["endless"]["retry"]["max_attempts"] == -1
    assert shown["guarded"]["auth"]["header"] == "Authorization"
    assert shown["guarded"]["headers"]["Accept"] == "application/json"
    assert not [secret for secret in SECRETS if secret in answer.text]


@pytest.mark.parametrize("path", ["/echo", "/fail/9", "/status/400", "/drop/9"])
def test_no_secret_is_in_a_status_a_list_a_dead_letter_the_hub_or_the_log(
    tailored: System, key: str, path: str
) -> None:
    operation_id = tailored.accepted(key, path, dependency="guarded")
    tailored.until(operation_id, "succeeded" if path == "/echo" else "dead_lettered")
    places = [
        tailored.client.get(f"/api/operations/{operation_id}").text,
        tailored.client.get("/api/operations", params={"dependency": "guarded"}).text,
        tailored.client.get("/api/dead-letters", params={"dependency": "guarded"}).text,
        tailored.client.get(
            f"/runtime/webhooks/durabletask/instances/{operation_id}",
            params={"showHistory": "true", "showHistoryOutput": "true", "showInput": "true"},
        ).text,
        tailored.log(),
    ]
    assert operation_id in places[0]
    assert operation_id in places[3] or key in places[3]
    assert not [secret for secret in SECRETS for place in places if secret in place]

from typing import Any
from urllib.parse import quote

from scripts.processes import eventually
from tests.support.app import System


def accepted_by(place: str) -> str:
    """Return a path that answers 202 and names a place to ask."""
    return f"/redirect/9?status=202&to={quote(place)}"


def waiting(status: dict[str, Any]) -> dict[str, Any] | None:
    return status if status.get("waits") else None


def test_an_accepted_request_is_asked_for_until_it_has_ended(system: System, key: str) -> None:
    place = "/fail/2?status=202"
    operation_id = system.accepted(key, accepted_by(place), dependency="accepting")
    running = system.until(operation_id, "running")
    done = system.until(operation_id, "succeeded")
    assert running["operation_id"] == done["operation_id"]
    assert (done["result"]["json"]["method"], done["result"]["json"]["path"]) == ("GET", "/fail/2")
    assert [attempt["status_code"] for attempt in done["attempts"]] == [200]
    assert done["attempts"][0]["duration_ms"] >= 3_000
    (wait,) = done["waits"]
    assert (wait["kind"], wait["times"]) == ("accepted", 3)
    assert wait["delay_reasons"][0].startswith("accepted by accepting, asked again at ")
    methods = [each["method"] for each in system.target.received(key)["tries"]]
    assert methods == ["POST", "GET", "GET", "GET"]


def test_without_poll_a_202_is_a_success(system: System, key: str) -> None:
    done = system.until(system.accepted(key, accepted_by("/echo")), "succeeded")
    assert (done["result"]["status_code"], system.target.received(key)["count"]) == (202, 1)


def test_an_operation_says_itself_how_it_is_polled_and_can_be_cancelled(system: System, key: str) -> None:
    poll = {"every_seconds": 3600}
    operation_id = system.accepted(key, accepted_by("/echo"), poll=poll)
    status = eventually(lambda: waiting(system.status(operation_id)), "the wait for a poll")
    assert status["next_attempt_at"] == status["waits"][0]["until"]
    assert system.client.post(f"/api/operations/{operation_id}/cancel", json={}).status_code == 202
    ended = system.until(operation_id, "cancelled")
    assert (ended["may_have_acted"], system.target.received(key)["count"]) == (True, 1)


def test_a_person_has_it_asked_for_now(system: System, key: str) -> None:
    poll = {"every_seconds": 3600}
    operation_id = system.accepted(key, accepted_by("/echo"), poll=poll)
    eventually(lambda: waiting(system.status(operation_id)), "the wait for a poll")
    assert system.client.post(f"/api/operations/{operation_id}/retry-now").status_code == 202
    assert system.until(operation_id, "succeeded")["result"]["json"]["method"] == "GET"


def test_the_deadline_bounds_what_was_accepted(system: System, key: str) -> None:
    place = accepted_by("/fail/99?status=202")
    operation_id = system.accepted(key, place, dependency="accepting", deadline_seconds=4)
    letter = system.until(operation_id, "dead_lettered")["dead_letter"]
    assert letter["reason"] == "DeadlineExceeded"
    assert letter["detail"].startswith("it was accepted at ")


def test_a_place_at_another_host_is_not_asked(system: System, key: str) -> None:
    operation_id = system.accepted(key, accepted_by("http://169.254.169.254/x"), dependency="accepting")
    letter = system.until(operation_id, "dead_lettered")["dead_letter"]
    assert (letter["reason"], letter["category"]) == ("AmbiguousOutcome", "ambiguous")
    assert "is not at the host of accepting" in letter["detail"]

"""Sagas: steps in order, undone in reverse when one ends badly, and shown exactly."""

from typing import Any

import httpx
import pytest

from scripts.processes import eventually
from tests.support.app import System
from tests.support.semantics import Calls

OVER = {"succeeded", "compensated", "compensation_failed"}


def call(path: str, dependency: str = "flaky", query: dict[str, str] | None = None) -> dict[str, Any]:
    request = {"method": "POST", "path": path, "query": query or {}, "json": {}}
    return {"dependency": dependency, "request": request}


def step(
    name: str, path: str = "/echo", undo: str | None = "/echo", query: dict[str, str] | None = None
) -> dict[str, Any]:
    compensation = {} if undo is None else {"compensation": call(undo)}
    return {"name": name, "operation": call(path, query=query), **compensation}


def submitted(system: System, key: str, *steps: dict[str, Any]) -> httpx.Response:
    return system.client.post("/api/sagas", json={"steps": list(steps)}, headers={"Idempotency-Key": key})


def over(system: System, saga_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        answer = system.client.get(f"/api/sagas/{saga_id}")
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document if document["status"] in OVER else None

    return eventually(look, f"{saga_id} is over", within_seconds=60)


def tries(system: System, document: dict[str, Any], part: str | None = None) -> list[int]:
    """How often the target was asked, for each step, or for each compensation."""
    steps = document["steps"] if part is None else [each[part] for each in document["steps"] if each[part]]
    return [system.target.totals().get(each["key"], 0) for each in steps]


def test_a_saga_that_fails_at_its_fourth_step_undoes_the_others_in_reverse(system: System, key: str) -> None:
    steps = [step("reserve"), step("charge"), step("announce", undo=None), step("ship", "/status/422")]
    document = over(system, submitted(system, key, *steps).json()["saga_id"])
    assert document["status"] == "compensated"
    assert (document["stands"], document["undone"]) == (["announce"], ["reserve", "charge"])
    assert [each["status"] for each in document["steps"]] == [*["succeeded"] * 3, "dead_lettered"]
    assert [each["effect"] for each in document["steps"]] == ["undone", "undone", "stands", "none"]
    assert "RejectedByDependency" in document["steps"][3]["error"]
    undone = {
        each["name"]: system.target.received(each["compensation"]["key"])["tries"][0]["received_at"]
        for each in document["steps"][:2]
    }
    assert undone["charge"] < undone["reserve"]


@pytest.mark.shows("D19")
def test_a_compensation_that_cannot_succeed_is_a_dead_letter_and_the_others_still_run(
    system: System, key: str
) -> None:
    steps = [step("reserve"), step("charge", undo="/status/409"), step("ship", "/status/422")]
    document = over(system, submitted(system, key, *steps).json()["saga_id"])
    assert document["status"] == "compensation_failed"
    assert (document["stands"], document["undone"]) == (["charge"], ["reserve"])
    failed = system.status(document["steps"][1]["compensation"]["operation_id"])
    assert failed["dead_letter"]["reason"] == "CompensationFailed"
    assert document["saga_id"] in failed["dead_letter"]["detail"]


@pytest.mark.shows("D17")
def test_a_failed_step_is_undone_whose_earlier_attempt_may_have_acted(system: System, key: str) -> None:
    """The first try of `charge` loses its connection once it has been received, the second is refused."""
    steps = [step("reserve"), step("charge", "/drop/1", query={"then": "422"}), step("ship")]
    document = over(system, submitted(system, key, *steps).json()["saga_id"])
    assert document["status"] == "compensated"
    assert [each["effect"] for each in document["steps"]] == ["undone", "undone", "none"]
    assert tries(system, document) == [Calls(1), Calls(2), 0]
    assert tries(system, document, "compensation") == [Calls(1), Calls(1), 0]
    charge = system.status(document["steps"][1]["operation_id"])
    assert (charge["dead_letter"]["category"], charge["may_have_acted"]) == ("malformed", True)


def test_a_repeated_saga_is_the_same_saga(system: System, key: str) -> None:
    first = submitted(system, key, step("reserve"))
    document = over(system, first.json()["saga_id"])
    again = submitted(system, key, step("reserve"))
    assert (again.status_code, again.json()["saga_id"]) == (202, first.json()["saga_id"])
    assert again.headers["idempotent-replayed"] == "true"
    assert tries(system, over(system, again.json()["saga_id"])) == [Calls(1)]
    assert document["status"] == "succeeded"
    assert submitted(system, key, step("another")).status_code == 422
    assert document["key"] == key
    for path in ("sagas", "search"):
        found = system.client.get(f"/api/{path}", params={"key": key}).json()["items"]
        assert [(each.get("saga_id") or each["id"], each["key"]) for each in found] == [
            (document["saga_id"], key)
        ]


def with_result(name: str, value: Any, undo: Any = None) -> dict[str, Any]:
    def sending(sent: Any) -> dict[str, Any]:
        return {"dependency": "flaky", "request": {"method": "POST", "path": "/echo", "json": sent}}

    compensation = {} if undo is None else {"compensation": sending(undo)}
    return {"name": name, "operation": sending(value), **compensation}


def result_of(system: System, part: dict[str, Any]) -> Any:
    """Return the result of a step, which Azure Storage may store after the saga has heard of it."""
    return system.until(part["operation_id"], "succeeded")["result"]


def received_by(system: System, part: dict[str, Any]) -> Any:
    return result_of(system, part)["json"]["received"]


def test_a_step_and_a_compensation_use_the_results_of_earlier_steps(system: System, key: str) -> None:
    """This answer is above 4 KiB, so that it is stored apart, and above 16 KiB, so that it is cut."""
    taken = {"$result": "reserve#/json/received/room"}
    steps = [
        with_result("reserve", {"note": "x" * 20_000, "room": key}, undo={"free": taken}),
        with_result("charge", {"for": [taken]}),
        step("ship", "/status/422"),
    ]
    document = over(system, submitted(system, key, *steps).json()["saga_id"])
    assert (document["status"], document["undone"]) == ("compensated", ["reserve"])
    assert received_by(system, document["steps"][1]) == {"for": [key]}
    assert received_by(system, document["steps"][0]["compensation"]) == {"free": key}


def test_a_reference_carries_the_value_and_no_mask(system: System, key: str) -> None:
    """The target echoes what it was sent: a value of a header that is no secret, and the credential."""
    sent = {"origin": system.target.url, "key": "got sesame-open-4711"}
    steps = [
        with_result("reserve", sent),
        with_result("charge", {"for": {"$result": "reserve#/json/received/origin"}}),
        with_result("ship", {"$result": "reserve#/json/received/key"}),
    ]
    steps[0]["operation"]["dependency"] = "guarded"
    document = over(system, submitted(system, key, *steps).json()["saga_id"])
    reserved, charged = (result_of(system, done) for done in document["steps"][:2])
    assert reserved["json"]["received"] == sent | {"key": "got ***"}
    assert reserved["masked"] == ["/json/received/key"]
    assert charged["json"]["received"] == {"for": system.target.url}
    assert document["steps"][2]["error"].startswith(
        "ValidationFailed: /request/json: step reserve has no result at /json/rec"
    )
    assert tries(system, document) == [Calls(1), Calls(1), 0]


@pytest.mark.shows("D18")
def test_a_step_whose_result_is_not_there_is_a_dead_letter_before_it_runs(system: System, key: str) -> None:
    steps = [step("reserve"), with_result("charge", {"$result": "reserve#/json/nothing"})]
    document = over(system, submitted(system, key, *steps).json()["saga_id"])
    assert (document["status"], document["undone"]) == ("compensated", ["reserve"])
    assert document["steps"][1]["error"] == (
        "ValidationFailed: /request/json: step reserve has no result at /json/nothing, or too large a "
        "one, or one with the dependency's credential, which is not stored"
    )
    assert document["steps"][1]["effect"] == "none"
    listed = system.client.get("/api/dead-letters", params={"reason": "ValidationFailed"}).json()["items"]
    step_id = document["steps"][1]["operation_id"]
    (letter,) = [each["id"] for each in listed if each["operation_id"] == step_id]
    refused = system.client.post(f"/api/dead-letters/{letter}/replay", json={})
    assert [error["pointer"] for error in refused.json()["errors"]] == ["/request/json"]
    edited = {"request": {"json": {"for": "r-1"}}}
    assert system.client.post(f"/api/dead-letters/{letter}/replay", json=edited).status_code == 202


def restart(system: System, saga_id: str, **body: Any) -> httpx.Response:
    return system.client.post(f"/api/sagas/{saga_id}/restart", json=body)


def test_a_compensated_saga_is_restarted_and_what_was_undone_has_new_keys(system: System, key: str) -> None:
    ship = step("ship", "/fail/1", undo=None)
    ship["operation"]["retry"] = {"max_attempts": 1}
    steps = [
        with_result("reserve", {"room": key}, undo={}),
        step("announce", undo=None),
        ship,
        with_result("tell", {"$result": "reserve#/json/received/room"}),
    ]
    first = over(system, submitted(system, key, *steps).json()["saga_id"])
    assert first["status"] == "compensated", first
    assert (first["stands"], first["undone"], first["unknown"]) == (["announce"], ["reserve"], ["ship"])
    saga_id = first["saga_id"]
    letter = system.status(first["steps"][2]["operation_id"])["dead_letter"]["id"]
    unknown = restart(system, saga_id, from_step="pay")
    assert (unknown.status_code, unknown.json()["errors"][0]["pointer"]) == (400, "/from_step")

    answer = restart(system, saga_id, from_step="ship", note="mended")
    assert answer.status_code == 202, answer.text
    assert answer.json() == {
        "saga_id": saga_id,
        "restart": 1,
        "from_step": "reserve",
        "runs": ["reserve", "ship", "tell"],
        "keeps": ["announce"],
    }
    second = over(system, saga_id)
    assert second["status"] == "succeeded", second
    assert second["stands"] == ["reserve", "announce", "ship", "tell"]
    assert [(each["number"], each["note"]) for each in second["restarts"]] == [(1, "mended")]

    # Undone: once under its old key and once under a new one. In doubt: again under the same one.
    totals = system.target.totals()
    before, after = (document["steps"] for document in (first, second))
    assert [totals.get(each["key"], 0) for each in before] == [*map(Calls, (1, 1, 2, 1))]
    assert [totals.get(each["key"], 0) for each in after] == [Calls(1), Calls(1), 0, Calls(1)]
    assert [old["key"] == new["key"] for old, new in zip(before, after, strict=True)] == [
        *(False, True, False, True)
    ]
    assert received_by(system, after[3]) == key
    assert system.client.get(f"/api/dead-letters/{letter}").json()["status"] == "archived"
    assert restart(system, saga_id).status_code == 409
    acts = system.client.get("/api/activity").json()["items"]
    assert ("restarted the saga", saga_id) in [(each["what"], each["target"]["id"]) for each in acts]


def test_a_step_whose_dead_letter_was_replayed_since_stands(system: System, key: str) -> None:
    ship = step("ship", "/fail/1", undo=None)
    ship["operation"]["retry"] = {"max_attempts": 1}
    first = over(system, submitted(system, key, step("reserve"), ship).json()["saga_id"])
    operation_id = first["steps"][1]["operation_id"]
    letter = system.status(operation_id)["dead_letter"]["id"]
    assert system.client.post(f"/api/dead-letters/{letter}/replay", json={}).status_code == 202
    eventually(lambda: system.status(operation_id)["status"] == "succeeded", "the replay", within_seconds=60)
    answer = restart(system, first["saga_id"])
    assert (answer.json()["runs"], answer.json()["keeps"]) == (["reserve"], ["ship"])
    assert over(system, first["saga_id"])["stands"] == ["reserve", "ship"]


def test_the_dead_letter_of_a_step_that_never_began_is_archived_by_the_restart(
    system: System, key: str
) -> None:
    steps = [step("reserve"), with_result("charge", {"$result": "reserve#/json/nothing"})]
    first = over(system, submitted(system, key, *steps).json()["saga_id"])
    listed = system.client.get("/api/dead-letters", params={"reason": "ValidationFailed"}).json()["items"]
    refused = first["steps"][1]["operation_id"]
    (letter,) = [each["id"] for each in listed if each["operation_id"] == refused]
    answer = restart(system, first["saga_id"])
    assert answer.status_code == 202, answer.text
    assert system.client.get(f"/api/dead-letters/{letter}").json()["status"] == "archived"
    over(system, first["saga_id"])


def test_a_cancelled_compensation_in_doubt_is_confirmed_by_who_restarts(system: System, key: str) -> None:
    reserve, ship = step("reserve", undo="/fail/9"), step("ship", "/fail/1", undo=None)
    reserve["compensation"]["dependency"] = "patient"
    ship["operation"]["retry"] = {"max_attempts": 1}
    accepted = submitted(system, key, reserve, ship)
    assert accepted.status_code == 202, accepted.text
    saga_id = accepted.json()["saga_id"]

    def undoing() -> str | None:
        compensation = system.client.get(f"/api/sagas/{saga_id}").json()["steps"][0]["compensation"]
        found = system.client.get(f"/api/operations/{compensation['operation_id']}")
        waits = found.status_code == 200 and found.json()["status"] == "waiting_retry"
        return str(compensation["operation_id"]) if waits else None

    operation_id = eventually(undoing, "the compensation waits", within_seconds=60)
    assert operation_id is not None
    assert system.client.post(f"/api/operations/{operation_id}/cancel").status_code == 202
    first = over(system, saga_id)
    assert (first["status"], first["steps"][0]["effect"]) == ("compensation_failed", "unknown")
    # The saga may have heard of the cancelled one's end before that is written.
    eventually(lambda: "`confirmed`" in restart(system, saga_id).json()["detail"], "it is in doubt")
    wrong = restart(system, saga_id, confirmed={"ship": "undone"})
    assert [error["pointer"] for error in wrong.json()["errors"]] == ["/confirmed/ship"]
    answer = restart(system, saga_id, confirmed={"reserve": "undone"})
    assert (answer.status_code, answer.json()["runs"]) == (202, ["reserve", "ship"])
    second = over(system, saga_id)
    assert (second["status"], second["restarts"][0]["confirmed"]) == ("succeeded", {"reserve": "undone"})
    assert second["steps"][0]["key"] != first["steps"][0]["key"]

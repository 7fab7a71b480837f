from contextlib import suppress
from functools import partial
from typing import Any

import httpx
import pytest
from azure.core.exceptions import ResourceExistsError
from azure.data.tables import TableClient

from scripts.processes import eventually
from tests.support.app import FINISHED, System
from tests.support.azurite import Storage
from tests.support.semantics import Calls, is_on_azures_terms


def post(system: System, key: str, handler: str, given: Any, **more: Any) -> httpx.Response:
    return system.client.post(
        "/api/operations", json={"handler": handler, "input": given, "key": key, **more}
    )


def accepted(system: System, key: str, handler: str, given: Any, **more: Any) -> str:
    answer = post(system, key, handler, given, **more)
    assert answer.status_code == 202, answer.text
    operation_id: str = answer.json()["operation_id"]
    return operation_id


def order(key: str, **more: Any) -> dict[str, Any]:
    return {"order": key[-60:], "customer": "customer-1", "amount": 3, **more}


def test_the_shipped_handler_keeps_its_order_and_announces_it_with_the_result(
    tailored: System, tailored_storage: Storage, key: str
) -> None:
    given = order(key, path="/fail/1")
    operation_id = accepted(tailored, key, "place-order", given)
    done = tailored.until(operation_id, "succeeded")
    assert done["result"] == {"value": {"order": given["order"], "attempt": 2}}
    assert (done["dependency"], done["attempt_count"]) == ("flaky", 2)
    assert [event["type"] for event in done["events"]] == ["order.placed"]
    with TableClient.from_connection_string(tailored_storage.connection_string, "Orders") as table:
        kept = table.get_entity("customer-1", given["order"])
    assert (kept["amount"], kept["key"]) == (3, key)
    assert tailored.target.received(key)["count"] == 2


def test_a_row_is_changed_only_from_the_state_that_the_handler_names(
    tailored: System, tailored_storage: Storage, key: str
) -> None:
    keys = {"PartitionKey": "swaps", "RowKey": key[-60:]}
    with TableClient.from_connection_string(tailored_storage.connection_string, "Swaps") as table:
        with suppress(ResourceExistsError):
            table.create_table()
        table.upsert_entity({**keys, "status": "Pending", "amount": 5})
        ids = [accepted(tailored, f"{key}-{n}", "pay-order", {"order": keys["RowKey"]}) for n in (1, 2)]
        ends = [eventually(partial(finished, tailored, each), "its end") for each in ids]
        row = table.get_entity(*keys.values())
    assert (row["status"], row["amount"]) == ("Paid", 5)
    assert sorted(end["status"] for end in ends) == ["dead_lettered", "succeeded"]
    (lost,) = (end for end in ends if end["status"] == "dead_lettered")
    assert lost["dead_letter"]["reason"] == "RejectedByHandler"
    assert "status is 'Paid', not 'Pending'" in lost["dead_letter"]["detail"]


def finished(system: System, operation_id: str) -> dict[str, Any] | None:
    document = system.status(operation_id)
    return document if document["status"] in FINISHED else None


def steps_of(document: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [tuple(step.values()) for step in document["steps"]]


def test_a_step_is_remembered_while_a_later_one_is_retried_by_its_own_policy(
    tailored: System, key: str
) -> None:
    # The dependency's own policy has three attempts.
    done = tailored.until(accepted(tailored, key, "book-trip", {"hotel_attempts": 6}), "succeeded")
    assert done["result"]["value"] == {"flight": f"flight {key}~flight", "hotel": f"hotel {key}~hotel"}
    assert done["attempt_count"] == 6
    assert [list(step) for step in done["steps"]] == [["name", "status", "attempts", "result"]] * 2
    assert steps_of(done) == [
        ("flight", "succeeded", 1, f"flight {key}~flight"),
        ("hotel", "succeeded", 6, f"hotel {key}~hotel"),
    ]
    assert [tailored.target.received(f"{key}~{step}")["count"] for step in ("flight", "hotel")] == [
        Calls(1)
    ] * 2
    again = post(tailored, key, "book-trip", {"hotel_attempts": 6})
    assert (again.status_code, again.json()["steps"]) == (200, done["steps"])
    (listed,) = tailored.client.get("/api/operations", params={"key": key}).json()["items"]
    assert not {"steps", "steps_run", "input"} & listed.keys()


def replayed(system: System, document: dict[str, Any], **edits: Any) -> None:
    letter = document["dead_letter"]["id"]
    answer = system.client.post(f"/api/dead-letters/{letter}/replay", json=edits)
    assert answer.status_code == 202, answer.text


def test_a_replay_keeps_the_results_of_finished_steps_unless_its_input_is_edited(
    tailored: System, key: str
) -> None:
    given = {"hotel_attempts": 4, "max_attempts": 2}
    operation_id = accepted(tailored, key, "book-trip", given)
    failed = tailored.until(operation_id, "dead_lettered")
    assert failed["dead_letter"]["reason"] == "RetriesExhausted"
    assert [step[:3] for step in steps_of(failed)] == [("flight", "succeeded", 1), ("hotel", "failed", 2)]

    replayed(tailored, failed)
    first = failed["dead_letter"]["id"]
    again = eventually(
        lambda: letter_after(tailored, operation_id, first),
        "the replay has failed as well",
        within_seconds=30,
    )
    assert [step[:3] for step in steps_of(again)] == [("flight", "succeeded", 1), ("hotel", "failed", 3)]
    assert tailored.target.received(f"{key}~flight")["count"] == Calls(1)

    replayed(tailored, again, input={"hotel_attempts": 1})
    done = tailored.until(operation_id, "succeeded")
    assert [step[:3] for step in steps_of(done)] == [("flight", "succeeded", 1), ("hotel", "succeeded", 1)]
    # The input was edited, so the dependency gets new keys.
    assert not done["result"]["value"]["flight"].startswith(f"flight {key}~")


def test_a_replay_from_a_step_keeps_what_was_before_it_and_makes_the_rest_again(
    tailored: System, key: str
) -> None:
    operation_id = accepted(tailored, key, "book-trip", {"hotel_attempts": 4, "max_attempts": 2})
    failed = tailored.until(operation_id, "dead_lettered")
    letter = failed["dead_letter"]["id"]
    url = f"/api/dead-letters/{letter}/replay"
    unknown = tailored.client.post(url, json={"from_step": "car"})
    assert (unknown.status_code, unknown.json()["errors"]) == (
        400,
        [{"pointer": "/from_step", "detail": "is not remembered: there are flight, hotel"}],
    )

    replayed(tailored, failed, from_step="hotel", input={"hotel_attempts": 1})
    done = tailored.until(operation_id, "succeeded")
    assert [step[:3] for step in steps_of(done)] == [("flight", "succeeded", 1), ("hotel", "succeeded", 1)]
    assert done["result"]["value"]["flight"] == f"flight {key}~flight"
    assert tailored.target.received(f"{key}~flight")["count"] == Calls(1)
    assert tailored.client.get(f"/api/dead-letters/{letter}").json()["replays"][0]["from_step"] == "hotel"


def letter_after(system: System, operation_id: str, earlier: str) -> dict[str, Any] | None:
    document = system.status(operation_id)
    letter = document["dead_letter"]
    return document if letter is not None and letter["id"] != earlier else None


def sent(system: System, case: str) -> int:
    """How many requests without a key the target received for a case."""
    return sum(f"case={case}" in each["query"] for each in system.target.received("")["tries"])


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_a_handler_whose_step_waits_for_its_turn_sends_nothing_twice_and_runs_once_more(
    tailored: System, key: str, method: str
) -> None:
    cases = [f"{key[-40:]}-{number}" for number in range(6)]
    ids = [
        accepted(
            *(tailored, f"{key}-{number}", "ship-parcel", {"case": case, "method": method}),
            deadline_seconds=600,
        )
        for number, case in enumerate(cases)
    ]
    ended = [eventually(partial(ended_of, tailored, each), "it has ended", within_seconds=60) for each in ids]
    runs = [sent(tailored, case) for case in cases]
    if method == "GET":
        assert [document["status"] for document in ended] == ["succeeded"] * 6
        assert max(runs) <= 2 or is_on_azures_terms(), runs
        return
    assert runs == [1] * 6
    letters = [document["dead_letter"] for document in ended if document["dead_letter"] is not None]
    assert {letter["reason"] for letter in letters} <= {"AmbiguousOutcome"}


def ended_of(system: System, operation_id: str) -> dict[str, Any] | None:
    document = system.status(operation_id)
    return document if document["status"] in {"succeeded", "dead_lettered"} else None

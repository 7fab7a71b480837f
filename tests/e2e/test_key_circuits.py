from typing import Any

import httpx
import pytest

from scripts.processes import eventually
from tests.e2e.test_circuits import change_circuit, circuit, circuits, until_held
from tests.support.app import System

__all__ = ["circuits"]  # a fixture


def of_key(system: System, limit_key: str) -> dict[str, Any]:
    answer = system.client.get("/api/circuits/tenants", params={"limit_key": limit_key})
    view: dict[str, Any] = answer.raise_for_status().json()
    return view


def until_key(system: System, limit_key: str, state: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        view = of_key(system, limit_key)
        return view if view["state"] == state else None

    return eventually(look, f"the circuit of {limit_key} is {state}")


def test_a_credential_that_is_refused_stops_the_operations_of_its_key_alone(
    circuits: System, key: str
) -> None:
    revoked, other = f"{key}/revoked ü", f"{key}-other"
    ids = [
        circuits.accepted(f"{key}-{number}", "/fail/1?status=401", dependency="tenants", limit_key=revoked)
        for number in range(8)
    ]
    opened = until_key(circuits, revoked, "open")
    assert opened["limit_key"] == revoked
    assert opened["last_error"].startswith("401")

    def listed() -> dict[str, Any] | None:
        return next(iter(circuit(circuits, "tenants").get("limit_keys", ())), None)

    assert eventually(listed, "the dependency lists it")["limit_key"] == revoked
    done = circuits.accepted(f"{key}-b", "/echo", dependency="tenants", limit_key=other)
    assert not circuits.until(done, "succeeded").get("waits")
    assert circuit(circuits, "tenants")["state"] == of_key(circuits, other)["state"] == "closed"

    # On a slow host some are not refused before it opens: these fail as its probes, one after the other.
    ended = [circuits.until(each, "succeeded", within_seconds=90) for each in ids]
    waits = [wait for document in ended for wait in document.get("waits", ())]
    reasons = [reason for wait in waits for reason in wait["delay_reasons"]]
    assert any(reason.startswith(f"tenants for {revoked} answers 401") for reason in reasons), reasons
    until_key(circuits, revoked, "closed")
    eventually(lambda: "limit_keys" not in circuit(circuits, "tenants"), "no key is listed any more")


def test_a_credential_of_a_key_that_is_refused_opens_its_circuit_at_once_and_names_it(
    circuits: System, key: str
) -> None:
    paths = {f"{key}/revoked": "/fail/1?status=401", f"{key}-other": "/echo"}
    ids = {
        each: [circuits.accepted(f"{each}-{n}", path, dependency="leased", limit_key=each) for n in range(4)]
        for each, path in paths.items()
    }
    revoked, other = ids

    def refused() -> list[tuple[str, str]] | None:
        keys = circuit(circuits, "leased").get("limit_keys", ())
        return [(one["limit_key"], one["credential_refused_by"]) for one in keys] or None

    assert eventually(refused, "the dependency lists it") == [(revoked, "401")]
    waits = [wait for each in ids[revoked] for wait in circuits.until(each, "succeeded").get("waits", ())]
    reasons = [reason for wait in waits for reason in wait["delay_reasons"]]
    assert f"the circuit is open: the credential is refused (401) (limit key {revoked})" in reasons
    assert {circuits.until(each, "succeeded")["attempt_count"] for each in (*ids[revoked], *ids[other])} == {
        1
    }


def test_closing_the_circuit_of_a_key_wakes_its_operations_and_a_hold_of_the_dependency_holds_every_key(
    circuits: System, key: str
) -> None:
    keys = [f"{key}-a", f"{key}-b"]
    for each in keys:
        change_circuit(circuits, "tenants", "open", reason="maintenance", for_seconds=600, limit_key=each)
        until_key(circuits, each, "forced_open")
    first, second = (until_held(circuits, "tenants", each, limit_key=each) for each in keys)
    assert f"(limit key {keys[0]})" in circuits.status(first)["waits"][-1]["delay_reasons"][0]

    change_circuit(circuits, "tenants", "close", reason="done early", limit_key=keys[0])
    circuits.until(first, "succeeded")
    assert circuits.status(second)["status"] == "waiting_circuit"

    change_circuit(circuits, "tenants", "open", reason="the whole of it", for_seconds=600)
    held = until_held(circuits, "tenants", f"{key}-whole", limit_key=keys[0])
    assert "the whole of it" in circuits.status(held)["waits"][-1]["delay_reasons"][0]
    change_circuit(circuits, "tenants", "close", reason="done")
    circuits.until(held, "succeeded")
    change_circuit(circuits, "tenants", "close", reason="done", limit_key=keys[1])
    circuits.until(second, "succeeded")


def test_a_webhook_passes_the_circuit_of_its_operations_limit_key(circuits: System, key: str) -> None:
    event = {"type": "t", "dependency": "tenants", "path": "/echo", "data": None}
    change = {"reason": "the credential is revoked", "limit_key": key}
    change_circuit(circuits, "tenants", "open", for_seconds=600, **change)
    until_key(circuits, key, "forced_open")
    for limit_key, state in ((None, "sent"), (key, "pending")):
        operation_id = circuits.accepted(
            f"{key}-{state}", "/echo", dependency="freed", limit_key=limit_key, on_success=[event]
        )
        (sent,) = circuits.until(operation_id, "succeeded")["events"]
        waits_for = {"sent": "", "pending": "the credential is revoked"}[state]
        until_event(circuits, sent["event_id"], state, waits_for)
    change_circuit(circuits, "tenants", "reset", **change)
    until_event(circuits, sent["event_id"], "sent", "")


def until_event(system: System, event_id: str, state: str, waits_for: str) -> None:
    def look() -> bool:
        event = system.client.get(f"/api/outbox/{event_id}").raise_for_status().json()
        return event["state"] == state and waits_for in (event["why"] or "")

    eventually(look, f"{event_id} is {state}")


@pytest.mark.parametrize("path", ["/api/circuits/held", "/api/circuits/held/open"])
def test_a_limit_key_is_refused_where_the_dependency_has_one_circuit_for_all(
    circuits: System, path: str
) -> None:
    is_change = path.endswith("open")
    given = {"json": {"reason": "drill", "limit_key": "k"}} if is_change else {"params": {"limit_key": "k"}}
    answer = circuits.client.request("POST" if is_change else "GET", path, **given)  # type: ignore[arg-type]  # either form
    assert answer.status_code == httpx.codes.BAD_REQUEST
    assert answer.json()["errors"][0]["pointer"] == "/limit_key"

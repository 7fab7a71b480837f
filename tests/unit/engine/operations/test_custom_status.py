import json
from typing import Any

from durable_retry.engine.operations.custom_status import MAX_BYTES, fitted_status, size_bytes
from durable_retry.engine.retry.history import KEPT_ATTEMPTS
from tests.support.builders import a_history, a_record


def a_status(error: str = "", *, events: int = 0, detail: str = "") -> dict[str, Any]:
    record = a_record(error=error, delay_reasons=("r" * 200,) * 12, next_delay_seconds=1.234, number=10**9)
    return {
        "status": "waiting_retry",
        "attempts": [record.to_json()] * KEPT_ATTEMPTS,
        "dead_letter": {"id": "dl-1", "detail": detail},
        "events": [{"event_id": "e" * 36, "type": "t" * 255, "state": "pending"}] * events,
    }


def test_a_small_status_stays_as_it_is() -> None:
    small = {"attempts": a_history(20).to_json()["attempts"], "status": "running"}
    assert fitted_status(small) == small


def test_a_large_status_fits_with_every_attempt_and_marked_cuts() -> None:
    fitted = fitted_status(a_status("e" * 1_000))
    assert size_bytes(fitted) <= MAX_BYTES
    assert len(fitted["attempts"]) == KEPT_ATTEMPTS
    assert all(record["error"].endswith("... (cut)") for record in fitted["attempts"])
    assert all(record["delay_reasons"] for record in fitted["attempts"])
    assert fitted["attempts"][0]["started_at"] == "2026-11-21T12:00:00Z"


def test_the_worst_case_fits() -> None:
    worst = a_status("\U0001f600" * 1_000, events=20, detail="d" * 5_000)
    fitted = fitted_status(worst)
    assert size_bytes(fitted) <= MAX_BYTES
    assert len(fitted["attempts"]) == KEPT_ATTEMPTS
    assert fitted["dead_letter"]["id"] == "dl-1"
    assert fitted["events"] == []


def test_what_cannot_fit_is_cut_as_far_as_it_goes() -> None:
    hopeless = {"attempts": [], "result": "x" * MAX_BYTES}
    assert fitted_status(hopeless) == hopeless


def test_cutting_changes_nothing_in_place() -> None:
    status = a_status("e" * 1_000)
    before = json.dumps(status)
    fitted_status(status)
    assert json.dumps(status) == before


def test_of_many_waits_the_last_are_kept() -> None:
    waits = [{"why": f"{number}", "reasons": ["x" * 300]} for number in range(100)]
    shown = fitted_status({"status": "waiting_circuit", "attempts": [], "waits": waits})
    assert size_bytes(shown) <= MAX_BYTES
    assert shown["waits"][-1]["why"] == "99"
    assert 1 <= len(shown["waits"]) < 100

"""What is noted of facts."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from durable_retry.rules.circuit.states import CircuitState
from durable_retry.rules.facts import CircuitChanged, DependencyPaused, PersonActed, TargetType
from durable_retry.runtime import clock
from durable_retry.telemetry import facts
from durable_retry.telemetry.facts import report
from durable_retry_console.activity import watch
from durable_retry_console.activity.shapes import ActivityItem
from tests.support.builders import NOON, after


@dataclass
class Notes:
    """In place of the writer."""

    items: list[dict[str, Any]] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)

    def note(self, item: ActivityItem, name: str | None = None) -> None:
        self.items.append(json.loads(item.model_dump_json()))
        self.names.append(name)


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Notes]:
    notes = Notes()
    monkeypatch.setattr(watch, "WRITER", notes)
    monkeypatch.setattr(facts, "_receivers", {})
    watch.record_facts()
    with clock.reading(lambda: NOON):
        yield notes


def test_an_act_is_noted_with_who_did_it_to_what_and_why(notes: Notes) -> None:
    report(
        PersonActed("ada", "replayed the dead letter", TargetType.DEAD_LETTER, "dl-7", "mended", "payments")
    )
    assert notes.items == [
        {
            "at": "2026-11-21T12:00:00Z",
            "until": None,
            "kind": "action",
            "who": "ada",
            "what": "replayed the dead letter",
            "target": {"type": "dead_letter", "id": "dl-7", "url": "/api/dead-letters/dl-7"},
            "reason": "mended",
            "dependency": "payments",
        }
    ]


def test_an_act_on_the_circuit_of_a_limit_key_names_the_key(notes: Notes) -> None:
    words, circuit = "asked to reset the circuit for a&b", TargetType.CIRCUIT
    report(PersonActed("ada", words, circuit, "payments", "a new credential", "payments", "a&b"))
    assert notes.items[0]["limit_key"] == "a&b"
    assert notes.items[0]["target"]["url"] == "/api/circuits/payments?limit_key=a%26b"


def test_what_is_done_to_many_has_a_kind_of_its_own(notes: Notes) -> None:
    report(
        PersonActed("api", "began to replay many dead letters", TargetType.BULK_ACTION, "bulk-1", None, None)
    )
    report(PersonActed("api", "sent a test of the alerts", TargetType.ALERT, "test", None, None))
    assert [each["kind"] for each in notes.items] == ["bulk", "action"]
    assert [each["target"]["url"] for each in notes.items] == ["/api/bulk-actions/bulk-1", "/api/alerts"]


def changed(
    before: CircuitState,
    after: CircuitState,
    failed_probes: int = 0,
    by: str = "circuit",
    reason: str = "3 failures in a row",
) -> CircuitChanged:
    """A change in an outage that began ten minutes ago."""
    return CircuitChanged(
        "payments",
        before,
        after,
        reason,
        by,
        opened_at=NOON - timedelta(minutes=10),
        opened_because="3 failures in a row",
        failed_probes=failed_probes,
        last_error="503: no backend",
    )


OPEN, HALF_OPEN, CLOSED = CircuitState.OPEN, CircuitState.HALF_OPEN, CircuitState.CLOSED


def test_an_outage_is_one_entry_from_its_first_opening_to_its_end(notes: Notes) -> None:
    report(changed(CLOSED, OPEN))
    report(changed(HALF_OPEN, OPEN, failed_probes=1, reason="a probe failed"))
    report(changed(HALF_OPEN, OPEN, failed_probes=2, reason="a probe failed"))
    report(changed(HALF_OPEN, CLOSED, failed_probes=2, reason="1 probe got through"))
    assert len(set(notes.names)) == 1
    assert {item["at"] for item in notes.items} == {"2026-11-21T11:50:00Z"}
    assert [(item["what"], item["until"]) for item in notes.items] == [
        ("the circuit opened", None),
        ("the circuit opened; 1 probe failed", None),
        ("the circuit opened; 2 probes failed", None),
        ("the circuit was open for 10 min; 2 probes failed", "2026-11-21T12:00:00Z"),
    ]
    assert {item["reason"] for item in notes.items} == {
        "3 failures in a row; the last error: 503: no backend"
    }
    assert {(item["dependency"], item["target"]["id"]) for item in notes.items} == {("payments", "payments")}


def test_an_outage_of_a_limit_key_is_an_entry_of_its_own(notes: Notes) -> None:
    report(changed(CLOSED, OPEN))
    report(replace(changed(CLOSED, OPEN), limit_key="customer-17"))
    assert len(set(notes.names)) == 2
    assert notes.items[1]["what"] == "the circuit for customer-17 opened"
    assert (notes.items[1]["dependency"], notes.items[1]["limit_key"]) == ("payments", "customer-17")
    assert notes.items[1]["target"]["url"] == "/api/circuits/payments?limit_key=customer-17"


@pytest.mark.parametrize(("by", "who"), [("circuit", None), ("api", "api"), ("ada", "ada")])
def test_an_outage_names_whoever_changed_the_circuit(notes: Notes, by: str, who: str | None) -> None:
    report(changed(CLOSED, CircuitState.FORCED_OPEN, by=by))
    assert notes.items[0]["who"] == who


def test_a_circuit_that_never_refused_a_call_is_no_outage(notes: Notes) -> None:
    report(CircuitChanged("payments", CLOSED, CircuitState.DISABLED, "drill", "ada"))
    assert notes.items == []


def paused(until: float, since: float = 0, limit_key: str | None = None) -> DependencyPaused:
    return DependencyPaused("payments", after(since), after(until), "429 (Retry-After 1800 s)", limit_key)


def test_a_pause_of_a_dependency_is_an_entry_with_its_end_and_who_asked(notes: Notes) -> None:
    report(paused(1_800))
    report(paused(2_400))
    report(paused(1_800, limit_key="customer-17"))
    assert [(item["kind"], item["what"], item["until"]) for item in notes.items] == [
        ("circuit", "paused for 30 min", "2026-11-21T12:30:00Z"),
        ("circuit", "paused for 40 min", "2026-11-21T12:40:00Z"),
        ("circuit", "paused for customer-17 for 30 min", "2026-11-21T12:30:00Z"),
    ]
    assert {item["reason"] for item in notes.items} == {"429 (Retry-After 1800 s)"}
    first, longer, of_key = notes.names
    assert first == longer != of_key
    assert notes.items[2]["target"]["url"] == "/api/circuits/payments?limit_key=customer-17"


def test_a_short_pause_is_no_entry_unless_somebody_cut_it_short(notes: Notes) -> None:
    report(paused(59))
    assert notes.items == []
    report(paused(0, since=-20))
    assert notes.items[0]["what"] == "paused for 20 s"


def test_what_belongs_to_the_app_has_no_page() -> None:
    assert watch.target_of(TargetType.APP, "settings").url is None

"""What is noted of facts and alerts."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from durable_retry import clock
from durable_retry.engine.circuit.states import CircuitState
from durable_retry.engine.facts import CircuitChanged, PersonActed, TargetType
from durable_retry.telemetry import facts
from durable_retry.telemetry.facts import report
from durable_retry_console.activity import watch
from durable_retry_console.activity.shapes import ActivityItem
from durable_retry_console.alerts.rules import Alert
from tests.support.builders import NOON


@dataclass
class Notes:
    """In place of the writer."""

    items: list[dict[str, Any]] = field(default_factory=list)

    def note(self, item: ActivityItem) -> None:
        self.items.append(json.loads(item.model_dump_json()))


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
            "kind": "action",
            "who": "ada",
            "what": "replayed the dead letter",
            "target": {"type": "dead_letter", "id": "dl-7", "url": "/api/dead-letters/dl-7"},
            "reason": "mended",
            "dependency": "payments",
        }
    ]


def test_what_is_done_to_many_and_to_alerts_has_a_kind_of_its_own(notes: Notes) -> None:
    report(PersonActed(None, "began a bulk replay", TargetType.BULK_ACTION, "replay-1", None, None))
    report(PersonActed(None, "silenced alerts", TargetType.SILENCE, "silence-1", "deploy", None))
    assert [each["kind"] for each in notes.items] == ["bulk", "alert"]
    assert [each["target"]["url"] for each in notes.items] == ["/api/bulk-actions/replay-1", "/api/alerts"]


@pytest.mark.parametrize(("by", "who"), [("circuit", None), ("api", None), ("ada", "ada")])
def test_a_circuit_that_changes_is_noted_with_who_changed_it(notes: Notes, by: str, who: str | None) -> None:
    report(
        CircuitChanged("payments", CircuitState.CLOSED, CircuitState.FORCED_OPEN, "3 failures in a row", by)
    )
    (item,) = notes.items
    assert (item["what"], item["reason"]) == (
        "the circuit went from closed to forced open",
        "3 failures in a row",
    )
    assert (item["who"], item["dependency"], item["target"]["id"]) == (who, "payments", "payments")


def test_an_alert_is_noted_at_the_instant_of_its_change(notes: Notes) -> None:
    watch.note_alert(
        Alert(
            condition="circuit_open:payments",
            is_raised=True,
            since=NOON,
            value=90.0,
            threshold=60.0,
            raised_at=NOON,
        )
    )
    (item,) = notes.items
    assert (item["at"], item["kind"], item["what"]) == (
        "2026-11-21T12:00:00Z",
        "alert",
        "the alert was raised",
    )
    assert (item["target"]["id"], item["dependency"]) == ("circuit_open:payments", "payments")


def test_what_belongs_to_the_app_has_no_page() -> None:
    assert watch.target_of(TargetType.APP, "settings").url is None

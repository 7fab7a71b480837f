"""Noting what happens: acts of people, changes of circuits, changes of alerts."""

from durable_retry import clock
from durable_retry.engine.circuit.breaker import AUTOMATIC
from durable_retry.engine.facts import CircuitChanged, PersonActed, TargetType
from durable_retry.http.callers import UNNAMED
from durable_retry.settings.configuration import api_path
from durable_retry.telemetry.facts import subscribe
from durable_retry_console.activity.shapes import ActivityItem, ActivityKind, ActivityTarget
from durable_retry_console.activity.store import WRITER
from durable_retry_console.alerts.rules import Alert

_PATHS = {
    TargetType.OPERATION: "operations/{}",
    TargetType.DEAD_LETTER: "dead-letters/{}",
    TargetType.CAUSE: "dead-letters/groups/{}",
    TargetType.EVENT: "outbox/{}",
    TargetType.CIRCUIT: "circuits/{}",
    TargetType.SAGA: "sagas/{}",
    TargetType.BULK_ACTION: "bulk-actions/{}",
    TargetType.ALERT: "alerts",
    TargetType.SILENCE: "alerts",
    TargetType.APP: None,
}

_KINDS = {TargetType.BULK_ACTION: ActivityKind.BULK, TargetType.SILENCE: ActivityKind.ALERT}


def record_facts() -> None:
    """Subscribe to what the activity shows."""
    subscribe(PersonActed, _note_act)
    subscribe(CircuitChanged, _note_circuit)


def target_of(kind: TargetType, target_id: str) -> ActivityTarget:
    """Return what an entry is about, with its path."""
    path = _PATHS[kind]
    url = None if path is None else f"{api_path()}/{path.format(target_id)}"
    return ActivityTarget(type=kind, id=target_id, url=url)


def _note_act(fact: PersonActed) -> None:
    item = ActivityItem(
        at=clock.now(),
        kind=_KINDS.get(fact.target, ActivityKind.ACTION),
        who=fact.who,
        what=fact.what,
        target=target_of(fact.target, fact.target_id),
        reason=fact.reason,
        dependency=fact.dependency,
    )
    WRITER.note(item)


def _note_circuit(fact: CircuitChanged) -> None:
    item = ActivityItem(
        at=clock.now(),
        kind=ActivityKind.CIRCUIT,
        who=None if fact.by in {AUTOMATIC, UNNAMED} else fact.by,
        what=f"the circuit went from {fact.before} to {fact.after}".replace("_", " "),
        target=target_of(TargetType.CIRCUIT, fact.dependency),
        reason=fact.reason,
        dependency=fact.dependency,
    )
    WRITER.note(item)


def note_alert(alert: Alert) -> None:
    """Note that an alert was raised or cleared."""
    item = ActivityItem(
        at=alert.since,
        kind=ActivityKind.ALERT,
        who=None,
        what=f"the alert was {alert.state}",
        target=target_of(TargetType.ALERT, alert.condition),
        reason=alert.text,
        dependency=alert.dependency,
    )
    WRITER.note(item)

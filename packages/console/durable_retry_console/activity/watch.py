"""Noting what happens: acts of people, outages and pauses of dependencies."""

from datetime import timedelta
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from durable_retry.base.text import counted
from durable_retry.rules.circuit.breaker import AUTOMATIC, FREE
from durable_retry.rules.facts import CircuitChanged, DependencyPaused, PersonActed, TargetType
from durable_retry.runtime import clock
from durable_retry.settings.configuration import api_path
from durable_retry.telemetry.facts import subscribe
from durable_retry_console.activity.shapes import ActivityItem, ActivityKind, ActivityTarget
from durable_retry_console.activity.store import WRITER
from durable_retry_console.alerts.rules import duration_text

_PATHS = {
    TargetType.OPERATION: "operations/{}",
    TargetType.DEAD_LETTER: "dead-letters/{}",
    TargetType.CAUSE: "dead-letters/groups/{}",
    TargetType.EVENT: "outbox/{}",
    TargetType.CIRCUIT: "circuits/{}",
    TargetType.SAGA: "sagas/{}",
    TargetType.BULK_ACTION: "bulk-actions/{}",
    TargetType.ALERT: "alerts",
    TargetType.APP: None,
}


def record_facts() -> None:
    subscribe(PersonActed, _note_act)
    subscribe(CircuitChanged, _note_outage)
    subscribe(DependencyPaused, _note_pause)


def target_of(kind: TargetType, target_id: str, limit_key: str | None = None) -> ActivityTarget:
    """Return what an entry is about, with its path."""
    path, query = _PATHS[kind], "" if limit_key is None else f"?limit_key={quote(limit_key, safe='')}"
    url = None if path is None else f"{api_path()}/{path.format(target_id)}{query}"
    return ActivityTarget(type=kind, id=target_id, url=url)


def _note_act(fact: PersonActed) -> None:
    target = target_of(fact.target, fact.target_id, fact.limit_key)
    kind = ActivityKind.BULK if fact.target is TargetType.BULK_ACTION else ActivityKind.ACTION
    WRITER.note(ActivityItem.taken_from(fact, at=clock.now(), kind=kind, target=target))


def _note_outage(fact: CircuitChanged) -> None:
    if fact.opened_at is None:
        return
    ended_at = clock.now() if fact.after in FREE else None
    what = "the circuit" if fact.limit_key is None else f"the circuit for {fact.limit_key}"
    lasted = None if ended_at is None else (ended_at - fact.opened_at).total_seconds()
    what += " opened" if lasted is None else f" was open for {duration_text(lasted)}"
    what += f"; {counted(fact.failed_probes, 'probe')} failed" if fact.failed_probes else ""
    item = ActivityItem.taken_from(
        fact,
        at=fact.opened_at,
        until=ended_at,
        kind=ActivityKind.CIRCUIT,
        who=None if fact.by == AUTOMATIC else fact.by,
        what=what,
        target=target_of(TargetType.CIRCUIT, fact.dependency, fact.limit_key),
        reason=fact.cause,
    )
    # Each change of an outage replaces its one entry.
    WRITER.note(item, _name_of(fact.circuit))


def _note_pause(fact: DependencyPaused) -> None:
    lasts = fact.until - fact.since
    # One that somebody has ended may be short, and its entry says how long it was to be.
    if lasts < _NOTED_PAUSE and fact.until > clock.now():
        return
    whose = "" if fact.limit_key is None else f" for {fact.limit_key}"
    item = ActivityItem.taken_from(
        fact,
        at=fact.since,
        kind=ActivityKind.CIRCUIT,
        who=None,
        what=f"paused{whose} for {duration_text(lasts.total_seconds())}",
        target=target_of(TargetType.CIRCUIT, fact.dependency, fact.limit_key),
        reason=fact.by,
    )
    # One that somebody ends, or that gets longer, replaces its entry.
    WRITER.note(item, _name_of(f"pause of {fact.dependency}{whose}"))


# Those of a rate limit are shorter, and come by the hundred.
_NOTED_PAUSE: Final = timedelta(minutes=1)


def _name_of(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]

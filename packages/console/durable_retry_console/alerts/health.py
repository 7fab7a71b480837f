"""The health metrics that alerts are about, and the gauges that show them.

What a look costs depends on what is open, pending or configured only. Each part is measured by itself: one
that does not answer leaves its alerts as they are, and hides no other.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from operator import itemgetter
from typing import Final

from durable_retry.base.names import DeadLetterReason
from durable_retry.circuit.circuits import held_keys
from durable_retry.circuit.entity import CircuitEntity
from durable_retry.features.dead_letter_lists.counts import read_summary
from durable_retry.features.dead_letter_lists.pages import count_dead_letters
from durable_retry.features.dead_letter_lists.rules.filters import DeadLetterFilter
from durable_retry.features.dead_letter_lists.rules.numbers import DeadLetterSummary, open_dead_letters
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.breaker import Breaker
from durable_retry.rules.circuit.messages import why_held
from durable_retry.rules.circuit.states import CircuitState
from durable_retry.rules.config.dependency import Bounds, Dependency
from durable_retry.settings.configuration import dependencies
from durable_retry.telemetry.metrics import Metric
from durable_retry.telemetry.spans import CIRCUIT_STATE, DEPENDENCY, QUEUE, dependency_label
from durable_retry_console.alerts import gauges, rules
from durable_retry_console.alerts.lacking import lacking_since
from durable_retry_console.alerts.settings import alert_settings
from durable_retry_console.index.health import seconds_without_a_start
from durable_retry_console.keys import CONSOLE, ConsoleKeys
from durable_retry_console.optional import of_feature

_log = logging.getLogger(__name__)

NO_LABELS: Final[Mapping[str, str]] = {}

# A part that takes longer is not known in this run.
_PART_SECONDS: Final = 30.0
# So that the part can say that the hub is away.
_HUB_SECONDS: Final = 25.0


@dataclass(slots=True)
class Look:
    """One look at the health: what its parts find.

    Attributes:
        letters: Open dead letters; None where they could not be read.
    """

    hub: TaskHub
    now: datetime
    thresholds: Mapping[str, float]
    letters: DeadLetterSummary | None = None
    metrics: dict[str, rules.HealthMetric] = field(default_factory=dict)
    gauge_values: dict[Metric, list[gauges.GaugeValue]] = field(
        default_factory=lambda: {gauge: [] for gauge in gauges.GAUGES}
    )

    def found(
        self,
        condition: str,
        value: float | None,
        names: tuple[str, ...] | None = None,
        why: str | None = None,
    ) -> None:
        """Take a metric; a value that is None could not be read."""
        of_app = self.thresholds[condition.partition(":")[0]]
        threshold = self.thresholds.get(condition, of_app)
        self.metrics[condition] = rules.HealthMetric(condition, value, threshold, names, why)

    def shown(self, gauge: Metric, value: float, labels: Mapping[str, str] = NO_LABELS) -> None:
        self.gauge_values[gauge].append((value, labels))

    def seconds_since(self, since: datetime | None) -> float:
        """Return how long ago an instant was; 0 for none."""
        return 0.0 if since is None else max(0.0, (self.now - since).total_seconds())


type Part = Callable[[Look], Awaitable[None]]


async def look_at_health(hub: TaskHub, now: datetime) -> Look:
    """Measure each part, and publish what gauges show."""
    look = Look(hub, now, all_thresholds())
    of_letters = tuple(each for each in look.thresholds if each.partition(":")[0] in _OF_LETTERS)
    await _measure(look, of_letters, _letters)  # others look at them
    parts: dict[tuple[str, ...], Part] = {(condition,): part for condition, part in _PARTS.items()}
    for condition, (feature, place) in _OF_FEATURES.items():
        if (part := of_feature(feature, place)) is not None:
            parts[condition,] = part
    for name, dependency in dependencies().dependencies.items():
        show_limits(look, name, dependency.bounds or Bounds())
        if dependency.circuit.enabled:
            conditions = tuple(f"{kind}:{name}" for kind in _SECONDS_HELD)
            parts[conditions] = partial(_circuit, dependency=dependency)
    await asyncio.gather(*(_measure(look, conditions, part) for conditions, part in parts.items()))
    gauges.show_gauges(look.gauge_values)
    return look


async def _measure(look: Look, conditions: tuple[str, ...], part: Part) -> None:
    try:
        async with asyncio.timeout(_PART_SECONDS):
            await part(look)
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not keep the other alerts back
        _log.warning("not known in this run: %s (%s)", ", ".join(conditions), type(error).__name__)
        for condition in conditions:
            look.found(condition, None)


def all_thresholds() -> dict[str, float]:
    """Return above which value each condition is raised, with `:` and a dependency where it has its own."""
    own = {
        f"{kind}:{name}": float(threshold)
        for name, dependency in dependencies().dependencies.items()
        for kind, threshold in dependency.keys_of(CONSOLE, ConsoleKeys).alerts.model_dump().items()
        if threshold is not None
    }
    return alert_settings().thresholds | own


_OF_LETTERS: Final = {rules.DEAD_LETTERS: "open", rules.DEAD_LETTER_AGE: "oldest_age_seconds"}


async def _letters(look: Look) -> None:
    look.letters = await read_summary(look.now)
    find_letters(look, look.letters)


def find_letters(look: Look, letters: DeadLetterSummary) -> None:
    """Take open dead letters, in all and of dependencies with thresholds of their own."""
    none = open_dead_letters(0, None, look.now)
    for condition in look.thresholds:
        kind, _, name = condition.partition(":")
        if kind in _OF_LETTERS:
            counted = letters.by_dependency.get(name, none) if name else letters
            look.found(condition, getattr(counted, _OF_LETTERS[kind]) or 0.0)
    look.shown(gauges.DEAD_LETTER_AGE, letters.oldest_age_seconds or 0.0)
    # Names from messages are never labels: their number is unbounded.
    counts = Counter(dict.fromkeys((*dependencies().dependencies, QUEUE, ""), 0))
    for name, counted in letters.by_dependency.items():
        label = dependency_label(name)
        counts[label if label in counts else ""] += counted.open
    for name, count in counts.items():
        look.shown(gauges.DEAD_LETTERS, count, {DEPENDENCY: name} if name else NO_LABELS)


async def _circuit(look: Look, dependency: Dependency) -> None:
    name = dependency.name
    breaker, why_not = await CircuitEntity(look.hub, name).readable()
    if why_not is not None:
        _log.warning("the circuit of %s cannot be read: %s", name, why_not, extra={DEPENDENCY: name})
        raise ValueError(why_not)
    find_circuits(look, name, breaker, *await held_keys(look.hub, dependency, breaker))


def _open_seconds(look: Look, breaker: Breaker) -> float | None:
    since = breaker.closed_to_calls_since
    return None if since is None else look.seconds_since(since)


def _refused_seconds(look: Look, breaker: Breaker) -> float | None:
    return None if breaker.unauthorized_by is None else _open_seconds(look, breaker)


def _paused_seconds(look: Look, breaker: Breaker) -> float | None:
    """Return how long its pause is in all: the dependency has said when it ends."""
    since, until = breaker.throttled_since, breaker.throttled_until
    if since is None or until is None or until <= look.now:
        return None
    return (until - since).total_seconds()


_SECONDS_HELD: Final[Mapping[str, Callable[[Look, Breaker], float | None]]] = {
    rules.CIRCUIT_OPEN: _open_seconds,
    rules.PAUSED: _paused_seconds,
    rules.CREDENTIAL_REFUSED: _refused_seconds,
}
"""For how long a circuit holds calls up, by condition; None while it does not."""


def find_circuits(look: Look, name: str, own: Breaker, *of_keys: Breaker) -> None:
    """Take for how long the circuits of a dependency let no calls through, whose, and why."""
    for kind, seconds_of in _SECONDS_HELD.items():
        all_seconds = ((seconds_of(look, each), each) for each in (own, *of_keys))
        held = [(seconds, each) for seconds, each in all_seconds if seconds is not None]
        keys = tuple(each.limit_key for _, each in held if each.limit_key is not None)
        # Once the dependency's own is held, the keys are not named.
        names = keys if keys and len(keys) == len(held) else None
        longest, first = max(held, key=itemgetter(0), default=(0.0, None))
        why = None if first is None else why_held(first, look.now)
        if first is not None and first.limit_key is not None and len(held) > 1:
            why = f"for {first.limit_key}: {why}"
        look.found(f"{kind}:{name}", longest, names, why)
    for state in CircuitState:
        labels = {DEPENDENCY: name, CIRCUIT_STATE: state.value}
        look.shown(gauges.CIRCUIT_STATUS, int(own.state is state), labels)


def show_limits(look: Look, name: str, bounds: Bounds) -> None:
    limits = {gauges.LIMIT_CONCURRENCY: bounds.max_concurrency, gauges.LIMIT_RATE: bounds.rate_per_second}
    for gauge, limit in limits.items():
        if limit > 0:  # 0 is no limit.
            look.shown(gauge, limit, {DEPENDENCY: name})


async def _retries_exhausted(look: Look) -> None:
    """Count the dead letters of the last hour whose attempts were used up, where a threshold needs it."""
    reason, since, count = DeadLetterReason.RETRIES_EXHAUSTED.value, look.now - timedelta(hours=1), 0
    if look.thresholds[rules.RETRIES_EXHAUSTED] > 0:
        count = await count_dead_letters(DeadLetterFilter(reason=reason, created_after=since), one_page=True)
    look.found(rules.RETRIES_EXHAUSTED, count)


async def _not_starting(look: Look) -> None:
    patience_seconds = look.thresholds[rules.NOT_STARTING]
    look.found(rules.NOT_STARTING, await seconds_without_a_start(look.hub, look.now, patience_seconds))


# Task hubs that did not answer the last time, and since when; the timer runs on one instance at a time.
_away_since: dict[TaskHub, datetime] = {}


async def _task_hub_away(look: Look) -> None:
    try:
        async with asyncio.timeout(_HUB_SECONDS):
            await look.hub.check()
    except Exception:
        seconds = look.seconds_since(_away_since.setdefault(look.hub, look.now))
        if seconds <= look.thresholds[rules.TASK_HUB_AWAY]:
            raise  # A process that began within the outage must not end the incident.
        look.found(rules.TASK_HUB_AWAY, seconds)
    else:
        _away_since.pop(look.hub, None)
        look.found(rules.TASK_HUB_AWAY, 0.0)


async def _stuck(look: Look) -> None:
    """Find what no nudge moves, the first that was due first, where a threshold needs it."""
    find = of_feature("standstill", "durable_retry.features.standstill.stuck:stuck_instances")
    found = () if find is None or look.thresholds[rules.STUCK] <= 0 else await find(look.hub, look.now)
    since = next((each.since for each in found), None)
    look.found(rules.STUCK, look.seconds_since(since), tuple(each.instance_id for each in found) or None)


async def _held(look: Look) -> None:
    find = of_feature("holding", "durable_retry.features.holding.look:held_operations")
    since = {} if find is None else find(look.hub, look.now)
    if since is None:
        look.found(rules.HELD, None)
        return
    first = next(iter(since.values()), None)
    look.found(rules.HELD, look.seconds_since(first), (f"{len(since)}",) if since else None)


async def _lacking(look: Look) -> None:
    since = lacking_since(look.hub, look.now)
    if since is None:
        look.found(rules.LACKING, None)
        return
    look.found(rules.LACKING, look.seconds_since(min(since.values(), default=None)), tuple(since) or None)


_PARTS: Final[Mapping[str, Part]] = {
    rules.RETRIES_EXHAUSTED: _retries_exhausted,
    rules.NOT_STARTING: _not_starting,
    rules.TASK_HUB_AWAY: _task_hub_away,
    rules.STUCK: _stuck,
    rules.HELD: _held,
    rules.LACKING: _lacking,
}
"""What measures a condition."""

_OF_FEATURES: Final = {
    rules.LANE_BLOCKED: ("order", "durable_retry_console.alerts.lanes:blocked_lanes"),
    rules.OUTBOX_LAG: ("outbox", "durable_retry_console.alerts.outbox:outbox_lag"),
}
"""The same of features, where the app has them."""

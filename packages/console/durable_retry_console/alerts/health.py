"""The health metrics that alerts are about, and the gauges that show them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from durable_retry.features.dead_letter_lists.rules.numbers import DeadLetterSummary, open_dead_letters
from durable_retry.rules.circuit.breaker import Breaker
from durable_retry.rules.circuit.states import CircuitState
from durable_retry.rules.config.dependency import Bounds
from durable_retry.settings.configuration import dependencies
from durable_retry.telemetry.spans import CIRCUIT_STATE, DEPENDENCY, QUEUE, dependency_label
from durable_retry_console.alerts import gauges, rules
from durable_retry_console.alerts.settings import alert_settings
from durable_retry_console.keys import CONSOLE, ConsoleKeys


@dataclass(frozen=True, slots=True)
class Circuits:
    """The circuit of a dependency, and those of its limit keys that are not closed."""

    own: Breaker
    of_keys: Sequence[Breaker] = ()

    def open_seconds(self, now: datetime) -> float:
        """Return for how long the one that opened first has been open; 0 while none is."""
        return max(seconds_since(each.closed_to_calls_since, now) for each in (self.own, *self.of_keys))

    @property
    def open_keys(self) -> tuple[str, ...] | None:
        """The limit keys that alone are concerned; None for none, or once the dependency's own is open."""
        of_keys = () if self.own.closed_to_calls_since else self.of_keys
        return tuple(breaker.limit_key for breaker in of_keys if breaker.limit_key is not None) or None

    @property
    def without_credential(self) -> "Circuits":
        """Those that a refused credential keeps open."""
        own = self.own if self.own.unauthorized_by is not None else Breaker()
        return Circuits(own, [each for each in self.of_keys if each.unauthorized_by is not None])


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedLanes:
    """How many lanes a dead letter blocks."""

    lanes: int = 0
    waiting: int = 0  # operations that wait in them
    since: datetime | None = None  # when the one that is blocked the longest became so; None when none is


NONE_BLOCKED: Final = BlockedLanes()


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthMetrics:
    """The health metrics at one instant; None for those that could not be read.

    Nothing is wrong with a feature that the app lacks.
    """

    dead_letters: DeadLetterSummary | None
    circuits: Mapping[str, Circuits | None]  # by dependency, of those with a circuit
    now: datetime
    # Operations that used up their attempts in the last hour, of about the first 3,000.
    retries_exhausted: int | None = 0
    # For how long accepted operations have not begun; 0 while they begin.
    not_starting_seconds: float | None = 0.0
    # For how long the task hub has not answered, above the threshold; 0 while it answers.
    task_hub_away_seconds: float | None = 0.0
    outbox_lag_seconds: float | None = 0.0  # age of the oldest pending event; 0 when none is pending
    blocked_lanes: BlockedLanes | None = NONE_BLOCKED
    # Since when each orchestration is due that no nudge moves, by its id, the first first.
    stuck: Mapping[str, datetime] | None = field(default_factory=dict)
    # Since when its policy holds each operation, the first first.
    held: Mapping[str, datetime] | None = field(default_factory=dict)

    def with_thresholds(self, thresholds: Mapping[str, float]) -> list[rules.HealthMetric]:
        """Return each metric with its threshold, see `all_thresholds`."""
        lanes = self.blocked_lanes
        values: dict[str, float | None] = {
            rules.DEAD_LETTERS: None if self.dead_letters is None else self.dead_letters.open,
            rules.DEAD_LETTER_AGE: self.dead_letter_age_seconds,
            rules.OUTBOX_LAG: self.outbox_lag_seconds,
            rules.RETRIES_EXHAUSTED: self.retries_exhausted,
            rules.NOT_STARTING: self.not_starting_seconds,
            rules.STUCK: self._seconds_of_first(self.stuck),
            rules.LANE_BLOCKED: None if lanes is None else seconds_since(lanes.since, self.now),
            rules.TASK_HUB_AWAY: self.task_hub_away_seconds,
            rules.HELD: self._seconds_of_first(self.held),
        }
        names = {
            rules.STUCK: tuple(self.stuck) if self.stuck else None,
            rules.HELD: (f"{len(self.held)}",) if self.held else None,
        }
        for name, circuits in self.circuits.items():
            refused = None if circuits is None else circuits.without_credential
            for kind, concerned in ((rules.CIRCUIT_OPEN, circuits), (rules.CREDENTIAL_REFUSED, refused)):
                condition = f"{kind}:{name}"
                values[condition] = None if concerned is None else concerned.open_seconds(self.now)
                names[condition] = None if concerned is None else concerned.open_keys
        for condition in thresholds:
            kind, _, name = condition.partition(":")
            if name and kind not in {rules.CIRCUIT_OPEN, rules.CREDENTIAL_REFUSED}:
                values[condition] = self._letters_of(name, kind)
        over = {each: thresholds.get(each, thresholds[each.partition(":")[0]]) for each in values}
        return [
            rules.HealthMetric(each, value, over[each], names.get(each)) for each, value in values.items()
        ]

    def _letters_of(self, dependency: str, kind: str) -> float | None:
        if self.dead_letters is None:
            return None
        none = open_dead_letters(0, None, self.now)
        letters = self.dead_letters.by_dependency.get(dependency, none)
        return letters.open if kind == rules.DEAD_LETTERS else letters.oldest_age_seconds or 0.0

    @property
    def dead_letter_age_seconds(self) -> float | None:
        """Age of the oldest open dead letter; 0 when there is none."""
        return None if self.dead_letters is None else self.dead_letters.oldest_age_seconds or 0.0

    def _seconds_of_first(self, since: Mapping[str, datetime] | None) -> float | None:
        """Return for how long the first has been so; 0 without one."""
        return None if since is None else seconds_since(next(iter(since.values()), None), self.now)


def all_thresholds() -> dict[str, float]:
    """Return above which value each condition is raised, with `:` and a dependency where it has its own."""
    own = {
        f"{kind}:{name}": float(threshold)
        for name, dependency in dependencies().dependencies.items()
        for kind, threshold in dependency.keys_of(CONSOLE, ConsoleKeys).alerts.model_dump().items()
        if threshold is not None
    }
    return alert_settings().thresholds | own


def seconds_since(since: datetime | None, now: datetime) -> float:
    """Return how long ago an instant was; 0 for none."""
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())


def show(health: HealthMetrics) -> None:
    """Publish the metrics as gauges; one that is not known has no value."""
    limits = [(name, each.bounds or Bounds()) for name, each in dependencies().dependencies.items()]
    lanes = health.blocked_lanes
    gauges.show_gauges(
        {
            gauges.DEAD_LETTERS: list(_dead_letters(health)),
            gauges.DEAD_LETTER_AGE: _gauge_values(health.dead_letter_age_seconds),
            gauges.OUTBOX_LAG: _gauge_values(health.outbox_lag_seconds),
            gauges.LANES_BLOCKED: _gauge_values(None if lanes is None else lanes.lanes),
            gauges.LANES_WAITING: _gauge_values(None if lanes is None else lanes.waiting),
            gauges.CIRCUIT_STATUS: [
                (int(known.own.state is state), {DEPENDENCY: name, CIRCUIT_STATE: state.value})
                for name, known in health.circuits.items()
                if known is not None
                for state in CircuitState
            ],
            gauges.LIMIT_CONCURRENCY: _values_with_limit((each, one.max_concurrency) for each, one in limits),
            gauges.LIMIT_RATE: _values_with_limit((each, one.rate_per_second) for each, one in limits),
        }
    )


def _gauge_values(value: float | None) -> list[gauges.GaugeValue]:
    return [] if value is None else [(value, {})]


def _values_with_limit(values: Iterable[tuple[str, float]]) -> list[gauges.GaugeValue]:
    # 0 is no limit.
    return [(value, {DEPENDENCY: name}) for name, value in values if value > 0]


def _dead_letters(health: HealthMetrics) -> Iterator[gauges.GaugeValue]:
    # Names from messages are never labels: their number is unbounded.
    if health.dead_letters is None:
        return
    counts = dict.fromkeys((*dependencies().dependencies, QUEUE, ""), 0)
    for name, waiting in health.dead_letters.by_dependency.items():
        label = dependency_label(name)
        counts[label if label in counts else ""] += waiting.open
    for name, count in counts.items():
        yield count, {DEPENDENCY: name} if name else {}

"""The app's alerts in some worlds: its timer, and whether each was true when it was raised or cleared."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from unittest.mock import patch

from durable_retry.base.names import CIRCUIT_BREAKER
from durable_retry.features.order.names import ORDER_LANE
from durable_retry.features.order.rules.lane import Lane
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.circuit.states import CircuitState
from durable_retry.runtime import clock
from durable_retry_console.alerts import health, watch
from durable_retry_console.alerts.rules import CIRCUIT_OPEN, DEAD_LETTERS, LANE_BLOCKED, Alert
from durable_retry_console.alerts.settings import AlertSettings
from durable_retry_console.alerts.store import TABLE
from durable_retry_console.alerts.watch import check_alerts
from tests.simulation.entities import Operated
from tests.simulation.people import People
from tests.simulation.upkeep import tidied
from tests.simulation.world import START, Worker, World
from tests.support.tables import TablesInMemory

OPEN_SECONDS: Final = 20.0
MOST_LETTERS: Final = 1
CHECKED_EVERY_SECONDS: Final = 20
SETTINGS: Final = AlertSettings(
    alert_circuit_open_seconds=OPEN_SECONDS,
    alert_dead_letters=MOST_LETTERS,
    alert_lane_blocked_seconds=OPEN_SECONDS,
    alert_dead_letter_age_seconds=0,
    alert_retries_exhausted_per_hour=0,
    alert_not_starting_seconds=0,
    alert_held_seconds=0,
)
_LETS_ALL: Final = {CircuitState.CLOSED.value, CircuitState.DISABLED.value}


@dataclass
class AlertWatch:
    """What the alerts said, beside what was so.

    Attributes:
        untrue: What was said and not so.
    """

    world: World
    tables: TablesInMemory
    untrue: list[str] = field(default_factory=list)
    _shut_since: dict[str, datetime] = field(default_factory=dict)
    _last_let: dict[str, datetime] = field(default_factory=dict)
    _let_since: dict[str, datetime] = field(default_factory=dict)
    _raised_in: dict[str, datetime] = field(default_factory=dict)

    def changed(self, operated: Operated) -> None:
        """Take down since when a circuit lets nothing through but probes."""
        if operated.name != CIRCUIT_BREAKER:
            return
        dependency = operated.key
        if operated.after["state"] in _LETS_ALL:
            if self._shut_since.pop(dependency, None) is not None:
                self._let_since[dependency] = self.world.now()
        elif dependency not in self._shut_since:
            self._shut_since[dependency] = self._last_let[dependency] = self.world.now()

    def settings(self) -> Iterator[Any]:
        """Patches of the app: these thresholds, and nothing that it saw in the world before."""
        for module in (watch, health):
            yield patch.object(module, "alert_settings", lambda: SETTINGS)
        yield patch.dict(health._away_since, clear=True)

    async def check_often(self, people: People) -> None:
        """The app's timer, more often than it is there: breaks are short here."""
        while True:
            await asyncio.sleep(CHECKED_EVERY_SECONDS)
            await self._check(people)

    async def check_at_rest(self, people: People, open_letters: int) -> None:
        """Check once more, when nothing happens: what is so is raised, and nothing else."""
        await self._check(people)
        expected = {DEAD_LETTERS} if open_letters > MOST_LETTERS else set()
        for dependency, since in self._shut_since.items():
            if self.world.now() - since > timedelta(seconds=OPEN_SECONDS) + self._slack:
                expected.add(f"{CIRCUIT_OPEN}:{dependency}")
        lanes = (
            state for entity, state in people.app.hub.states.items() if entity.startswith(f"@{ORDER_LANE}@")
        )
        if any(Lane.from_json(state).blocking is not None for state in lanes if state):
            expected.add(LANE_BLOCKED)
        raised = {alert.condition for alert in self._stored().values() if alert.is_raised}
        if raised != expected:
            self.untrue.append(f"at rest {sorted(raised)} are raised, and not {sorted(expected)}")

    async def _check(self, people: People) -> None:
        before, begun_at = self._stored(), self.world.now()
        await people.on_some_worker(_checked)
        for condition, alert in self._stored().items():
            if condition not in before or before[condition].id != alert.id:
                self.world.note("alert", condition, alert.state)
                self.untrue += self._contradictions(alert, begun_at)

    def _contradictions(self, alert: Alert, begun_at: datetime) -> Iterator[str]:
        dependency = alert.dependency
        if dependency is None:
            return
        since, last_let = self._shut_since.get(dependency), self._last_let.get(dependency, START)
        if alert.is_raised:
            self._raised_in[dependency] = begun_at
            was_shut = since is not None or self._let_since.get(dependency, START) > begun_at
            shut_for = timedelta(seconds=OPEN_SECONDS) if since is None else self.world.now() - since
            if not was_shut or shut_for + self._slack < timedelta(seconds=OPEN_SECONDS):
                yield f"{alert.condition} is raised too soon at {self.world.now()}"
        elif since is not None and last_let < self._raised_in.get(dependency, START):
            if self.world.now() - since <= timedelta(seconds=OPEN_SECONDS) + self._slack:
                return  # By a clock that is behind; checks of the app are further apart than clocks.
            yield f"{alert.condition} is cleared within an outage at {self.world.now()}"

    @property
    def _slack(self) -> timedelta:
        """How far two clocks differ, and how long a check takes."""
        return self.world.clock_difference + timedelta(seconds=5)

    def _stored(self) -> Mapping[str, Alert]:
        rows = [row for row in self.tables.rows(TABLE) if row["PartitionKey"] == "alert"]
        alerts = [Alert.from_json_text(row["alert"]) for row in rows]
        return {alert.condition: alert for alert in alerts}


async def _checked(worker: Worker) -> bool:
    return await tidied(check_alerts(TaskHub(worker.name), clock.now()))

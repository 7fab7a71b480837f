"""Timer triggers: one task per timer, one run at a time, on the clock of the host.

Runs of one timer do not overlap: what comes due while one takes longer than the interval is skipped.
A due time that passed while onebox was down runs at start, marked past due, when the timer is monitored.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from onebox import CannotStartError
from onebox.clock import Clock
from onebox.data_folder import write_private
from onebox.environment import AppSettings
from onebox.faults import HostFaults, HostPoint
from onebox.triggers.retrying import RetryingRunner
from onebox.triggers.schedule import Interval, Schedule, parse_schedule
from onebox.worker.durable import BindingInputs
from onebox.worker.functions import TIMER_TRIGGER, Catalogue, Function
from onebox.worker.runner import json_datum

_LOG = logging.getLogger("onebox.timer")

# The host does not monitor timers that fire more often than this, even when asked to.
_LEAST_MONITORED = timedelta(minutes=1)
_NEVER = "0001-01-01T00:00:00"

Fire = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True)
class TimerStatus:
    """The stored status of one monitored timer; a start compares it with the clock to find a missed run.

    Attributes:
        last: The last due time at which it fired; None for never.
        next_due: The due time after that.
        updated: When this was written.
    """

    last: datetime | None
    next_due: datetime
    updated: datetime


class TimerRecords:
    """The status of every monitored timer, in one small file that is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, name: str) -> TimerStatus | None:
        """Return a timer's stored status; None when it never ran here, or the file cannot be read."""
        entry = self._all().get(name)
        if not isinstance(entry, dict):
            return None
        last = entry.get("last")
        return TimerStatus(
            last=None if last is None else datetime.fromisoformat(last),
            next_due=datetime.fromisoformat(entry["next_due"]),
            updated=datetime.fromisoformat(entry["updated"]),
        )

    def write(self, name: str, status: TimerStatus) -> None:
        """Store a timer's status."""
        entry = {key: None if value is None else value.isoformat() for key, value in asdict(status).items()}
        text = json.dumps({**self._all(), name: entry}, indent=1)
        write_private(self._path, text)

    def _all(self) -> Mapping[str, Any]:
        try:
            content = json.loads(self._path.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}


def timer_datum(
    *, last: datetime | None, next_due: datetime | None, last_updated: datetime | None, past_due: bool
) -> Any:
    """Return the trigger's data as the host writes it.

    Args:
        last: When it fired before; None for never.
        next_due: When it fires next; None when unknown.
        last_updated: When the schedule's record was written; None for never.
        past_due: Whether this run is late.
    """
    status = {"Last": _instant(last), "Next": _instant(next_due), "LastUpdated": _instant(last_updated)}
    content = {"Schedule": {"AdjustForDST": True}, "ScheduleStatus": status, "IsPastDue": past_due}
    return json_datum(json.dumps(content))


def _instant(value: datetime | None) -> str:
    return _NEVER if value is None else value.isoformat()


class Timer:
    """One timer."""

    def __init__(
        self,
        name: str,
        schedule: Schedule,
        fire: Fire,
        clock: Clock,
        *,
        records: TimerRecords | None,
        run_on_startup: bool,
    ) -> None:
        """Create a timer that is not started.

        Args:
            name: The function's.
            schedule: When it fires.
            fire: Runs the function with the trigger's data, its retries included; does not raise.
            clock: Where the time comes from.
            records: Where its status is kept; None for a timer that is not monitored.
            run_on_startup: Whether it fires at once.
        """
        self._name = name
        self._schedule = schedule
        self._fire = fire
        self._clock = clock
        self._records = records
        self._run_on_startup = run_on_startup
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._last: datetime | None = None

    def start(self) -> None:
        """Start waiting for the first due time."""
        self._task = asyncio.create_task(self._watch(), name=f"timer {self._name}")

    async def stop(self, seconds: float) -> None:
        """Stop firing, wait `seconds` for the run under way, then cancel it."""
        self._stopping.set()
        if self._task is None:
            return
        await asyncio.wait([self._task], timeout=seconds)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        await self._catch_up()
        due = self._schedule.next_after(self._clock.now())
        self._remember(due)
        while not self._stopping.is_set():
            await self._clock.wait(due, self._stopping)
            if self._stopping.is_set() or self._clock.now() < due:
                continue
            following = self._schedule.next_after(due)
            await self._run(due, following, past_due=False)
            due = max(following, self._schedule.next_after(self._clock.now()))
            self._remember(due)

    async def _catch_up(self) -> None:
        now = self._clock.now()
        known = None if self._records is None else self._records.read(self._name)
        missed = known is not None and known.next_due <= now
        self._last = None if known is None else known.last
        if missed or self._run_on_startup:
            await self._run(now, self._schedule.next_after(now), past_due=missed)

    async def _run(self, due: datetime, following: datetime, *, past_due: bool) -> None:
        now = self._clock.now()
        datum = timer_datum(last=self._last, next_due=following, last_updated=now, past_due=past_due)
        try:
            await self._fire(datum)
        except Exception:  # noqa: BLE001 # the timer must survive any error to fire again
            _LOG.exception("timer %s could not be fired", self._name)
        self._last = due

    def _remember(self, due: datetime) -> None:
        if self._records is None:
            return
        try:
            self._records.write(self._name, TimerStatus(self._last, due, self._clock.now()))
        except OSError as error:
            _LOG.warning("timer %s: its status cannot be kept: %s", self._name, error)


def timers(
    catalogue: Catalogue,
    *,
    settings: AppSettings,
    inputs: BindingInputs,
    retrying: RetryingRunner,
    records: TimerRecords,
    clock: Clock,
    faults: HostFaults,
) -> tuple[Timer, ...]:
    """Return a timer per timer-triggered function, not started.

    Raises:
        CannotStartError: A schedule is malformed, or a setting that it names is missing.
    """

    def timer(function: Function) -> Timer:
        schedule = _schedule(function, settings)
        monitored = function.trigger.properties.get("useMonitor") is not False and _is_slow(
            schedule, clock.now()
        )
        return Timer(
            function.name,
            schedule,
            _fire(function, inputs, retrying, faults),
            clock,
            records=records if monitored else None,
            run_on_startup=function.trigger.properties.get("runOnStartup") is True,
        )

    return tuple(timer(each) for each in catalogue.with_trigger(TIMER_TRIGGER))


def _schedule(function: Function, settings: AppSettings) -> Schedule:
    where = f"function {function.name}"
    text = settings.expand(function.trigger.text("schedule") or "", where=where)
    try:
        return parse_schedule(text)
    except ValueError as mistake:
        raise CannotStartError(f"{where}: schedule {text!r}: {mistake}") from None


def _is_slow(schedule: Schedule, now: datetime) -> bool:
    if isinstance(schedule, Interval):
        return schedule.every >= _LEAST_MONITORED
    first = schedule.next_after(now)
    return schedule.next_after(first) - first >= _LEAST_MONITORED


def _fire(function: Function, inputs: BindingInputs, retrying: RetryingRunner, faults: HostFaults) -> Fire:
    async def fire(datum: Any) -> None:
        values = [(function.trigger.name, datum), *inputs.of(function)]
        await retrying.run(function, values, {}, reason="timer fired")
        faults(HostPoint.TIMER_RUN)

    return fire

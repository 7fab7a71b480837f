"""Timer triggers: one task per timer, one run at a time, on the handed-in clock.

A run that takes longer than the schedule's pace is not overlapped: what came due meanwhile is skipped. A due
time that passed while nothing ran is made good at start, marked past due, when the timer is monitored.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

from onebox.app_settings import AppSettings
from onebox.clock import Clock
from onebox.errors import CannotStartError
from onebox.faults import HostFaults, HostPoint
from onebox.triggers.retrying import RetryingRunner
from onebox.triggers.schedule import Interval, Schedule, parse_schedule
from onebox.triggers.timer_info import timer_datum
from onebox.triggers.timer_record import TimerRecords, TimerStatus
from onebox.worker.durable import BindingInputs
from onebox.worker.functions import TIMER_TRIGGER, Catalogue, Function

_LOG = logging.getLogger("onebox.timer")

# The host does not monitor timers that fire more often than this, even when asked to.
_LEAST_MONITORED = timedelta(minutes=1)

Fire = Callable[[Any], Awaitable[None]]


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
        """Make a timer that has not begun.

        Args:
            name: The function's.
            schedule: When it fires.
            fire: Runs the function with the trigger's data, its retries included; does not raise.
            clock: Tells the time.
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
        """Begin to watch the clock."""
        self._task = asyncio.create_task(self._watch(), name=f"timer {self._name}")

    async def stop(self, seconds: float) -> None:
        """Fire no more and let a run under way finish for so long."""
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
        except Exception:  # noqa: BLE001 # whatever it is, the timer must live to fire again
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

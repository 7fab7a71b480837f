"""A timer for each operation of SCHEDULED_OPERATIONS."""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import azure.functions as func

from durable_retry.base.validation import InvalidInputError, Problem
from durable_retry.features.schedules.rules import ScheduledOperation
from durable_retry.features.schedules.settings import ScheduleSettings, schedules
from durable_retry.hub.binding import TaskHub, bind_hub
from durable_retry.hub.platform_retries import RetriedBlueprint
from durable_retry.intake.intake import accept_batch, intake
from durable_retry.plugins import Source
from durable_retry.rules.intake import Arrival
from durable_retry.runtime import clock
from durable_retry.settings.group import SettingsError
from durable_retry.settings.intake import intake_settings

TIMER: Final = "timer"
"""The source whose message ids are made here: name and due time. Keys and dead letters hold it."""

NAME_PREFIX: Final = "scheduled_"

_SETTING: Final = ScheduleSettings.name_of("scheduled_operations")

# The host writes the year 1 where a timer has not fired yet.
_FIRST_YEAR: Final = 1


def _blueprint() -> RetriedBlueprint | None:
    """Return the blueprint with a timer for each operation of SCHEDULED_OPERATIONS; None without one.

    A run is named by the operation and its due time, so that two fires of one due time are one operation. A
    timer has no redelivery: the platform repeats a failed fire after even pauses, and what was missed while
    nothing ran is caught up at the next start, from the host's own record of the last fire.

    Raises:
        SettingsError: With every operation that could not start.
    """
    problems = [problem for scheduled in schedules() for problem in _mistakes_in(scheduled)]
    if problems:
        raise SettingsError(problems)
    blueprint = RetriedBlueprint()
    for scheduled in schedules():
        trigger = blueprint.timer_trigger(arg_name="timer", schedule=scheduled.expression, use_monitor=True)
        timed = trigger(bind_hub(blueprint)(_timer_function(scheduled)))
        named = blueprint.function_name(NAME_PREFIX + scheduled.name)(timed)
        blueprint.retry_evenly(named, intake_settings().intake_retries)
    return blueprint if schedules() else None


def run_of(scheduled: ScheduledOperation, due: datetime) -> Arrival:
    """Return one run as an arrival."""
    body = json.dumps(dict(scheduled.body)).encode()
    return Arrival(source=TIMER, body=body, native_id=scheduled.key(due), partition=scheduled.name)


def last_fire(status: Mapping[str, Any]) -> datetime | None:
    """Return when the host last fired a timer, as its record says; None when it has none."""
    try:
        last = datetime.fromisoformat(status.get("Last") or "")
        in_utc = last.replace(tzinfo=UTC) if last.tzinfo is None else last.astimezone(UTC)
    except (ValueError, TypeError, OverflowError):
        return None
    return None if last.year == _FIRST_YEAR else in_utc


def _timer_function(
    scheduled: ScheduledOperation,
) -> Callable[[func.TimerRequest, func.Context, TaskHub], Awaitable[None]]:
    async def start_scheduled_operation(
        timer: func.TimerRequest, context: func.Context, hub: TaskHub
    ) -> None:
        # The interface that the SDK exports does not show what its implementation has.
        last = last_fire(getattr(timer, "schedule_status", None) or {})
        dues = scheduled.dues(last, clock.now(), is_late=timer.past_due)
        await accept_batch(hub, [run_of(scheduled, due) for due in dues], context)

    return start_scheduled_operation


def _mistakes_in(scheduled: ScheduledOperation) -> Iterator[Problem]:
    try:
        intake().operation_of(run_of(scheduled, clock.now()))
    except InvalidInputError as error:
        yield from (problem.below(f"{_SETTING}/operations/{scheduled.name}") for problem in error.problems)


SOURCES: Final[Mapping[str, Source]] = {
    TIMER: Source(blueprint=_blueprint, needs=(_SETTING,), has_pointers=False)
}

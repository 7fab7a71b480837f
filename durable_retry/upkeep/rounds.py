"""Maintenance: finish what crashes interrupted, and run the steps of plugins for each round."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from azure.core.exceptions import AzureError

from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.dead_letters.actions import finish_interrupted
from durable_retry.dead_letters.records import Intent, left_over
from durable_retry.hub.task_hub import TaskHub
from durable_retry.plugins import plugins
from durable_retry.runtime.concurrency import raise_first, run_each, settle_all
from durable_retry.runtime.deferred import deferred
from durable_retry.storage import rounds

_log = logging.getLogger(__name__)

INTENTS_PER_RUN: Final = 200

STEP_SECONDS: Final = 25.0
"""How long a step that looks at many runs at most."""

SETTLED_AFTER: Final = timedelta(minutes=2)
"""A younger intent belongs to a change that is still under way."""

MAINTENANCE_EVERY: Final = timedelta(minutes=5)


async def run_maintenance(hub: TaskHub, now: datetime) -> None:
    """Finish what crashes interrupted, then run the steps of plugins for each round."""
    steps: list[Callable[[], Awaitable[object]]] = [
        partial(finish_left_over, hub, now),
        *(partial(deferred(step), hub, now) for plugin in plugins() for step in plugin.each_round),
    ]
    await run_each(rotated(steps, now, MAINTENANCE_EVERY))


def rotated[T](steps: Sequence[T], now: datetime, every: timedelta) -> Sequence[T]:
    """Return steps rotated by one from run to run, where a run begins so often.

    So the last steps are reached even when `functionTimeout` cuts every run short.
    """
    first = int(now.timestamp() / every.total_seconds()) % len(steps)
    return [*steps[first:], *steps[:first]]


async def finish_left_over(hub: TaskHub, now: datetime) -> int:
    """Finish changes of dead letters that a crash interrupted; return their number.

    Raises:
        TaskHubUnavailableError: A replay could not be started; it is tried again by the next run.
    """
    finished, errors = list[bool](), list[Exception]()
    async for intents in rounds.pages_from_place("intents", partial(left_over, INTENTS_PER_RUN)):
        due = [intent for intent in intents if intent.begun_at <= now - SETTLED_AFTER]
        done, failed = await settle_all(partial(_finish_change, hub), due, 1)
        finished, errors = finished + done, errors + failed
    if any(finished):
        _log.info("finished %d changes", sum(finished))
    raise_first(errors)
    return sum(finished)


async def _finish_change(hub: TaskHub, intent: Intent) -> bool:
    # An error of one change must not stop the others.
    try:
        await finish_interrupted(hub, intent)
    except (TaskHubUnavailableError, AzureError):
        raise
    except Exception:  # noqa: BLE001 - one bad change must not stop the others for ever
        _log.exception("a change of %s cannot be finished", intent.dead_letter_id)
        return False
    return True

"""Starts checks of the task hub's queues, and notes when they are through (`rules`)."""

from datetime import datetime
from functools import reduce

from durabletask.client import OrchestrationStatus

from durable_retry.base.json_forms import to_ms
from durable_retry.features.standstill.names import QUEUE_CHECK
from durable_retry.features.standstill.rules import QueueCheck, QueueChecks
from durable_retry.features.standstill.store import change_checks, read_checks
from durable_retry.hub.task_hub import TaskHub
from durable_retry.operations.status import NOT_ENDED

type _Ended = tuple[QueueCheck, datetime | None]
"""A check, and when it came through; None for one that failed or is gone."""


async def look_at_checks(hub: TaskHub) -> QueueChecks:
    """Return the latest checks, with those that are through by now."""
    checks = await read_checks()
    looked_at = [(check, await _end_of(hub, check)) for check in checks.under_way]
    ended = [end for _, end in looked_at if end is not None]

    def rule(stored: QueueChecks) -> QueueChecks:
        return reduce(lambda noted, end: noted.through(*end), ended, stored)

    return await change_checks(rule) if ended else checks


async def _end_of(hub: TaskHub, check: QueueCheck) -> _Ended | None:
    """Return how a check ended; None while it is under way."""
    instance = await hub.read_instance(_instance_of(check.asked_at))
    if instance is None:
        return check, None
    if instance.runtime_status in NOT_ENDED:
        return None
    is_through = instance.runtime_status is OrchestrationStatus.COMPLETED
    return check, instance.updated_at if is_through else None


async def ask_for_check(hub: TaskHub, now: datetime) -> None:
    """Have the queues checked, unless a check is under way."""
    checks = await change_checks(lambda checks: checks.asked(now) if checks.is_due(now) else checks)
    if checks.checks[-1].asked_at == now:
        await hub.start_instance(QUEUE_CHECK, _instance_of(now), {}, again=False)


def _instance_of(asked_at: datetime) -> str:
    return f"{QUEUE_CHECK}-{to_ms(asked_at)}"

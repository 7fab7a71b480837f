"""One attempt to deliver an event: a message to a storage queue, or a signed webhook to a dependency."""

from dataclasses import replace
from functools import partial
from typing import Any, Final

from azure.core.exceptions import AzureError

from activities.gate import through_gate
from activities.http_attempt import attempt_request
from activities.masking import error_line
from activities.observed import observed
from activities.plan import Plan
from activities.time_limit import start_clock
from engine.cloud_event import CONTENT_TYPE, envelope_text
from engine.dependency import Dependency
from engine.gate import Stop
from engine.operation import AttemptOutcome
from engine.outbox import Delivery, StoredEvent
from engine.vocabulary import Category
from engine.webhook import ID_HEADER, signed_headers, signing_key
from stores import clock
from stores.configuration import find_dependency
from stores.queues import MessageRefusedError, send_message

_QUEUES: Final = Dependency(name="queues", base_url="")
"""Stands in where an attempt needs a dependency; it has no secret to mask."""


async def deliver(hub: str, delivery: Delivery, event: StoredEvent, number: int) -> AttemptOutcome | Stop:
    """Make one attempt; what comes of it is an outcome, never an exception.

    A webhook passes the gate of its dependency like any other call: its circuit and its retry budget.

    Args:
        hub: Configuration of the durable client.
        delivery: Of that event.
        event: As the outbox has it.
        number: Of the attempt, from 1.
    """
    queue, name = event.event.get("queue"), event.event.get("dependency")
    if queue is not None:
        plan = _plan(delivery, number, _QUEUES)
        return await observed(delivery.operation, number, partial(_to_queue, plan, queue, event))
    dependency = find_dependency(name or "")
    if dependency is None:
        told = f"dependency {name} is not configured here any more"
        plan = _plan(delivery, number, _QUEUES)
        return plan.outcome(category=Category.TRANSIENT, error=told, counted=False)
    return await through_gate(
        hub,
        dependency,
        delivery.operation,
        number=number,
        ticket=delivery.ticket,
        attempt=partial(
            observed,
            delivery.operation,
            number,
            lambda: _to_dependency(_plan(delivery, number, dependency), event),
        ),
    )


def _plan(delivery: Delivery, number: int, dependency: Dependency) -> Plan:
    return Plan(delivery.operation, number, dependency, start_clock(delivery.operation))


async def _to_queue(plan: Plan, queue: str, event: StoredEvent) -> AttemptOutcome:
    try:
        await send_message(queue, envelope_text(event))
    except MessageRefusedError as error:
        return plan.outcome(category=Category.MALFORMED, error=str(error))
    except (AzureError, OSError) as error:
        return plan.outcome(category=Category.TRANSIENT, error=error_line(error, plan.dependency))
    return plan.outcome()


async def _to_dependency(plan: Plan, event: StoredEvent) -> AttemptOutcome:
    if plan.limit.seconds <= 0:
        told = "the deadline passed before it could start"
        return plan.outcome(category=Category.DEADLINE_EXCEEDED, error=told, counted=False)
    outcome = await attempt_request(_webhook(plan, event))
    return replace(outcome, result=None)


def _webhook(plan: Plan, event: StoredEvent) -> Plan:
    """Make the request of one attempt: the body is always the same, time and signatures are new.

    A receiver of webhooks deduplicates on `webhook-id`, so a webhook may be sent again also where the
    dependency does not know idempotency keys.
    """
    body = envelope_text(event)
    keys = [signing_key(secret) for secret in plan.dependency.webhook_secrets]
    request: dict[str, Any] = {
        "method": "POST",
        "path": event.event["path"],
        "query": {},
        "headers": {
            "content-type": CONTENT_TYPE,
            **signed_headers(event.event_id, body, keys, clock.now()),
        },
        "body": body,
    }
    operation = replace(plan.operation, request=request)
    return replace(plan, operation=operation, deduplicated_by=ID_HEADER)

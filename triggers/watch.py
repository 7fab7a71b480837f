"""Every minute: is something over its threshold. Raised once, told once more when it clears."""

import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Final

import azure.functions as func

from engine.alert import Alert, alert_changes
from engine.circuit import CircuitState
from engine.models import parse_operation
from engine.problem import InvalidInputError
from stores import clock
from stores.alerts import known_alerts, write_alert
from stores.configuration import dependencies
from stores.submission import submit
from stores.task_hub import TaskHubUnavailableError
from stores.upkeep_settings import Webhook, upkeep_settings
from stores.watched import Watched, read_all
from telemetry import metrics, readings
from telemetry.attributes import CIRCUIT_STATE, DEPENDENCY, QUEUE, dependency_label
from triggers.resolution import Origin, resolve
from triggers.retried import RetriedBlueprint, note_retry

blueprint = RetriedBlueprint()

SOURCE: Final = "watch"

_log = logging.getLogger(__name__)


@blueprint.retry_upkeep()
@blueprint.timer_trigger(arg_name="timer", schedule="15 * * * * *")
@blueprint.generic_input_binding(arg_name="hub", type="durableClient", durableRequiresGrpc=True)
async def watch(
    timer: func.TimerRequest,  # noqa: ARG001 - the trigger's own
    context: func.Context,
    hub: str,
) -> None:
    """Compare what is watched with its thresholds, and tell what changed."""
    note_retry(context)
    await look(hub, clock.now())


async def look(hub: str, now: datetime) -> list[Alert]:
    """Do what `watch` does, and return what was told.

    Raises:
        TaskHubUnavailableError: What is watched could not be read, or the webhook not be started; whatever
            was not told yet is told by the next run.
    """
    settings = upkeep_settings()
    watched = await read_all(hub, now)
    show(watched)
    known = await known_alerts()
    for alert in alert_changes(known, watched.readings(settings.thresholds), now):
        await write_alert(alert)
        known[alert.condition] = alert
    untold = [alert for alert in known.values() if not alert.is_told]
    for alert in untold:
        await _tell(hub, alert, settings.webhook, now)
        await write_alert(alert.told())
    return untold


async def _tell(hub: str, alert: Alert, webhook: Webhook | None, now: datetime) -> None:
    document = alert.document()
    level = logging.WARNING if alert.is_raised else logging.INFO
    _log.log(
        level,
        "alert %s %s: %s, threshold %s",
        alert.condition,
        document["state"],
        alert.value,
        alert.threshold,
        extra={f"durable_retry.alert.{name}": value for name, value in document.items()},
    )
    if webhook is not None:
        await _send(hub, alert, webhook, now)


async def _send(hub: str, alert: Alert, webhook: Webhook, now: datetime) -> None:
    """Send an alert as an operation: retried like any other, and deduplicated by its id.

    Raises:
        TaskHubUnavailableError: It could not be started.
    """
    call = {"method": "POST", "path": webhook.path, "json": alert.document()}
    origin = Origin(source=SOURCE, scope=f"source:{SOURCE}", key=alert.id)
    try:
        request = parse_operation({"dependency": webhook.dependency, "request": call})
        await submit(hub, resolve(request, origin, now))
    except InvalidInputError as error:
        _log.error("ALERT_WEBHOOK cannot be used: %s", error)
    except TaskHubUnavailableError:
        _log.warning("the alert %s is told again by the next run", alert.id)
        raise


def show(watched: Watched) -> None:
    """Give the readings to the gauges, whatever their thresholds."""
    readings.show(
        {
            metrics.DEAD_LETTERS.name: list(_dead_letters(watched)),
            metrics.DEAD_LETTER_AGE.name: [(watched.dead_letter_age_seconds, {})],
            metrics.OUTBOX_LAG.name: [(watched.outbox_lag_seconds, {})],
            metrics.CIRCUIT_STATUS.name: list(_circuit_states(watched)),
        }
    )


def _dead_letters(watched: Watched) -> Iterator[readings.Value]:
    """Count by configured dependency, also none; what a message says is nobody's label."""
    counts = dict.fromkeys((*dependencies().dependencies, QUEUE, ""), 0)
    for name, waiting in watched.dead_letters.by_dependency.items():
        label = dependency_label(name)
        counts[label if label in counts else ""] += waiting.count
    for name, count in counts.items():
        yield count, {DEPENDENCY: name} if name else {}


def _circuit_states(watched: Watched) -> Iterator[readings.Value]:
    for name, breaker in watched.circuits.items():
        for state in CircuitState:
            yield int(breaker.state is state), {DEPENDENCY: name, CIRCUIT_STATE: state.value}

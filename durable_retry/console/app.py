"""Adding the console to an app: its routes, what it hears of the core, and its steps of upkeep."""

from typing import Final

from durable_retry.console.activity import routes as activity
from durable_retry.console.activity import watch as activity_watch
from durable_retry.console.activity.changes import note_changes, remove_old_activity
from durable_retry.console.activity.store import WRITER as ACTIVITY_WRITER
from durable_retry.console.alerts import routes as alerts
from durable_retry.console.alerts.watch import check_alerts
from durable_retry.console.bulk import routes as bulk
from durable_retry.console.dashboard import routes as dashboard
from durable_retry.console.finding import routes as finding
from durable_retry.console.metrics import minutes
from durable_retry.console.metrics import routes as metrics
from durable_retry.console.metrics.series import keep_metrics
from durable_retry.console.metrics.store import WRITER as METRICS_WRITER
from durable_retry.console.overview import routes as overview
from durable_retry.services.upkeep.chores import EACH_MINUTE, EACH_ROUND

ROUTES: Final = (
    finding.operation_routes,
    overview.operation_routes,
    metrics.routes,
    bulk.replay_routes,
    finding.routes,
    overview.routes,
    bulk.action_routes,
    alerts.routes,
    activity.routes,
    dashboard.routes,
)


def subscribe_console() -> None:
    """Subscribe the console to the facts of the core, and add its steps to upkeep; once per process."""
    minutes.record_facts()
    activity_watch.record_facts()
    if check_alerts not in EACH_MINUTE:
        EACH_MINUTE.extend((check_alerts, note_changes))
        EACH_ROUND.extend((keep_metrics, remove_old_activity))


def begin_writers() -> None:
    """Write what this process counts and notes, in the background, from now on."""
    METRICS_WRITER.begin()
    ACTIVITY_WRITER.begin()

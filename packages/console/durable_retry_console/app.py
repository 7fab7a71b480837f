"""Adding the console to an app: its routes, what it hears of the core, and its steps of upkeep."""

from collections.abc import Iterator
from typing import Final

import azure.durable_functions as df

from durable_retry.hub.binding import add_activity
from durable_retry.plugins import Collection, Orchestration, Plugin
from durable_retry_console.activity import code
from durable_retry_console.activity import watch as activity_watch
from durable_retry_console.activity.store import WRITER as ACTIVITY_WRITER
from durable_retry_console.bulk import orchestration
from durable_retry_console.bulk.names import BULK_ACTION
from durable_retry_console.index import notes
from durable_retry_console.metrics import minutes
from durable_retry_console.optional import of_feature

_ACTIVITIES: Final = (
    "durable_retry_console.bulk.actions:bulk_page",
    "durable_retry_console.bulk.items:bulk_batch",
    "durable_retry_console.bulk.ends:bulk_ends",
)


def _blueprints() -> Iterator[df.Blueprint]:
    yield orchestration.blueprint
    activities = df.Blueprint()
    for reference in _ACTIVITIES:
        add_activity(activities, reference, with_hub=True)
    yield activities


def _subscribe() -> None:
    notes.record_facts()
    minutes.record_facts()
    if record := of_feature("debounce", "durable_retry_console.metrics.debounced:record_facts"):
        record()
    activity_watch.record_facts()


def _begin_writers() -> None:
    code.begin()
    minutes.MINUTES.begin()
    notes.WRITER.begin()
    ACTIVITY_WRITER.begin()


PLUGIN: Final = Plugin(
    name="console",
    needs=frozenset({"dead_letter_lists", "replay"}),
    collections=(
        Collection(
            "operations/{*rest}",
            (
                "durable_retry_console.finding.routes:operation_routes",
                "durable_retry_console.overview.routes:operation_routes",
            ),
        ),
        Collection("dead-letters/{*rest}", ("durable_retry_console.causes.routes:routes",)),
        Collection("metrics", ("durable_retry_console.metrics.routes:routes",)),
        Collection("search", ("durable_retry_console.finding.routes:routes",)),
        Collection("overview", ("durable_retry_console.overview.routes:routes",)),
        Collection("bulk-actions/{*rest}", ("durable_retry_console.bulk.routes:routes",)),
        Collection("alerts/{*rest}", ("durable_retry_console.alerts.routes:routes",)),
        Collection("activity", ("durable_retry_console.activity.routes:routes",)),
        Collection("dashboard/{*rest}", ("durable_retry_console.dashboard.routes:routes",), anonymous=True),
    ),
    orchestrations=(
        Orchestration(
            name=BULK_ACTION, prefix="bulk-", is_restarted=True, stays_terminated=True, is_listed=True
        ),
    ),
    blueprints=_blueprints,
    settings=(
        "durable_retry_console.alerts.settings:AlertSettings",
        "durable_retry_console.metrics.settings:MetricsSettings",
    ),
    dependency="durable_retry_console.keys:ConsoleKeys",
    check="durable_retry_console.recovery.watch:problems_of",
    tables=(
        "durable_retry_console.activity.store:TABLE",
        "durable_retry_console.alerts.store:TABLE",
        "durable_retry_console.index.store:NAMES_TABLE",
        "durable_retry_console.index.store:TABLE",
        "durable_retry_console.metrics.minutes:TABLE",
    ),
    each_minute=(
        "durable_retry_console.alerts.watch:check_alerts",
        "durable_retry_console.recovery.watch:follow_outages",
        "durable_retry_console.activity.changes:note_changes",
    ),
    look="durable_retry_console.alerts.lacking:LackingLook",
    each_round=(
        "durable_retry_console.metrics.series:keep_metrics",
        "durable_retry_console.activity.changes:remove_old_activity",
        "durable_retry_console.index.reconcile:add_lost",
    ),
    health={
        "starting": "durable_retry_console.index.health:starting_part",
        "index": "durable_retry_console.index.health:index_part",
    },
    retention={"operations": "durable_retry_console.index.removal:OPERATIONS"},
    subscribe=_subscribe,
    begin=_begin_writers,
)
"""The entry point of the group `durable_retry.plugins`."""

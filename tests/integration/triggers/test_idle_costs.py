from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from docs.sizing import IDLE
from durable_retry.attempt.commits import commit_success
from durable_retry.dead_letters.records import keep_operation
from durable_retry.features.outbox.sending import sweep
from durable_retry.runtime import clock
from durable_retry.upkeep.failures import recover
from durable_retry.upkeep.rounds import MAINTENANCE_EVERY, run_maintenance
from durable_retry_console.alerts.health import look_at_health
from durable_retry_console.alerts.watch import check_alerts
from tests.support.asked import Asked, counting
from tests.support.azurite import Storage, new_account, use_account
from tests.support.builders import a_success, an_entry
from tests.support.hub import TaskHubStage

NOW = datetime(2026, 9, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LISTED = {kind: requests for kind, (requests, _) in IDLE.items()}  # of docs/sizing.md
TABLE_REQUESTS = LISTED["the watch, in the app's tables"] + LISTED["the sweep of the outbox"]
HUB_CALLS = 8  # six prefixes of what may have failed, the hub's health, one circuit


@pytest.fixture(autouse=True)
def account(own_tables: Storage, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An account in which nothing has happened: events that wait are of all tests of an account."""
    assert own_tables
    use_account(monkeypatch, new_account().connection_string)
    with clock.reading(lambda: NOW):
        yield


async def asked_in_a_minute(hub: TaskHubStage, now: datetime) -> Asked:
    with counting() as asked:
        await recover(hub.binding, now)
        await check_alerts(hub.binding, now)
        await sweep(hub.binding, now + timedelta(seconds=15))
    return asked


async def test_an_idle_minute_asks_for_little(hub: TaskHubStage) -> None:
    await asked_in_a_minute(hub, NOW)  # makes the tables, and finds nothing
    asked = await asked_in_a_minute(hub, NOW + MINUTE)
    assert asked.storage <= TABLE_REQUESTS
    assert asked.hub <= HUB_CALLS


async def test_an_idle_hour_of_maintenance_asks_for_no_more_than_the_sizing_lists(hub: TaskHubStage) -> None:
    begun = [NOW + number * MAINTENANCE_EVERY for number in range(13)]  # an hour, after the first run
    await run_maintenance(hub.binding, begun[0])
    with counting() as asked:
        for now in begun[1:]:
            await run_maintenance(hub.binding, now)
    assert asked.storage <= 60 * LISTED["maintenance"]


async def test_what_comes_after_an_idle_minute_is_seen_in_the_next(hub: TaskHubStage) -> None:
    await asked_in_a_minute(hub, NOW)
    await keep_operation(an_entry("op-idle", reason="RetriesExhausted"), NOW + MINUTE / 2)
    look = await look_at_health(hub.binding, NOW + MINUTE)
    assert look.metrics["retries_exhausted_per_hour"].value == 1


async def test_a_sweep_speaks_for_the_outbox_for_the_minute_after_it(hub: TaskHubStage) -> None:
    await sweep(hub.binding, NOW)
    event = {"type": "charge.completed", "queue": "charge-events", "data": 1}
    await commit_success("op-idle", a_success(events=[event]), NOW)
    looks = [await look_at_health(hub.binding, NOW + number * MINUTE) for number in (1, 3)]
    assert [look.metrics["outbox_lag_seconds"].value for look in looks] == [0, 180]

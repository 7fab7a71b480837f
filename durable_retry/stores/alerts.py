"""Alerts and silences in the table `Alerts`: few rows, so that each list is one read.

PK `alert`      RK <condition>                  its latest change, with the messages about it
PK `incident`   RK <newest first><condition>    the latest incidents
PK `silence`    RK <id>                         those that have not ended; ended ones until the next check
"""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Final

from durable_retry.engine.alerts import Alert, Silence
from durable_retry.engine.base.json_forms import newest_first
from durable_retry.stores import tables
from durable_retry.stores.tables import quoted

TABLE: Final = "Alerts"

_ALERT: Final = "alert"
_INCIDENT: Final = "incident"
_SILENCE: Final = "silence"

_SILENCE_ID: Final = re.compile(r"silence-[0-9a-f]{32}")

KEPT_INCIDENTS: Final = 100
_TRIES: Final = 10


async def known_alerts() -> dict[str, Alert]:
    """Return the last alert of each condition, by condition."""
    page = await tables.rows_between(TABLE, _ALERT)
    alerts = (Alert.from_json(json.loads(row["alert"])) for row in page.rows)
    return {alert.condition: alert for alert in alerts}


async def write_change(alert: Alert, last: Alert | None) -> bool:
    """Store a change of a condition; False when another worker stored one first.

    Args:
        alert: The change.
        last: The one before, as it was read; None for the first of this condition.
    """
    row = _row(_ALERT, quoted(alert.condition), alert)
    if last is None:
        is_ours = await tables.insert_if_absent(TABLE, row)
    else:
        found = await tables.read_version(TABLE, _ALERT, row["RowKey"])
        is_ours = (
            found is not None
            and Alert.from_json(json.loads(found.row["alert"])).id == last.id
            and await tables.merge_version(TABLE, row, found.etag)
        )
    if is_ours:
        key = newest_first(alert.began_at) + quoted(alert.condition)
        await tables.merge(TABLE, _row(_INCIDENT, key, replace(alert, deliveries={})))
    return is_ours


async def change_alert(condition: str, change: Callable[[Alert], Alert]) -> bool:
    """Replace the alert of a condition by what `change` makes of it.

    Args:
        condition: Whose alert.
        change: Called again when another worker changed the alert meanwhile; returning what it was given
            changes nothing.

    Returns:
        Whether it was changed.
    """
    for _ in range(_TRIES):
        found = await tables.read_version(TABLE, _ALERT, quoted(condition))
        if found is None:
            return False
        before = Alert.from_json(json.loads(found.row["alert"]))
        after = change(before)
        if after == before:
            return False
        if await tables.merge_version(TABLE, _row(_ALERT, quoted(condition), after), found.etag):
            return True
    return False


async def list_incidents() -> list[Alert]:
    """Return the latest incidents, the newest first."""
    page = await tables.rows_between(TABLE, _INCIDENT, limit=KEPT_INCIDENTS)
    return [Alert.from_json(json.loads(row["alert"])) for row in page.rows]


async def remove_old_incidents() -> None:
    """Remove the incidents behind the latest."""
    page = await tables.rows_between(TABLE, _INCIDENT, only=("PartitionKey", "RowKey"))
    for row in page.rows[KEPT_INCIDENTS:]:
        await tables.delete(TABLE, _INCIDENT, row["RowKey"])


async def list_silences(now: datetime) -> list[Silence]:
    """Return the silences that have not ended, the one that ends first first."""
    page = await tables.rows_between(TABLE, _SILENCE)
    silences = [Silence.from_json(json.loads(row["silence"])) for row in page.rows]
    return sorted((each for each in silences if each.until > now), key=lambda each: each.until)


async def write_silence(silence: Silence) -> None:
    """Store a silence."""
    row = {"PartitionKey": _SILENCE, "RowKey": silence.id, "silence": json.dumps(silence.to_json())}
    await tables.merge(TABLE, row)


async def find_silence(silence_id: str) -> Silence | None:
    """Return a silence, or None."""
    if not _SILENCE_ID.fullmatch(silence_id):
        return None
    row = await tables.read(TABLE, _SILENCE, silence_id)
    return None if row is None else Silence.from_json(json.loads(row["silence"]))


async def delete_silence(silence_id: str) -> None:
    """End a silence."""
    await tables.delete(TABLE, _SILENCE, silence_id)


async def remove_ended_silences(now: datetime) -> None:
    """Remove the silences that have ended."""
    page = await tables.rows_between(TABLE, _SILENCE)
    for row in page.rows:
        if Silence.from_json(json.loads(row["silence"])).until <= now:
            await delete_silence(row["RowKey"])


def _row(partition: str, key: str, alert: Alert) -> tables.Row:
    return {"PartitionKey": partition, "RowKey": key, "alert": json.dumps(alert.to_json())}

"""Alerts in the table `Alerts`: few rows, so that each list is one read.

PK `alert`      RK <condition>                  its latest change, with the messages about it
PK `incident`   RK <newest first><condition>    the latest incidents, each as it was when it changed last
"""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from urllib.parse import quote

from durable_retry.base.errors import ContendedError
from durable_retry.base.json_forms import newest_first
from durable_retry.storage import contents, tables
from durable_retry_console.alerts.rules import Alert

TABLE: Final = "Alerts"

_ALERT: Final = "alert"
_INCIDENT: Final = "incident"

KEPT_INCIDENTS: Final = 100


async def known_alerts() -> dict[str, Alert]:
    """Return the last alert of each condition, by condition."""
    page = await tables.rows_between(TABLE, _ALERT)
    alerts = contents.readable(TABLE, page.rows, _alert_of_row)
    return {alert.condition: alert for alert in alerts}


async def write_change(alert: Alert, last: Alert | None) -> bool:
    """Store a change of a condition; False when another worker stored one first.

    Args:
        last: The one before, as it was read; None for the first of this condition.
    """

    def in_place(known: Alert | None) -> Alert:
        # A row that nobody can read is replaced: the condition would never be raised again.
        return alert if known is None or (last is not None and known.id == last.id) else known

    return await _change(alert.condition, in_place)


async def change_alert(condition: str, change: Callable[[Alert], Alert]) -> bool:
    """Replace the alert of a condition by what `change` makes of it; return whether it was changed.

    Args:
        change: Called again when another worker changed the alert meanwhile; returning what it was given
            changes nothing.
    """
    return await _change(condition, lambda known: None if known is None else change(known))


async def _change(condition: str, rule: Callable[[Alert | None], Alert | None]) -> bool:
    before: Alert | None = None

    def noted(known: Alert | None) -> Alert | None:
        nonlocal before
        before = known
        return rule(known)

    keys = {"PartitionKey": _ALERT, "RowKey": _key_of(condition)}
    with suppress(ContendedError):
        after = await tables.change_row(TABLE, keys, noted, read=_readable_alert, write=_properties_of)
        if after is not None and after != before:
            key = newest_first(after.raised_at) + _key_of(condition)
            await tables.merge(TABLE, {"PartitionKey": _INCIDENT, "RowKey": key} | _properties_of(after))
            return True
    return False


async def list_incidents() -> list[Alert]:
    """Return the latest incidents, the newest first."""
    page = await tables.rows_between(TABLE, _INCIDENT, limit=KEPT_INCIDENTS)
    return contents.readable(TABLE, page.rows, _alert_of_row)


async def remove_old_incidents() -> None:
    """Remove the incidents behind the latest."""
    page = await tables.rows_between(TABLE, _INCIDENT, only=tables.KEYS)
    await tables.delete_rows(TABLE, page.rows[KEPT_INCIDENTS:])


def _alert_of_row(row: tables.Row) -> Alert:
    return Alert.from_json_text(row["alert"])


def _readable_alert(row: tables.Row) -> Alert | None:
    return next(iter(contents.readable(TABLE, [row], _alert_of_row)), None)


def _properties_of(alert: Alert | None) -> tables.Row:
    return {"alert": json.dumps(alert and alert.to_json())}


def _key_of(condition: str) -> str:
    """Escape characters that a row key must not contain: slashes, `#`, `?` and control characters."""
    return quote(condition, safe="=").replace("%", "!").replace("~", "!7E")

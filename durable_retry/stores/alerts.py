"""The last alert of each condition, so that a change is reported once.

    change ──> row `is_told` false ──> log and webhook ──> row `is_told` true

A crash in between leaves `is_told` false; the next run reports the same alert again under the same id, and
the webhook's receiver deduplicates on it.
"""

import json
from typing import Final

from durable_retry.engine.alerts import Alert
from durable_retry.stores.dead_letters.keys import quoted
from durable_retry.stores.storage import tables

TABLE: Final = "Alerts"

_PARTITION: Final = "alert"


async def known_alerts() -> dict[str, Alert]:
    """Return the last alert of each condition, by condition."""
    page = await tables.rows_between(TABLE, _PARTITION)
    alerts = (Alert.from_json(json.loads(row["alert"])) for row in page.rows)
    return {alert.condition: alert for alert in alerts}


async def write_alert(alert: Alert) -> None:
    """Store the present alert of a condition."""
    row = {
        "PartitionKey": _PARTITION,
        "RowKey": quoted(alert.condition),
        "alert": json.dumps(alert.to_json()),
    }
    await tables.merge(TABLE, row)

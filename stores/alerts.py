"""What was last said of each watched condition, so that it is said once.

    change ──> row `is_told` false ──> log and webhook ──> row `is_told` true

A crash in between leaves the row untold, and the next run tells it again under the same id.
"""

import json
from typing import Final

from engine.alert import Alert
from stores import tables
from stores.dead_letter_keys import quoted

TABLE: Final = "Alerts"

_PARTITION: Final = "alert"


async def known_alerts() -> dict[str, Alert]:
    """Return what was last said, by condition."""
    page = await tables.rows_between(TABLE, _PARTITION)
    alerts = (Alert.from_json(json.loads(row["alert"])) for row in page.rows)
    return {alert.condition: alert for alert in alerts}


async def write_alert(alert: Alert) -> None:
    """Keep what is said of a condition now."""
    row = {
        "PartitionKey": _PARTITION,
        "RowKey": quoted(alert.condition),
        "alert": json.dumps(alert.to_json()),
    }
    await tables.merge(TABLE, row)

"""What a timer trigger hands to its function."""

import json
from datetime import datetime
from typing import Any

from onebox.worker.runner import json_datum

_NEVER = "0001-01-01T00:00:00"


def timer_datum(
    *, last: datetime | None, next_due: datetime | None, last_updated: datetime | None, past_due: bool
) -> Any:
    """Return the trigger's data as the host writes it.

    Args:
        last: When it fired before; None for never.
        next_due: When it fires next; None when unknown.
        last_updated: When the schedule's record was written; None for never.
        past_due: Whether this run is late.
    """
    status = {"Last": _instant(last), "Next": _instant(next_due), "LastUpdated": _instant(last_updated)}
    content = {"Schedule": {"AdjustForDST": True}, "ScheduleStatus": status, "IsPastDue": past_due}
    return json_datum(json.dumps(content))


def _instant(value: datetime | None) -> str:
    return _NEVER if value is None else value.isoformat()

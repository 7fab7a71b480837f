"""What people did about root causes: rows of the table that lists dead letters.

Table `DeadLetterIndex`: PK `cause`   RK <group>
"""

import json
from collections.abc import Callable
from typing import Final

from durable_retry.dead_letters.index import TABLE
from durable_retry.storage import contents, tables
from durable_retry_console.causes.shapes import Cause

_PARTITION: Final = "cause"


async def read_causes() -> dict[str, Cause]:
    """Return what people did about causes, by group."""
    page = await tables.rows_between(TABLE, _PARTITION)
    return {cause.group: cause for cause in contents.readable(TABLE, page.rows, _cause_of_row)}


async def change_cause(group: str, rule: Callable[[Cause], Cause]) -> Cause:
    """Change what is known of a cause by a rule, and return it."""
    keys = {"PartitionKey": _PARTITION, "RowKey": group}
    return await tables.change_row(
        TABLE,
        keys,
        lambda cause: rule(cause or Cause(group=group)),
        read=_cause_of_row,
        write=lambda cause: contents.packed("cause", json.dumps(cause.to_json())),
    )


def _cause_of_row(row: tables.Row) -> Cause:
    return Cause.from_json_text(contents.unpacked("cause", row))

"""What people did about root causes, in the table of the index: few rows, one for each cause.

PK `cause`   RK <group>
"""

import json
from collections.abc import Callable

from durable_retry.engine.dead_letters.document import Cause
from durable_retry.stores.dead_letters.index import TABLE
from durable_retry.stores.storage import contents, tables

_PARTITION = "cause"


async def read_causes() -> dict[str, Cause]:
    """Return what people did about causes, by group."""
    page = await tables.rows_between(TABLE, _PARTITION)
    return {cause.group: cause for cause in contents.readable(TABLE, page.rows, _cause_of_row)}


async def change_cause(group: str, rule: Callable[[Cause], Cause]) -> Cause:
    """Change what is known of a cause by a rule, and return it.

    Raises:
        ContendedError: Others kept changing it.
        StorageRefusedError: It has no room for more.
    """
    keys = {"PartitionKey": _PARTITION, "RowKey": group}
    return await tables.change_row(
        TABLE, keys, lambda cause: rule(cause or Cause(group=group)), read=_cause_of_row, write=_row_of_cause
    )


def _cause_of_row(row: tables.Row) -> Cause:
    return Cause.from_json_text(contents.unpacked("cause", row))


def _row_of_cause(cause: Cause) -> tables.Row:
    return contents.packed("cause", json.dumps(cause.to_json()))

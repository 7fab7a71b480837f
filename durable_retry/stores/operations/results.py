"""Large results, each stored once: the history, the output and the key's record carry where it is.

    Table `OperationResults<day on which it may be removed>`
    PK <that day>[-<part>]   RK <operation's run>.<attempt>.<digest of the result>

The day is behind the end of the record and of the history, so removal looks at no operation and at no row: it
drops the tables of the days that have passed. Earlier versions wrote all rows to `OperationResults`, where
they are read, and removed row by row. The digest keeps two executions of one attempt apart, of which either
may be the one that its history knows; the other row is removed on its day.
"""

import json
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from hashlib import sha256
from typing import Any, Final

from durable_retry.engine.base.unreadable import CAUSES, marked, reason_of
from durable_retry.engine.operations.completion import VALUES
from durable_retry.engine.operations.operation import OperationInput
from durable_retry.stores.storage import contents, lists, tables, whole_tables

TABLE: Final = "OperationResults"
"""Rows of earlier versions; begins the names of the tables of days."""

STORED: Final = "stored"
"""Member of a result that names its row, in place of `_LARGE`."""

_LARGE: Final = ("json", "body", "value", VALUES)
_MARGIN: Final = timedelta(days=2)
"""Upkeep may be late, and a day is not over where clocks are behind."""

_FIRST: Final = "0001-01-01"
_FOR_EVER: Final = "9999-12-31"
REMOVED_AT_ONCE: Final = 1_000


async def store_apart(
    operation: OperationInput,
    attempt: int,
    result: Mapping[str, Any],
    *,
    most_chars: int,
    kept_for: timedelta | None,
    now: datetime,
) -> dict[str, Any]:
    """Return a result as the history carries it: a large one is stored, and named in its place. Idempotent.

    Args:
        attempt: Its number, from 1.
        result: `status_code`, `headers` and `json` or `body`; of a handler `value`, `writes` and `events`.
        most_chars: The most characters of JSON that may stay in the history.
        kept_for: How long histories are kept; None for ever.

    Raises:
        StorageRefusedError: It is larger than a row.
        azure.core.exceptions.AzureError: Storage failed.
    """
    large = {name: result[name] for name in _LARGE if name in result}
    text = json.dumps(large)
    if len(text) <= most_chars:
        return dict(result)
    name = f"{operation.run_id}.{attempt}.{sha256(text.encode()).hexdigest()[:16]}"
    day = _FOR_EVER
    if kept_for is not None:
        kept = max(kept_for, timedelta(seconds=operation.ttl_seconds)) + _MARGIN
        day = (now + kept).date().isoformat()
    keys = {"PartitionKey": lists.partition_of(day, operation.operation_id), "RowKey": name}
    # A row that exists has the same content: its name has the digest.
    await tables.insert_if_absent(_table_of(keys["PartitionKey"]), keys | contents.packed("result", text))
    rest = {name: value for name, value in result.items() if name not in _LARGE}
    return rest | {STORED: [keys["PartitionKey"], keys["RowKey"]]}


async def with_stored(result: Any) -> Any:
    """Return a result with what was stored apart, as people see it.

    In place of that it has `expired` when the row was removed, and `unreadable` when nobody can read it.
    """
    try:
        return await whole_result(result)
    except CAUSES as error:
        return {name: value for name, value in result.items() if name != STORED} | marked(reason_of(error))


async def whole_result(result: Any) -> Any:
    """Return a result with what was stored apart; with `expired` in place of that when the row was removed.

    Raises:
        azure.core.exceptions.AzureError: Storage failed.
        ValueError: Nobody can read it, or another of `unreadable.CAUSES`.
    """
    if not isinstance(result, Mapping) or STORED not in result:
        return result
    rest = {name: value for name, value in result.items() if name != STORED}
    keys = _keys_of(result[STORED])
    row = await whole_tables.find(_table_of(keys[0]), *keys) or await whole_tables.find(TABLE, *keys)
    return rest | ({"expired": True} if row is None else dict(json.loads(contents.unpacked("result", row))))


def _keys_of(stored: Any) -> tuple[str, str]:
    partition, name = stored
    date.fromisoformat(partition[: len(_FIRST)])  # It is part of a table's name.
    return partition, str(name)


async def remove_results(now: datetime) -> int:
    """Drop the tables of days that have passed, and rows of earlier versions, at most `REMOVED_AT_ONCE`.

    Returns:
        How many rows of earlier versions were deleted.
    """
    today = now.date().isoformat()
    for table in await whole_tables.tables_between(_table_of(_FIRST), _table_of(today)):
        await whole_tables.drop_table(table)
    rows = await tables.rows_after(TABLE, "0", limit=REMOVED_AT_ONCE, before=today, only=tables.KEYS)
    await tables.delete_rows(TABLE, rows)
    return len(rows)


def _table_of(partition: str) -> str:
    """Return the table of a partition, by the day that it begins with."""
    return TABLE + partition[: len(_FIRST)].replace("-", "")

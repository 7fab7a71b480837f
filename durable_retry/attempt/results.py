"""Large results are stored once; the history, the output and the key's record name the row instead.

    Table `OperationResults<day of the result>t<days that its record lives>`
    PK <that day>t<those days>[-<part>]   RK <operation's run>.<attempt>.<digest of the result>

So removal looks at no operation and at no row: it drops the tables of the days whose records and, by today's
setting, histories are over. The digest separates two executions of one attempt: the history may name the row
of either, and the other row is removed with it.
"""

import json
import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from hashlib import sha256
from math import ceil
from typing import Any, Final

from durable_retry.base.answers import CAUSES, marked, reason_of
from durable_retry.rules.operations.completion import VALUES, values_at
from durable_retry.rules.operations.operation import OperationInput
from durable_retry.storage import contents, lists, tables

TABLE_PREFIX: Final = "OperationResults"
"""Begins the names of the tables of days."""

STORED: Final = "stored"
"""Member of a result that names its row, in place of `_LARGE`."""

_LARGE: Final = ("json", "body", "value", VALUES)
_DAY_SECONDS: Final = 86_400
_MARGIN: Final = timedelta(days=2)
"""Upkeep may be late, and a day is not over where clocks are behind."""

_PARTITION: Final = re.compile(r"(\d{4}-\d{2}-\d{2}t\d+)(?:-\d+)?")
_DAYS: Final = re.compile(r"(\d{8})t(\d+)")


async def store_apart(
    operation: OperationInput, attempt: int, result: Mapping[str, Any], *, most_chars: int, now: datetime
) -> Mapping[str, Any]:
    """Return a result as the history carries it: a large one is stored and named in its place. Idempotent.

    The history also carries the values that the operation's orchestration reads.
    """
    large = {name: result[name] for name in _LARGE if name in result}
    text = json.dumps(large)
    if len(text) <= most_chars:
        return result
    name = f"{operation.run_id}.{attempt}.{sha256(text.encode()).hexdigest()[:16]}"
    days = f"{now.date().isoformat()}t{ceil(operation.ttl_seconds / _DAY_SECONDS)}"
    keys = {"PartitionKey": lists.partition_of(days, operation.operation_id), "RowKey": name}
    # A row that exists has the same content: its name has the digest.
    await tables.insert_if_absent(_table_of(keys["PartitionKey"]), keys | contents.packed("result", text))
    rest = {name: value for name, value in result.items() if name not in _LARGE}
    read = values_at(result, operation.read_at)
    return rest | ({VALUES: read} if read else {}) | {STORED: [keys["PartitionKey"], keys["RowKey"]]}


async def with_stored(result: Any) -> Any:
    """Return a result with what was stored apart, as people see it.

    In place of that it has `expired` when the row was removed, and `unreadable` when it cannot be read.
    """
    try:
        return await whole_result(result)
    except CAUSES as error:
        return {name: value for name, value in result.items() if name != STORED} | marked(reason_of(error))


async def whole_result(result: Any) -> Any:
    """Return a result with what was stored apart; with `expired` in place of that when the row was removed.

    Raises:
        ValueError: It cannot be read; or another of `answers.CAUSES`.
    """
    if not isinstance(result, Mapping) or STORED not in result:
        return result
    rest = {name: value for name, value in result.items() if name not in {STORED, VALUES}}
    keys = _keys_of(result[STORED])
    row = await tables.find(_table_of(keys[0]), *keys)
    return rest | ({"expired": True} if row is None else dict(json.loads(contents.unpacked("result", row))))


def _keys_of(stored: Any) -> tuple[str, str]:
    partition, name = stored
    return str(partition), str(name)


async def remove_results(now: datetime, kept_for: timedelta) -> int:
    """Drop the tables that are over, and return how many; `kept_for` is how long histories are kept."""
    today = now.date()
    passed = await tables.tables_between(
        f"{TABLE_PREFIX}0", f"{TABLE_PREFIX}{_compact_day(today.isoformat())}"
    )
    over = [table for table in passed if _is_over(table, today, kept_for)]
    for table in over:
        await tables.drop_table(table)
    return len(over)


def _is_over(table: str, today: date, kept_for: timedelta) -> bool:
    """Whether the table of a day that has passed is not needed any more."""
    days = _DAYS.fullmatch(table.removeprefix(TABLE_PREFIX))
    if days is None:
        return False
    keep_for = max(timedelta(days=int(days[2])), timedelta(days=ceil(kept_for / timedelta(days=1))))
    return date.fromisoformat(days[1]) + keep_for + _MARGIN < today


def _table_of(partition: str) -> str:
    """Return the table of a partition; ValueError for another one, since it becomes part of a name."""
    days = _PARTITION.fullmatch(partition)
    if days is None:
        raise ValueError(f"{partition!r} is no partition of results")
    return TABLE_PREFIX + _compact_day(days[1])


def _compact_day(day: str) -> str:
    return day.replace("-", "")

"""Azure Tables behind a few named functions. A missing table is created on first use.

What many processes write at once is listed in several partitions, because storage bounds what one partition
takes a second. A list `open` has the partitions `open`, `open-1`, `open-2` and `open-3`. Older versions wrote
all rows to the first one, so a row may be there too.
"""

import asyncio
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from itertools import batched, groupby, islice
from operator import itemgetter, methodcaller
from typing import Any, Final
from urllib.parse import quote
from zlib import crc32

from azure.core import MatchConditions
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.data.tables import TableClient, TableTransactionError, UpdateMode

from durable_retry.stores import storage_clients
from durable_retry.stores.storage_clients import run_in_pool

type Row = dict[str, Any]
type Change = tuple[str, Row] | tuple[str, Row, Mapping[str, Any]]
"""One change of a transaction, as `TableClient.submit_transaction` takes it."""

_MISSING_TABLE: Final = "TableNotFound"

_WORD: Final = re.compile(r"\w+")
"""Some calls of the client leave the service's name for an error in the message, undecoded."""

_CHUNK_CHARS: Final = 15_000
"""A string property holds 64 KiB of UTF-16, that is 32,768 code units; some characters take two."""

_MAX_PAGE_ROWS: Final = 1_000
"""Largest page that the service returns."""

MOST_CHANGES: Final = 100
"""Of one transaction."""

KEYS: Final = ("PartitionKey", "RowKey")
"""The properties that name a row."""

REFUSED_STATUSES: Final = (400, 404, 409, 412, 413)
"""A change that is wrong in itself; 401, 403 and 429 are the account's trouble and may pass."""

_REFUSED_ROW_STATUSES: Final = (400, 413)
"""A row, or the name of a table, that storage never takes."""


SHARDS: Final = 4
"""Partitions of a list."""


def partitions(name: str) -> list[str]:
    """Return the partitions of a list."""
    return [str(name), *(f"{name}-{shard}" for shard in range(1, SHARDS))]


def partition_of(name: str, item_id: str) -> str:
    """Return the partition of a list that an item is written to."""
    return partitions(name)[crc32(item_id.encode()) % SHARDS]


def partitions_with(name: str, item_id: str) -> list[str]:
    """Return the partitions that may have an item: also the one of older versions."""
    return list(dict.fromkeys((partition_of(name, item_id), str(name))))


class StorageRefusedError(Exception):
    """The storage refused a change for what it is; the same change would be refused again."""


async def insert_if_absent(table: str, row: Row) -> bool:
    """Insert a row; False when a row with these keys exists.

    Of two executions that race to insert the same row, exactly one gets True.

    Raises:
        StorageRefusedError: Storage never takes this row.
    """
    try:
        await _run(table, lambda client: client.create_entity(row))
    except ResourceExistsError:
        return False
    except HttpResponseError as error:
        _raise_refusal(error, _REFUSED_ROW_STATUSES)
        raise
    return True


async def merge(table: str, row: Row) -> None:
    """Set some properties of a row; create the row if it does not exist."""
    await _run(table, lambda client: client.upsert_entity(row, mode=UpdateMode.MERGE))


async def read(table: str, partition_key: str, row_key: str) -> Row | None:
    """Return a row, or None when there is none."""
    try:
        return await _run(table, lambda client: dict(client.get_entity(partition_key, row_key)))
    except ResourceNotFoundError:
        return None


async def find(table: str, partition_key: str, row_key: str) -> Row | None:
    """Return a row; None when there is none or no such table, which is not made: it may have been dropped."""

    def get() -> Row:
        return dict(_client(table).get_entity(partition_key, row_key))

    try:
        return await run_in_pool(get)
    except ResourceNotFoundError:
        return None


async def tables_between(after: str, before: str) -> list[str]:
    """Return the names of the account's tables from one, inclusive, to another, exclusive."""

    def query() -> list[str]:
        found = storage_clients.table_service().query_tables(
            f"TableName ge '{after}' and TableName lt '{before}'"
        )
        return [str(table.name) for table in found]

    return await run_in_pool(query)


async def drop_table(table: str) -> None:
    """Delete a table with all its rows, in one request; no error if there is none, or it is being deleted."""
    try:
        await run_in_pool(partial(storage_clients.table_service().delete_table, table))
    except HttpResponseError as error:
        if error.status_code != HTTPStatus.CONFLICT:
            raise


@dataclass(frozen=True, slots=True)
class Versioned:
    """A row as it was read, and the etag of that version."""

    row: Row
    etag: str


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a query. `cursor` continues behind it; None after the last page."""

    rows: list[Row]
    cursor: str | None


async def read_version(table: str, partition_key: str, row_key: str) -> Versioned | None:
    """Return a row with its version, or None when there is none."""

    def get(client: TableClient) -> Versioned:
        entity = client.get_entity(partition_key, row_key)
        return Versioned(dict(entity), str(entity.metadata["etag"]))

    try:
        return await _run(table, get)
    except ResourceNotFoundError:
        return None


async def merge_version(table: str, row: Row, etag: str) -> bool:
    """Set some properties of a row; False when it was deleted or changed since that version was read."""

    def update(client: TableClient) -> None:
        client.update_entity(
            row, mode=UpdateMode.MERGE, etag=etag, match_condition=MatchConditions.IfNotModified
        )

    return await _if_unchanged(table, update)


async def replace_version(table: str, row: Row, etag: str) -> bool:
    """Replace a row; False when it was deleted or changed since that version was read.

    Raises:
        StorageRefusedError: Storage never takes this row.
    """

    def update(client: TableClient) -> None:
        client.update_entity(
            row, mode=UpdateMode.REPLACE, etag=etag, match_condition=MatchConditions.IfNotModified
        )

    try:
        return await _if_unchanged(table, update)
    except HttpResponseError as error:
        _raise_refusal(error, _REFUSED_ROW_STATUSES)
        raise


async def delete(table: str, partition_key: str, row_key: str) -> None:
    """Delete a row; no error when it does not exist."""
    await _run(table, lambda client: client.delete_entity(partition_key, row_key))


async def delete_version(table: str, partition_key: str, row_key: str, etag: str) -> bool:
    """Delete a row; False when it was changed since that version was read (True when it no longer exists)."""

    def remove(client: TableClient) -> None:
        client.delete_entity(partition_key, row_key, etag=etag, match_condition=MatchConditions.IfNotModified)

    return await _if_unchanged(table, remove)


async def rows_between(
    table: str,
    partition_key: str,
    *,
    after: str = "",
    before: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    only: Sequence[str] | None = None,
) -> Page:
    """Return rows of one partition in row-key order. The cost depends on the rows in the range only.

    Args:
        table: Its name.
        partition_key: The partition.
        after: Lower bound of the row keys, inclusive.
        before: Upper bound of the row keys, exclusive; None means the end of the partition.
        limit: The most rows to return; None means all of them.
        cursor: Last row key of the previous page; None for the first page.
        only: Names of the properties to return, the keys among them; None means all.
    """
    lower = (
        f"RowKey gt '{_odata_text(cursor)}'" if cursor is not None else f"RowKey ge '{_odata_text(after)}'"
    )
    parts = [f"PartitionKey eq '{_odata_text(partition_key)}'", lower]
    if before is not None:
        parts.append(f"RowKey lt '{_odata_text(before)}'")
    # One extra row shows whether there is another page.
    wanted = None if limit is None else limit + 1

    def query(client: TableClient) -> list[Row]:
        found = client.query_entities(
            " and ".join(parts),
            results_per_page=None if wanted is None else min(wanted, _MAX_PAGE_ROWS),
            select=None if only is None else list(only),
        )
        return [dict(entity) for entity in islice(found, wanted)]

    rows = await _run(table, query)
    if limit is None or len(rows) <= limit:
        return Page(rows, None)
    return Page(rows[:limit], str(rows[limit - 1]["RowKey"]))


async def read_partition(table: str, partition_key: str) -> list[Versioned]:
    """Return all rows of one partition with their versions."""

    def query(client: TableClient) -> list[Versioned]:
        found = client.query_entities(f"PartitionKey eq '{_odata_text(partition_key)}'")
        return [Versioned(dict(entity), str(entity.metadata["etag"])) for entity in found]

    return await _run(table, query)


async def delete_versions(table: str, rows: Sequence[Versioned]) -> bool:
    """Delete rows of one partition, all or none; False when one of them was changed since it was read."""
    unchanged = MatchConditions.IfNotModified
    changes: list[Change] = [
        ("delete", keys_of(each.row), {"etag": each.etag, "match_condition": unchanged}) for each in rows
    ]
    try:
        return await transact(table, changes)
    except StorageRefusedError:
        return False


def keys_of(row: Row) -> Row:
    """Return the keys of a row."""
    return {name: row[name] for name in KEYS}


def written_over(stored: Versioned | None, row: Row) -> Change:
    """Return the change that replaces a row in the version that was read, or inserts it where none was."""
    if stored is None:
        return ("create", row)
    condition = {"etag": stored.etag, "match_condition": MatchConditions.IfNotModified}
    return ("update", row, {"mode": UpdateMode.REPLACE, **condition})


async def merged_rows(
    table: str,
    partition_keys: Sequence[str],
    *,
    after: str = "",
    before: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page:
    """Return rows of several partitions in row-key order, at one request for each; see `rows_between`."""
    pages = await asyncio.gather(
        *(
            rows_between(table, key, after=after, before=before, limit=limit, cursor=cursor)
            for key in partition_keys
        )
    )
    rows = sorted((row for page in pages for row in page.rows), key=itemgetter("RowKey"))
    if limit is None or (len(rows) <= limit and all(page.cursor is None for page in pages)):
        return Page(rows, None)
    return Page(rows[:limit], str(rows[limit - 1]["RowKey"]))


async def rows_after(
    table: str,
    partition_key: str,
    *,
    limit: int,
    before: str | None = None,
    only: Sequence[str] | None = None,
) -> list[Row]:
    """Return rows of the partitions behind a given one, in key order.

    Args:
        table: Its name.
        partition_key: Exclusive lower bound.
        limit: The most rows to return.
        before: Exclusive upper bound; None means the end of the table.
        only: Names of the properties to return, the keys among them; None means all.
    """
    upper = "" if before is None else f" and PartitionKey lt '{_odata_text(before)}'"

    def query(client: TableClient) -> list[Row]:
        found = client.query_entities(
            f"PartitionKey gt '{_odata_text(partition_key)}'{upper}",
            results_per_page=min(limit, _MAX_PAGE_ROWS),
            select=None if only is None else list(only),
        )
        return [dict(entity) for entity in islice(found, limit)]

    return await _run(table, query)


FIRST: Final = "op"
"""Sorts before every operation's partition and after the row of the removal's cursor."""

_CURSORS: Final = "!removal"


async def partitions_after(
    table: str, after: str, *, limit: int, only: Sequence[str], before: str | None = None
) -> tuple[list[tuple[str, list[Row]]], str]:
    """Return the partitions of operations behind a given one, whole, each with its rows in key order.

    Args:
        table: Its name.
        after: Exclusive lower bound.
        limit: The most rows to read.
        only: Names of the properties to return, the keys among them.
        before: Exclusive upper bound; None means the end of the table.

    Returns:
        The partitions, and the cursor of the next call: `FIRST` when these were the last.
    """
    rows = await rows_after(table, after, limit=limit, before=before, only=only)
    found = [(key, list(group)) for key, group in groupby(rows, lambda row: str(row["PartitionKey"]))]
    if len(rows) < limit:
        return found, FIRST
    # The last partition may have more rows than were read; the next page repeats it, unless it fills this.
    whole = found[:-1] or found
    return whole, whole[-1][0]


@dataclass(frozen=True, slots=True)
class Round:
    """The position of a removal that scans a whole table in rounds.

    Attributes:
        after: The cursor of the next step; `FIRST` between two rounds.
        begun_at: When the round began, RFC 3339; "" before the first.
    """

    after: str = FIRST
    begun_at: str = ""


async def read_round(table: str, name: str = "place") -> Round:
    """Return where a removal goes on.

    Args:
        table: In which it is kept.
        name: Of the removal, where one table has several.
    """
    row = await read(table, _CURSORS, name)
    return Round() if row is None else Round(str(row["after"]), str(row.get("begun_at", "")))


async def write_round(table: str, place: Round, name: str = "place") -> None:
    """Store where a removal goes on."""
    keys = {"PartitionKey": _CURSORS, "RowKey": name}
    await merge(table, keys | {"after": place.after, "begun_at": place.begun_at})


async def delete_rows(table: str, rows: Iterable[Row]) -> None:
    """Delete rows, those of one partition together; no error for those that do not exist."""
    keys = sorted((str(row["PartitionKey"]), str(row["RowKey"])) for row in rows)
    for _, of_partition in groupby(keys, itemgetter(0)):
        for some in batched(of_partition, MOST_CHANGES, strict=False):
            if len(some) > 1 and await _deleted_at_once(table, some):
                continue
            for one in some:
                await delete(table, *one)


async def _deleted_at_once(table: str, keys: Iterable[tuple[str, str]]) -> bool:
    changes = [("delete", {"PartitionKey": partition, "RowKey": row}) for partition, row in keys]
    try:
        return await transact(table, changes)
    except StorageRefusedError:
        return False  # One of them does not exist, which refuses them all.


async def transact(table: str, changes: Sequence[Change]) -> bool:
    """Make changes in one partition, all or none (an entity-group transaction).

    Returns:
        False when a row to be inserted exists already.

    Raises:
        StorageRefusedError: The changes can never be made as they are.
    """
    return await transact_for_etags(table, changes) is not None


async def transact_for_etags(table: str, changes: Sequence[Change]) -> list[str] | None:
    """As `transact`; return the new etag of each row, "" where there is none; None in place of False."""
    try:
        made = await _run(table, lambda client: client.submit_transaction(changes))
    except TableTransactionError as error:
        if _code(error) == "EntityAlreadyExists":
            return None
        _raise_refusal(error, REFUSED_STATUSES)
        raise
    except HttpResponseError as error:
        _raise_refusal(error, _REFUSED_ROW_STATUSES)
        raise
    return [str(row.get("etag", "")) for row in made]


def _raise_refusal(error: HttpResponseError, statuses: Container[int | None]) -> None:
    if error.status_code in statuses:
        raise StorageRefusedError(f"{_code(error)}: {first_line(error.message)}") from error


def packed(name: str, text: str) -> Row:
    """Split a text into properties that each fit the size limit: `name_0`, `name_1`, ..."""
    chunks = range(0, max(len(text), 1), _CHUNK_CHARS)
    return {f"{name}_{number}": text[at : at + _CHUNK_CHARS] for number, at in enumerate(chunks)}


def unpacked(name: str, row: Mapping[str, Any]) -> str:
    """Join the text that `packed` split."""
    parts: list[str] = []
    while (part := row.get(f"{name}_{len(parts)}")) is not None:
        parts.append(part)
    return "".join(parts)


def first_line(message: object) -> str:
    """Return the first line of a service's message; the other lines repeat request ids and times."""
    return next(iter(str(message).splitlines()), "")


def _code(error: HttpResponseError) -> str:
    """Return the service's error code; the client library sets the attribute without declaring it."""
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code))


async def _if_unchanged(table: str, change: Callable[[TableClient], None]) -> bool:
    try:
        await _run(table, change)
    except (ResourceModifiedError, ResourceNotFoundError):
        return False
    return True


def quoted(text: str) -> str:
    """Escape characters that a row key must not contain: slashes, `#`, `?` and control characters."""
    return quote(text, safe="=").replace("%", "!").replace("~", "!7E")


def _odata_text(text: str) -> str:
    """Escape a text for an OData filter: apostrophes are doubled."""
    return text.replace("'", "''")


async def _run[T](table: str, action: Callable[[TableClient], T]) -> T:
    return await run_in_pool(partial(with_table, table, action))


def with_table[T](table: str, action: Callable[[TableClient], T]) -> T:
    """Do something with a table on the caller's thread; when it is missing, make it and do it again."""
    client = _client(table)
    try:
        return action(client)
    except HttpResponseError as error:
        if _MISSING_TABLE not in (_code(error), *_WORD.findall(str(error))):
            raise
    storage_clients.table_service().create_table_if_not_exists(table)
    return action(client)


def _client(table: str) -> TableClient:
    return storage_clients.table_service().get_table_client(table)


def replace_at_end(table: str, rows: Iterable[Row]) -> None:
    """Write rows one by one, on the caller's thread.

    For the end of a process: the client's transactions start threads, which the interpreter refuses then.
    """
    for row in rows:
        with_table(table, methodcaller("upsert_entity", row, mode=UpdateMode.REPLACE))

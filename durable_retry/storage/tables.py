"""Azure Tables behind a few named functions. A missing table is created on first use."""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from itertools import batched, groupby, islice
from operator import itemgetter, methodcaller
from typing import TYPE_CHECKING, Any, Final

from azure.core import MatchConditions
from azure.core.exceptions import (
    AzureError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)

from durable_retry.base.errors import REFUSED_STATUSES, ContendedError, StorageRefusedError
from durable_retry.runtime.deferred import imported
from durable_retry.storage import clients as storage_clients
from durable_retry.storage.clients import items_of, run_in_pool

if TYPE_CHECKING:
    from azure.data.tables import TableClient

type Row = dict[str, Any]
type Change = tuple[str, Row] | tuple[str, Row, Mapping[str, Any]]
"""One change of a transaction, as `TableClient.submit_transaction` takes it."""

_MISSING_TABLE: Final = "TableNotFound"

_WORD: Final = re.compile(r"\w+")
"""Finds the service's error code in a message: some calls of the client do not decode it."""

_MAX_PAGE_ROWS: Final = 1_000
"""Largest page that the service returns."""

MOST_CHANGES: Final = 100
"""The most changes that one transaction takes."""

MERGE: Final = "merge"
"""Sets some properties of a row: `azure.data.tables.UpdateMode.MERGE`."""
REPLACE: Final = "replace"
"""Leaves a row with these properties alone: `azure.data.tables.UpdateMode.REPLACE`."""

KEYS: Final = ("PartitionKey", "RowKey")
"""The properties that name a row."""

_TRANSACTION_ERROR: Final = "azure.data.tables:TableTransactionError"

TRIES: Final = 10
"""How often a conditional change is tried: a try fails only where another process made a change."""

_MAY_PASS: Final = frozenset({401, 403, 404, 408, 409, 412, 429})
"""Statuses of refusals that may pass: trouble of the account, too many requests, changes of others. Any other
4xx is about a row, or the name of a table, that storage never takes."""


async def insert_if_absent(table: str, row: Row) -> bool:
    """Insert a row; False when one with these keys exists: of two that race exactly one gets True."""
    try:
        await _run_on_table(table, lambda client: client.create_entity(row))
    except ResourceExistsError:
        return False
    except HttpResponseError as error:
        _raise_refusal(error)
        raise
    return True


async def merge(table: str, row: Row) -> None:
    """Set some properties of a row; create the row if it does not exist."""
    await _run_on_table(table, methodcaller("upsert_entity", row, mode=MERGE))


async def read(table: str, partition_key: str, row_key: str) -> Row | None:
    version = await read_version(table, partition_key, row_key)
    return None if version is None else version.row


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


_IN_NO_KEY: Final = re.compile(r"[/\\#?\x00-\x1f\x7f-\x9f]")
"""Characters that no key of a row has: the service refuses even to read such a row."""

_MAX_KEY_CHARS: Final = 512


async def read_version(table: str, partition_key: str, row_key: str) -> Versioned | None:
    """Return a row, or None; ids come from callers, so the keys may be of a kind that no row has."""
    if any(len(key) > _MAX_KEY_CHARS or _IN_NO_KEY.search(key) for key in (partition_key, row_key)):
        return None

    def get(client: "TableClient") -> Versioned:
        entity = client.get_entity(partition_key, row_key)
        return Versioned(dict(entity), str(entity.metadata["etag"]))

    try:
        return await _run_on_table(table, get)
    except ResourceNotFoundError:
        return None


async def merge_version(table: str, row: Row, etag: str) -> bool:
    """Set some properties of a row; False when it was deleted or changed since that version was read."""
    return await _if_unchanged(table, methodcaller("update_entity", row, mode=MERGE, **_at_etag(etag)))


async def replace_version(table: str, row: Row, etag: str) -> bool:
    """Replace a row; False when it was deleted or changed since that version was read."""
    update = methodcaller("update_entity", row, mode=REPLACE, **_at_etag(etag))
    try:
        return await _if_unchanged(table, update)
    except HttpResponseError as error:
        _raise_refusal(error)
        raise


async def change_row[T](
    table: str,
    keys: Row,
    rule: Callable[[T | None], T],
    *,
    read: Callable[[Row], T],
    write: Callable[[T], Row],
) -> T:
    """Change a row by a rule, on condition of the version that was read, and return what is stored then.

    The rule gets what is stored (None without a row) and returns what is to be stored: the same where nothing
    changes. It is called again when another process wrote meanwhile; what it raises is raised.
    """
    failure: AzureError | None = None
    for _ in range(TRIES):
        version = await read_version(table, *(keys[name] for name in KEYS))
        before = None if version is None else read(version.row)
        after = rule(before)
        if after == before:
            return after
        row = keys | write(after)
        try:
            if version is None:
                is_ours = await insert_if_absent(table, row)
            else:
                is_ours = await replace_version(table, row, version.etag)
        except AzureError as error:
            failure = error
            continue  # The change may be stored, and only its answer be lost or 503: then the rule gets it.
        failure = None
        if is_ours:
            return after
    raise failure or ContendedError(f"{table} {[*keys.values()]}")


async def delete(table: str, partition_key: str, row_key: str) -> None:
    """Delete a row; no error when it does not exist."""
    await _run_on_table(table, lambda client: client.delete_entity(partition_key, row_key))


async def delete_version(table: str, partition_key: str, row_key: str, etag: str) -> bool:
    """Delete a row; False when it was changed since that version was read (True when it no longer exists)."""
    return await _if_unchanged(table, methodcaller("delete_entity", partition_key, row_key, **_at_etag(etag)))


async def rows_between(
    table: str,
    partition_key: str,
    *,
    after: str = "",
    before: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    only: Sequence[str] | None = None,
    where: Mapping[str, Iterable[str]] | None = None,
) -> Page:
    """Return rows of one partition in row-key order. The cost depends on the rows in the range only.

    The bounds are inclusive below and exclusive above (None: the end). The cursor is the last row key of the
    page before. `only` names the properties to return, the keys among them. `where` has the values of which
    properties must have one; storage looks through the range for them, and compares 15 values at most.
    """
    lower = f"RowKey ge '{_odata_text(after)}'" if cursor is None else f"RowKey gt '{_odata_text(cursor)}'"
    parts = [f"PartitionKey eq '{_odata_text(partition_key)}'", lower]
    if before is not None:
        parts.append(f"RowKey lt '{_odata_text(before)}'")
    for name, values in (where or {}).items():
        parts.append(f"({' or '.join(f"{name} eq '{_odata_text(value)}'" for value in values)})")
    # One extra row shows whether there is another page.
    rows = await _query(table, parts, most=None if limit is None else limit + 1, only=only)
    if limit is None or len(rows) <= limit:
        return Page(rows, None)
    return Page(rows[:limit], str(rows[limit - 1]["RowKey"]))


async def read_partition(table: str, partition_key: str) -> list[Versioned]:
    """Return all rows of one partition with their versions."""

    def query(client: "TableClient") -> list[Versioned]:
        entities = client.query_entities(f"PartitionKey eq '{_odata_text(partition_key)}'")
        return [Versioned(dict(entity), str(entity.metadata["etag"])) for entity in items_of(entities)]

    return await _run_on_table(table, query)


async def delete_versions(table: str, rows: Sequence[Versioned]) -> bool:
    """Delete rows of one partition, all or none; False when one of them was changed since it was read."""
    deletions: list[Change] = [("delete", keys_of(row.row), _at_etag(row.etag)) for row in rows]
    return await _transact_deletions(table, deletions)


def keys_of(row: Row) -> Row:
    return {name: row[name] for name in KEYS}


def written_over(stored: Versioned | None, row: Row) -> Change:
    """Return the change that replaces a row in the version that was read, or inserts it where none was."""
    return ("create", row) if stored is None else updated(stored, row, REPLACE)


def updated(stored: Versioned, row: Row, mode: str) -> Change:
    """Return the change of a row, `MERGE` or `REPLACE`, in the version that was read."""
    return ("update", row, {"mode": mode, **_at_etag(stored.etag)})


async def rows_after(
    table: str,
    partition_key: str,
    *,
    limit: int,
    before: str | None = None,
    only: Sequence[str] | None = None,
) -> list[Row]:
    """Return rows of the partitions behind that of a key, in key order.

    Both bounds are exclusive. `only` names the properties to return, the keys among them.
    """
    parts = [f"PartitionKey gt '{_odata_text(partition_key)}'"]
    if before is not None:
        parts.append(f"PartitionKey lt '{_odata_text(before)}'")
    return await _query(table, parts, most=limit, only=only)


async def _query(
    table: str, parts: Iterable[str], *, most: int | None, only: Sequence[str] | None
) -> list[Row]:
    def query(client: "TableClient") -> list[Row]:
        entities = client.query_entities(
            " and ".join(parts),
            results_per_page=None if most is None else min(most, _MAX_PAGE_ROWS),
            select=None if only is None else list(only),
        )
        return [dict(entity) for entity in islice(items_of(entities), most)]

    return await _run_on_table(table, query)


async def delete_rows(table: str, rows: Iterable[Row]) -> None:
    """Delete rows, those of one partition together; no error for those that do not exist."""
    keys = sorted((str(row["PartitionKey"]), str(row["RowKey"])) for row in rows)
    for _, partition in groupby(keys, itemgetter(0)):
        for batch in batched(partition, MOST_CHANGES, strict=False):
            deletions: list[Change] = [("delete", dict(zip(KEYS, names, strict=True))) for names in batch]
            # The transaction is refused where one of the rows does not exist.
            if len(batch) > 1 and await _transact_deletions(table, deletions):
                continue
            for names in batch:
                await delete(table, *names)


async def _transact_deletions(table: str, changes: Sequence[Change]) -> bool:
    try:
        return await transact(table, changes)
    except StorageRefusedError:
        return False


async def transact(table: str, changes: Sequence[Change]) -> bool:
    """Make changes in one partition, all or none (entity-group transaction); False: a row exists already."""
    try:
        await _run_on_table(table, lambda client: client.submit_transaction(changes))
    except HttpResponseError as error:
        is_of_transaction = isinstance(error, imported(_TRANSACTION_ERROR))
        if is_of_transaction and _error_code(error) == "EntityAlreadyExists":
            return False
        _raise_refusal(error, REFUSED_STATUSES if is_of_transaction else ())
        raise
    return True


async def find(table: str, partition_key: str, row_key: str) -> Row | None:
    """Return a row; None when there is none or no such table, which is not made: it may have been dropped."""

    def get() -> Row:
        return dict(client_of(table).get_entity(partition_key, row_key))

    try:
        return await run_in_pool(get)
    except ResourceNotFoundError:
        return None


async def tables_between(after: str, before: str) -> list[str]:
    """Return the names of the account's tables from one, inclusive, to another, exclusive."""

    def query() -> list[str]:
        pages = storage_clients.table_service().query_tables(
            f"TableName ge '{after}' and TableName lt '{before}'"
        )
        return [str(table.name) for table in items_of(pages)]

    return await run_in_pool(query)


async def drop_table(table: str) -> None:
    """Delete a table with all its rows, in one request; no error if there is none, or it is being deleted."""
    try:
        await run_in_pool(partial(storage_clients.table_service().delete_table, table))
    except HttpResponseError as error:
        if error.status_code != HTTPStatus.CONFLICT:
            raise


@contextmanager
def refusals() -> Iterator[None]:
    """Raise what storage refuses in the block, and would refuse again, as a `StorageRefusedError`."""
    try:
        yield
    except HttpResponseError as error:
        _raise_refusal(error)
        raise


def _raise_refusal(error: HttpResponseError, statuses: Container[int] = ()) -> None:
    status = error.status_code or 0
    is_for_good = 400 <= status < 500 and status not in _MAY_PASS  # noqa: PLR2004 - a class of codes
    if is_for_good or status in statuses:
        raise StorageRefusedError(f"{_error_code(error)}: {first_line(error.message)}") from error


def first_line(message: object) -> str:
    """Return the first line of a service's message; the other lines repeat request ids and times."""
    return next(iter(str(message).splitlines()), "")


def _error_code(error: HttpResponseError) -> str:
    """Return the service's error code; the client library sets the attribute without declaring it."""
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code))


def _at_etag(etag: str) -> dict[str, Any]:
    return {"etag": etag, "match_condition": MatchConditions.IfNotModified}


async def _if_unchanged(table: str, change: Callable[["TableClient"], None]) -> bool:
    try:
        await _run_on_table(table, change)
    except (ResourceModifiedError, ResourceNotFoundError):
        return False
    return True


def _odata_text(text: str) -> str:
    """Escape a text for an OData filter: apostrophes are doubled."""
    return text.replace("'", "''")


async def _run_on_table[T](table: str, action: Callable[["TableClient"], T]) -> T:
    return await run_in_pool(partial(with_table, table, action))


async def make(table: str) -> bool:
    """Make a table; False when there is one of this name."""
    try:
        await run_in_pool(partial(storage_clients.table_service().create_table, table))
    except ResourceExistsError:
        return False
    return True


def with_table[T](table: str, action: Callable[["TableClient"], T]) -> T:
    """Do something with a table on the caller's thread; when it is missing, make it and do it again."""
    client = client_of(table)
    try:
        return action(client)
    except HttpResponseError as error:
        if _MISSING_TABLE not in (_error_code(error), *_WORD.findall(str(error))):
            raise
    storage_clients.table_service().create_table_if_not_exists(table)
    return action(client)


def client_of(table: str) -> "TableClient":
    return storage_clients.table_service().get_table_client(table)

"""Tables that are dropped whole, in place of their rows one by one."""

from functools import partial
from http import HTTPStatus

from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from durable_retry.stores.storage import clients as storage_clients
from durable_retry.stores.storage import tables
from durable_retry.stores.storage.clients import run_in_pool
from durable_retry.stores.storage.tables import Row


async def find(table: str, partition_key: str, row_key: str) -> Row | None:
    """Return a row; None when there is none or no such table, which is not made: it may have been dropped."""

    def get() -> Row:
        return dict(tables.client_of(table).get_entity(partition_key, row_key))

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
        return [str(table.name) for table in pages]

    return await run_in_pool(query)


async def drop_table(table: str) -> None:
    """Delete a table with all its rows, in one request; no error if there is none, or it is being deleted."""
    try:
        await run_in_pool(partial(storage_clients.table_service().delete_table, table))
    except HttpResponseError as error:
        if error.status_code != HTTPStatus.CONFLICT:
            raise

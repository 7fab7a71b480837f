"""Azure Tables behind a few named functions.

The synchronous client runs on threads: the asynchronous one needs aiohttp, which nothing else here does. A
table is made when it is first found missing.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.data.tables import TableClient, TableServiceClient, TableTransactionError, UpdateMode

from stores.settings import storage_connection

type Row = dict[str, Any]
type Change = tuple[str, Row] | tuple[str, Row, Mapping[str, Any]]
"""One change of a transaction, as `TableClient.submit_transaction` takes it."""

_CLIENT_OPTIONS: Final = {"retry_total": 2, "connection_timeout": 3, "read_timeout": 10}
"""The durable orchestration retries; the client only bridges a blink."""

_MISSING_TABLE: Final = "TableNotFound"

_WORD: Final = re.compile(r"\w+")
"""Some calls of the client leave the service's name for an error in the message, undecoded."""

_CHUNK_CHARS: Final = 15_000
"""A string property holds 64 KiB in UTF-16: 32,768 code units, of which some characters take two."""

_REFUSED_STATUSES: Final = (400, 404, 409, 412, 413)
"""A change that is wrong in itself; 401, 403 and 429 are the account's trouble and may pass."""


class StorageRefusedError(Exception):
    """The storage refused a change for what it is; the same change would be refused again."""


async def insert_if_absent(table: str, row: Row) -> bool:
    """Insert a row; False when its keys are taken.

    This is the one write that two executions of the same step race for: exactly one gets True.
    """
    try:
        await _run(table, lambda client: client.create_entity(row))
    except ResourceExistsError:
        return False
    return True


async def merge(table: str, row: Row) -> None:
    """Set some properties of a row, making it when it is not there."""
    await _run(table, lambda client: client.upsert_entity(row, mode=UpdateMode.MERGE))


async def read(table: str, partition_key: str, row_key: str) -> Row | None:
    """Return a row, or None when there is none."""
    try:
        return await _run(table, lambda client: dict(client.get_entity(partition_key, row_key)))
    except ResourceNotFoundError:
        return None


async def transact(table: str, changes: Sequence[Change]) -> bool:
    """Make changes of one partition together or not at all.

    Returns:
        False when a row that was to be inserted exists.

    Raises:
        StorageRefusedError: The changes can never be made as they are.
    """
    try:
        await _run(table, lambda client: client.submit_transaction(changes))
    except TableTransactionError as error:
        if _code(error) == "EntityAlreadyExists":
            return False
        if error.status_code in _REFUSED_STATUSES:
            raise StorageRefusedError(f"{_code(error)}: {first_line(error.message)}") from error
        raise
    return True


def packed(name: str, text: str) -> Row:
    """Return a text as properties that each fit the limit of one: `name_0`, `name_1`, ..."""
    chunks = range(0, max(len(text), 1), _CHUNK_CHARS)
    return {f"{name}_{number}": text[at : at + _CHUNK_CHARS] for number, at in enumerate(chunks)}


def unpacked(name: str, row: Mapping[str, Any]) -> str:
    """Return the text that `packed` laid out."""
    parts: list[str] = []
    while (part := row.get(f"{name}_{len(parts)}")) is not None:
        parts.append(part)
    return "".join(parts)


def first_line(message: object) -> str:
    """Return the first line of a service's message: the others repeat request ids and times."""
    return next(iter(str(message).splitlines()), "")


def _code(error: HttpResponseError) -> str:
    """Return the service's own name for an error, which the client library sets without declaring it."""
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code))


async def _run[T](table: str, action: Callable[[TableClient], T]) -> T:
    return await asyncio.to_thread(_with_table, table, action)


def _with_table[T](table: str, action: Callable[[TableClient], T]) -> T:
    """Do something with a table; when it is missing, make it and do it again."""
    service = _service(storage_connection())
    client = service.get_table_client(table)
    try:
        return action(client)
    except HttpResponseError as error:
        if _MISSING_TABLE not in (_code(error), *_WORD.findall(str(error))):
            raise
    service.create_table_if_not_exists(table)
    return action(client)


@cache
def _service(connection: str) -> TableServiceClient:
    return TableServiceClient.from_connection_string(connection, **_CLIENT_OPTIONS)

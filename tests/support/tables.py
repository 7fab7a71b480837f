"""Azure Tables in memory: what `storage.tables` asks of a `TableServiceClient`, and nothing more.

The fake is held to the same suite as Azurite: test_tables.py of tests/integration/stores.
"""

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import pytest
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.core.paging import ItemPaged
from azure.data.tables import TableClient, TableErrorCode, TableItem, TableTransactionError, UpdateMode

_KEYS: Final = ("PartitionKey", "RowKey")
_TERM: Final = re.compile(r"(\w+) (eq|gt|ge|lt) '((?:[^']|'')*)'")
_NAMES: Final = re.compile(r"TableName ge '(\w+)' and TableName lt '(\w+)'")

type _Term = tuple[str, str, str]

_STATUSES: Final = {
    ResourceExistsError: (409, TableErrorCode.ENTITY_ALREADY_EXISTS),
    ResourceNotFoundError: (404, TableErrorCode.RESOURCE_NOT_FOUND),
    ResourceModifiedError: (412, TableErrorCode.CONDITION_NOT_MET),
}


class Entity(dict[str, Any]):
    """A row as the client library returns it: with the version beside its properties."""

    def __init__(self, values: Mapping[str, Any], etag: str) -> None:
        super().__init__(values)
        self.metadata = {"etag": etag}


@dataclass
class Partition:
    """Rows of one partition key, and their keys in order."""

    rows: dict[str, tuple[dict[str, Any], str]] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)

    def put(self, row: Mapping[str, Any], etag: str) -> None:
        key = row["RowKey"]
        if key not in self.rows:
            insort(self.keys, key)
        self.rows[key] = (dict(row), etag)

    def drop(self, key: str) -> None:
        del self.rows[key]
        self.keys.remove(key)


@dataclass
class TableInMemory:
    """One table, with the methods of a `TableClient`."""

    partitions: dict[str, Partition] = field(default_factory=dict)
    version: int = 0

    def create_entity(self, entity: Mapping[str, Any]) -> None:
        partition = self._partition(entity)
        if entity["RowKey"] in partition.rows:
            raise _failure(ResourceExistsError)
        self._put(partition, entity)

    def upsert_entity(self, entity: Mapping[str, Any], mode: UpdateMode = UpdateMode.MERGE) -> None:
        partition = self._partition(entity)
        kept = partition.rows.get(entity["RowKey"], ({}, ""))[0] if mode == UpdateMode.MERGE else {}
        self._put(partition, kept | dict(entity))

    def update_entity(
        self, entity: Mapping[str, Any], mode: UpdateMode = UpdateMode.MERGE, **condition: Any
    ) -> None:
        partition = self._partition(entity)
        kept = self._checked(partition, entity["RowKey"], condition)
        self._put(partition, (kept if mode == UpdateMode.MERGE else {}) | dict(entity))

    def get_entity(self, partition_key: str, row_key: str) -> Entity:
        found = self.partitions.get(partition_key, Partition()).rows.get(row_key)
        if found is None:
            raise _failure(ResourceNotFoundError)
        return Entity(*found)

    def delete_entity(self, partition_key: str, row_key: str, **condition: Any) -> None:
        try:
            self._delete({"PartitionKey": partition_key, "RowKey": row_key}, condition)
        except ResourceNotFoundError:
            return  # As the client library has it.

    def query_entities(
        self, query_filter: str, *, results_per_page: int | None = None, select: Sequence[str] | None = None
    ) -> ItemPaged[Entity]:
        del results_per_page  # It says how much comes at once, not how much comes.
        terms = _TERM.findall(query_filter)
        assert _filter_of(terms) == query_filter, query_filter
        entities = [
            Entity({name: values[name] for name in (select or values) if name in values}, etag)
            for values, etag in self._matching([(*term[:2], term[2].replace("''", "'")) for term in terms])
        ]
        return _paged(entities)

    def submit_transaction(self, operations: Iterable[Sequence[Any]]) -> list[Mapping[str, Any]]:
        """Make all changes or none; return the etags of the rows that are there now."""
        changes = list(operations)
        keys = {change[1]["PartitionKey"] for change in changes}
        if len(keys) != 1:
            raise ValueError("all entities of a transaction have one partition key")
        (key,) = keys
        kept = self.partitions.setdefault(key, Partition())
        self.partitions[key] = Partition(dict(kept.rows), list(kept.keys))
        try:
            for change in changes:
                self._make(*change)
        except HttpResponseError as error:
            self.partitions[key] = kept
            raise _of_transaction(error) from error
        rows = self.partitions[key].rows
        found = (rows.get(change[1]["RowKey"]) for change in changes)
        return [{} if row is None else {"etag": row[1]} for row in found]

    def _make(self, name: str, row: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> None:
        given = dict(options or {})
        match name:
            case "create":
                self.create_entity(row)
            case "upsert":
                self.upsert_entity(row, **given)
            case "update":
                self.update_entity(row, **given)
            case "delete":
                self._delete(row, given)
            case _:
                raise ValueError(name)

    def _delete(self, keys: Mapping[str, Any], condition: Mapping[str, Any]) -> None:
        partition = self._partition(keys)
        self._checked(partition, keys["RowKey"], condition)
        partition.drop(keys["RowKey"])

    def _checked(self, partition: Partition, key: str, condition: Mapping[str, Any]) -> dict[str, Any]:
        if key not in partition.rows:
            raise _failure(ResourceNotFoundError)
        values, etag = partition.rows[key]
        if condition.get("etag", etag) != etag:
            raise _failure(ResourceModifiedError)
        return values

    def _partition(self, entity: Mapping[str, Any]) -> Partition:
        return self.partitions.setdefault(entity["PartitionKey"], Partition())

    def _put(self, partition: Partition, row: Mapping[str, Any]) -> None:
        self.version += 1
        partition.put(row, f'W/"{self.version}"')

    def _matching(self, terms: list[_Term]) -> Iterator[tuple[dict[str, Any], str]]:
        of_partition = [term[1:] for term in terms if term[0] == "PartitionKey"]
        bounds = [term[1:] for term in terms if term[0] == "RowKey"]
        wanted = [(name, [term[2] for term in each]) for name, each in _by_property(terms)]
        for key in _between(sorted(self.partitions), of_partition):
            partition = self.partitions[key]
            for row_key in _between(partition.keys, bounds):
                values = partition.rows[row_key][0]
                if all(values.get(name) in texts for name, texts in wanted):
                    yield partition.rows[row_key]


def _by_property(terms: list[_Term]) -> Iterator[tuple[str, Iterator[_Term]]]:
    """Yield the terms about each property but the keys: it has one of their values."""
    return groupby((term for term in terms if term[0] not in _KEYS), itemgetter(0))


def _filter_of(terms: list[_Term]) -> str:
    keys = [f"{name} {op} '{text}'" for name, op, text in terms if name in _KEYS]
    others = (" or ".join(f"{name} eq '{text}'" for _, _, text in each) for name, each in _by_property(terms))
    return " and ".join([*keys, *(f"({each})" for each in others)])


@dataclass
class TablesInMemory:
    """A storage account's tables, with the methods of a `TableServiceClient`."""

    tables: dict[str, TableInMemory] = field(default_factory=dict)

    def get_table_client(self, table: str) -> TableInMemory:
        return self.tables.setdefault(table, TableInMemory())

    def query_tables(self, query_filter: str) -> ItemPaged[TableItem]:
        found = _NAMES.fullmatch(query_filter)
        assert found is not None, query_filter
        return _paged([TableItem(name) for name in sorted(self.tables) if found[1] <= name < found[2]])

    def delete_table(self, table: str) -> None:
        self.tables.pop(table, None)  # As the client library has it.

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return all rows of a table, for whoever looks at it from outside."""
        partitions = self.get_table_client(table).partitions.values()
        return [dict(values) for partition in partitions for values, _ in partition.rows.values()]


def _between(keys: list[str], bounds: Iterable[tuple[str, str]]) -> list[str]:
    """Return the keys within bounds, of keys in order."""
    begin, end = 0, len(keys)
    for operator, text in bounds:
        if operator in {"ge", "eq"}:
            begin = max(begin, bisect_left(keys, text))
        if operator == "gt":
            begin = max(begin, bisect_right(keys, text))
        if operator == "lt":
            end = min(end, bisect_left(keys, text))
        if operator == "eq":
            end = min(end, bisect_right(keys, text))
    return keys[begin:end]


def _failure(kind: type[HttpResponseError]) -> HttpResponseError:
    status, code = _STATUSES[kind]
    error = kind(message=f"{code.value}: the service says so")
    error.status_code = status
    error.error_code = code  # type: ignore[attr-defined] # the client library sets it without declaring it
    return error


def _of_transaction(error: HttpResponseError) -> TableTransactionError:
    failed = TableTransactionError(message=f"0:{error.message}")
    failed.status_code = error.status_code
    failed.error_code = error.error_code  # type: ignore[attr-defined] # as above
    return failed


def use_own_tables(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a test empty tables: counts and lists are of all dead letters that there are."""
    suffix = sha256(name.encode()).hexdigest()[:16]
    monkeypatch.setattr("durable_retry.dead_letters.records.TABLE", f"Letters{suffix}")
    monkeypatch.setattr("durable_retry_console.alerts.store.TABLE", f"Alerts{suffix}")
    monkeypatch.setattr("durable_retry_console.index.store.TABLE", f"Operations{suffix}")
    monkeypatch.setattr("durable_retry.storage.rounds.TABLE", f"Upkeep{suffix}")
    monkeypatch.setattr("durable_retry_console.index.store.NAMES_TABLE", f"Names{suffix}")
    monkeypatch.setattr("durable_retry.features.workflows.batch_store.TABLE", f"Batches{suffix}")
    monkeypatch.setattr("durable_retry.features.handlers.records.TABLE", f"Steps{suffix}")
    for module in ("durable_retry.hub.instance_lists", "durable_retry_console.bulk.store"):
        monkeypatch.setattr(f"{module}.TABLE", f"Workflows{suffix}")
    lists = "features.dead_letter_lists"
    for module in ("dead_letters.index", f"{lists}.pages", f"{lists}.counts"):
        monkeypatch.setattr(f"durable_retry.{module}.TABLE", f"Index{suffix}")


def refuse_large_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse rows above 1 MiB, as Azure does and the emulator does not."""

    def limited(write: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(client: TableClient, entity: dict[str, Any], **more: Any) -> Any:
            if 2 * sum(len(str(value)) for value in entity.values()) > 2**20:
                error = HttpResponseError("The entity is larger than the maximum allowed size (1MB).")
                error.status_code = 400
                error.error_code = "EntityTooLarge"  # type: ignore[attr-defined] # set by the client, undeclared
                raise error
            return write(client, entity, **more)

        return refuse

    for name in ("create_entity", "update_entity"):
        monkeypatch.setattr(TableClient, name, limited(getattr(TableClient, name)))


def _paged[T](items: list[T]) -> ItemPaged[T]:
    return ItemPaged(lambda _: items, lambda page: (None, page))

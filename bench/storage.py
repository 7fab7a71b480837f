"""Azurite in memory: it fills fast, and what a benchmark fills is gone with it."""

import asyncio
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import batched
from pathlib import Path

from durable_retry.settings.catalogue import STORAGE
from durable_retry.stores import tables
from onebox.storage.azurite import free_ports
from scripts.processes import ROOT, ServerProcess

_ROWS_PER_TRANSACTION = 100
_TRANSACTIONS_AT_ONCE = 4
"""While Azurite works on one, this process writes the next: both are busy then."""

_PROGRAM = (
    ROOT
    / "packages"
    / "onebox"
    / "onebox"
    / "azurite"
    / "node_modules"
    / "azurite"
    / "dist"
    / "src"
    / "azurite.js"
)


@contextmanager
def storage_in_memory(folder: Path) -> Iterator[str]:
    """Runs Azurite and gives its connection string.

    Args:
        folder: Where it logs.
    """
    ports = free_ports()
    node = shutil.which("node") or str(Path(sys.executable).with_name("node"))
    server = ServerProcess(
        [node, str(_PROGRAM), "--inMemoryPersistence", *ports.options],
        ready_url=f"http://127.0.0.1:{ports.table}/",
        log=folder / "azurite.log",
        env={},
    )
    server.start()
    try:
        yield ports.connection_string
    finally:
        server.stop()


@contextmanager
def storage_setting(connection: str) -> Iterator[None]:
    """Names the storage account for a while; other benchmarks have named their own."""
    before = os.environ.get(STORAGE.name)
    os.environ[STORAGE.name] = connection
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(STORAGE.name, None)
        else:
            os.environ[STORAGE.name] = before


async def fill(table: str, rows: Iterable[tables.Row]) -> None:
    """Puts new rows of one partition into a table."""
    groups = batched(rows, _ROWS_PER_TRANSACTION, strict=False)

    async def work() -> None:
        for group in groups:  # all workers take from the same groups
            await tables.transact(table, [("create", row) for row in group])

    await asyncio.gather(*(work() for _ in range(_TRANSACTIONS_AT_ONCE)))

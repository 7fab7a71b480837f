"""Azurite in memory: it fills fast, and what a benchmark fills is gone with it."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onebox.storage.azurite import free_ports
from tools.processes import ROOT, ServerProcess

_PROGRAM = ROOT / "onebox" / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "azurite.js"


@contextmanager
def storage_in_memory(folder: Path) -> Iterator[str]:
    """Runs Azurite and gives its connection string.

    Args:
        folder: Where it logs.
    """
    ports = free_ports()
    node = shutil.which("node") or str(Path(sys.executable).with_name("node"))
    options = ["--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    for name, port in (("blob", ports.blob), ("queue", ports.queue), ("table", ports.table)):
        options += [f"--{name}Host", "127.0.0.1", f"--{name}Port", str(port)]
    server = ServerProcess(
        [node, str(_PROGRAM), *options],
        ready_url=f"http://127.0.0.1:{ports.table}/",
        log=folder / "azurite.log",
        env={},
    )
    server.start()
    try:
        yield ports.connection_string
    finally:
        server.stop()

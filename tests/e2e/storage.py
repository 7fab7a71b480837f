"""An Azurite of the tests' own, so that they can reach the queues of the app they test."""

import shutil
import sys
from pathlib import Path

from onebox.storage.azurite import free_ports
from tools.processes import ROOT, ServerProcess

PROGRAM = ROOT / "onebox" / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "azurite.js"


class Storage:
    """Tables, queues and blobs in memory."""

    def __init__(self, folder: Path) -> None:
        ports = free_ports()
        self.connection_string = ports.connection_string
        node = shutil.which("node") or str(Path(sys.executable).with_name("node"))
        options = ["--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        for name, port in (("blob", ports.blob), ("queue", ports.queue), ("table", ports.table)):
            options += [f"--{name}Host", "127.0.0.1", f"--{name}Port", str(port)]
        self.server = ServerProcess(
            [node, str(PROGRAM), *options],
            ready_url=f"http://127.0.0.1:{ports.table}/",
            log=folder / "azurite.log",
            env={},
        )

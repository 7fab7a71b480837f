"""onebox as a child process that serves an app of the tests' own."""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from azure.core.exceptions import ResourceExistsError
from azure.storage.queue import QueueClient, TextBase64EncodePolicy

from onebox.storage.blobs import BlobAccount, signed_headers
from onebox.storage.ports import StoragePorts
from scripts.processes import PLAIN_HTTP, ROOT, ServerProcess, eventually, free_port, free_storage_ports
from tests.support.azurite import new_account
from tests.support.commands import ran

APPS = ROOT / "packages" / "onebox" / "tests" / "apps"
SAMPLE = APPS / "sample"
FEATURES = APPS / "features"
STREAMS = APPS / "streams"
INSTANCES = "/runtime/webhooks/durabletask/instances"
KILOBYTE = 1024
START = [sys.executable, "-m", "onebox", "start"]
IN_ONE_PROCESS = "0"
"""FUNCTIONS_WORKER_PROCESS_COUNT of tests that say nothing else: a worker process costs a start a second."""
AS_SHIPPED = ""
"""The same for tests of onebox as it is by default, with one worker process."""
OWN_AZURITE = "UseDevelopmentStorage=true"
"""AzureWebJobsStorage of tests of onebox with its own emulator; others have an account of the tests' one."""


class OneboxProcess:
    """One onebox on free ports with its own data.

    Attributes:
        url: Where it serves.
        ports: Where an Azurite of its own listens, see `OWN_AZURITE`.
        data: Its data folder; it is the same after a restart.
        server: The process: start, kill, stop.
        client: Calls it over HTTP.
    """

    def __init__(self, folder: Path, app: Path = SAMPLE, *options: str, **env: str) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.ports: StoragePorts = free_storage_ports()
        self.data = folder / "data"
        self.server = ServerProcess(
            [*START, "--app", str(app), "--port", str(port), "--data", str(self.data), *options],
            ready_url=f"{self.url}/admin/host/status",
            log=folder / "onebox.log",
            env={
                "AzureWebJobsStorage": new_account().connection_string,
                "AZURITE_BLOB_PORT": str(self.ports.blob),
                "AZURITE_QUEUE_PORT": str(self.ports.queue),
                "AZURITE_TABLE_PORT": str(self.ports.table),
                # Not what this project's app may have switched on in the process that runs the tests.
                "AZURE_FUNCTIONS_DURABLE_STRICT_TYPING": "0",
                "FUNCTIONS_WORKER_PROCESS_COUNT": IN_ONE_PROCESS,
                **env,
            },
        )
        self._queues: list[QueueClient] = []
        self.client = httpx.Client(base_url=self.url, timeout=30, verify=PLAIN_HTTP)

    def log(self) -> str:
        """What it has written so far."""
        return self.server.log.read_text()

    def says(self, word: str) -> bool:
        """Whether its app answers with a word, see `write_app`."""
        try:
            return self.client.get("/api/word").text == word
        except httpx.TransportError:
            return False

    def close(self) -> int:
        """Ends it and what the tests opened; returns its exit code."""
        for queue in self._queues:
            queue.close()
        self.client.close()
        return self.server.stop()

    @property
    def connection_string(self) -> str:
        """That of its storage, once it has started."""
        own = self.data / "storage-connection-string"
        return own.read_text() if own.exists() else self.server.env["AzureWebJobsStorage"]

    def queue(self, name: str) -> QueueClient:
        """A queue of its storage, in the encoding that triggers expect."""
        return self._opened(name, message_encode_policy=TextBase64EncodePolicy())

    def raw_queue(self, name: str) -> QueueClient:
        """A queue of its storage, whose messages are read and written as they are."""
        return self._opened(name)

    def blob(self, path: str) -> bytes | None:
        """The content of a blob of its storage, `container/name`; None when it is not there."""
        account = BlobAccount.from_connection_string(self.connection_string)
        url = f"{account.endpoint}/{path}"
        headers = signed_headers(account, "GET", url, now=datetime.now(UTC))
        answer = httpx.get(url, headers=headers, verify=PLAIN_HTTP)
        return answer.content if answer.status_code == httpx.codes.OK else None

    def _opened(self, name: str, **options: Any) -> QueueClient:
        queue = QueueClient.from_connection_string(self.connection_string, name, **options)
        with suppress(ResourceExistsError):
            queue.create_queue()  # as the infrastructure does: a trigger does not
        self._queues.append(queue)
        return queue

    def start_orchestration(self, name: str, instance_id: str, given: Any, **parameters: str) -> None:
        answer = self.client.post(f"/api/start/{name}/{instance_id}", json=given, params=parameters)
        assert answer.status_code == 202, answer.text

    def until_finished(self, instance_id: str) -> dict[str, Any]:
        """The state of an orchestration once it has ended."""

        def look() -> dict[str, Any] | None:
            answer = self.client.get(f"/api/status/{instance_id}")
            state: dict[str, Any] = answer.json()
            return state if state["status"] in {"COMPLETED", "FAILED", "TERMINATED"} else None

        return eventually(look, f"{instance_id} ends")

    def manage(self, instance_id: str, action: str, **parameters: str) -> httpx.Response:
        """Posts an action of the Durable HTTP management API."""
        return self.client.post(f"{INSTANCES}/{instance_id}/{action}", params=parameters)

    def raise_event(self, instance_id: str, name: str, data: Any) -> None:
        answer = self.client.post(f"{INSTANCES}/{instance_id}/raiseEvent/{name}", json=data)
        assert answer.status_code == 202, answer.text

    def instance(self, instance_id: str, **parameters: str) -> dict[str, Any]:
        answer = self.client.get(f"{INSTANCES}/{instance_id}", params=parameters)
        state: dict[str, Any] = answer.json()
        return state

    def until(self, instance_id: str, *wanted: str) -> dict[str, Any]:
        """The instance once the management API shows one of these statuses."""

        def look() -> dict[str, Any] | None:
            state = self.instance(instance_id)
            return state if state["runtimeStatus"] in wanted else None

        return eventually(look, f"{instance_id} is {wanted}")

    def entity(self, name: str, key: str) -> Any:
        answer = self.client.get(f"/runtime/webhooks/durabletask/entities/{name}/{key}")
        return answer.json() if answer.status_code == httpx.codes.OK else None

    def until_counted(self, key: str, wanted: int) -> None:
        """Waits for the counter entity of this key to reach a number."""
        eventually(lambda: self.client.get(f"/api/counter/{key}").text == str(wanted), f"{key} is {wanted}")

    def until_logged(self, pattern: str) -> str:
        def look() -> str | None:
            found = re.search(pattern, self.log())
            return found[0] if found else None

        return eventually(look, f"the log says {pattern!r}")


def resident(pid: int) -> int:
    """How much memory a process has, in bytes."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) * KILOBYTE


def run_to_end(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs `onebox start` with something that must keep it from serving."""
    return ran([*START, *arguments], timeout=300, env={**os.environ, **env})


_WORD_APP = """
import azure.functions as func
app = func.FunctionApp(http_auth_level=func.AuthLevel.{level})
@app.route(route="word")
def word(req: func.HttpRequest) -> str:
    return "{word}"
@app.route(route="open", auth_level=func.AuthLevel.ANONYMOUS)
def open_to_all(req: func.HttpRequest) -> str:
    return "open"
"""


def write_app(folder: Path, word: str = "first", level: str = "FUNCTION") -> None:
    """Writes an app: `word` answers the word and asks for the key of a level; `open` asks for none."""
    folder.mkdir(exist_ok=True)
    shutil.copy(SAMPLE / "host.json", folder)
    (folder / "function_app.py").write_text(_WORD_APP.format(word=word, level=level))


def copy_with_timeout(app: Path, folder: Path, seconds: int) -> None:
    """Copy an app, whose functions may take so long in the copy.

    Args:
        app: With a host.json.
        folder: For the copy; it must not exist.
        seconds: Below 60.
    """
    shutil.copytree(app, folder)
    settings = json.loads((folder / "host.json").read_text())
    settings["functionTimeout"] = f"00:00:{seconds:02}"
    (folder / "host.json").write_text(json.dumps(settings))

"""The real system, in child processes, with its own data."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

import httpx
from azure.storage.queue import QueueClient

from scripts.processes import PLAIN_HTTP, ServerProcess, free_port, free_storage_ports

DEPENDENCIES: Final = Path(__file__).with_name("dependencies.toml")
QUEUE: Final = "operations"
_HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Stage:
    """What the scenes play on.

    Attributes:
        api: The app's HTTP API.
        target: The flaky target, behind `payments` and `mailer`.
        warehouse: A second one, whose outage switch fails only the warehouse.
        queue: The storage queue `operations`.
    """

    api: httpx.Client
    target: httpx.Client
    warehouse: httpx.Client
    queue: QueueClient

    def post(self, dependency: str, key: str, path: str) -> httpx.Response:
        """Post an operation that POSTs to a dependency."""
        answer = self.api.post("/api/operations", json=operation(dependency, key, path))
        return answer.raise_for_status()

    def status(self, operation_id: str) -> dict[str, Any]:
        """Return the status document of an operation."""
        document: dict[str, Any] = self.api.get(f"/api/operations/{operation_id}").raise_for_status().json()
        return document

    def dead_letters(self, **filters: str) -> list[dict[str, Any]]:
        """Return the newest dead letters that fit."""
        found: list[dict[str, Any]] = (
            self.api.get("/api/dead-letters", params=filters).raise_for_status().json()["items"]
        )
        return found

    def calls_of(self, key: str) -> int:
        """Return how many requests with this key reached either target."""
        return sum(
            int(server.get(f"/counts/{key}").json()["count"]) for server in (self.target, self.warehouse)
        )


def operation(dependency: str, key: str, path: str) -> dict[str, Any]:
    """Return the body of an operation that POSTs to a dependency; a query may stand in the path."""
    path, _, query = path.partition("?")
    request = {"method": "POST", "path": path, "query": dict(parse_qsl(query)), "json": {"order": key}}
    return {"dependency": dependency, "key": key, "request": request}


@contextmanager
def set_stage(folder: Path) -> Iterator[Stage]:
    """Start everything, and stop it at the end.

    Args:
        folder: Where data and logs go.

    Raises:
        ServerDidNotStartError: A part ended instead; the message holds the end of its log.
    """
    storage = free_storage_ports()
    environment = {
        "AzureWebJobsStorage": "UseDevelopmentStorage=true",
        "AZURITE_BLOB_PORT": str(storage.blob),
        "AZURITE_QUEUE_PORT": str(storage.queue),
        "AZURITE_TABLE_PORT": str(storage.table),
        "DEPENDENCIES_FILE": str(DEPENDENCIES),
        "ONEBOX_QUEUES": f"{QUEUE} {QUEUE}-poison",
    }
    with ExitStack() as stack:
        target, warehouse = (_target(stack, folder, name) for name in ("target", "warehouse"))
        environment |= {"FLAKY_TARGET_URL": str(target.base_url), "WAREHOUSE_URL": str(warehouse.base_url)}
        api = _onebox(stack, folder, environment)
        connection = (folder / "data" / "storage-connection-string").read_text()
        queue = QueueClient.from_connection_string(connection, QUEUE)
        stack.callback(queue.close)
        yield Stage(api, target, warehouse, queue)


def _target(stack: ExitStack, folder: Path, name: str) -> httpx.Client:
    port = free_port()
    command = [sys.executable, "-m", "examples.flaky_target", "--port", str(port)]
    return _served(stack, folder, name, command, port=port, ready="/counts", environment={})


def _onebox(stack: ExitStack, folder: Path, environment: dict[str, str]) -> httpx.Client:
    port = free_port()
    command = [sys.executable, "-m", "onebox", "start", "--port", str(port), "--data", str(folder / "data")]
    ready = "/admin/host/status"
    return _served(stack, folder, "onebox", command, port=port, ready=ready, environment=environment)


def _served(
    stack: ExitStack,
    folder: Path,
    name: str,
    command: list[str],
    *,
    port: int,
    ready: str,
    environment: dict[str, str],
) -> httpx.Client:
    url = f"http://{_HOST}:{port}"
    server = ServerProcess(command, ready_url=url + ready, log=folder / f"{name}.log", env=environment)
    server.start()
    stack.callback(server.stop)
    return stack.enter_context(
        httpx.Client(base_url=url, timeout=30, verify=PLAIN_HTTP, limits=httpx.Limits(keepalive_expiry=2))
    )

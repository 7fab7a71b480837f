"""The app on onebox beside the flaky target, as its clients see it."""

import json
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest

from scripts.processes import PLAIN_HTTP, ROOT, ServerProcess, eventually, free_port
from tests.support.azurite import Account, new_account
from tests.support.onebox.process import IN_ONE_PROCESS
from tests.support.target import Target

HOSTED_URL = os.environ.get("E2E_URL", "")
"""The app on a host that runs already, which the tests of `system` are to use; "" means one of their own.

Beside it, `E2E_STORAGE` is the connection string of the app's storage, `E2E_TARGET_PORT` the port of loopback
that the app's `FLAKY_TARGET_URL` names, `E2E_FUNCTION_KEY` a key of its functions and `E2E_MASTER_KEY` the
key of `/admin` and `/runtime/webhooks`, where the host asks for them.
"""
SERVER = [os.environ["E2E_SERVER"]] if "E2E_SERVER" in os.environ else ["-m", "onebox"]
"""What serves the apps that tests start themselves: onebox, or a Python program that takes its arguments."""
RUN = secrets.token_hex(4)
"""What tells this run's names from those of an earlier one against the same app."""
DEPENDENCIES = ROOT / "tests" / "e2e" / "dependencies.toml"
FINISHED = {"succeeded", "dead_lettered", "cancelled"}


class System:
    """One onebox with its own data, and calls of the API.

    Attributes:
        storage: Its account, which stays when the app is killed.
    """

    def __init__(self, folder: Path, target: Target, *, app: Path = ROOT, **env: str) -> None:
        port = free_port()
        self.storage = Account(env.get("AzureWebJobsStorage") or new_account().connection_string)
        self.target = target
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, *SERVER, "start", "--app", str(app), "--port", str(port)]
        self.server = ServerProcess(
            [*command, "--data", str(folder / "data"), "--storage-ports", "free"],
            ready_url=f"{self.url}/admin/host/status",
            log=folder / "onebox.log",
            env={
                "PYTHONPATH": str(ROOT),  # beside the program that E2E_SERVER names is no project
                "AzureWebJobsStorage": self.storage.connection_string,
                "FLAKY_TARGET_URL": target.url,
                "DEPENDENCIES_FILE": str(DEPENDENCIES),
                "ONEBOX_QUEUES": "operations operations-poison",  # as infra/ makes them
                "FUNCTIONS_WORKER_PROCESS_COUNT": IN_ONE_PROCESS,
                **env,
            },
        )
        self.client = _client(self.url)

    def post(self, key: str, path: str, *, dependency: str = "flaky", **more: Any) -> httpx.Response:
        """Posts an operation that POSTs to the target."""
        return self.client.post("/api/operations", json=operation(key, path, dependency=dependency, **more))

    def accepted(self, key: str, path: str, *, dependency: str = "flaky", **more: Any) -> str:
        """Posts an operation, checks that it is accepted, and returns its id."""
        answer = self.post(key, path, dependency=dependency, **more)
        assert answer.status_code == 202, answer.text
        operation_id: str = answer.json()["operation_id"]
        return operation_id

    def status(self, operation_id: str) -> dict[str, Any]:
        answer = self.client.get(f"/api/operations/{operation_id}")
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    def until(self, operation_id: str, wanted: str, *, within_seconds: float = 30.0) -> dict[str, Any]:
        """Returns the status document once it has the wanted status."""

        def look() -> dict[str, Any] | None:
            document = self.status(operation_id)
            assert document["status"] == wanted or document["status"] not in FINISHED, json.dumps(
                document, indent=1
            )
            return document if document["status"] == wanted else None

        return eventually(look, f"{operation_id} is {wanted}", within_seconds=within_seconds)

    def until_replayed(self, dead_letter: dict[str, Any], wanted: str) -> dict[str, Any]:
        """Returns the status document of a dead letter's operation once its replay has ended as wanted."""

        def look() -> dict[str, Any] | None:
            document = self.status(dead_letter["operation_id"])
            return document if document["status"] == wanted else None

        return eventually(look, f"{dead_letter['operation_id']} is {wanted}")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the app run for a while; it has to end in order, unless it was killed."""
        try:
            self.server.start()
            yield
        finally:
            self.client.close()
            code = self.server.stop()
        assert code == 0

    def items(self, path: str, **query: str | int) -> list[dict[str, Any]]:
        """Returns what a list below `/api/` shows on all of its pages."""
        items: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            page = self.client.get(f"/api/{path}", params={**query, **cursor}).raise_for_status().json()
            items += page["items"]
            if page["next_cursor"] is None:
                return items
            cursor = {"cursor": page["next_cursor"]}

    @property
    def hub_store(self) -> Path:
        """The database of onebox's task hub; tests that lose something in it are of onebox alone."""
        if "E2E_SERVER" in os.environ:
            pytest.skip("writes into the database of onebox's own task hub")
        return self.server.log.parent / "data" / "hub.sqlite"

    def log(self) -> str:
        return self.server.log.read_text()


class HostedSystem(System):
    """The app on a host that somebody else started: `func start`, a container, or Azure.

    Tests that start, kill or read that host's process are skipped when they come to it.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.url = HOSTED_URL
        self.client = _client(self.url)
        self.client.auth = with_key

    def __getattr__(self, name: str) -> Any:
        if name == "server":
            pytest.skip("handles the host's process, and this host is somebody else's")
        raise AttributeError(name)


def with_key(request: httpx.Request) -> httpx.Request:
    """Add the key that the host asks for at a request's path."""
    is_hosts_own = request.url.path.startswith(("/admin/", "/runtime/webhooks/"))
    key = os.environ.get("E2E_MASTER_KEY" if is_hosts_own else "E2E_FUNCTION_KEY")
    if key:
        request.headers["x-functions-key"] = key
    return request


def _client(url: str) -> httpx.Client:
    # Connections are given up sooner than the server does, so that none is closed under a request.
    limits = httpx.Limits(keepalive_expiry=2)
    verify = PLAIN_HTTP if url.startswith("http://") else True
    return httpx.Client(base_url=url, timeout=30, limits=limits, verify=verify)


def operation(key: str, path: str, *, dependency: str = "flaky", **more: Any) -> dict[str, Any]:
    """The body of an operation that POSTs to the target; a query may stand in the path."""
    path, _, query = path.partition("?")
    call = {"method": "POST", "path": path, "query": dict(parse_qsl(query)), "json": {"amount": 5}}
    request = {**call, **more.pop("request", {})}
    return {"dependency": dependency, "key": key, "request": request, **more}


def dead_letter(system: System, key: str, path: str = "/status/422", **more: Any) -> str:
    document = system.until(system.accepted(key, path, **more), "dead_lettered")
    found: str = document["dead_letter"]["id"]
    return found


def shown(system: System, dead_letter_id: str) -> dict[str, Any]:
    document: dict[str, Any] = system.client.get(f"/api/dead-letters/{dead_letter_id}").json()
    return document

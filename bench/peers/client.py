"""The client: `python -m bench.peers.client SYSTEM ADDRESS`, run by the peers' own Python.

Reads one piece of work per line from its input, as JSON: `{"jobs": [[key, path], ...], "per_second": R,
"at_once": N}`; R is 0 for as fast as it goes. N threads share the jobs out, and each submits one after the
other. Then every result is read back. It prints `{"seconds": ..., "submit_seconds": [...],
"cpu_seconds": ..., "asked": {key: instant}, "failed": {key: error}}`, instants of the monotonic clock.
"""

import http.client
import json
import logging
import socket
import sys
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol
from urllib.parse import urlsplit

ACCEPTED = (200, 202)
OK = 200
POLL_SECONDS = 0.05
NEIGHBOUR = "neighbour"
"""What the keys begin with that call another dependency than the others, where a system has them."""
FINISH_SECONDS = 600


class Client(Protocol):
    """How jobs are put into one system."""

    def submit(self, key: str, path: str) -> Any:
        """Returns what `result` wants, once the system has accepted the job."""

    def result(self, handle: Any) -> None:
        """Waits until the job has succeeded and reads its result; raises when it failed."""


class Plain:
    """The plain worker's lines over TCP."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._answers = self._socket.makefile("rb")

    def submit(self, key: str, path: str) -> str:
        """Starts a task."""
        self._ask(f"submit {key} {path}")
        return key

    def result(self, handle: str) -> None:
        """Waits for the task."""
        self._ask(f"result {handle}")

    def _ask(self, line: str) -> None:
        self._socket.sendall(f"{line}\n".encode())
        if not self._answers.readline():
            raise RuntimeError(f"the plain worker gave up on {line}")


class Http:
    """A kept-alive connection that speaks JSON."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=FINISH_SECONDS)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Returns status and decoded body."""
        sent = None if body is None else json.dumps(body)
        self._connection.request(method, path, sent, {"content-type": "application/json", **headers})
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())

    def poll(self, path: str, field: str, succeeded: str, failed: Collection[str]) -> None:
        """Asks for a status until a field of it says that the work has succeeded; raises when it failed."""
        deadline = time.monotonic() + FINISH_SECONDS
        while time.monotonic() < deadline:
            status, body = self.ask("GET", path)
            if status not in ACCEPTED or body[field] in failed:
                break
            if body[field] == succeeded:
                return
            time.sleep(POLL_SECONDS)
        raise RuntimeError(f"{path}: {status} {body}")


class DurableRetry(Http):
    """This project's API."""

    def submit(self, key: str, path: str) -> str:
        """Posts an operation."""
        request = {"method": "POST", "path": path, "json": {"key": key}}
        dependency = NEIGHBOUR if key.startswith(NEIGHBOUR) else "flaky"
        status, body = self.ask(
            "POST", "/api/operations", {"dependency": dependency, "key": key, "request": request}
        )
        if status not in ACCEPTED:
            raise RuntimeError(f"{status}: {body}")
        return str(body["operation_id"])

    def result(self, handle: str) -> None:
        """Polls the operation."""
        self.poll(f"/api/operations/{handle}", "status", "succeeded", ("dead_lettered", "cancelled"))


class RetryPolicy(Http):
    """The host's endpoints for durable functions."""

    def submit(self, key: str, path: str) -> str:
        """Starts an orchestration."""
        request = {"path": path, "key": key, "json": {"key": key}}
        status, body = self.ask("POST", f"/runtime/webhooks/durabletask/orchestrators/plain/{key}", request)
        if status not in ACCEPTED:
            raise RuntimeError(f"{status}: {body}")
        return str(body["id"])

    def result(self, handle: str) -> None:
        """Polls the orchestration."""
        path = f"/runtime/webhooks/durabletask/instances/{handle}"
        self.poll(path, "runtimeStatus", "Completed", ("Failed", "Terminated", "Canceled"))


class Restate(Http):
    """Restate's ingress."""

    def submit(self, key: str, path: str) -> str:
        """Sends an invocation with an idempotency key."""
        status, body = self.ask("POST", "/Jobs/job/send", path, **{"idempotency-key": key})
        if status not in ACCEPTED:
            raise RuntimeError(f"{status}: {body}")
        return str(body["invocationId"])

    def result(self, handle: str) -> None:
        """Attaches to the invocation."""
        status, body = self.ask("GET", f"/restate/invocation/{handle}/attach")
        if status != OK:
            raise RuntimeError(f"{handle}: {status} {body}")


class Dbos:
    """DBOS' client, which writes to the database itself."""

    def __init__(self, address: str) -> None:
        from bench.peers.workers import use_new_sqlite

        use_new_sqlite()
        from dbos import DBOSClient

        self._client: Any = DBOSClient(system_database_url=address)

    def submit(self, key: str, path: str) -> Any:
        """Enqueues a workflow."""
        return self._client.enqueue({"workflow_name": "job", "queue_name": "jobs", "workflow_id": key}, path)

    def result(self, handle: Any) -> None:
        """Polls the workflow."""
        handle.get_result(polling_interval_sec=POLL_SECONDS)


class Durabletask:
    """The SDK's client over gRPC."""

    def __init__(self, address: str) -> None:
        from durabletask.client import TaskHubGrpcClient

        quiet = logging.getLogger("quiet")
        quiet.setLevel(logging.WARNING)  # The default logger prints lines for each job.
        self._client: Any = TaskHubGrpcClient(host_address=address, logger=quiet)

    def submit(self, key: str, path: str) -> Any:
        """Starts an orchestration."""
        return self._client.schedule_new_orchestration("job", input=path, instance_id=key)

    def result(self, handle: Any) -> None:
        """Waits for the orchestration."""
        self._client.wait_for_orchestration_completion(handle, timeout=FINISH_SECONDS).raise_if_failed()


CLIENTS: dict[str, Callable[[str], Client]] = {
    "plain-asyncio": Plain,
    "durable-retry": DurableRetry,
    "retry-policy": RetryPolicy,
    "restate": Restate,
    "dbos-sqlite": Dbos,
    "durabletask-mem": Durabletask,
}


def run(clients: list[Client], jobs: list[tuple[str, str]], per_second: float) -> dict[str, Any]:
    """Submits the jobs, each client its share, and reads their results back; returns what that took."""
    busy, began = time.process_time(), time.monotonic()

    def submit_share(lane: int) -> list[tuple[str, float, float, Any]]:
        submitted = []
        for number in range(lane, len(jobs), len(clients)):
            if per_second:
                time.sleep(max(0.0, began + number / per_second - time.monotonic()))
            asked = time.monotonic()
            handle = clients[lane].submit(*jobs[number])
            submitted.append((jobs[number][0], asked, time.monotonic() - asked, handle))
        return submitted

    with ThreadPoolExecutor(len(clients)) as lanes:
        submitted = [one for share in lanes.map(submit_share, range(len(clients))) for one in share]
    # One after the other: a wait holds one of the ten threads that Microsoft's in-memory backend has for all.
    failed = {}
    for key, *_, handle in submitted:
        try:
            clients[0].result(handle)
        except Exception as error:  # noqa: BLE001 # each library has its own
            failed[key] = repr(error)
    return {
        "seconds": time.monotonic() - began,
        "submit_seconds": [seconds for _, _, seconds, _ in submitted],
        "cpu_seconds": time.process_time() - busy,
        "asked": {key: asked for key, asked, *_ in submitted},
        "failed": failed,
    }


def main() -> None:
    """Does the work that arrives on the input until that ends."""
    connect = CLIENTS[sys.argv[1]]
    first = connect(sys.argv[2])
    for line in sys.stdin:
        work = json.loads(line)
        # Anew for each piece of work: the server may have closed a connection that was idle meanwhile.
        more = [connect(sys.argv[2]) for _ in range(work.pop("at_once") - 1)]
        print(json.dumps(run([first, *more], **work)), flush=True)


if __name__ == "__main__":
    main()

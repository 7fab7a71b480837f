"""The app on onebox with its activities spread over two worker processes, each with what it has seen itself.

Usage: python -m tests.support.two_workers FOLDER PORT

The Functions host runs as many with FUNCTIONS_WORKER_PROCESS_COUNT, and one for each instance in any case.
"""

import asyncio
import sys
from itertools import cycle
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx

from onebox.host import Host, Options
from onebox.hub.invoker import InvocationFailedError
from onebox.logs import set_up_logs
from onebox.worker.durable import DurableInvoker
from scripts.processes import ROOT, ServerProcess, free_port

WORKERS = 2


class SpreadInvoker(DurableInvoker):
    """Runs each activity on the worker whose turn it is; what keeps nothing between two turns runs here."""

    workers: tuple[str, ...] = ()

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._turns = cycle(httpx.AsyncClient(base_url=url, timeout=None) for url in self.workers)  # noqa: S113 - the hub's limit is the host's

    async def activity(self, name: str, instance_id: str, task_id: int, input_json: str | None) -> str | None:
        call = {"name": name, "instance_id": instance_id, "task_id": task_id, "input_json": input_json}
        answer = await next(self._turns).post(
            "/activity", json={**call, "client": self._inputs._client.value}
        )
        document: dict[str, Any] = answer.raise_for_status().json()
        if "failed" in document:
            raise InvocationFailedError(*document["failed"])
        returned: str | None = document["returned"]
        return returned


def launched(folder: Path, number: int) -> ServerProcess:
    port = free_port()
    worker = ServerProcess(
        [sys.executable, "-m", "tests.support.worker_process", str(port)],
        ready_url=f"http://127.0.0.1:{port}/",
        log=folder / f"worker-{number}.log",
        env={},
    )
    worker.launch()
    return worker


def main() -> None:
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    set_up_logs(verbose=False)
    workers = [launched(folder, number) for number in range(WORKERS)]
    for worker in workers:
        worker.until_ready()
    SpreadInvoker.workers = tuple(worker.ready_url for worker in workers)
    options = Options(app=ROOT, host="127.0.0.1", port=port, data=folder / "data")
    try:
        with patch("onebox.composition.DurableInvoker", SpreadInvoker):
            asyncio.run(Host(options).serve())
    finally:
        for worker in workers:
            worker.stop()


if __name__ == "__main__":
    main()

"""The app on onebox with its activities spread over two worker processes, each with what it has seen itself.

Usage: python -m tests.support.two_workers FOLDER PORT

The Functions host runs as many with FUNCTIONS_WORKER_PROCESS_COUNT, and one for each instance in any case.
SIGUSR1 cuts the workers off from the task hub as its clients; SIGUSR2 mends it.
"""

import asyncio
import json
import signal
import sys
from functools import partial
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
from tests.support.relay import Relay

WORKERS = 2


class SpreadInvoker(DurableInvoker):
    """Runs each activity on the worker whose turn it is; what keeps nothing between two turns runs here."""

    workers: tuple[str, ...] = ()

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._turns = cycle(httpx.AsyncClient(base_url=url, timeout=None) for url in self.workers)  # noqa: S113 - the hub's limit is the host's
        self._client: asyncio.Task[str] | None = None
        self._main = asyncio.get_running_loop()  # takes the signals; activities run on another loop

    async def activity(self, name: str, instance_id: str, task_id: int, input_json: str | None) -> str | None:
        self._client = self._client or asyncio.create_task(self._through_relay())
        call = {"name": name, "instance_id": instance_id, "task_id": task_id, "input_json": input_json}
        answer = await next(self._turns).post("/activity", json={**call, "client": await self._client})
        document: dict[str, Any] = answer.raise_for_status().json()
        if "failed" in document:
            raise InvocationFailedError(*document["failed"])
        returned: str | None = document["returned"]
        return returned

    async def _through_relay(self) -> str:
        """Returns what a client binding carries, with the relay in the place of the hub."""
        client = json.loads(self._inputs._client.value)
        relay = Relay(client["rpcBaseUrl"])
        client["rpcBaseUrl"] = await relay.start()
        loop = asyncio.get_running_loop()
        for number, act in ((signal.SIGUSR1, relay.cut), (signal.SIGUSR2, relay.mend)):
            handle = partial(loop.call_soon_threadsafe, act)
            self._main.call_soon_threadsafe(self._main.add_signal_handler, number, handle)
        return json.dumps(client)


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

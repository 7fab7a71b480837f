"""The systems that are compared, each in processes of its own, and the load that is put on them.

Many operations are posted at once; what became of them is read at the target.
"""

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
from durabletask.client import AsyncTaskHubGrpcClient

from scripts.processes import ROOT, ServerProcess, free_port

AT_ONCE = 50
POLL_SECONDS = 0.05
FINISH_SECONDS = 180

type Submit = Callable[[str, str], Awaitable[None]]
"""Starts one operation: (key, path at the target) -> accepted."""
PLAIN_APP = Path(__file__).with_name("apps") / "plain"
START_PLAIN = "/runtime/webhooks/durabletask/orchestrators/plain"
READY_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Work:
    """What is posted: the same for every system that is compared.

    Attributes:
        prefix: What the keys of this run begin with, so that runs do not meet.
        operations: How many, at least 1.
        failing_every: One in so many operations fails once; 0 = none does.
        delay_seconds: The wait before the second attempt; fixed, so that lateness can be measured.
    """

    prefix: str
    operations: int
    failing_every: int
    delay_seconds: float

    def calls(self) -> dict[str, str]:
        """Returns the path that each key calls."""
        return {f"{self.prefix}-{number}": self._path(number) for number in range(self.operations)}

    def expected_tries(self) -> int:
        """Returns how many requests the target has to see in all."""
        return self.operations + sum(path != "/echo" for path in self.calls().values())

    def _path(self, number: int) -> str:
        failing = self.failing_every > 0 and number % self.failing_every == 0
        return "/fail/1" if failing else "/echo"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run measured.

    Attributes:
        operations_per_second: Operations over the time from the first post to the last arrival at the target.
        submit_seconds: Per operation, from posting it to its acceptance.
        late_seconds: Per retry, how much later than asked the second try arrived at the target.
        duplicate_tries: Requests that the target saw beyond the expected ones.
    """

    operations_per_second: float
    submit_seconds: list[float]
    late_seconds: list[float]
    duplicate_tries: int


async def run(work: Work, submit: Submit, target_url: str) -> Outcome:
    """Posts the work, waits until the target has seen all of it, and measures.

    Raises:
        TimeoutError: The target did not see all of it within 180 s.
    """
    async with httpx.AsyncClient(base_url=target_url, timeout=30) as target:
        began = time.time()
        submit_seconds = await _submit_all(work, submit)
        tries = await _until_seen(work, target)
        arrivals = await _arrivals(work, target)
    last = max(moment for moments in arrivals.values() for moment in moments)
    return Outcome(
        operations_per_second=work.operations / (last - began),
        submit_seconds=submit_seconds,
        late_seconds=[
            moments[1] - moments[0] - work.delay_seconds for moments in arrivals.values() if len(moments) > 1
        ],
        duplicate_tries=tries - work.expected_tries(),
    )


async def _submit_all(work: Work, submit: Submit) -> list[float]:
    lanes = asyncio.Semaphore(AT_ONCE)

    async def one(key: str, path: str) -> float:
        async with lanes:
            began = time.perf_counter()
            await submit(key, path)
            return time.perf_counter() - began

    return await asyncio.gather(*(one(key, path) for key, path in work.calls().items()))


async def _until_seen(work: Work, target: httpx.AsyncClient) -> int:
    async with asyncio.timeout(FINISH_SECONDS):
        while True:
            keys = (await target.get("/counts")).json()["keys"]
            seen: int = sum(count for key, count in keys.items() if key.startswith(f"{work.prefix}-"))
            if seen >= work.expected_tries():
                return seen
            await asyncio.sleep(POLL_SECONDS)


async def _arrivals(work: Work, target: httpx.AsyncClient) -> dict[str, list[float]]:
    arrivals = {}
    for key in work.calls():
        record: dict[str, Any] = (await target.get(f"/counts/{key}")).json()
        arrivals[key] = [datetime.fromisoformat(one["received_at"]).timestamp() for one in record["tries"]]
    return arrivals


@asynccontextmanager
async def flaky_target(folder: Path) -> AsyncIterator[str]:
    """Serves the flaky target and gives its URL."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "-m", "examples.flaky_target", "--port", str(port)]
    server = ServerProcess(command, ready_url=f"{url}/counts", log=folder / "target.log", env={})
    await asyncio.to_thread(server.start)
    try:
        yield url
    finally:
        await asyncio.to_thread(server.stop)


@asynccontextmanager
async def onebox(folder: Path, app: Path, **env: str) -> AsyncIterator[httpx.AsyncClient]:
    """Serves an app on onebox and gives a client of it that keeps its connections."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "-m", "onebox", "start", "--app", str(app), "--port", str(port)]
    server = ServerProcess(
        [*command, "--data", str(folder / app.name), "--storage-ports", "auto"],
        ready_url=f"{url}/admin/host/status",
        log=folder / f"{app.name}.log",
        env=env,
    )
    await asyncio.to_thread(server.start)
    # Connections are given up sooner than the server does: one that it closes under a request would fail it.
    limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE, keepalive_expiry=2)
    try:
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as client:
            yield client
    finally:
        await asyncio.to_thread(server.stop)


@asynccontextmanager
async def durable_retry(folder: Path, target_url: str, delay_seconds: float) -> AsyncIterator[Submit]:
    """Serves this project's app; an operation is posted as clients do."""
    async with onebox(folder, ROOT, FLAKY_TARGET_URL=target_url) as client:

        async def submit(key: str, path: str) -> None:
            retry = {"strategy": "fixed", "initial_seconds": delay_seconds, "jitter": "none"}
            request = {"method": "POST", "path": path, "json": {"amount": 5}}
            body = {"dependency": "flaky", "key": key, "request": request, "retry": retry}
            (await client.post("/api/operations", json=body)).raise_for_status()

        yield submit


@asynccontextmanager
async def plain_on_onebox(folder: Path, target_url: str, delay_seconds: float) -> AsyncIterator[Submit]:
    """Serves the plain functions on onebox; an orchestration is started over its management API."""
    env = {"FLAKY_TARGET_URL": target_url, "DELAY_SECONDS": str(delay_seconds)}
    async with onebox(folder, PLAIN_APP, **env) as client:

        async def submit(key: str, path: str) -> None:
            request = {"path": path, "key": key, "json": {"amount": 5}}
            (await client.post(f"{START_PLAIN}/{key}", json=request)).raise_for_status()

        yield submit


@asynccontextmanager
async def plain_functions(folder: Path, target_url: str, delay_seconds: float) -> AsyncIterator[Submit]:
    """Serves plain durable functions on the in-memory backend; an operation is started over gRPC."""
    address = f"127.0.0.1:{free_port()}"
    arguments = [address.rpartition(":")[2], target_url, str(delay_seconds)]
    async with AsyncExitStack() as stack:
        log = stack.enter_context((folder / "baseline.log").open("ab"))
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "bench.baseline", *arguments],
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
        stack.push_async_callback(process.wait)
        stack.callback(process.kill)  # It holds nothing that is worth an orderly end.
        async with asyncio.timeout(READY_SECONDS):
            await _said_serving(process)
        quiet = logging.getLogger("bench.baseline.client")
        quiet.setLevel(logging.ERROR)
        async with AsyncTaskHubGrpcClient(host_address=address, logger=quiet) as client:

            async def submit(key: str, path: str) -> None:
                request = {"path": path, "key": key, "json": {"amount": 5}}
                await client.schedule_new_orchestration("plain", input=request, instance_id=key)

            yield submit


async def _said_serving(process: asyncio.subprocess.Process) -> None:
    if process.stdout is None or b"serving" not in await process.stdout.readline():
        raise RuntimeError("the baseline did not start; see its log")

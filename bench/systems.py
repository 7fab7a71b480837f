"""The systems that are compared, each in processes of its own, and how an operation is put into each."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
from durabletask.client import AsyncTaskHubGrpcClient

from bench.load import AT_ONCE, Submit
from scripts.processes import ROOT, ServerProcess, free_port

PLAIN_APP = Path(__file__).with_name("apps") / "plain"
START_PLAIN = "/runtime/webhooks/durabletask/orchestrators/plain"
READY_SECONDS = 30
POLL_SECONDS = 0.1


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

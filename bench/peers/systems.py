"""The systems of this benchmark, each in processes of its own, and the processor time of those."""

import asyncio
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import httpx

from scripts.processes import LOG_END, ROOT, ServerProcess, free_port

HERE = Path(__file__).parent
PLAIN_APP = HERE.parent / "apps" / "plain"
HOME = ROOT / ".bench" / "peers"
PYTHON = HOME / "venv" / "bin" / "python"
WANTED = ("requirements.txt", "package.json", "package-lock.json")
READY_SECONDS = 60
REGISTER_SECONDS = 30
POLL_SECONDS = 0.2
BACKOFF_SECONDS = 0.2
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
FUNCTIONS = "functions"
APART = {"azurite": "store", "onebox.worker": FUNCTIONS}
"""Groups of processes that another one has started, by a word of their commands."""

DEPENDENCIES = """[dependencies.flaky]
base_url = "{target_url}"
idempotency = {{ header = "Idempotency-Key" }}
retry = {{ strategy = "fixed", initial_seconds = {backoff_seconds}, jitter = "none", max_attempts = 6 }}
# Half of the jobs fail at first. Circuit and budget count every call, and must not hold the jobs up.
circuit = {{ failure_ratio = 1.0 }}
retry_budget = {{ ratio = 1.0 }}
"""


class PeersNotInstalledError(Exception):
    """The environment could not be made; the message says why."""


def set_up() -> None:
    """Makes the environment, or makes it anew when a pinned version has changed.

    Raises:
        PeersNotInstalledError: npm is missing, or an installation failed.
    """
    wanted = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in WANTED)).hexdigest()
    stamp = HOME / "installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    npm = shutil.which("npm")
    if npm is None:
        raise PeersNotInstalledError("npm is needed to install Restate's server")
    print(f"peers: installing into {HOME.relative_to(ROOT)}", flush=True)
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    for name in WANTED:
        shutil.copy(HERE / name, HOME)
    _run(sys.executable, "-m", "venv", str(HOME / "venv"))
    _run(str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", WANTED[0])
    # Without scripts: the only one of these packages reports the installation to its maker.
    _run(npm, "ci", "--ignore-scripts", "--silent", "--no-audit", "--no-fund")
    stamp.write_text(wanted)


def restate_server() -> Path:
    """Returns the program, not the Node script in front of it, whose child would outlive a kill.

    Raises:
        PeersNotInstalledError: There is none for this machine.
    """
    for program in (HOME / "node_modules" / "@restatedev").glob("restate-server-*/bin/restate-server"):
        if os.access(program, os.X_OK):
            return program
    raise PeersNotInstalledError("Restate has no server for this machine")


def _run(*command: str) -> None:
    try:
        subprocess.run(command, cwd=HOME, check=True)  # noqa: S603 # our own commands
    except subprocess.CalledProcessError as error:
        raise PeersNotInstalledError(f"{command[0]} ended with {error.returncode}; see above") from error


@dataclass(frozen=True, slots=True)
class Running:
    """A system that serves.

    Attributes:
        address: What its client connects to.
        groups: Process ids per group (`worker`, `store`); their descendants count with them.
    """

    address: str
    groups: dict[str, tuple[int, ...]]

    def cpu_seconds(self) -> dict[str, float]:
        """Returns the processor time, user and system, that each group has used so far."""
        # onebox starts the storage emulator: that counts as the store, wherever it was started. Its worker
        # processes are a group of their own.
        sums: dict[str, float] = {}
        for group, pids in self.groups.items():
            for pid in family(pids):
                command = command_of(pid)
                shown = next((apart for word, apart in APART.items() if word in command), group)
                sums[shown] = sums.get(shown, 0.0) + _cpu_seconds(pid)
        return sums


type Policy = Mapping[str, str]
"""Variables of a peer's environment that say when it repeats a call; see `bench.peers.workers`."""

DEFAULT: Policy = MappingProxyType({})

type System = Callable[[Path, str], AbstractAsyncContextManager[Running]]


@asynccontextmanager
async def spoken(
    log: Path, python: Path | str, *arguments: str, **env: str
) -> AsyncIterator[tuple[int, str]]:
    """Runs a Python module that prints "ready" once it serves; gives its id and what followed the word.

    Raises:
        RuntimeError: It ended instead.
        TimeoutError: It did not get ready within 60 s.
    """
    command = [str(python), "-m", *arguments]
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "scripts.tether", str(os.getpid()), "--", *command),
            cwd=ROOT,
            env={**os.environ, **env},
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    try:
        async with asyncio.timeout(READY_SECONDS):
            line = await process.stdout.readline() if process.stdout else b""
        word, _, rest = line.decode().strip().partition(" ")
        if word != "ready":
            said = await asyncio.to_thread(log.read_text)
            raise RuntimeError(f"{' '.join(arguments)} did not start:\n{said[-LOG_END:]}")
        yield process.pid, rest
    finally:
        if process.returncode is None:
            process.kill()  # It holds nothing that is worth an orderly end.
        await process.wait()


@asynccontextmanager
async def target(folder: Path) -> AsyncIterator[str]:
    """Serves the flaky target and gives its URL."""
    async with spoken(folder / "target.log", sys.executable, "bench.peers.target") as (_, port):
        yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def _serving(server: ServerProcess) -> AsyncIterator[int]:
    await asyncio.to_thread(server.start)
    try:
        yield server.process.pid if server.process else 0
    finally:
        await asyncio.to_thread(server.stop)


def onebox(folder: Path, app: Path, **env: str) -> tuple[ServerProcess, str]:
    """Returns an onebox with its data in the folder, not yet started, and its URL."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "-m", "onebox", "start", "--app", str(app), "--port", str(port)]
    server = ServerProcess(
        [*command, "--data", str(folder / "data"), "--storage-ports", "free"],
        ready_url=f"{url}/admin/host/status",
        log=folder / "onebox.log",
        env={"FUNCTIONS_WORKER_PROCESS_COUNT": "0", **env},  # so the time of one process is that of all parts
    )
    return server, url


def durable_retry(processes: int, dependencies: str = DEPENDENCIES) -> System:
    """This project on onebox.

    Args:
        processes: How many worker processes run the functions; 0: onebox's own process does.
        dependencies: The app's file: defaults but for the wait and a circuit that stays closed, if not given.
    """

    @asynccontextmanager
    async def run(folder: Path, target_url: str) -> AsyncIterator[Running]:
        text = dependencies.format(target_url=target_url, backoff_seconds=BACKOFF_SECONDS)
        (file := folder / "dependencies.toml").write_text(text)
        settings = {"DEPENDENCIES_FILE": str(file), "FUNCTIONS_WORKER_PROCESS_COUNT": str(processes)}
        server, url = onebox(folder, ROOT, **settings)
        async with _serving(server) as pid:
            yield Running(url, {"worker": (pid,)})

    return run


@asynccontextmanager
async def retry_policy(folder: Path, target_url: str, policy: Policy = DEFAULT) -> AsyncIterator[Running]:
    """An orchestrator with the SDK's `RetryPolicy` and an activity on onebox, and nothing of this project."""
    settings = {"FLAKY_TARGET_URL": target_url, "DELAY_SECONDS": str(BACKOFF_SECONDS), **policy}
    server, url = onebox(folder, PLAIN_APP, **settings)
    async with _serving(server) as pid:
        yield Running(url, {"worker": (pid,)})


@asynccontextmanager
async def restate(folder: Path, target_url: str, policy: Policy = DEFAULT) -> AsyncIterator[Running]:
    """Restate's server, one node with its default 24 partitions, and a service in Python."""
    ingress, admin, node, service = (str(free_port()) for _ in range(4))
    env = {
        "RESTATE_BASE_DIR": str(folder / "restate"),
        "RESTATE_BIND_IP": "127.0.0.1",
        "RESTATE_ADVERTISED_HOST": "127.0.0.1",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_NODE_NAME": "bench",
        "RESTATE_BIND_PORT": node,
        "RESTATE_INGRESS__BIND_PORT": ingress,
        "RESTATE_ADMIN__BIND_PORT": admin,
        "RESTATE_LOG_FILTER": "error",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "1",
    }
    server = ServerProcess(
        [str(restate_server()), "--no-logo"],
        ready_url=f"http://127.0.0.1:{admin}/health",
        log=folder / "restate.log",
        env=env,
    )
    async with _serving(server) as store, _worker(folder, target_url, "restate", service, **policy) as worker:
        await _register(admin, service)
        yield Running(f"http://127.0.0.1:{ingress}", {"worker": (worker,), "store": (store,)})


async def _register(admin: str, service: str) -> None:
    async with asyncio.timeout(REGISTER_SECONDS), httpx.AsyncClient(timeout=20) as client:
        deployment = {"uri": f"http://127.0.0.1:{service}"}
        url = f"http://127.0.0.1:{admin}/deployments"
        while (await client.post(url, json=deployment)).is_error:  # noqa: ASYNC110 # asks over HTTP
            await asyncio.sleep(POLL_SECONDS)


@asynccontextmanager
async def dbos(folder: Path, target_url: str, policy: Policy = DEFAULT) -> AsyncIterator[Running]:
    """DBOS on SQLite with the library's defaults; its client writes to the same file."""
    url = f"sqlite:///{folder}/dbos.sqlite"
    async with _worker(folder, target_url, "dbos", url, **policy) as worker:
        yield Running(url, {"worker": (worker,)})


@asynccontextmanager
async def durabletask(folder: Path, target_url: str, python: Path | str = PYTHON) -> AsyncIterator[Running]:
    """Microsoft's in-memory backend in one process, the SDK's worker in another."""
    port = str(free_port())
    async with (
        _worker(folder, target_url, "durabletask-backend", port, python) as store,
        _worker(folder, target_url, "durabletask-worker", port, python) as worker,
    ):
        yield Running(f"127.0.0.1:{port}", {"worker": (worker,), "store": (store,)})


@asynccontextmanager
async def plain(folder: Path, target_url: str) -> AsyncIterator[Running]:
    """Tasks of one event loop, nothing durable: the floor."""
    port = str(free_port())
    async with _worker(folder, target_url, "plain", port) as worker:
        yield Running(f"127.0.0.1:{port}", {"worker": (worker,)})


DURABLE_RETRY = "durable-retry"
SYSTEMS: dict[str, System] = {
    DURABLE_RETRY: durable_retry(0),
    "retry-policy": retry_policy,
    "restate": restate,
    "dbos-sqlite": dbos,
    "durabletask-mem": durabletask,
    "plain-asyncio": plain,
}

WORKERS: dict[str, System] = {
    DURABLE_RETRY: SYSTEMS[DURABLE_RETRY],
    f"{DURABLE_RETRY}, 1 worker process": durable_retry(1),
    f"{DURABLE_RETRY}, 2": durable_retry(2),
}


@asynccontextmanager
async def _worker(
    folder: Path, target_url: str, name: str, address: str, python: Path | str = PYTHON, **env: str
) -> AsyncIterator[int]:
    arguments = ("bench.peers.workers", name, address)
    async with spoken(folder / f"{name}.log", python, *arguments, TARGET_URL=target_url, **env) as (pid, _):
        yield pid


def family(pids: Iterable[int]) -> set[int]:
    """Returns the processes and all their descendants that run now (Linux: read from /proc)."""
    parents = {int(path.name): _stat(int(path.name)) for path in Path("/proc").glob("[0-9]*")}
    found, fresh = set[int](), set(pids)
    while fresh:
        found |= fresh
        fresh = {pid for pid, stat in parents.items() if stat and int(stat[1]) in fresh} - found
    return found


def _stat(pid: int) -> list[str]:
    """Returns the fields of proc_pid_stat(5) from the third on; none when the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _cpu_seconds(pid: int) -> float:
    stat = _stat(pid)
    return (int(stat[11]) + int(stat[12])) / TICKS_PER_SECOND if stat else 0.0


def command_of(pid: int) -> str:
    """Returns the command line of a process; "" when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""

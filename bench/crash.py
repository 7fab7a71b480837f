"""`make crash`: kill -9 of host, worker process and storage emulator under load, and what was promised of it.

The instants are drawn from a seed: once so many operations have been accepted, and up to a second later.
onebox starts its worker and its emulator again; the host is started again by this program, also when the
third crash of a worker has ended it, as in Azure. Each operation is posted until it is accepted.
"""

import argparse
import asyncio
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bench import promises
from bench.numbers import describe_machine
from bench.peers.benchmark import calls_of
from bench.peers.systems import APART, FUNCTIONS, command_of, family, onebox, target
from bench.peers.target import Call
from bench.promises import MOST_ATTEMPTS, WAIT_SECONDS, Findings, Kill, expected
from durable_retry.base.text import counted
from scripts.processes import PLAIN_HTTP, ROOT, ServerProcess, eventually

LANES = 8
OUTSTANDING_PER_LANE = 20  # What is accepted and not done stays bounded, however slow the machine is.
LONGEST_PAUSE_SECONDS = 1.0
SERVES_SECONDS = 120
ENDS_SECONDS = 600
POLL_SECONDS = 0.05
FINISHED = {"succeeded", "dead_lettered", "cancelled"}
TAKEN = {httpx.codes.OK, httpx.codes.ACCEPTED}
HOST, WORKER, STORE = "host", "worker", "store"
STARTED_BY_ONEBOX = {WORKER: FUNCTIONS, STORE: "store"}


def dependencies(target_url: str) -> str:
    """Returns the app's file: half of the operations fail at first, and only the wait holds them up."""
    return f"""[dependencies.flaky]
base_url = "{target_url}"
idempotency = {{ header = "Idempotency-Key" }}
timeouts = {{ connect_seconds = 30, attempt_seconds = 60, deadline_seconds = 0 }}
circuit = {{ failure_ratio = 1.0 }}
retry_budget = {{ ratio = 1.0 }}

[dependencies.flaky.retry]
strategy = "fixed"
initial_seconds = {WAIT_SECONDS}
jitter = "none"
max_attempts = {MOST_ATTEMPTS}
"""


class Load:
    """Posts operations, each until it is accepted, and reads how they ended.

    Attributes:
        documents: The last status document of each operation, by number.
        ids: Of operations, by number.
        stopped: Ends the load early.
    """

    def __init__(self, url: str, operations: int) -> None:
        self.documents: dict[int, dict[str, Any]] = {}
        self.ids: dict[int, str] = {}
        self.stopped = threading.Event()
        self._url, self._operations = url, operations

    @property
    def accepted(self) -> int:
        """How many so far."""
        return len(self.ids)

    def run_lane(self, lane: int) -> None:
        """Does each eighth operation."""
        open_ones = deque[int]()
        with httpx.Client(base_url=self._url, timeout=60, verify=PLAIN_HTTP) as client:
            for number in range(lane, self._operations, LANES):
                if self.stopped.is_set():
                    return
                self.ids[number] = eventually(
                    lambda number=number: self._post(client, number),  # type: ignore[misc] # a default binds it
                    f"operation {number} is accepted",
                    within_seconds=ENDS_SECONDS,
                )
                open_ones.append(number)
                if len(open_ones) > OUTSTANDING_PER_LANE:
                    self._read_end(client, open_ones.popleft())
            for number in open_ones:
                self._read_end(client, number)

    def _post(self, client: httpx.Client, number: int) -> str | None:
        key = f"crash-{number}"
        request = {"method": "POST", "path": f"{expected(number).path}/{key}", "json": {"number": number}}
        try:
            answer = client.post(
                "/api/operations", json={"dependency": "flaky", "key": key, "request": request}
            )
        except httpx.TransportError:
            return None
        return str(answer.json()["operation_id"]) if answer.status_code in TAKEN else None

    def _read_end(self, client: httpx.Client, number: int) -> None:
        """Keeps the document once the operation has ended, or as it is when it never does."""
        deadline = time.monotonic() + ENDS_SECONDS
        while time.monotonic() < deadline and not self.stopped.is_set():
            try:
                answer = client.get(f"/api/operations/{self.ids[number]}")
            except httpx.TransportError:
                answer = httpx.Response(httpx.codes.SERVICE_UNAVAILABLE)
            if answer.status_code == httpx.codes.OK:
                self.documents[number] = answer.json()
                if answer.json()["status"] in FINISHED:
                    return
            time.sleep(POLL_SECONDS)


class Killer:
    """Kills parts of a onebox, and waits until it serves again.

    Args:
        server: The onebox.
        url: Where it serves.
    """

    def __init__(self, server: ServerProcess, url: str) -> None:
        self._server = server
        self._client = httpx.Client(base_url=url, timeout=10, verify=PLAIN_HTTP)
        self.kills: list[Kill] = []

    def kill(self, part: str) -> None:
        """Kills one part, whichever process it is now."""
        began = time.monotonic()
        if part == HOST:
            self._server.kill()
            self._server.start()
        else:
            pids = eventually(lambda: self._pids(part) or None, f"{part} runs")
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            eventually(
                lambda: self._noticed(part, pids), f"the end of {part} is seen", within_seconds=SERVES_SECONDS
            )
        eventually(self._serves, f"all serve after a kill of {part}", within_seconds=SERVES_SECONDS)
        self.kills.append(Kill(part, began, time.monotonic()))

    def _pids(self, part: str) -> set[int]:
        """Returns the processes of a part; the emulator's has a tether, which dies with it."""
        word = next(word for word, group in APART.items() if group == STARTED_BY_ONEBOX[part])
        host = self._server.process
        return set() if host is None else {pid for pid in family([host.pid]) if word in command_of(pid)}

    def _noticed(self, part: str, pids: set[int]) -> bool:
        if self._has_ended():
            return True
        status = self._status()
        if part == STORE:
            says_so = any("the storage emulator" in error for error in status.get("errors", ()))
            return says_so and status["state"] == "Error"
        return bool(status) and not pids & {worker["pid"] for worker in status["workers"]}

    def _serves(self) -> bool:
        if self._has_ended():
            self._server.kill()  # It reaps the process.
            self._server.start()
        status = self._status()
        workers = status.get("workers", ())
        return status.get("state") == "Running" and all(worker["state"] == "Running" for worker in workers)

    def _has_ended(self) -> bool:
        return self._server.process is None or self._server.process.poll() is not None

    def _status(self) -> dict[str, Any]:
        try:
            status: dict[str, Any] = self._client.get("/admin/host/status").json()
        except httpx.TransportError:
            return {}
        return status

    def close(self) -> None:
        """Closes its connection."""
        self._client.close()


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run.

    Attributes:
        operations: How many, at least 1.
        kills: How many kills.
        seed: Of parts and instants.
        workers: How many worker processes onebox has; 0: its own process runs the functions.
    """

    operations: int
    kills: int
    seed: int
    workers: int = 1

    def draw(self) -> list[tuple[int, float, str]]:
        """Returns after how many accepted operations, how many seconds later, and which part is killed."""
        draws = random.Random(self.seed)  # noqa: S311 # instants that a seed gives again
        parts = (HOST, STORE, WORKER) if self.workers else (HOST, STORE)
        after = sorted(math.floor(draws.uniform(0, self.operations)) for _ in range(self.kills))
        return [(many, draws.uniform(0, LONGEST_PAUSE_SECONDS), draws.choice(parts)) for many in after]


async def crash(folder: Path, plan: Plan) -> tuple[Findings, list[Kill]]:
    """Runs a plan; returns what broke, and the kills.

    Args:
        folder: For data and logs.
    """
    async with target(folder) as target_url:
        (file := folder / "dependencies.toml").write_text(dependencies(target_url))
        server, url = onebox(
            folder, ROOT, DEPENDENCIES_FILE=str(file), FUNCTIONS_WORKER_PROCESS_COUNT=str(plan.workers)
        )
        await asyncio.to_thread(server.start)
        try:
            load = Load(url, plan.operations)
            kills = await asyncio.to_thread(_run, server, url, plan, load)
        finally:
            await asyncio.to_thread(server.stop)
        calls = await calls_of(target_url)
    return judged(load, calls, kills), kills


def _run(server: ServerProcess, url: str, plan: Plan, load: Load) -> list[Kill]:
    killer, lanes = Killer(server, url), ThreadPoolExecutor(LANES)
    try:
        running = [lanes.submit(load.run_lane, lane) for lane in range(LANES)]
        for many, later, part in plan.draw():
            while load.accepted < many and not any(lane.done() and lane.exception() for lane in running):
                time.sleep(POLL_SECONDS)
            time.sleep(later)
            killer.kill(part)
            kill = killer.kills[-1]
            print(f"{load.accepted} accepted, {part} killed, {kill.over - kill.began:.1f} s", flush=True)
        for lane in running:
            lane.result()
    finally:
        load.stopped.set()
        lanes.shutdown()
        killer.close()
    return killer.kills


def judged(load: Load, calls: Iterable[Call], kills: list[Kill]) -> Findings:
    """Returns what broke of all operations."""
    findings, by_key = Findings(), defaultdict[str, list[Call]](list)
    for call in calls:
        by_key[call.key].append(call)
    for number, operation_id in sorted(load.ids.items()):
        name = f"{operation_id} (crash-{number})"
        document = load.documents.get(number, {})
        findings.judge(name, expected(number), document, by_key[f"crash-{number}"], kills)
    return findings


def main() -> None:
    """Runs what the command line asks for; exit code 1 when a promise was broken."""
    parser = argparse.ArgumentParser(
        prog="make crash",
        description=f"{__doc__}\n{promises.__doc__}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--operations", type=int, default=100_000, help="(default: 100000)")
    parser.add_argument("--kills", type=int, default=20, help="(default: 20)")
    parser.add_argument("--seed", type=int, default=7, help="of instants and parts (default: 7)")
    plan = Plan(**vars(parser.parse_args()))
    machine, began = describe_machine(), time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="crash-"))
    findings, kills = asyncio.run(crash(folder, plan))
    for promise, broken in findings.broken.items():
        print(*(f"{promise}: {each}" for each in broken), sep="\n", end="\n" if broken else "")
    parts = ", ".join(f"{part} {many}" for part, many in sorted(Counter(kill.part for kill in kills).items()))
    counts = ", ".join(f"{len(broken)} {promise}" for promise, broken in findings.broken.items())
    print(
        f"crash: {plan.operations} operations, {counted(len(kills), 'kill')} ({parts}): {counts};"
        f" {findings.repeated} attempts that a kill cut off were made again under their number;"
        f" seed {plan.seed}, {time.monotonic() - began:.0f} s. {machine}"
    )
    if any(findings.broken.values()):
        sys.exit(f"crash: a promise was broken; data and logs are in {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()

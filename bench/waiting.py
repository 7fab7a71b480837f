"""Many operations that wait: the memory that they take, a start over them, and the work beside them.

Each makes a first call, is answered 503 with a `Retry-After` of two hours, and waits on a durable timer.
"""

import asyncio
import random
import sqlite3
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import httpx

from bench.memory import MEBI
from bench.numbers import Row, Table, milliseconds, percentile
from bench.peers.client import OK, Http
from bench.peers.systems import Running, onebox, target
from scripts.processes import eventually, running

LANES = 32
"""Connections that post at the same time."""
LEVELS = (50, 5, 1)
"""What the number of operations is divided by for each column."""
RETRY_AFTER_SECONDS = 7_200
FAR_SECONDS = 600
"""A timer that is due later than this is that of an operation, and does not fire while it is looked at."""
POST_SECONDS = 1_800
WAIT_SECONDS = 300
QUIET_SECONDS = 10
"""Before memory is looked at: what has ended is packed within five, and batches of rows are written."""
WATCH_SECONDS = 5.0
WARM_UP = 200
HEALTHY = 20
READS = 200
POLL_SECONDS = 0.005
FINISH_SECONDS = 60
NOTE_BYTES = 200  # as twice as many hexadecimal digits
KILO, MEGA = 1_000, 1_000_000

DEPENDENCIES = """[dependencies.flaky]
base_url = "{target_url}"
idempotency = {{ header = "Idempotency-Key" }}
timeouts = {{ deadline_seconds = 86400 }}
retry = {{ preset = "rate_limited", max_retry_after_seconds = 7200 }}
# Each operation is to make its own first call. So the circuit is off, and a 503 with Retry-After, which would
# pause the dependency for all of them, counts as any failure; its operation still waits as long as it says.
classify = {{ 503 = "transient" }}
circuit = {{ enabled = false }}
retry_budget = {{ ratio = 1.0 }}
"""

NOTES = (
    f"Posted over {LANES} connections, with half a kilobyte each; each called once and waits for two hours.",
    f"None waits: {WARM_UP} operations have succeeded. Memory: {QUIET_SECONDS} s after the last post.",
    "Memory is the resident set; for each more that waits: over the column before.",
    "used in `hub.sqlite`: its pages less the free ones; for each: over the column in which none waits.",
    f"p50 of {READS} reads, and of {HEALTHY} healthy operations; one after the other.",
    "A start counts from the launch of the process; after `kill -9` it waits for Azurite, which ends first.",
)


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one moment.

    Attributes:
        waiting: Operations that wait.
        filled: Seconds from the first post since the look before until all wait; 0 when none was posted.
        onebox: Resident bytes of onebox.
        store: Resident bytes of the storage emulator.
        used: Bytes of the hub's file that are in use.
        processor: Share of a processor that onebox takes while nothing is asked of it.
        read: Seconds of reading the status of one that waits, p50; None when none waits.
        healthy: Seconds from submitting an operation to its success, p50.
    """

    waiting: int
    filled: float
    onebox: float
    store: float
    used: int
    processor: float
    read: float | None
    healthy: float


@dataclass(frozen=True, slots=True)
class Begun:
    """A start of onebox.

    Attributes:
        answers: Seconds until its host answers.
        succeeded: Seconds until a new operation has succeeded.
        onebox: Resident bytes of onebox, once its host answers.
        store: The same of the storage emulator.
    """

    answers: float
    succeeded: float
    onebox: float
    store: float


class Waiting:
    """onebox with operations that wait.

    Args:
        folder: Where it keeps its data and log.
        target_url: What the operations call.
    """

    def __init__(self, folder: Path, target_url: str) -> None:
        self.server, self._url = onebox(folder, DEPENDENCIES.format(target_url=target_url))
        self._hub = folder / "data" / "hub.sqlite"
        self._target_url = target_url
        self._ids: list[str] = []
        self._posted = 0

    def begun(self, launched: float) -> Begun:
        """Returns what a start took since `launched`, an instant of `time.perf_counter`."""
        answers = time.perf_counter() - launched
        memory = self._running().resident_bytes()
        self._succeed(1)
        return Begun(answers, time.perf_counter() - launched, memory["worker"], memory["store"])

    def warm_up(self) -> None:
        """Lets some operations succeed, so that what the first ones load is not counted as theirs."""
        self._post([f"/fails/0/warm-{number}" for number in range(WARM_UP)])

    def fill(self, waiting: int) -> float:
        """Posts operations until so many wait, and returns the seconds that this took.

        Raises:
            TimeoutError: They do not.
        """
        began = time.perf_counter()
        numbers = range(len(self._ids), waiting)
        self._ids += self._post([f"/later/{RETRY_AFTER_SECONDS}/waits-{number}" for number in numbers])
        eventually(
            lambda: self._count() == waiting, f"{waiting} operations wait", within_seconds=WAIT_SECONDS
        )
        return time.perf_counter() - began

    def look(self, filled: float = 0.0) -> Look:
        """Looks at the memory when all is quiet, then reads and submits beside those that wait.

        Args:
            filled: What `fill` returned.
        """
        time.sleep(QUIET_SECONDS)
        memory, used = self._running().resident_bytes(), self._used()
        processor = self._processor()
        read = self._read() if self._ids else None
        return Look(
            waiting=self._count(),
            filled=filled,
            onebox=memory["worker"],
            store=memory["store"],
            used=used,
            processor=processor,
            read=read,
            healthy=percentile(self._succeed(HEALTHY), 50),
        )

    def begin_again(self) -> Begun:
        """Kills onebox as a power cut would, and starts it."""
        self.server.kill()
        launched = time.perf_counter()
        self.server.start()
        return self.begun(launched)

    def unexpected_calls(self) -> int:
        """Returns how many calls the target has seen beyond one for each operation."""
        log = httpx.get(f"{self._target_url}/log", timeout=60).json()
        return len(log) - self._posted

    def _running(self) -> Running:
        process = self.server.process
        return Running(self._url, {"worker": (process.pid,) if process else ()})

    def _post(self, paths: Sequence[str]) -> list[str]:
        """Posts an operation for each path, and returns their ids."""
        until = time.monotonic() + POST_SECONDS

        def lane(own: Sequence[str]) -> list[str]:
            client, ids = Http(self._url), []
            for path in own:
                if time.monotonic() > until:
                    raise TimeoutError(f"not within {POST_SECONDS} s: {len(paths)} operations are posted")
                ids.append(submit(client, path))
            return ids

        with ThreadPoolExecutor(LANES) as threads:
            found = list(threads.map(lane, [paths[number::LANES] for number in range(LANES)]))
        self._posted += len(paths)
        return [operation_id for ids in found for operation_id in ids]

    def _succeed(self, operations: int) -> list[float]:
        """Lets operations succeed one after the other; returns the seconds from submission to success."""
        client, seconds = Http(self._url), []
        for _ in range(operations):
            self._posted += 1
            began = time.perf_counter()
            operation_id = submit(client, f"/fails/0/healthy-{self._posted}")
            while status_of(client, operation_id) != "succeeded":
                if time.perf_counter() - began > FINISH_SECONDS:
                    raise TimeoutError(f"not within {FINISH_SECONDS} s: {operation_id} succeeds")
                time.sleep(POLL_SECONDS)
            seconds.append(time.perf_counter() - began)
        return seconds

    def _read(self) -> float:
        client, seconds = Http(self._url), []
        for operation_id in random.Random(READS).choices(self._ids, k=READS):  # noqa: S311 # only a sample
            began = time.perf_counter()
            status = status_of(client, operation_id)
            seconds.append(time.perf_counter() - began)
            if status != "waiting_retry":
                raise RuntimeError(f"{operation_id} is {status}")
        return percentile(seconds, 50)

    def _processor(self) -> float:
        before = self._running().cpu_seconds()["worker"]
        time.sleep(WATCH_SECONDS)
        return (self._running().cpu_seconds()["worker"] - before) / WATCH_SECONDS

    def _count(self) -> int:
        """Returns how many operations wait for a timer that is not due soon."""
        far_us = int((time.time() + FAR_SECONDS) * 1_000_000)
        return self._asked(
            "SELECT count(*) FROM messages WHERE delayed = 1 AND due_us > ? AND target GLOB 'op-*'", far_us
        )

    def _used(self) -> int:
        pages = self._asked("PRAGMA page_count") - self._asked("PRAGMA freelist_count")
        return pages * self._asked("PRAGMA page_size")

    def _asked(self, statement: str, *values: int) -> int:
        with closing(sqlite3.connect(f"file:{self._hub}?mode=ro", uri=True, timeout=30)) as hub:
            found: int = hub.execute(statement, values).fetchone()[0]
        return found


def submit(client: Http, path: str) -> str:
    """Posts an operation whose key is the end of its path at the target; returns its id."""
    key = path.rpartition("/")[2]
    # Random, so that packing saves no more of it than of other bodies.
    note = random.Random(key).randbytes(NOTE_BYTES).hex()  # noqa: S311 # only a filling
    request = {"method": "POST", "path": path, "json": {"key": key, "note": note}}
    status, body = client.ask(
        "POST", "/api/operations", {"dependency": "flaky", "key": key, "request": request}
    )
    if status >= httpx.codes.BAD_REQUEST:
        raise RuntimeError(f"{status}: {body}")
    return str(body["operation_id"])


def status_of(client: Http, operation_id: str) -> str:
    """Reads the status document of an operation; returns its status."""
    status, body = client.ask("GET", f"/api/operations/{operation_id}")
    return str(body["status"]) if status == OK else str(status)


async def measure(folder: Path, operations: int) -> list[Table]:
    """Lets ever more operations wait, then kills onebox and starts it over all of them.

    Args:
        folder: Where everything keeps its data and logs.
        operations: How many wait in the end, at least 50.
    """
    async with target(folder) as target_url:
        return [await asyncio.to_thread(_measured, Waiting(folder, target_url), operations)]


def _measured(waiting: Waiting, operations: int) -> Table:
    launched = time.perf_counter()
    with running(waiting.server):
        first = waiting.begun(launched)
        waiting.warm_up()
        looks = [waiting.look()]
        for divisor in LEVELS:
            filled = waiting.fill(operations // divisor)
            looks.append(waiting.look(filled))
        again = waiting.begin_again()
        looks.append(waiting.look())
        return table(first, looks, again, waiting.unexpected_calls())


def table(first: Begun, looks: Sequence[Look], again: Begun, unexpected_calls: int) -> Table:
    """Puts together what was seen.

    Args:
        first: The start of an empty folder.
        looks: Before any waits, with ever more that wait, and after the start over all of them.
        again: That start.
        unexpected_calls: Calls beyond the expected.
    """
    none, *levels, last = looks
    gaps = ("-",) * (1 + len(levels))

    def mebibytes(name: str, just_started: float, seen: Sequence[float]) -> Row:
        return Row(name, "MiB", tuple(f"{each / MEBI:.0f}" for each in (just_started, *seen)))

    def seen(name: str, unit: str, texts: Sequence[str]) -> Row:
        return Row(name, unit, ("-", *texts))

    def starts(name: str, first_seconds: float, again_seconds: float) -> Row:
        return Row(name, "s", (f"{first_seconds:.1f}", *gaps, f"{again_seconds:.1f}"))

    more = [
        f"{(later.onebox - earlier.onebox) / (later.waiting - earlier.waiting) / KILO:.1f}"
        for earlier, later in pairwise((none, *levels))
    ]
    each = [f"{(look.used - none.used) / look.waiting / KILO:.1f}" for look in (*levels, last)]
    reads = ["-" if look.read is None else milliseconds(look.read) for look in looks]
    rows = (
        mebibytes("memory of onebox", first.onebox, [look.onebox for look in looks]),
        seen("- for each more that waits", "KB", ["-", *more, "-"]),
        mebibytes("memory of the storage emulator", first.store, [look.store for look in looks]),
        seen("used in `hub.sqlite`", "MB", [f"{look.used / MEGA:.1f}" for look in looks]),
        seen("- for each that waits", "KB", ["-", *each]),
        seen("first post until all wait", "s", ["-", *(f"{look.filled:.0f}" for look in levels), "-"]),
        seen("processor while they wait", "%", [f"{100 * look.processor:.1f}" for look in looks]),
        seen("status of one that waits p50", "ms", reads),
        seen("submission to success p50", "ms", [milliseconds(look.healthy) for look in looks]),
        starts("start until the host answers", first.answers, again.answers),
        starts("start until a new one succeeded", first.succeeded, again.succeeded),
        seen("calls beyond the expected", "1", [*gaps, str(unexpected_calls)]),
    )
    columns = ("just started", "none waits", *(f"{look.waiting:,} wait" for look in levels), "after kill -9")
    return Table(f"{last.waiting:,} operations that wait", columns, rows, NOTES)

"""Under load for `SOAK_SECONDS` (an hour: 3600), neither memory nor the store goes on growing.

What ended a while ago is purged, as in an app that runs for months. What was seen is in `looks.jsonl` in the
test's folder.
"""

import json
import os
import random
import sqlite3
import string
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from scripts.processes import PLAIN_HTTP, ROOT, eventually
from tests.support.onebox.process import INSTANCES, OneboxProcess, resident
from tests.support.target import Target

SECONDS = float(os.environ.get("SOAK_SECONDS", "90"))
PER_SECOND = float(os.environ.get("SOAK_PER_SECOND", "10"))
KEPT_SECONDS = 20
LOOK_EVERY_SECONDS = min(30.0, SECONDS / 12)
MOST_MEMORY_GROWTH = 8_000_000
MOST_BYTES_OF_AN_EXPIRED_KEY = 400
PAGE_BYTES = 4096

pytestmark = [pytest.mark.long, pytest.mark.timeout(int(SECONDS) + 300)]

DEPENDENCIES = """
[dependencies.flaky]
base_url = "${FLAKY_TARGET_URL}"

[dependencies.flaky.idempotency]
ttl_seconds = %d
"""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one moment: seconds since the begin, operations posted, and sizes in bytes.

    `memory` is that of the host, `workers` that of the processes that run the functions.
    """

    seconds: float
    posted: int
    memory: int
    workers: int
    used: int
    file: int


@contextmanager
def serving(folder: Path, target: Target) -> Iterator[OneboxProcess]:
    """This project's app, which forgets the keys of what has ended soon."""
    dependencies = folder / "dependencies.toml"
    dependencies.write_text(DEPENDENCIES % KEPT_SECONDS)
    env = {"DEPENDENCIES_FILE": str(dependencies), "FLAKY_TARGET_URL": target.url}
    env["FUNCTIONS_WORKER_PROCESS_COUNT"] = "1"
    onebox = OneboxProcess(folder, ROOT, **env)
    onebox.server.start()
    try:
        yield onebox
    finally:
        onebox.close()


def look(onebox: OneboxProcess, seconds: float, posted: int) -> Look:
    """Measure the processes and the store."""
    store = onebox.data / "hub.sqlite"
    process = onebox.server.process
    assert process is not None
    workers = onebox.client.get("/admin/host/status").json()["workers"]
    with closing(sqlite3.connect(store)) as db:
        pages, free = (
            db.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_count", "freelist_count")
        )
    return Look(
        seconds,
        posted,
        resident(process.pid),
        sum(resident(worker["pid"]) for worker in workers),
        (pages - free) * PAGE_BYTES,
        pages * PAGE_BYTES,
    )


class Load:
    """Posts operations of half a kilobyte at a steady pace, and purges what ended a while ago."""

    def __init__(self, url: str, rng: random.Random) -> None:
        self._client = httpx.Client(base_url=url, timeout=30, verify=PLAIN_HTTP)
        self._random = rng
        self.posted: list[str] = []

    def post(self, number: int) -> None:
        text = "".join(self._random.choices(string.ascii_lowercase + " ", k=400))
        request = {"method": "POST", "path": "/echo", "json": {"order": number, "note": text}}
        body = {"dependency": "flaky", "key": f"soak-{number}", "request": request}
        answer = self._client.post("/api/operations", json=body)
        answer.raise_for_status()
        self.posted.append(answer.json()["operation_id"])

    def purge(self) -> None:
        before = datetime.now(UTC) - timedelta(seconds=KEPT_SECONDS)
        parameters = {"createdTimeFrom": "2000-01-01T00:00:00Z", "createdTimeTo": before.isoformat()}
        answer = self._client.delete(INSTANCES, params=parameters)
        assert answer.status_code in {httpx.codes.OK, httpx.codes.NOT_FOUND}, answer.text

    def close(self) -> None:
        self._client.close()

    def has_ended(self, operation_id: str) -> bool:
        answer = self._client.get(f"{INSTANCES}/{operation_id}")
        return answer.status_code == httpx.codes.NOT_FOUND or answer.json()["runtimeStatus"] == "Completed"


def soak(onebox: OneboxProcess, load: Load) -> list[Look]:
    """Keep the load up for the whole time; return what was seen."""
    looks: list[Look] = []
    began = time.monotonic()
    posts: list[Future[None]] = []
    with ThreadPoolExecutor(8) as threads:
        while (passed := time.monotonic() - began) < SECONDS:
            posts += [threads.submit(load.post, n) for n in range(len(posts), int(passed * PER_SECOND))]
            if passed >= len(looks) * LOOK_EVERY_SECONDS:
                load.purge()
                looks.append(look(onebox, passed, len(load.posted)))
                with (onebox.data.parent / "looks.jsonl").open("a") as file:
                    file.write(json.dumps(asdict(looks[-1])) + "\n")
            time.sleep(1 / PER_SECOND)  # the pace of the load, not a wait for something
    for post in posts:
        post.result()
    return looks


def test_neither_memory_nor_the_store_goes_on_growing(tmp_path: Path, target: Target) -> None:
    with serving(tmp_path, target) as onebox:
        load = Load(onebox.url, random.Random(15))  # noqa: S311 - texts that a seed gives again
        looks = soak(onebox, load)
        eventually(lambda: all(map(load.has_ended, load.posted[-50:])), "what was posted last has ended")
        load.close()
    half = looks[len(looks) // 2 :]
    assert half[-1].memory - half[0].memory < MOST_MEMORY_GROWTH, looks
    assert half[-1].workers - half[0].workers < MOST_MEMORY_GROWTH, looks
    # An expired key leaves a row of an entity without state, which the app removes once an hour.
    expired = MOST_BYTES_OF_AN_EXPIRED_KEY * (half[-1].posted - half[0].posted)
    assert half[-1].used < 1.2 * half[0].used + expired, looks
    assert half[-1].file < 1.2 * half[0].file + expired, looks

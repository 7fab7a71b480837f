"""The dashboard over 100,000 operations and 10,000 dead letters: how long its answers and its paint take.

Three operations run; copies of them are written to the task hub's file and to the index. Of the dead letters
the newest are there whole, as many as any view shows, and the rest as rows of their lists.
"""

import sqlite3
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import which
from typing import Any

import httpx
from playwright.async_api import Browser, Request, async_playwright

from bench.numbers import Row, Table, milliseconds
from bench.storage import FEW, fill_dead_letters, storage_in_memory, storage_setting
from bench.storage import WHOLE as WHOLE_DEAD_LETTERS
from bench.storage import dead_letter_entry as entry_of_dead_letter
from durable_retry.engine.base.json_forms import to_rfc3339
from durable_retry.engine.base.names import OperationState
from durable_retry.settings.catalogue import STORAGE
from durable_retry.stores.dead_letters.records import keep_operation
from durable_retry.stores.operation_index import OperationEntry, OperationList, write_entries
from onebox.hub.archive import unpack
from scripts.processes import ROOT, ServerProcess, eventually, free_port

OPERATIONS = 100_000
DEAD_LETTERS = 10_000
ROUNDS = 3
STEP = timedelta(milliseconds=6)
"""Between two operations: all are of the last ten minutes."""

DEPENDENCIES = """[dependencies.flaky]
base_url = "{url}"
idempotency = {{ header = "Idempotency-Key" }}
retry = {{ strategy = "fixed", initial_seconds = 600, jitter = "none", max_seconds = 600 }}
[dependencies.strict]
base_url = "{url}"
idempotency = {{ header = "Idempotency-Key" }}
"""
STATES = {"succeeded": 90, "waiting_retry": 5, "dead_lettered": 5}
"""Of a hundred operations."""

VIEWS = {
    "overview": "",
    "operations": "operations",
    "operations that wait": "operations?status=waiting_retry",
    "operations that run": "operations?status=running",
    "dead letters": "dead-letters",
    "a search by key": "find?q=well",
    "a search by words of an error": "find?q=503",
    "a search without a match": "find?q=nobody-has-this",
    "batches": "batches",
    "sagas": "sagas",
    "bulk replays": "replays",
    "circuits": "circuits",
    "outbox": "outbox",
    "policy": "policy",
}
PAINTED = """() => new Promise(done => {
  const look = () => document.querySelector('main h1') && !document.querySelector('main .loading')
    ? requestAnimationFrame(() => done(performance.now())) : requestAnimationFrame(look);
  look();
})"""


async def measure(folder: Path, _operations: int) -> list[Table]:
    """Fills an app on onebox and opens every view of its dashboard.

    Args:
        folder: Where everything keeps its data and logs.
    """
    with storage_in_memory(folder) as connection, storage_setting(connection):
        flaky = ServerProcess(
            [sys.executable, "-m", "examples.flaky_target", "--port", str(target_port := free_port())],
            ready_url=f"http://127.0.0.1:{target_port}/echo",
            log=folder / "target.log",
            env={},
        )
        flaky.start()
        settings = folder / "dependencies.toml"
        settings.write_text(DEPENDENCIES.format(url=f"http://127.0.0.1:{target_port}"))
        url = f"http://127.0.0.1:{(port := free_port())}"
        app = ServerProcess(
            [
                *(sys.executable, "-m", "onebox", "start", "--app", str(ROOT), "--port", str(port)),
                *("--data", str(folder / "data"), "--storage-ports", "auto"),
            ],
            ready_url=f"{url}/admin/host/status",
            log=folder / "onebox.log",
            env={"DEPENDENCIES_FILE": str(settings), STORAGE.name: connection},
        )
        app.start()
        try:
            await _fill(url, folder / "data" / "hub.sqlite")
            return [await _opened(url)]
        finally:
            app.stop()
            flaky.stop()


async def _fill(url: str, hub: Path) -> None:
    with httpx.Client(base_url=url, timeout=30) as client:
        originals = [
            _ended(client, "well", "/echo", "succeeded", "flaky"),
            _ended(client, "waits", "/fail/9", "waiting_retry", "flaky"),
            _ended(client, "lost", "/status/422", "dead_lettered", "strict"),
        ]
    entries: list[tuple[OperationList, OperationEntry]] = []
    with closing(sqlite3.connect(hub, timeout=60)) as rows, rows:
        take_out_of_archives(rows)
        for document in originals:
            copies = OPERATIONS * STATES[document["status"]] // 100
            entries += _copied(rows, document, copies)
    for at in range(0, len(entries), 5_000):
        await write_entries(f"copies-{at}", entries[at : at + 5_000])
    now = datetime.now(UTC)
    for number in range(WHOLE_DEAD_LETTERS):
        await keep_operation(entry_of_dead_letter(number), now - timedelta(seconds=number))
    await fill_dead_letters(FEW, DEAD_LETTERS)


def _ended(client: httpx.Client, key: str, path: str, status: str, dependency: str) -> dict[str, Any]:
    call = {"dependency": dependency, "key": key, "request": {"method": "POST", "path": path}}
    posted = client.post("/api/operations", json=call).raise_for_status().json()

    def ended() -> dict[str, Any] | None:
        document: dict[str, Any] = client.get(f"/api/operations/{posted['operation_id']}").json()
        return document if document["status"] == status else None

    return eventually(ended, f"{key} is {status}")


def take_out_of_archives(hub: sqlite3.Connection) -> None:
    """Give back to what onebox has packed since its end its columns, which copies are made of."""
    found = hub.execute("SELECT id, packed FROM instances JOIN archives ON seq = archive").fetchall()
    for id_, packed in found:
        parts = unpack(packed)
        hub.execute(
            "UPDATE instances SET archive = NULL, input = ?, output = ?, custom_status = ? WHERE id = ?",
            (parts.input, parts.output, parts.custom_status, id_),
        )


def _copied(
    hub: sqlite3.Connection, document: dict[str, Any], copies: int
) -> Iterator[tuple[OperationList, OperationEntry]]:
    """Copy an operation in the task hub under other ids and times; yield the entries of the copies."""
    operation_id, created = document["operation_id"], datetime.fromisoformat(document["created_at"])
    cursor = hub.execute("SELECT * FROM instances WHERE id = ?", (operation_id,))
    columns = [column[0] for column in cursor.description]
    row = cursor.fetchone()
    status = OperationState(document["status"])
    between = STEP * OPERATIONS / copies
    wanted = f"INSERT INTO instances VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 - its columns only
    for number in range(1, copies + 1):
        id_, at = f"{operation_id}-{number}", created - number * between
        texts: list[Any] = [
            part.replace(operation_id, id_).replace(document["created_at"], to_rfc3339(at))
            if isinstance(part, str)
            else part
            for part in row
        ]
        texts[columns.index("created_us")] -= int(number * between / timedelta(microseconds=1))
        hub.execute(wanted, texts)
        entry = OperationEntry(
            operation_id=id_,
            created_at=at,
            key=document["key"],
            dependency=document["dependency"],
            handler=None,
            source="http",
            correlation_id=None,
            status=status,
            error="status 503",
            noted_us=1,
        )
        is_well = status is OperationState.SUCCEEDED
        yield OperationList.ALL, replace(entry, error="", status=status if is_well else None)
        if not is_well:
            yield OperationList.FAILED, entry


async def _opened(url: str) -> Table:
    program = next(filter(None, map(which, ("chromium", "chromium-browser", "google-chrome"))), None)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        rows = [await _row(browser, url, name, path) for name, path in VIEWS.items()]
        await browser.close()
    notes = (
        f"{OPERATIONS:,} operations of ten minutes: 90 % succeeded, 5 % wait, 5 % are dead letters.",
        f"{DEAD_LETTERS:,} more dead letters. Onebox, with Azurite in memory; median of {ROUNDS}.",
        "Answers: all requests of a view, until the last one has ended. Painted: since the navigation began.",
    )
    return Table("The dashboard's views", ("answers", "painted"), tuple(rows), notes)


async def _row(browser: Browser, url: str, name: str, path: str) -> Row:
    answers, painted = [], []
    for _ in range(ROUNDS):
        page = await browser.new_page(viewport={"width": 1440, "height": 900})
        ended: list[float] = []

        def end(_: Request, ended: list[float] = ended) -> None:
            ended.append(time.perf_counter())

        page.on("requestfinished", end)
        began = time.perf_counter()
        await page.goto(f"{url}/api/dashboard#/{path}")
        painted.append(await page.evaluate(PAINTED) / 1000)
        answers.append(ended[-1] - began)
        await page.close()
    values = (milliseconds(statistics.median(each)) for each in (answers, painted))
    return Row(name, "ms", tuple(values))

"""Planted secrets: after every way in which a call can end, stores, logs and telemetry are searched.

A secret of the configuration may be nowhere. One that a caller sends has to be kept, or its call could not be
made again: it is masked wherever people look, and in neither the log nor the telemetry.
"""

import base64
import json
import re
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.processes import eventually
from tests.support.app import System, operation
from tests.support.onebox.process import AS_SHIPPED
from tests.support.otlp import OtlpReceiver, otlp_receiver
from tests.support.target import Target

WEBHOOK = base64.b64encode(b"webhook-planted-0123456789abcdef").decode()
CONFIGURED = {
    "GUARDED_TOKEN": "token-planted-4f1c",
    "GUARDED_KEY": "vendor-key-planted-77aa",
    "GUARDED_WEBHOOK": WEBHOOK,
    "CLIENT_SECRET": "client-planted-51d3",
}
STORAGE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq"
"""The beginning of the emulator's key, which the worker has in its connection string."""
QUERY, HEADER, BODY = "query-planted-c0de", "header-planted-beef", "body-planted-f00d"
SEEN = "not-a-secret-9d3e"
"""In every body too: the search must find it, or it would find nothing."""

ENDED = ("succeeded", "dead_lettered")
LISTS = ("operations", "dead-letters", "outbox", "dependencies", "circuits", "search?q=planted")
PATHS = ("/echo", "/fail/1", "/status/400", "/status/500", "/drop/9", "/redirect/9")


@pytest.fixture(scope="module")
def collector() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secrets")


@pytest.fixture(scope="module")
def documents(folder: Path, target: Target, collector: OtlpReceiver) -> str:
    """What the API shows of everything that happened; the app has stopped, so that all is on disk."""
    system = System(
        folder,
        target,
        DEPENDENCIES_FILE=str(Path(__file__).with_name("secrets.toml")),
        HANDLERS="tests.support.spilling_handler",
        FUNCTIONS_WORKER_PROCESS_COUNT=AS_SHIPPED,
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        OTEL_METRIC_EXPORT_INTERVAL="200",
        GUARDED_TOKEN=CONFIGURED["GUARDED_TOKEN"],
        GUARDED_KEY=CONFIGURED["GUARDED_KEY"],
        GUARDED_WEBHOOK=CONFIGURED["GUARDED_WEBHOOK"],
        CLIENT_SECRET=CONFIGURED["CLIENT_SECRET"],
    )
    with system.running():
        ids = [posted(system, path) for path in PATHS]
        body = operation("signs-in", "/fail/1", dependency="signing_in")
        ids.append(system.client.post("/api/operations", json=body).json()["operation_id"])
        handed = {"seen": SEEN, "password": BODY, "access_token": QUERY}
        given = {"handler": "spill", "input": handed, "key": "spilled"}
        answer = system.client.post("/api/operations", json=given)
        assert answer.status_code == 202, answer.text
        ids.append(answer.json()["operation_id"])
        eventually(lambda: all(system.status(each)["status"] in ENDED for each in ids), "all have ended")
        sent = {"status": "sent"}
        eventually(
            lambda: system.client.get("/api/outbox", params=sent).json()["items"], "the webhook is sent"
        )
        letters = [each["id"] for each in system.client.get("/api/dead-letters").json()["items"]]
        paths = [
            *LISTS,
            *(f"operations/{each}" for each in ids),
            *(f"dead-letters/{each}" for each in letters),
        ]
        shown = [json.dumps(without_answers(system.client.get(f"/api/{path}").json())) for path in paths]
    return "\n".join(shown)


def without_answers(document: Any) -> Any:
    """A document without the answers of dependencies, which are shown as they came: here they are an echo."""
    if isinstance(document, dict):
        return {name: without_answers(value) for name, value in document.items() if name != "result"}
    return [without_answers(each) for each in document] if isinstance(document, list) else document


def posted(system: System, path: str) -> str:
    """Post a call with a secret in each of its parts, and return its operation's id."""
    event = {"type": "done", "dependency": "guarded", "path": "/echo", "data": {"seen": SEEN}}
    call = {
        "query": {"access_token": QUERY},
        "headers": {"X-Api-Key": HEADER},
        "json": {"password": BODY, "seen": SEEN},
    }
    body = operation(path.strip("/"), path, dependency="guarded", request=call, on_success=[event])
    answer = system.client.post("/api/operations", json=body)
    assert answer.status_code == 202, answer.text
    operation_id: str = answer.json()["operation_id"]
    return operation_id


def stored(folder: Path) -> Iterator[str]:
    """Everything on disk: each file as it is, and what is packed in databases and in Base64."""
    for file in sorted(folder.rglob("*")):
        if not file.is_file():
            continue
        content = file.read_bytes()
        yield content.decode("latin-1")
        if content.startswith(b"SQLite format 3"):
            yield from rows(file)
        for text in re.findall(
            rb"(?:[A-Za-z0-9+/]{4}){6,}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", content
        ):
            yield from unpacked(base64.b64decode(text))


def rows(file: Path) -> Iterator[str]:
    database = sqlite3.connect(file)
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        for row in database.execute(f'SELECT * FROM "{table}"'):  # noqa: S608 - names of the database's own
            for value in row:
                yield from unpacked(value) if isinstance(value, bytes) else [str(value)]
    database.close()


def unpacked(content: bytes) -> Iterator[str]:
    """Bytes as text, and unpacked when they are packed."""
    yield content.decode("latin-1")
    try:
        yield zlib.decompress(content).decode("latin-1")
    except zlib.error:
        return


def telemetry(collector: OtlpReceiver) -> str:
    return "\n".join(
        f"{each.name} {each.attributes} {each.raw}"
        for each in (*collector.spans, *collector.points, *collector.lines)
    )


def found(secrets: tuple[str, ...], texts: Iterator[str]) -> set[str]:
    return {secret for text in texts for secret in secrets if secret in text}


def test_a_secret_of_the_configuration_is_in_no_store_and_no_log(documents: str, folder: Path) -> None:
    secrets = (*CONFIGURED.values(), SEEN)
    assert SEEN in documents
    assert found(secrets, stored(folder)) == {SEEN}


def test_a_token_is_in_memory_alone(
    documents: str, folder: Path, target: Target, collector: OtlpReceiver
) -> None:
    tries = target.received("signs-in")["tries"]
    tokens = {each["headers"]["authorization"].removeprefix("Bearer ") for each in tries}
    assert len(tokens) == 1
    assert found(tuple(tokens), iter([documents, *stored(folder), telemetry(collector)])) == set()


def test_the_storages_key_is_in_neither_the_task_hub_nor_a_log(documents: str, folder: Path) -> None:
    assert documents
    assert found((STORAGE_KEY,), stored(folder)) == set()


def test_what_a_caller_sends_is_masked_for_people(documents: str) -> None:
    assert found((QUERY, HEADER, BODY, *CONFIGURED.values()), iter([documents])) == set()


def test_no_secret_is_in_a_log(documents: str, folder: Path) -> None:
    assert documents
    logs = [file.read_text() for file in folder.rglob("*.log")]
    assert logs
    assert found((QUERY, HEADER, BODY), iter(logs)) == set()


def test_no_secret_is_in_spans_metrics_or_exported_logs(documents: str, collector: OtlpReceiver) -> None:
    assert documents
    exported = telemetry(collector)
    assert "attempt guarded" in exported
    assert found((QUERY, HEADER, BODY, STORAGE_KEY, *CONFIGURED.values()), iter([exported])) == set()

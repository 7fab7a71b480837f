"""The counts of the overview: from the metrics and the index of operations, never from a scan of the hub."""

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from durable_retry.base.errors import TaskHubUnavailableError
from durable_retry.base.json_forms import to_rfc3339
from durable_retry.base.names import Category, OperationState
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.runtime import clock
from durable_retry.settings.configuration import using
from durable_retry.storage import clients as storage_clients
from durable_retry_console.index.store import OperationEntry, OperationList
from durable_retry_console.metrics.minutes import MINUTES
from durable_retry_console.overview import summary as overview
from durable_retry_console.overview.summary import operation_summary
from tests.support.builders import NOON
from tests.support.counting import STARTED, attempt_ended, counted, operation_ended
from tests.support.operation_index import write_entries
from tests.support.tables import TablesInMemory

CONFIG = """
[dependencies.payments]
base_url = "https://payments.example.com"
[dependencies.mail]
base_url = "https://mail.example.com"
"""
WAITING = OperationState.WAITING_RETRY


class Index:
    """Operations of which the index has entries, and the documents that the task hub would give."""

    def __init__(self) -> None:
        self.now = NOON
        self.documents: dict[str, dict[str, Any]] = {}
        self.read: list[str] = []
        self.written = 0

    async def find(self, operation_id: str) -> dict[str, Any] | None:
        self.read.append(operation_id)
        return self.documents.get(operation_id)

    def seconds(self) -> float:
        return self.now.timestamp()

    def pass_by(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    async def note(self, *entries: OperationEntry, kind: OperationList = OperationList.FAILED) -> None:
        self.written += 1
        await write_entries(f"w-{self.written}", [(kind, entry) for entry in entries])

    async def waits(
        self, name: str, *, age: timedelta = timedelta(minutes=1), in_seconds: float = 60
    ) -> None:
        await self.note(entry(name, self.now - age, status=WAITING, noted_us=1))
        due = to_rfc3339(self.now + timedelta(seconds=in_seconds))
        self.documents[name] = {"status": "waiting_retry", "attempt_count": 1, "next_attempt_at": due}

    async def summary(self, window_seconds: int = 900) -> dict[str, Any]:
        self.pass_by(2)
        self.read.clear()
        return (await operation_summary(TaskHub("hub"), window_seconds)).to_json()


def entry(operation_id: str, created_at: datetime, **more: Any) -> OperationEntry:
    given = {"key": "k", "dependency": "payments", "handler": None, "source": "http", "correlation_id": None}
    return OperationEntry(operation_id=operation_id, created_at=created_at, **(given | more))


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    stage, account = Index(), TablesInMemory()
    monkeypatch.setattr(storage_clients, "table_service", lambda: account)
    monkeypatch.setattr(clock, "now", lambda: stage.now)
    monkeypatch.setattr(clock, "monotonic_seconds", stage.seconds)
    monkeypatch.setattr(TaskHub, "read_instance", stage.find)
    monkeypatch.setattr(overview, "document_of", lambda document: document)
    MINUTES.clear()
    with using(parse_config(CONFIG, {})):
        yield stage
    MINUTES.clear()


async def test_what_ended_is_counted_when_it_ended_and_what_goes_on_when_it_was_accepted(
    stage: Index,
) -> None:
    for seconds in (0.1, 0.2):
        MINUTES.count("payments", counted(STARTED, attempt_ended(5), operation_ended(seconds)))
    MINUTES.count("mail", counted(STARTED, attempt_ended(5, Category.TRANSIENT, number=2)))
    await stage.waits("op-waits", age=timedelta(minutes=3))
    summary = await stage.summary()
    assert (summary["operations"], summary["attempts"], summary["amplification"]) == (3, 3, 1.5)
    assert (summary["by_status"]["succeeded"], summary["by_status"]["waiting_retry"]) == (2, 1)
    assert sorted(summary["by_dependency"]) == ["mail", "payments"]
    assert summary["by_dependency"]["payments"]["by_status"]["waiting_retry"] == 1
    held = {part["from"]: part["by_status"] for part in summary["buckets"] if any(part["by_status"].values())}
    assert [counts["waiting_retry"] + counts["succeeded"] for counts in held.values()] == [1, 2]
    assert list(held) == ["2026-11-21T11:57:00Z", "2026-11-21T12:00:00Z"]
    unfinished = summary["unfinished"]
    assert (summary["complete"], unfinished["complete"]) == (True, True)
    assert unfinished["by_dependency"]["payments"]["waiting_retry"] == 1
    assert sorted(unfinished["by_status"].values()) == [*(0,) * 7, 1]
    (waiting,) = unfinished["waiting"]
    assert (waiting["dependency"], waiting["status"], waiting["count"]) == ("payments", "waiting_retry", 1)
    assert "limit_keys" not in waiting
    assert waiting["first"] is None or waiting["first"]["operation_id"] == "op-waits"


async def test_what_waits_and_was_counted_before_a_rename_is_of_the_present_name(stage: Index) -> None:
    await stage.waits("op-waits")
    MINUTES.count("payments", counted(STARTED, attempt_ended(5)))
    with using(parse_config(CONFIG.replace(".payments]", ".till]\nwas = ['payments']"), {})):
        summary = await stage.summary()
    assert (summary["attempts"], summary["by_dependency"]["till"]["attempts"]) == (1, 1)
    assert [*summary["by_dependency"]] == [*summary["unfinished"]["by_dependency"]] == ["till"]
    assert [each["dependency"] for each in summary["unfinished"]["waiting"]] == ["till"]


async def test_what_waiting_operations_need_and_the_app_lacks_is_named(stage: Index) -> None:
    await stage.waits("op-fit")
    assert "lacking" not in (await stage.summary())["unfinished"]
    for name, more in (("op-a", {"handler": "ship-order"}), ("op-b", {"dependency": "gone"})):
        await stage.note(entry(name, stage.now, status=WAITING, noted_us=1, **more))
        stage.documents[name] = stage.documents["op-fit"]
    assert (await stage.summary())["unfinished"]["lacking"] == ["dependency gone", "handler ship-order"]


async def test_what_was_accepted_and_not_noted_since_is_looked_at_once_it_ended(
    stage: Index,
) -> None:
    await stage.note(entry("op-slow", NOON), entry("op-done", NOON), kind=OperationList.ALL)
    stage.documents["op-slow"] = {"status": "running", "attempt_count": 0, "next_attempt_at": None}
    stage.documents["op-done"] = {"status": "succeeded"}
    assert (await stage.summary())["unfinished"]["by_status"]["running"] == 1
    assert sorted(stage.read) == ["op-done", "op-slow"]
    assert (await stage.summary())["unfinished"]["by_status"]["running"] == 1
    assert stage.read == ["op-slow"]
    del stage.documents["op-slow"]  # Purged.
    assert (await stage.summary())["unfinished"]["by_status"]["running"] == 0


async def test_an_old_operation_that_waits_is_known_and_its_document_read_when_its_wait_ends(
    stage: Index,
) -> None:
    await stage.waits("op-old", age=timedelta(days=3), in_seconds=20)
    assert (await stage.summary())["unfinished"]["by_status"]["waiting_retry"] == 1
    assert (await stage.summary())["unfinished"]["by_status"]["waiting_retry"] == 1
    assert stage.read == []
    stage.pass_by(20)
    stage.documents["op-old"] = {"status": "succeeded"}
    assert (await stage.summary())["unfinished"]["by_status"]["waiting_retry"] == 0
    assert (await stage.summary(), stage.read)[1] == []


async def test_the_index_says_what_ended(stage: Index) -> None:
    await stage.waits("op-1")
    await stage.summary()
    await stage.note(entry("op-1", NOON - timedelta(minutes=1), status=OperationState.SUCCEEDED, noted_us=2))
    assert (await stage.summary())["unfinished"]["by_status"]["waiting_retry"] == 0
    assert stage.read == []
    # A replay of it, which waits, is accepted later.
    await stage.waits("op-1", age=timedelta(0))
    assert (await stage.summary())["unfinished"]["by_status"]["waiting_retry"] == 1


async def test_of_too_many_a_part_is_looked_at_each_time_and_the_rest_counted_as_the_index_says(
    stage: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "_MOST_DOCUMENTS", 2)
    for number in range(5):
        await stage.waits(f"op-{number}", age=timedelta(seconds=number))
    first = await stage.summary()
    assert (first["unfinished"]["by_status"]["waiting_retry"], first["complete"]) == (5, True)
    assert sorted(stage.read) == ["op-0", "op-1"]


async def test_of_too_many_to_read_again_in_time_the_counts_are_as_old_as_what_was_read_first(
    stage: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await stage.note(entry(f"op-{number}", NOON), kind=OperationList.ALL)
        stage.documents[f"op-{number}"] = {"status": "running", "attempt_count": 0, "next_attempt_at": None}
    assert (await stage.summary())["counted_at"] == to_rfc3339(stage.now)
    read_at = stage.now
    monkeypatch.setattr(overview, "_MOST_DOCUMENTS", 1)
    assert (await stage.summary())["counted_at"] == to_rfc3339(read_at)
    for _ in range(2):
        await stage.summary()
    assert (await stage.summary())["counted_at"] == to_rfc3339(read_at + timedelta(seconds=4))


async def test_what_the_index_cannot_say_is_not_complete_before_it_was_looked_at(
    stage: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "_MOST_DOCUMENTS", 1)
    await stage.note(entry("op-1", NOON), entry("op-2", NOON), kind=OperationList.ALL)
    for name in ("op-1", "op-2"):
        stage.documents[name] = {"status": "running", "attempt_count": 0, "next_attempt_at": None}
    assert not (await stage.summary())["complete"]
    assert (await stage.summary())["complete"]


async def test_new_operations_leave_time_for_those_that_were_read_before(
    stage: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.waits("op-old")
    await stage.summary()
    monkeypatch.setattr(overview, "_MOST_DOCUMENTS", 2)
    stage.pass_by(60)
    for name in ("op-1", "op-2", "op-3"):
        await stage.waits(name)
    await stage.summary()
    assert "op-old" in stage.read


async def test_what_may_have_ended_while_nobody_looked_is_not_counted_before_it_is_read_again(
    stage: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await stage.waits(f"op-{number}")
    await stage.summary()
    stage.pass_by(600)
    monkeypatch.setattr(overview, "_MOST_DOCUMENTS", 1)
    later = await stage.summary()
    assert (later["unfinished"]["by_status"]["waiting_retry"], later["complete"]) == (1, False)
    assert later["counted_at"] == to_rfc3339(stage.now)


async def test_a_long_look_is_cut_off_and_goes_on_the_next_time(
    stage: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "_LOOK_SECONDS", 0.0)
    for number in range(20):
        await stage.waits(f"op-{number}", age=timedelta(seconds=number))
    await stage.summary()
    assert len(stage.read) == 16


async def test_what_waits_says_whose_it_is_and_which_goes_on_first(stage: Index) -> None:
    for number, key in enumerate(["initech", "initech", "acme", None]):
        await stage.note(entry(f"op-{number}", stage.now, status=WAITING, noted_us=1, limit_key=key))
        due = to_rfc3339(stage.now + timedelta(seconds=60 - number))
        stage.documents[f"op-{number}"] = {
            "status": "waiting_circuit",
            "attempt_count": number,
            "next_attempt_at": due,
        }
    (waiting,) = (await stage.summary())["unfinished"]["waiting"]
    assert (waiting["status"], waiting["count"]) == ("waiting_circuit", 4)
    assert waiting["limit_keys"] == {"keys": 2, "most": {"initech": 2, "acme": 1}}
    assert (waiting["first"]["operation_id"], waiting["first"]["attempt_count"]) == ("op-3", 3)


@pytest.mark.parametrize(("name", "most"), [("_MOST_FAILED", 1), ("_MOST_OPEN", 1)])
async def test_what_is_left_out_is_said(
    stage: Index, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    monkeypatch.setattr(overview, name, most)
    await stage.waits("op-1", age=timedelta(seconds=1))
    await stage.waits("op-2", age=timedelta(minutes=2))
    assert not (await stage.summary())["complete"]


async def test_a_task_hub_that_is_away_hides_nothing_that_is_known(
    stage: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.waits("op-1", age=timedelta(seconds=1), in_seconds=0)
    assert (await stage.summary())["complete"]

    async def gone(_hub: TaskHub, _operation_id: str) -> None:
        raise TaskHubUnavailableError("gone")

    monkeypatch.setattr(TaskHub, "read_instance", gone)
    await stage.waits("op-2", age=timedelta(seconds=2))
    summary = await stage.summary()
    assert (summary["complete"], summary["unfinished"]["by_status"]["waiting_retry"]) == (False, 2)


async def test_the_older_part_of_a_long_index_is_read_bit_by_bit(
    stage: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "_MOST_ROWS", 1)
    for hours in (1, 2):
        await stage.waits(f"op-{hours}", age=timedelta(hours=hours))
    assert not (await stage.summary())["complete"]
    await stage.summary()
    last = await stage.summary()
    assert (last["unfinished"]["by_status"]["waiting_retry"], last["complete"]) == (2, True)


async def test_who_asks_at_the_same_time_or_soon_after_gets_the_same_answer(stage: Index) -> None:
    first, *others = await asyncio.gather(*(operation_summary(TaskHub("hub"), 900) for _ in range(5)))
    assert all(other is first for other in others)
    stage.pass_by(1.9)
    assert await operation_summary(TaskHub("hub"), 900) is first
    stage.pass_by(0.2)
    assert await operation_summary(TaskHub("hub"), 900) is not first

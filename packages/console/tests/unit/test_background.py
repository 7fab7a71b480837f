"""Writing in the background: after a change, again while storage is away, and at the end."""

import threading
from collections.abc import Mapping
from typing import override

import pytest

from durable_retry_console import background
from durable_retry_console.background import BackgroundWriter
from tests.support.tables import TablesInMemory

WITHIN_SECONDS = 20.0


class Written(BackgroundWriter[str, int]):
    """Counts its writes; the first `failures` of them fail."""

    def __init__(self, failures: int = 0, error: type[Exception] = ValueError) -> None:
        super().__init__("test", 0.001)
        self.failures, self.error = failures, error
        self.count = 0
        self.written: dict[str, int] = {}
        self.succeeded = threading.Event()

    @override
    def _write(self, held: Mapping[str, int]) -> None:
        self.count += 1
        self.written = {**held}
        if self.count <= self.failures:
            raise self.error("storage is away")
        self.succeeded.set()


def test_rows_of_several_partitions_are_written_also_at_the_end(tables_in_memory: TablesInMemory) -> None:
    writer = Written()
    rows = [{"PartitionKey": f"p-{number % 2}", "RowKey": f"{number}", "n": number} for number in range(250)]
    writer.replace("Numbers", rows)
    assert sorted(row["n"] for row in tables_in_memory.rows("Numbers")) == [*range(250)]
    writer.end()
    writer.replace("Numbers", [rows[0] | {"n": 7}])
    assert [row["n"] for row in tables_in_memory.rows("Numbers") if row["RowKey"] == "0"] == [7]


def test_what_storage_does_not_take_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    writer = Written(failures=1)
    assert (writer.flush(), writer.flush()) == (False, True)
    assert caplog.messages == ["test cannot be written: ValueError: storage is away"]
    assert not Written(failures=1, error=RuntimeError).flush()
    assert len(caplog.messages) == 1, "the end of the process is no trouble: what is left is written then"


def test_nothing_is_written_before_it_begins() -> None:
    writer = Written()
    writer.wake()
    assert writer._thread is None


def test_a_change_is_written_and_again_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_MOST_PAUSE_SECONDS", 0.002)
    writer = Written(failures=2)
    writer.begin()
    writer.wake()
    writer.wake()
    assert writer.succeeded.wait(WITHIN_SECONDS)
    assert writer.count == 3
    writer.end()


def test_the_end_writes_what_is_left_and_stops_the_thread() -> None:
    writer = Written()
    writer.begin()
    writer.wake()
    assert writer.succeeded.wait(WITHIN_SECONDS)
    writer.end()
    assert writer._thread is not None
    writer._thread.join(WITHIN_SECONDS)
    assert not writer._thread.is_alive()
    assert writer.count == 2


def test_a_write_under_way_holds_the_end_up_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_LEAVE_SECONDS", 0.001)
    writer = Written()
    with writer._writing:
        writer.end()
    assert writer.count == 0


def test_only_the_interpreters_refusal_before_the_end_is_its_end() -> None:
    writer = Written()
    refusal = RuntimeError("cannot schedule new futures after interpreter shutdown")
    assert writer.is_over(refusal)
    assert not writer.is_over(ValueError("storage"))
    writer.end()
    assert not writer.is_over(refusal)


def test_of_what_is_held_under_a_key_the_latest_is_written_also_when_storage_was_away() -> None:
    writer = Written(failures=1)
    for number in range(3):
        writer.hold("a", number)
    writer.hold("b", 0)
    assert not writer.flush()
    writer.hold("b", 1)
    assert writer.flush()
    assert writer.written == {"a": 2, "b": 1}
    assert not writer.has_unwritten


def test_what_is_held_is_bounded_and_the_oldest_goes_first() -> None:
    writer = Written(failures=1)
    writer._most_held = 2
    for number in range(2):
        writer.hold(f"{number}", number)
    assert not writer.flush()
    writer.hold("2", 2)
    assert writer.dropped_since is not None
    assert [*writer.held] == ["1", "2"]


def test_the_thread_makes_a_write_again_that_a_reader_asked_for_and_that_failed() -> None:
    writer = Written(failures=1)
    writer.hold("a", 1)
    assert not writer._changed.is_set()
    assert not writer.flush()
    assert writer._changed.is_set()


class WrittenBeside(Written):
    """Is given something else while it writes."""

    @override
    def _write(self, held: Mapping[str, int]) -> None:
        self.hold("beside", self.count)
        super()._write(held)


def test_what_is_held_while_a_write_fails_is_written_with_what_was_not() -> None:
    writer = WrittenBeside(failures=1)
    writer.hold("a", 1)
    assert not writer.flush()
    assert writer.flush()
    assert writer.written == {"a": 1, "beside": 0}

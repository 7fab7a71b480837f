import logging
import re
import threading
from pathlib import Path

import pytest

from onebox.worker.loops import WorkerLoop
from onebox.worker.stalls import watched_load, where_it_hung

DUMP = """Timeout (0:01:00)!
Thread 0x00007f3a2b7fe640 (most recent call first):
  File "/app/beside.py", line 9 in beside
  File "/usr/lib/python3.13/threading.py", line 992 in run

Thread 0x00007f3a38ff9b80 (most recent call first):
  File "/usr/lib/python3.13/socket.py", line 840 in create_connection
  File "/app/slow.py", line 3 in <module>
  File "<frozen importlib._bootstrap>", line 488 in _call_with_frames_removed
  File "/app/function_app.py", line 1 in <module>
"""


class Heard(logging.Handler):
    """Sets an event when enough was logged."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._wanted = lines
        self.enough = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if len(self.lines) == self._wanted:
            self.enough.set()


def test_a_long_import_is_located_again_and_again() -> None:
    heard = Heard(2)
    log = logging.getLogger("onebox")
    log.addHandler(heard)
    try:
        with watched_load(Path(__file__).parent, first_seconds=0.001):
            assert heard.enough.wait(30)
    finally:
        log.removeHandler(heard)
    place = rf"{re.escape(__file__)}, line \d+, in test_a_long_import_is_located_again_and_again"
    for line, seconds in zip(heard.lines, ("0.001", "0.002"), strict=False):
        assert re.fullmatch(f"the app is still being imported after {seconds} s: it is at {place}", line)


def test_an_import_that_is_quick_is_not_spoken_of(caplog: pytest.LogCaptureFixture) -> None:
    with watched_load(Path("/app")):
        pass
    assert not caplog.records


async def test_who_holds_up_the_loop_is_named_again_and_again() -> None:
    heard = Heard(2)
    log = logging.getLogger("onebox")
    log.addHandler(heard)
    loop = WorkerLoop()
    loop.start()
    try:
        loop.watch(
            Path(__file__).parent, first_seconds=0.05
        )  # the loop itself is held up for less, under load too

        async def hold_up() -> bool:
            return heard.enough.wait(30)

        assert await loop.run(hold_up())
    finally:
        log.removeHandler(heard)
        loop.stop()
    for each in threading.enumerate():
        if each.name == "watch the loop":
            each.join(10)
            assert not each.is_alive(), "it ends with the loop"
    place = rf"{re.escape(__file__)}, line \d+, in .*hold_up"
    for line, seconds in zip(heard.lines, ("0.05", "0.1"), strict=False):
        assert re.fullmatch(f"the event loop has been held up for {seconds} s: it is at {place}", line)


def test_a_dump_names_the_apps_innermost_line_on_the_thread_that_imports() -> None:
    head, *lines = where_it_hung(DUMP, Path("/app")).splitlines()
    assert head == "it hangs at /app/slow.py, line 3, in <module>"
    assert lines[0] == "  /usr/lib/python3.13/socket.py, line 840, in create_connection"
    assert len(lines) == 4


def test_a_dump_without_a_line_of_the_app_names_the_innermost() -> None:
    place = "it hangs at /usr/lib/python3.13/socket.py, line 840, in create_connection"
    assert where_it_hung(DUMP, Path("/other")).splitlines()[0] == place
    assert where_it_hung("Timeout!\n", Path("/other")) == "it hangs at an unknown line"


def test_without_a_dump_nothing_is_known() -> None:
    assert not where_it_hung("", Path("/app"))

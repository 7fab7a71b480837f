"""What is tied to a process with many threads is asked to end once, and has the time to do so."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.processes import ROOT, eventually

TETHER = ROOT / "packages" / "onebox" / "onebox" / "tether.py"

COMMAND = """
import os, pathlib, signal, sys
signalled = pathlib.Path(sys.argv[1])

def note(number, frame):
    with signalled.open("a") as file:
        file.write("signalled ")
    signal.setitimer(signal.ITIMER_REAL, 0.3)

def end(number, frame):
    with signalled.open("a") as file:
        file.write("ended")
    os._exit(0)

signal.signal(signal.SIGTERM, note)
signal.signal(signal.SIGALRM, end)
signalled.write_text("")
while True:
    signal.pause()
"""

PARENT = """
import os, subprocess, sys, threading
for _ in range(16):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
subprocess.Popen([sys.executable, "-I", sys.argv[1], str(os.getpid()), *sys.argv[2:]])
threading.Event().wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the tether watches its parent itself")
def test_the_death_of_a_parent_with_threads_signals_the_command_once(tmp_path: Path) -> None:
    signalled = tmp_path / "signalled"
    command = [sys.executable, "-I", "-c", COMMAND, str(signalled)]
    with subprocess.Popen([sys.executable, "-c", PARENT, str(TETHER), *command]) as parent:
        eventually(signalled.exists, "the command runs")
        parent.send_signal(signal.SIGKILL)
    eventually(lambda: signalled.read_text().endswith("ended"), "it ends")
    assert signalled.read_text() == "signalled ended"


def test_a_command_that_is_stopped_is_signalled_once_and_its_end_is_the_tethers(tmp_path: Path) -> None:
    signalled = tmp_path / "signalled"
    command = [sys.executable, "-I", "-c", COMMAND, str(signalled)]
    with subprocess.Popen([sys.executable, "-I", str(TETHER), str(os.getpid()), *command]) as tether:
        eventually(signalled.exists, "the command runs")
        for _ in range(3):
            tether.terminate()
        assert tether.wait(10) == 0
    assert signalled.read_text() == "signalled ended"

import os
import subprocess
import sys

import pytest

from scripts.processes import ROOT, eventually

PARENT = """
import os, subprocess, sys
command = [sys.executable, "-c", "print(1, flush=True); input()"]
tethered = [sys.executable, "-m", "scripts.tether", str(os.getpid()), "--", *command]
child = subprocess.Popen(tethered, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
input()
"""


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:  # noqa: PTH123 # a kernel file
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a process to its parent")
def test_a_tethered_process_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_running(child)
        parent.kill()
        eventually(lambda: not is_running(child), "the child ended")


def test_a_tether_to_a_parent_that_is_gone_starts_nothing() -> None:
    command = [sys.executable, "-m", "scripts.tether", str(os.getpid() + 1), "--", "/bin/echo", "started"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "the parent ended" in ended.stderr

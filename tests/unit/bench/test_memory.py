import os
import subprocess
import sys

from bench.memory import MEBI, resident_bytes


def test_this_process_holds_more_than_an_interpreter_does() -> None:
    assert resident_bytes() > MEBI
    assert resident_bytes(os.getpid()) > MEBI


def test_a_process_that_has_ended_holds_nothing_whether_or_not_it_was_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert resident_bytes(ended.pid) == 0
        ended.wait()
        assert resident_bytes(ended.pid) == 0

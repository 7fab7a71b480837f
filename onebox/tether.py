"""Runs a command that must not outlive the process that started it, however that ends.

`python tether.py PARENT_PID COMMAND...` stays between the two and asks the command to end, once, so that it
can put to disk what it still holds in memory. Linux tells of a parent's death for each of its threads that
was the parent in turn (prctl(2), PR_SET_PDEATHSIG), and Azurite, told for the second time, ends at once and
loses what it was about to write.
"""

import ctypes
import os
import platform
import signal
import subprocess
import sys
import time
from types import FrameType

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_LOOK_SECONDS = 0.5


class _Tether:
    """The command, whether it shall end, and whether it was told."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._shall_end = False
        self._told = False

    def run(self, command: list[str], parent: int) -> int:
        """Run the command to its end, and return its exit code; a parent that is gone starts nothing."""
        signal.signal(signal.SIGTERM, self._ask)
        _end_with_parent()
        if os.getppid() != parent:
            return 1
        # What the parent handed down, such as a lock, is for the command.
        self._child = subprocess.Popen(  # noqa: S603 # the command line is onebox's own
            command,
            close_fds=False,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 # this process has one thread
        )
        if self._shall_end:
            self._tell()
        return self._until_it_ends(self._child, parent)

    def _ask(self, _signal: int, _frame: FrameType | None) -> None:
        self._shall_end = True
        self._tell()

    def _tell(self) -> None:
        if self._child is not None and not self._told:
            self._told = True
            self._child.terminate()

    def _until_it_ends(self, child: subprocess.Popen[bytes], parent: int) -> int:
        if platform.system() == "Linux":
            return child.wait()
        while child.poll() is None and os.getppid() == parent:
            time.sleep(_LOOK_SECONDS)
        self._tell()
        return child.wait()


def _end_with_parent() -> None:
    """Let the kernel tell this process of its parent's death, where the kernel can; execve keeps it."""
    if platform.system() == "Linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(abs(_Tether().run(sys.argv[2:], int(sys.argv[1]))))

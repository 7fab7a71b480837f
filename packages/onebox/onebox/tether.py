"""Runs a command that ends when the process that started it ends, even by SIGKILL.

`python tether.py PARENT_PID COMMAND...` stays between the two and sends the command one SIGTERM, so that it
can write its memory to disk. Linux sends PR_SET_PDEATHSIG (prctl(2)) once per thread of
the dying parent, and a second SIGTERM ends Azurite at once, with writes lost.
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
    """Runs the command and sends it SIGTERM at most once."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._shall_end = False
        self._signalled = False

    def run(self, command: list[str], parent: int) -> int:
        """Run the command and return its exit code; return 1 without starting it when the parent is gone."""
        signal.signal(signal.SIGTERM, self._ask)
        _end_with_parent()
        if os.getppid() != parent:
            return 1
        # Inherited descriptors, such as a lock, are meant for the command.
        self._child = subprocess.Popen(  # noqa: S603 # the command line is onebox's own
            command,
            close_fds=False,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 # this process has one thread
        )
        if self._shall_end:
            self._signal_child()
        return self._until_it_ends(self._child, parent)

    def _ask(self, _signal: int, _frame: FrameType | None) -> None:
        self._shall_end = True
        self._signal_child()

    def _signal_child(self) -> None:
        if self._child is not None and not self._signalled:
            self._signalled = True
            self._child.terminate()

    def _until_it_ends(self, child: subprocess.Popen[bytes], parent: int) -> int:
        if platform.system() == "Linux":
            return child.wait()
        while child.poll() is None and os.getppid() == parent:
            time.sleep(_LOOK_SECONDS)
        self._signal_child()
        return child.wait()


def _end_with_parent() -> None:
    """Request SIGTERM at the parent's death, where the kernel can; the setting survives execve."""
    if platform.system() == "Linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(abs(_Tether().run(sys.argv[2:], int(sys.argv[1]))))

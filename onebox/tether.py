"""Runs a command that must not outlive the process that started it, however that ends.

`python tether.py PARENT_PID COMMAND...`: on Linux the kernel keeps the promise (prctl(2), PR_SET_PDEATHSIG,
which execve keeps), so this process becomes the command. Elsewhere it stays and watches its parent. The
command is asked to end, not killed, so that it can put to disk what it still holds in memory.
"""

import ctypes
import os
import platform
import signal
import subprocess
import sys
import time

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_LOOK_SECONDS = 0.5


def main() -> None:
    """Tie this process to its parent, then run the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if platform.system() == "Linux":
        _become(command, parent)
    else:
        _watch_over(command, parent)


def _become(command: list[str], parent: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == parent:  # else it ended before the tie was made
        os.execv(command[0], command)  # noqa: S606 # no shell is wanted: the signal would hit only that


def _watch_over(command: list[str], parent: int) -> None:
    child = subprocess.Popen(command)  # noqa: S603 # the command line is onebox's own
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    while child.poll() is None and os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    child.terminate()


if __name__ == "__main__":
    main()

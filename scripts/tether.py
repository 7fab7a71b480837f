"""`python -m scripts.tether PARENT_PID -- COMMAND...`: becomes COMMAND, which ends when its parent does.

On Linux the kernel sends the signal (prctl(2): PR_SET_PDEATHSIG, kept over execve). Elsewhere the command
just runs. Unlike `onebox/tether.py` it needs no process of its own, but it may send SIGTERM more than once.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def main() -> None:
    """Ties this process to its parent, then turns into the command."""
    parent, separator, *command = sys.argv[1:]
    if separator != "--" or not command:
        raise SystemExit("usage: python -m scripts.tether PARENT_PID -- COMMAND...")
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(parent):
            raise SystemExit("the parent ended before its child began")
    os.execv(command[0], command)  # noqa: S606 # the command comes from scripts.run, and a shell would not be killed


if __name__ == "__main__":
    main()

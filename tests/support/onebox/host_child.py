"""One life of onebox, which raises or dies at named points of the host.

Usage: python -m tests.support.onebox.host_child APP DATA PORT kill POINT
       python -m tests.support.onebox.host_child APP DATA PORT raise

`kill` dies at the first visit of one point, `raise` raises at the first visit of each. What it strikes is
written to stderr as `struck POINT`.
"""

import asyncio
import os
import signal
import sys
from enum import StrEnum
from pathlib import Path

import onebox.triggers.queue_trigger
from onebox.faults import HostPoint
from onebox.host import Host, Options
from onebox.logs import set_up_logs

# What is in flight at a death stays hidden for as long; ten minutes, as in the host, are too long for a test.
onebox.triggers.queue_trigger.HIDDEN_SECONDS = 2


class Strike:
    """Raises or kills at the first visit of each of its points."""

    def __init__(self, points: set[HostPoint], *, kill: bool) -> None:
        self._points = points
        self._kill = kill

    def __call__(self, point: StrEnum) -> None:
        if point not in self._points:
            return
        self._points.discard(HostPoint(point))
        sys.stderr.write(f"struck {point}\n")
        sys.stderr.flush()
        if self._kill:
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError(f"struck at {point}")


def main() -> None:
    app, data, port, how, *where = sys.argv[1:]
    points = {HostPoint(point) for point in where} if how == "kill" else set(HostPoint)
    set_up_logs(verbose=False)
    os.environ["FUNCTIONS_WORKER_PROCESS_COUNT"] = "0"  # its end is that of the functions, too
    options = Options(app=Path(app), host="127.0.0.1", port=int(port), data=Path(data))
    asyncio.run(Host(options, faults=Strike(points, kill=how == "kill")).serve())


if __name__ == "__main__":
    main()

"""The memory of a process, as Linux counts it."""

from pathlib import Path
from typing import Final

MEBI: Final = 2**20
"""Bytes of a MiB."""


def resident_bytes(pid: int | str = "self") -> float:
    """Returns the memory that a process holds; 0 when it has ended, or the system does not say.

    It is what the process holds now: the greatest value, as `getrusage` gives it, counts what its parent held
    before the program took its place.

    Args:
        pid: Its id; "self" is this process.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    # A process that has ended and is not yet waited for has no such line.
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), 0.0)

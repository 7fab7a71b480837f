"""Time for a person to look at the dashboard; a script is not kept waiting."""

import select
import sys


def leave_time(seconds: float | None, why: str) -> None:
    """Wait on a terminal until Enter is pressed; where nobody watches, go on at once.

    Args:
        seconds: The longest wait; None means for as long as it takes.
        why: Told before.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    until = "to stop" if seconds is None else f"to go on, or wait {seconds:.0f} s"
    print(f"\n{why}: press Enter {until}.", flush=True)
    pressed, _, _ = select.select([sys.stdin], [], [], seconds)
    if pressed:
        sys.stdin.readline()

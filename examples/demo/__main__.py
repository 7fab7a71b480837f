"""`make demo`: plays the scenes, prints the timeline, and exits 0 only if everything ended as it should.

On a terminal it leaves time between the scenes to look at the dashboard, and serves until Enter is pressed.
"""

import select
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import httpx

from examples.demo.scenes import SCENES, Verdict
from examples.demo.stage import set_stage
from examples.demo.timeline import Timeline
from scripts.processes import ServerDidNotStartError

_BEFORE_SECONDS = 20.0
_BETWEEN_SECONDS = 10.0


def main() -> int:
    """Play the demo; 0 when all ended as it should."""
    with tempfile.TemporaryDirectory(prefix="durable-retry-demo-") as folder:
        try:
            return _play(Path(folder))
        except (ServerDidNotStartError, TimeoutError, httpx.HTTPError) as error:
            print(f"\nThe demo stopped: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130


def _play(folder: Path) -> int:
    print("Starting onebox, its storage and two flaky services ...", flush=True)
    with set_stage(folder) as stage:
        dashboard = f"{stage.api.base_url}/api/dashboard"
        print(f"Open the dashboard beside this window: {dashboard}")
        leave_time(_BEFORE_SECONDS, "The story begins in a moment")
        timeline = Timeline(dashboard)
        verdicts: list[Verdict] = []
        for number, scene in enumerate(SCENES):
            if number > 0:
                leave_time(_BETWEEN_SECONDS, "Time to look")
            verdicts += scene(stage, timeline)
        code = _report(verdicts)
        leave_time(None, "Everything still runs, and the dashboard shows it")
        return code


def _report(verdicts: Sequence[Verdict]) -> int:
    width = max(len(verdict.name) for verdict in verdicts)
    print("\nHow it ended")
    for verdict in verdicts:
        more = "" if verdict.holds else f"   but should have: {verdict.expected}"
        print(f"  {'ok  ' if verdict.holds else 'FAIL'} {verdict.name:<{width}}  {verdict.found}{more}")
    failed = sum(not verdict.holds for verdict in verdicts)
    print(f"\n{len(verdicts) - failed} of {len(verdicts)} as they should be.")
    return 1 if failed else 0


def leave_time(seconds: float | None, why: str) -> None:
    """Leave a person time to look: wait until Enter is pressed; where there is no terminal, go on at once.

    Args:
        seconds: The longest wait; None means for as long as it takes.
        why: Printed before.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    until = "to stop" if seconds is None else f"to go on, or wait {seconds:.0f} s"
    print(f"\n{why}: press Enter {until}.", flush=True)
    pressed, _, _ = select.select([sys.stdin], [], [], seconds)
    if pressed:
        sys.stdin.readline()


if __name__ == "__main__":
    raise SystemExit(main())

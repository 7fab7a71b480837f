"""`make demo`: plays the scenes, prints the timeline, and exits 0 only if everything ended as it should."""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import httpx

from tools.demo.scenes import SCENES, Verdict
from tools.demo.stage import set_stage
from tools.demo.timeline import Timeline
from tools.processes import ServerDidNotStartError


def main() -> int:
    """Play the demo; 0 when all ended as it should."""
    with tempfile.TemporaryDirectory(prefix="durable-retry-demo-") as folder:
        try:
            verdicts = _play(Path(folder))
        except (ServerDidNotStartError, TimeoutError, httpx.HTTPError) as error:
            print(f"\nThe demo stopped: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
    return _report(verdicts)


def _play(folder: Path) -> list[Verdict]:
    print("Starting onebox, its storage and two flaky services ...", flush=True)
    with set_stage(folder) as stage:
        print(f"The dashboard, while it runs: {stage.api.base_url}/api/dashboard")
        timeline = Timeline()
        return [verdict for scene in SCENES for verdict in scene(stage, timeline)]


def _report(verdicts: Sequence[Verdict]) -> int:
    width = max(len(verdict.name) for verdict in verdicts)
    print("\nHow it ended")
    for verdict in verdicts:
        more = "" if verdict.holds else f"   but should have: {verdict.expected}"
        print(f"  {'ok  ' if verdict.holds else 'FAIL'} {verdict.name:<{width}}  {verdict.found}{more}")
    failed = sum(not verdict.holds for verdict in verdicts)
    print(f"\n{len(verdicts) - failed} of {len(verdicts)} as they should be.")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

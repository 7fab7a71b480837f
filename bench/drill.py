"""One outage of a dependency under a steady load, beside a healthy one, on this project and its peers."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.numbers import Row, Table, milliseconds, percentile
from bench.peers.benchmark import HEALTHY, Work, calls_of, client_of
from bench.peers.client import NEIGHBOUR
from bench.peers.systems import System, dbos, durable_retry, restate, retry_policy, set_up, target
from bench.peers.target import OK, RETRY_AFTER_SECONDS, Call
from scripts.processes import ROOT

HEALTHY_SECONDS = 10.0
DOWN_SECONDS = 60.0
BACK_SECONDS = 30.0
PER_SECOND = 10  # of each of the two dependencies
CLIENTS = 4
WARM_UP_JOBS = 24
EARLY_SECONDS = 0.01  # less than that before the named instant is not early: instants are of two clocks
CHART = ROOT / ".bench" / "drill.svg"

DEPENDENCIES = """[defaults.idempotency]
header = "Idempotency-Key"

[dependencies.flaky]
base_url = "{target_url}"

[dependencies.neighbour]
base_url = "{target_url}"
"""

STANDARD = {"DELAY_SECONDS": "2", "DELAY_FACTOR": "2", "LONGEST_DELAY_SECONDS": "60", "MAX_ATTEMPTS": "5"}
"""The numbers of the preset `standard`."""
PATIENT = {"DELAY_SECONDS": "1", "DELAY_FACTOR": "2", "LONGEST_DELAY_SECONDS": "30", "MAX_ATTEMPTS": "10"}
"""A policy for outages of two minutes: 151 s of waits. DBOS has no longest delay."""

SYSTEMS: dict[str, System] = {
    "durable-retry": durable_retry(0, DEPENDENCIES),
    "retry-policy": partial(retry_policy, policy=PATIENT),
    "retry-policy, 5 attempts": partial(retry_policy, policy=STANDARD),
    "restate": partial(restate, policy=PATIENT | {"MAX_ATTEMPTS": "30"}),
    "dbos-sqlite": partial(dbos, policy=PATIENT | {"MAX_ATTEMPTS": "8"}),
}

NOTES = (
    f"{PER_SECOND} jobs a second call a dependency, down for {DOWN_SECONDS:g} s, and as many a healthy one.",
    f"Down: it answers 503 with `Retry-After: {RETRY_AFTER_SECONDS}`. Early: a job calls again before that.",
    "Given up: failed for good. Drained: what was submitted before the recovery has succeeded.",
    "Latency of the neighbour: from the submission to the answer of its call.",
    "durable-retry: its defaults: preset `standard` (5 attempts), circuit and budget.",
    "retry-policy: the SDK's, on onebox too: 1 s doubling to 30 s, 10 attempts; then as `standard`.",
    "restate: `RetryableError` with the `Retry-After`, 30 attempts. dbos-sqlite: 1 s doubling, 8 attempts.",
)


@dataclass(frozen=True, slots=True)
class Outage:
    """What one system did; instants in seconds of the monotonic clock.

    Attributes:
        down: When the dependency went down.
        back: When it was back.
        asked: When each job was submitted, by key.
        failed: The keys of jobs that failed for good.
        calls: At the target, in the order of arrival.
    """

    down: float
    back: float
    asked: dict[str, float]
    failed: set[str]
    calls: list[Call]

    @property
    def to_the_dead(self) -> int:
        """How many calls the dependency got while it was down."""
        return sum(self.down <= call.arrival < self.back for call in self._calls_of_the_dead())

    @property
    def early(self) -> int:
        """How many calls came before the `Retry-After` of the same job's call before."""
        by_key: dict[str, list[Call]] = {}
        for call in self._calls_of_the_dead():
            by_key.setdefault(call.key, []).append(call)
        return sum(
            after.arrival < before.answer + RETRY_AFTER_SECONDS - EARLY_SECONDS
            for calls in by_key.values()
            for before, after in pairwise(calls)
            if before.status != OK
        )

    @property
    def drained_seconds(self) -> float:
        """From the recovery until the last job of before has succeeded."""
        ends = [
            c.answer for c in self._calls_of_the_dead() if c.status == OK and self.asked[c.key] < self.back
        ]
        return max(ends) - self.back

    @property
    def neighbour_seconds(self) -> list[float]:
        """What each job of the neighbour took."""
        return [call.answer - self.asked[call.key] for call in self.calls if call.key.startswith(NEIGHBOUR)]

    def per_second(self) -> list[tuple[int, int]]:
        """How many calls the dependency answered with success and with failure, in each second."""
        begin = self.down - HEALTHY_SECONDS
        counts = Counter((int(c.arrival - begin), c.status == OK) for c in self._calls_of_the_dead())
        return [
            (counts[second, True], counts[second, False])
            for second in range(max((second for second, _ in counts), default=0) + 1)
        ]

    def _calls_of_the_dead(self) -> Iterable[Call]:
        return (call for call in self.calls if call.key.startswith("dead"))


async def measure(folder: Path, _operations: int) -> list[Table]:
    """Plays the outage on each system, one after the other, and draws the calls into `.bench/drill.svg`."""
    await asyncio.to_thread(set_up)
    outages = {}
    for name, system in SYSTEMS.items():
        (own := folder / name).mkdir()
        outages[name] = await play(name, system, own)
    CHART.write_text(chart(outages))
    print(f"The chart is in {CHART.relative_to(ROOT)}.\n", flush=True)
    return [table(outages)]


async def play(name: str, served: System, folder: Path) -> Outage:
    """Plays the outage on one system."""
    async with (
        target(folder) as target_url,
        served(folder, target_url) as system,
        client_of(name, system, folder / "client.log") as ask,
    ):
        await ask(Work("warm", WARM_UP_JOBS, HEALTHY).paths())
        down = time.monotonic() + HEALTHY_SECONDS
        back = down + DOWN_SECONDS
        jobs = [
            job
            for number in range(int((HEALTHY_SECONDS + DOWN_SECONDS + BACK_SECONDS) * PER_SECOND))
            for job in (
                (f"dead-{number}", f"/down/{down}/{back}/dead-{number}"),
                (f"{NEIGHBOUR}-{number}", f"/fails/0/{NEIGHBOUR}-{number}"),
            )
        ]
        answer: dict[str, Any] = await ask(jobs, per_second=2 * PER_SECOND, at_once=CLIENTS)
        return Outage(down, back, answer["asked"], set(answer["failed"]), await calls_of(target_url))


def table(outages: dict[str, Outage]) -> Table:
    """Returns what was counted."""

    def row(name: str, unit: str, values: Iterable[Any]) -> Row:
        return Row(name, unit, tuple(map(str, values)))

    each = outages.values()
    return Table(
        title=f"An outage of {DOWN_SECONDS:g} s beside the peers",
        columns=tuple(outages),
        rows=(
            row("calls to the dead dependency", "1", (outage.to_the_dead for outage in each)),
            row("jobs given up", "1", (len(outage.failed) for outage in each)),
            row("early retries", "1", (outage.early for outage in each)),
            row("recovery to drained", "s", (f"{outage.drained_seconds:.1f}" for outage in each)),
            *(
                row(
                    f"healthy neighbour p{percent}",
                    "ms",
                    (milliseconds(percentile(outage.neighbour_seconds, percent)) for outage in each),
                )
                for percent in (50, 99)
            ),
        ),
        notes=NOTES,
    )


WIDTH, LEFT, TOP, HEIGHT, GAP, FONT = 760, 10, 34, 56, 26, "font-family='sans-serif' font-size='12'"
STYLE = """<style>
svg { background: #fff } text { fill: #333 } .down { fill: #f3e3e3 }
.ok { fill: #2a7d4f } .failed { fill: #c0392b }
@media (prefers-color-scheme: dark) {
  svg { background: #0d1117 } text { fill: #ccc } .down { fill: #33201f }
  .ok { fill: #3fb27a } .failed { fill: #e5655a }
}
</style>"""


def chart(outages: dict[str, Outage]) -> str:
    """Returns an SVG: for each system, the calls that the dependency got in each second."""
    series = {name: outage.per_second() for name, outage in outages.items()}
    seconds = max(map(len, series.values()))
    most = max(good + bad for counts in series.values() for good, bad in counts)
    step = (WIDTH - 2 * LEFT) / seconds
    title = (
        f"Calls a second to a dependency that is down for {DOWN_SECONDS:g} s (shaded):"
        f" red 503, green 200; highest bar {most}"
    )
    parts = [f"<text x='{LEFT}' y='18'>{title}</text>"]
    for number, (name, counts) in enumerate(series.items()):
        foot = TOP + (HEIGHT + GAP) * (number + 1)
        left, width = LEFT + HEALTHY_SECONDS * step, DOWN_SECONDS * step
        parts.append(
            f"<rect class='down' x='{left:.1f}' y='{foot - HEIGHT}' width='{width:.1f}' height='{HEIGHT}'/>"
        )
        parts.append(f"<text x='{LEFT}' y='{foot - HEIGHT - 5}'>{name}</text>")
        for second, (good, bad) in enumerate(counts):
            below = 0.0
            for kind, count in (("ok", good), ("failed", bad)):
                high = HEIGHT * count / most
                if count:
                    parts.append(
                        f"<rect class='{kind}' x='{LEFT + second * step:.1f}' y='{foot - below - high:.1f}'"
                        f" width='{step * 0.85:.1f}' height='{high:.1f}'/>"
                    )
                below += high
    height = TOP + (HEIGHT + GAP) * len(series) + 8
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' {FONT}>"
    return "\n".join([head, STYLE, *parts, "</svg>", ""])

"""How many calls a ten-minute outage draws, with and without the circuit and the retry budget.

And what happens to ten thousand operations that wait for one circuit.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bench.numbers import Row, Table
from bench.outage import Outage, Scenario, Tally
from durable_retry.engine.circuit import CircuitSettings
from durable_retry.engine.circuit.retry_budget import RetryBudgetSettings

NO_CIRCUIT = CircuitSettings(enabled=False)
NO_BUDGET = RetryBudgetSettings(ratio=0)
CASES = {
    "neither": (NO_CIRCUIT, NO_BUDGET),
    "budget": (NO_CIRCUIT, RetryBudgetSettings()),
    "circuit": (CircuitSettings(), NO_BUDGET),
    "both": (CircuitSettings(), RetryBudgetSettings()),
    "both, breaks of 60 s at most": (CircuitSettings(max_break_seconds=60), RetryBudgetSettings()),
}

CROWD = Scenario(per_second=500, arrive_seconds=20, dead_from_seconds=0.0, dead_until_seconds=45.0)
FIRST_BREAK_SECONDS = CircuitSettings().break_seconds

type Show = Callable[[Tally], str]


async def measure(_folder: Path, _operations: int) -> list[Table]:
    """Plays the same outage once per case, and a crowd once, on a clock of its own."""
    scenario = Scenario()
    tallies = [await Outage(scenario, *settings).run() for settings in CASES.values()]
    rows = (
        _row("calls per operation", tallies, lambda one: f"{len(one.calls) / one.operations:.2f}"),
        _row("calls while it was dead", tallies, lambda one: str(len(_during(one, scenario)))),
        _row("most calls in a second while dead", tallies, lambda one: str(_most(_during(one, scenario)))),
        _row("most calls in a second after", tallies, lambda one: str(_most(_after(one, scenario)))),
        _row("operations succeeded", tallies, lambda one: str(one.succeeded)),
        _row("operations dead-lettered", tallies, lambda one: str(one.dead)),
        Row(
            "last operation done after recovery",
            "s",
            tuple(f"{one.last_seconds - scenario.dead_until_seconds:.0f}" for one in tallies),
        ),
        _row("activity runs per operation", tallies, lambda one: f"{one.activities / one.operations:.2f}"),
        _row("reports to the circuit", tallies, lambda one: str(one.events["report"])),
        _row("requests for a probe", tallies, lambda one: str(one.events["permit"])),
        _row("readings of the circuit", tallies, lambda one: str(one.events["read"])),
    )
    notes = (
        f"{scenario.per_second} operations a second for {scenario.arrive_seconds} s, on 4 processes.",
        f"Dead from {scenario.dead_from_seconds:.0f} s to {scenario.dead_until_seconds:.0f} s.",
        "Preset standard (5 attempts), every other setting the default; simulated, on a clock of its own.",
        "After: from the recovery on, new operations included.",
    )
    return [Table("Ten minutes of outage", tuple(CASES), rows, notes), await _measure_crowd()]


async def _measure_crowd() -> Table:
    crowd = await Outage(CROWD, CircuitSettings(), RetryBudgetSettings()).run()
    before = [at for at in crowd.calls if at < FIRST_BREAK_SECONDS]
    after = _after(crowd, CROWD)
    values = {
        "calls until every process knew of the trip": ("1", str(len(before))),
        "the last of them": ("s", f"{max(before):.1f}"),
        "calls in the breaks": ("1", str(len(crowd.calls) - len(before) - len(after))),
        "most calls in a second after": ("1", str(_most(after))),
        "operations succeeded": ("1", str(crowd.succeeded)),
        "last operation done after the circuit closed": ("s", f"{crowd.last_seconds - min(after):.0f}"),
        "activity runs per operation": ("1", f"{crowd.activities / crowd.operations:.1f}"),
        "reports to the circuit": ("1", str(crowd.events["report"])),
        "requests for a probe": ("1", str(crowd.events["permit"])),
        "readings of the circuit": ("1", str(crowd.events["read"])),
    }
    rows = tuple(Row(name, unit, (shown,)) for name, (unit, shown) in values.items())
    notes = (
        f"{CROWD.per_second} operations a second for {CROWD.arrive_seconds} s, on 4 processes.",
        f"Dead for {CROWD.dead_until_seconds:.0f} s, so that the first probe fails and the break doubles.",
        "Every setting the default; simulated, on a clock of its own.",
    )
    return Table("Ten thousand operations wait for one circuit", ("Durable Retry",), rows, notes)


def _row(name: str, tallies: list[Tally], show: Show) -> Row:
    return Row(name, "1", tuple(show(one) for one in tallies))


def _during(tally: Tally, scenario: Scenario) -> list[float]:
    return [at for at in tally.calls if scenario.dead_from_seconds <= at < scenario.dead_until_seconds]


def _after(tally: Tally, scenario: Scenario) -> list[float]:
    return [at for at in tally.calls if at >= scenario.dead_until_seconds]


def _most(calls: list[float]) -> int:
    return max(Counter(int(at) for at in calls).values(), default=0)

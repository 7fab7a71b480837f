"""What held-back successes do to the shared ratio: bounded above, and hardly ever too low."""

from dataclasses import dataclass, field
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from durable_retry.rules.circuit.calls import CallEnd, CallHealth
from durable_retry.rules.circuit.reporters import QUIET_CALLS, ReportBuffer
from durable_retry.rules.circuit.snapshot import Permitted
from tests.support.builders import after
from tests.support.circuit import Desk, with_settings

NEVER_TRIPS = with_settings(enabled=False)
SECONDS = 45
QUIET_INTERVAL_SECONDS = NEVER_TRIPS.window_seconds / 10


@dataclass
class Fleet:
    """Worker processes that call one dependency at a steady rate each, and the circuit they share."""

    rates: list[int]
    desk: Desk = field(default_factory=lambda: Desk(settings=NEVER_TRIPS))
    truth: Desk = field(default_factory=lambda: Desk(settings=NEVER_TRIPS))

    def __post_init__(self) -> None:
        self.workers = [ReportBuffer(f"w{number}", NEVER_TRIPS) for number in range(len(self.rates))]

    def run_second(self, second: int, failing: set[int]) -> None:
        """Each call of a worker in `failing` fails; the others succeed. All read once a second."""
        for worker in self.workers:
            worker.see(self.desk.read(second))
        calls = [
            (second + (number + 1) / (rate + 1), which)
            for which, rate in enumerate(self.rates)
            for number in range(rate)
        ]
        for at, which in sorted(calls):
            self._call(at, which, failed=which in failing)

    def _call(self, at: float, which: int, *, failed: bool) -> None:
        worker = self.workers[which]
        verdict = CallHealth.FAILURE if failed else CallHealth.SUCCESS
        worker.ended(Permitted(1), CallEnd(verdict, 0.1), after(at))
        self.truth.fail(at, failures=int(failed), successes=int(not failed))
        due = worker.due_at()
        if due is not None and due <= after(at):
            self.desk.hear(worker.take(after(at)))

    def most_held_back(self) -> float:
        """The stated bound on successes that are not reported, over all workers."""
        return sum(max(QUIET_CALLS, rate * QUIET_INTERVAL_SECONDS) + 1 for rate in self.rates)


@settings(max_examples=12, deadline=None)
@given(
    rates=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    failing=st.dictionaries(st.integers(0, SECONDS - 1), st.sets(st.integers(0, 3), min_size=1), max_size=20),
)
def test_the_ratio_is_too_high_by_at_most_the_share_of_what_is_held_back(
    rates: list[int], failing: dict[int, set[int]]
) -> None:
    fleet = Fleet(rates)
    for second in range(SECONDS):
        fleet.run_second(second, failing.get(second, set()))
        now = after(second + 1) - timedelta(milliseconds=1)
        seen = fleet.desk.breaker.window.totals(now)
        true = fleet.truth.breaker.window.totals(now)
        if not seen.calls:
            continue
        # A failure that is far from a trip waits for a second, so a second of calls may be missing.
        gathered = sum(rate + 1 for rate in rates)
        assert seen.calls <= true.calls
        assert true.failures - gathered <= seen.failures <= true.failures
        ratio, true_ratio = seen.failures / seen.calls, true.failures / true.calls
        missing = min(fleet.most_held_back() + gathered, true.calls)
        assert ratio <= true_ratio + ratio * missing / true.calls + 1e-9
        assert ratio >= true_ratio - gathered / true.calls - 1e-9


def test_the_ratio_of_a_busy_fleet_in_trouble_is_right_within_a_few_hundredths() -> None:
    """Four workers, 50 calls a second each, one of them failing: the true ratio is a quarter."""
    fleet = Fleet([50, 50, 50, 50])
    errors = []
    for second in range(SECONDS):
        fleet.run_second(second, {0})
        now = after(second + 1) - timedelta(milliseconds=1)
        seen = fleet.desk.breaker.window.totals(now)
        errors.append(seen.failures / seen.calls - 0.25)
    assert max(errors[5:]) < 0.04
    assert min(errors[5:]) > -0.01
